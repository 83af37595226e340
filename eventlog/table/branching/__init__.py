"""Branches of a table: made, listed, deleted. The methods of `Table` call these modules.

A branch is held by a pin in its parent and exists once its `_fork.json` does (FORMAT.md
"Branches"). `names` has their names, and lists those that exist; `making` and `deleting` are the
protocols.
"""
