"""The commit protocol: rebase, proposal, slot; racing, combining, and unknown outcomes.

`rebase` and `proposal` are pure. Imports `log` and below. Start at `committer`.
"""
