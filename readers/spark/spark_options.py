"""The options of `format("eventlog")`, for both the reader and the writer.

Imports eventlog only, not pyspark. Spark keeps one map of options for a temporary view, which may
be both read and inserted into, so both sides know every name. Each refuses those of the other that
look as if they chose its rows.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from eventlog.arguments import parse_names
from eventlog.errors import InvalidInput
from eventlog.format.keys import branch_uri
from eventlog.session.tags import VersionOrName, parse_version
from eventlog.staging.stager import MIN_MEMORY_BYTES

SEGMENTS = "segmentColumns"  # of reads of a version
INLINE_ONLY = "inlineOnly"  # the same
READ_NAMES = (
    "version",
    "timestamp",
    "columns",
    "where",
    "whereArrow",
    "targetBytes",
    "tableId",
    "overflow",
    "readChanges",
    SEGMENTS,
    INLINE_ONLY,
)
# Of reads of changes, as a batch.
CHANGES_NAMES = ("endingVersion", "endingTimestamp")
STARTING_NAMES = ("startingVersion", "startingTimestamp")
# Of streams (`readStream`), besides `columns`, `where`, `whereArrow`, `targetBytes`, `tableId`,
# `overflow` and `readChanges`.
STREAM_READ_NAMES = (
    *STARTING_NAMES,
    "maxVersionsPerTrigger",
    "maxBytesPerTrigger",
    "skipChangeCommits",
    "failOnDataLoss",
)
# Of overwrites, and of reads: a temporary view that is read and overwritten has one map of options.
READ_VERSION = "readVersion"
OVERWRITE_NAMES = ("replaceWhere", "start", "end", "isolation", READ_VERSION)
MEMORY = "memoryBytes"  # of reads and writes, as a view may be both
EVOLVE = "mergeSchema"
WRITE_NAMES = (
    "timeColumn",
    "granularity",
    "orderBy",
    "key",
    "buckets",
    "merge",
    *OVERWRITE_NAMES,
    "appId",
    "appSeq",
    MEMORY,
    "missing",
    EVOLVE,
)
# Of reads and writes.
BRANCH = "branch"
STORAGE_PREFIX = "storage."
PROPERTY_PREFIX = "property."

_CREATE_TABLE = "owner"  # what Spark sets for a table of its catalog

_BY_LOWER = {
    name.lower(): name for name in (*READ_NAMES, *CHANGES_NAMES, *STREAM_READ_NAMES, *WRITE_NAMES)
}


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """Options, grouped by purpose.

    Attributes:
        path: the root URI of the table, or of its branch if option `branch` names one.
        named: the options of the names above, spelled as there.
        storage: storage options (`storage.<name>`), see `eventlog.store.options`.
        properties: table properties (`property.<name>`); Spark lower-cases their names.
    """

    path: str
    named: Mapping[str, str]
    storage: Mapping[str, str]
    properties: Mapping[str, str]

    def whole(self, name: str, default: int | None = None, low: int = 0) -> int | None:
        """Return an option whose value is a whole number.

        Raises:
            InvalidInput: it is not a whole number, or is below `low`.
        """
        text = self.named.get(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) >= low):
            raise InvalidInput(
                f"option {name} must be a whole number from {low}, not {text[:40]!r}"
            )
        return int(text)

    def version(self, name: str) -> VersionOrName | None:
        """Return an option that is the number of a version, or the name of a tag.

        Raises:
            InvalidInput: it is neither.
        """
        given = self.named.get(name)
        try:
            return None if given is None else parse_version(given)
        except InvalidInput as error:
            raise InvalidInput(f"option {name}: {error.message}") from None

    def flag(self, name: str, *, default: bool) -> bool:
        """Return an option that is true or false.

        Raises:
            InvalidInput: it is neither.
        """
        text = self.named.get(name, str(default)).lower()
        if text not in ("true", "false"):
            raise InvalidInput(f"option {name} must be true or false, not {text[:40]!r}")
        return text == "true"

    @property
    def memory_bytes(self) -> int | None:
        """Option `memoryBytes`; None if it is not given.

        Raises:
            InvalidInput: it is not a whole number, or is too small.
        """
        return self.whole(MEMORY, low=MIN_MEMORY_BYTES)

    @property
    def overflow(self) -> str:
        """The effect of a sum that does not fit its column: see `eventlog.readers.scan`."""
        return self.named.get("overflow", "error")

    @property
    def reads_changes(self) -> bool:
        """Whether changes are read, not the rows of a version.

        Raises:
            InvalidInput: option `readChanges` is neither true nor false.
        """
        return self.flag("readChanges", default=False)

    @property
    def segment_columns(self) -> bool:
        """Whether rows have columns of the segment that they are read from.

        Raises:
            InvalidInput: option `segmentColumns` is neither true nor false.
        """
        return self.flag(SEGMENTS, default=False)

    @property
    def inline_only(self) -> bool:
        """Whether only rows that stand in commits are read.

        Raises:
            InvalidInput: option `inlineOnly` is neither true nor false.
        """
        return self.flag(INLINE_ONLY, default=False)

    def columns(self, name: str = "columns") -> list[str] | None:
        """Return an option that lists columns, comma-separated or as a JSON list of names.

        Raises:
            InvalidInput: the JSON is not a list of names.
        """
        text = self.named.get(name)
        return None if text is None else parse_names(text, f"option {name}")

    def refuse(self, names: tuple[str, ...], why: str) -> None:
        """Refuse options that would be ignored.

        Raises:
            InvalidInput: one of them is given.
        """
        given = [name for name in names if name in self.named]
        if given:
            raise InvalidInput(f"option {', '.join(given)} {why}")


def parse_spark_options(options: Mapping[str, str]) -> SparkOptions:
    """Return the options of a load or a save; names may be in any case.

    Raises:
        InvalidInput: a name is unknown, the path is missing, or no branch may have that name.
    """
    path, branch = "", None
    named: dict[str, str] = {}
    storage: dict[str, str] = {}
    properties: dict[str, str] = {}
    for given, value in options.items():
        lower = given.lower()
        if lower == "path":
            path = value
        elif lower == BRANCH:
            branch = value
        elif lower in _BY_LOWER:
            named[_BY_LOWER[lower]] = value
        elif lower.startswith(STORAGE_PREFIX):
            storage[lower.removeprefix(STORAGE_PREFIX)] = value
        elif lower.startswith(PROPERTY_PREFIX):
            properties[given[len(PROPERTY_PREFIX) :]] = value
        elif lower == _CREATE_TABLE:
            raise InvalidInput(
                "CREATE TABLE cannot create an eventlog table: save the first rows with df.write"
                ".format('eventlog').option('timeColumn', …).mode('append').save(path), or run "
                "`eventlog create`; for SQL load the path, or CREATE TEMPORARY VIEW … USING "
                "eventlog OPTIONS (path '…')"
            )
        else:
            nearest = get_close_matches(lower, [*_BY_LOWER, BRANCH, "path"], n=1)
            meant = f": did you mean {_BY_LOWER.get(*nearest, *nearest)}?" if nearest else ";"
            raise InvalidInput(
                f"unknown option {given[:80]!r}{meant} reads take {', '.join(READ_NAMES)}; "
                f"reads of changes take {', '.join((*STARTING_NAMES, *CHANGES_NAMES))}; "
                f"streams that read take {', '.join(STREAM_READ_NAMES)}; "
                f"writes take {', '.join(WRITE_NAMES)}; "
                f"both take {BRANCH}, {MEMORY} and {STORAGE_PREFIX}<name>; "
                f"creating a table takes {PROPERTY_PREFIX}<name>"
            )
    if not path:
        raise InvalidInput("give the table's location: load(path) or save(path)")
    return SparkOptions(located(path, branch), named, storage, properties)


def located(uri: str, branch: str | None) -> str:
    """Return the root URI of a table, or of its branch.

    Raises:
        InvalidInput: it is not a URI, or no branch may have this name.
    """
    if not isinstance(uri, str | os.PathLike):
        raise InvalidInput(
            f"{type(uri).__name__} is not the root of a table: its URI comes first, as in "
            "append(uri, df)"
        )
    return uri if branch is None else branch_uri(str(uri), branch)
