"""Segments whose bytes stand in commits: where readers find the bytes, and packs of their rows.

The bytes of a small append are in its transaction, and not in an object of their own.
`inline_objects` finds them again, `pack_bytes` has the form of a pack, the object in which a key
frame keeps the rows of many such segments, and `packing` decides which packs a key frame has
(FORMAT.md "Segments in commits").
"""
