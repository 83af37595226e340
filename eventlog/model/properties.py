"""Table properties: their names, defaults and bounds.

Properties are stored as text; names that start with `user.` belong to the user and have no meaning
here (FORMAT.md R7.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eventlog.arguments import is_unicode, shown
from eventlog.errors import InvalidInput

USER_PREFIX = "user."
# The merge rule of a keyed table (`eventlog.keyed.rule`): set at creation, and never changed.
MERGE = "merge"
MERGE_COLUMN = "merge."
MERGE_GROUP = "merge.group."
AUTO = "auto_granularity"  # the granularity follows the data (`eventlog.staging.fitting`)
INLINE = "inline_bytes"  # small segments have no object of their own (`eventlog.inline`)
INLINE_BYTES = 16_384  # that of a new table
_MAX_TEXT = 4096


@dataclass(frozen=True, slots=True)
class Setting:
    """One whole-number property: its default, its bounds and what it does."""

    default: int
    low: int
    high: int
    meaning: str


SETTINGS: dict[str, Setting] = {
    "keyframe_commits": Setting(64, 1, 1024, "commits after which a key frame falls due"),
    "keyframe_bytes": Setting(
        32_768, 4096, 2**20, "size of a commit at which a key frame falls due"
    ),
    "app_retention_days": Setting(
        90, 1, 36_500, "days for which an app id's last sequence is kept, at least"
    ),
    "retention_hours": Setting(168, 0, 876_000, "hours for which vacuum keeps versions readable"),
    "log_retention_hours": Setting(
        0, 0, 876_000, "hours for which a vacuum of the log keeps commits; 0: for ever"
    ),
    "staging_hours": Setting(24, 0, 876_000, "hours that an upload may take before it is fenced"),
    "combine_after": Setting(1, 0, 1000, "races lost before an append is published; 0: never"),
    "segment_bytes": Setting(
        128 * 2**20, 2**10, 2**30, "Arrow bytes of a chunk that fill a segment"
    ),
    "bucket_bytes": Setting(
        8 * 2**20, 2**10, 2**30, "Arrow bytes above which an upsert writes a segment a bucket"
    ),
    "tombstone_hours": Setting(
        168, 0, 876_000, "hours for which a delete hides older rows that arrive later, at least"
    ),
    INLINE: Setting(
        0, 0, 2**17, "bytes of an append's segments up to which they stand in its commit; 0: none"
    ),
    AUTO: Setting(0, 0, 1, "1: the granularity follows the data; 0: it stays"),
}
TEXT_SETTINGS = {"stats_columns": "leading columns, or names (a,b or JSON), that get statistics"}


def setting(properties: Mapping[str, str], name: str) -> int:
    """Return a whole-number property's value, clamped to its bounds."""
    rule = SETTINGS[name]
    text = properties.get(name, "")
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else rule.default
    return min(max(value, rule.low), rule.high)


def is_merge(name: str) -> bool:
    """Return whether a property is part of a keyed table's merge rule."""
    return name == MERGE or name.startswith(MERGE_COLUMN)


def check_property(name: str, value: str | None) -> None:
    """Check one property that a user wants to set; None removes it.

    Raises:
        InvalidInput: an unknown name, or a value out of bounds.
    """
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"property {shown(name)} must be a string, not {shown(value)}")
    if not is_unicode(name + (value or "")):
        raise InvalidInput(f"property {name[:80]!r} is not valid Unicode")
    if name.startswith(USER_PREFIX) or name in TEXT_SETTINGS or is_merge(name):
        if len(name) > 255 or (value is not None and len(value) > _MAX_TEXT):
            raise InvalidInput(f"property {name[:80]!r} is longer than {_MAX_TEXT} characters")
        return
    if name not in SETTINGS:
        known = ", ".join([*SETTINGS, *TEXT_SETTINGS])
        raise InvalidInput(
            f"unknown property {name!r}; known: {known}; your own start with 'user.'"
        )
    rule = SETTINGS[name]
    if value is None:
        return
    is_whole = value.isascii() and value.isdigit() and len(value) < 20
    if not is_whole or not rule.low <= int(value) <= rule.high:
        raise InvalidInput(
            f"property {name} must be a whole number from {rule.low} to {rule.high}, not {value!r}"
        )
