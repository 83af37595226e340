"""How a merge orders rows of one key that both logs wrote (MERGING.md R19.8). No I/O."""

from __future__ import annotations

from typing import Literal

from eventlog.keyed.rule import MergeRule

# How rows of one key that both sides wrote are merged: in any order; by repeating the later one;
# not at all, since the rows may be neither reordered nor repeated.
Ties = Literal["none", "repeat", "refuse"]
_COMMUTE = ("sum", "count", "min", "max")


def ties_of(rule: MergeRule) -> Ties:
    """Return how a merge orders rows of one key that both sides wrote."""
    if rule.kind in ("last", "partial"):
        return "repeat"
    if rule.kind == "first":
        return "refuse"
    commute = all(f in _COMMUTE or c == rule.order for c, f in rule.functions.items())
    return "none" if commute else "refuse"
