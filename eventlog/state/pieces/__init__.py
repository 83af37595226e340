"""What a key frame is made of: leaves of entries, and in a very large one stems of leaves.

`places` finds the pieces that questions and new key frames need, by their places in the order of
entries. `stems` makes the stems of leaves, and checks one that was read.
"""
