"""In what form a table is published as Iceberg, and which versions can be. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from eventlog.display import command
from eventlog.errors import InvalidInput
from eventlog.log.snapshot import Snapshot
from eventlog.model.entries import Schema
from eventlog.publishing.iceberg.translation.iceberg_schema import (
    has_wall_times,
    schema_problem,
    widened_times,
)
from eventlog.publishing.iceberg.translation.table_metadata import MAIN, tags_of

FORMATS = (2, 3)
_SCHEMES = ("s3", "s3a", "s3n")
_UNSAFE = re.compile(r"[%#?\x00-\x1f]")


@dataclass(frozen=True, slots=True)
class IcebergForm:
    """What all metadata files of a publication have in common.

    Attributes:
        table_uuid: the id of the table, or of the branch, as Iceberg has it.
        location: the root URI of the table's own objects, as engines take it.
        format_version: of Iceberg: 2 or 3.
    """

    table_uuid: str
    location: str
    format_version: int

    def options(self, uri: str) -> tuple[str, ...]:
        """Return the options of `eventlog publish` that give a publication this form.

        Args:
            uri: of the table.
        """
        found = () if self.format_version == FORMATS[0] else ("--format-version", "3")
        scheme = _scheme_of(self.location)
        return found if scheme == _scheme_of(uri) else (*found, "--scheme", str(scheme))

    def check_same(self, before: Mapping[str, Any], uri: str) -> None:
        """Check that what is published is of this table, in the same form and at this place.

        Args:
            before: the newest metadata file; empty: none is published.
            uri: of the table.

        Raises:
            InvalidInput: it is not.
        """
        advice = f"{command('unpublish', 'iceberg', uri, '--run')} removes it"
        facts = {
            "the table": ("table-uuid", self.table_uuid),
            "the place, or its scheme": ("location", self.location),
            "the format version": ("format-version", self.format_version),
        }
        for what, (name, value) in facts.items():
            if before and before.get(name) != value:  # against publication-of-another-table
                raise InvalidInput(
                    f"{what} of the publication under `metadata/` is another one "
                    f"({before.get(name)}, not {value}): {advice}",
                    table=uri,
                )

    def uri_below(self, root: str, key: str) -> str:
        """Return the URI of an object of a branch's parent, in the form of the location.

        Args:
            root: the root URI below which it lies.
            key: of the object.
        """
        kind, _, rest = root.partition("://")
        scheme = self.location.partition("://")[0]
        return f"{scheme}://{unquote(rest) if kind == 'file' else rest}/{key}"


def check_form(scheme: str | None, format_version: int | None) -> None:
    """Check what a caller asks for.

    Raises:
        InvalidInput: it is no scheme, or no format version.
    """
    if scheme is not None and scheme not in _SCHEMES:
        raise InvalidInput(f"scheme {scheme!r} is not one of {', '.join(_SCHEMES)}")
    if format_version is not None and format_version not in FORMATS:
        raise InvalidInput(f"Iceberg's format version {format_version!r} is not 2 or 3")


def iceberg_form(
    table: str,
    root: str,
    before: Mapping[str, Any],
    *,
    uri: str,
    scheme: str | None,
    format_version: int | None,
) -> IcebergForm:
    """Return the form of a publication.

    Args:
        table: the id of the table, or of the branch.
        root: the root URI of its own objects.
        before: the newest metadata file; empty: none is published.
        uri: of the table.
        scheme: that is asked for; None: as it was published before, else that of `root`.
        format_version: that is asked for; None: as it was published before, else 2.

    Raises:
        InvalidInput: engines do not find the table there, or not by this scheme.
    """
    uuid = "-".join((table[:8], table[8:12], table[12:16], table[16:20], table[20:]))
    location = _location(root, scheme or _scheme_of(str(before.get("location", ""))), uri)
    return IcebergForm(uuid, location, format_version or before.get("format-version", FORMATS[0]))


def version_problem(
    snapshot: Snapshot, format_version: int, uri: str, *, is_made: bool
) -> str | None:
    """Return why Iceberg cannot say a version so that all its readers agree, or None.

    Args:
        snapshot: the version.
        format_version: of Iceberg.
        uri: of the table.
        is_made: whether it shows rows that are stored nowhere.
    """
    if snapshot.meta.layout is None:
        return "it has no layout"
    if is_made:  # against made-rows-in-iceberg
        return (
            "its readers are shown rows that are merged of several stored ones: compact the "
            "table, and publish the version that this makes"
        )
    if MAIN in tags_of(snapshot.meta):
        advice = f"pin under another name than that, and {command('unpin', uri, MAIN)}"
        return f"Iceberg calls the newest version {MAIN!r}: {advice}"
    return schema_problem(snapshot.stored_schema, format_version)


def may_be_widened(schema: Schema, format_version: int) -> bool:
    """Return whether segments may have dates that this format version cannot widen to times.

    Args:
        schema: of the version.
        format_version: of Iceberg.
    """
    return format_version < FORMATS[-1] and has_wall_times(schema)


def widening_problem(before: Schema | None, schema: Schema) -> str | None:
    """Return why segments with dates cannot be read as ones with timestamps, or None.

    Args:
        before: that the segments were written with; None: it is not known.
        schema: of the version.
    """
    name = None if before is None else widened_times(before, schema)
    if before is not None and name is None:
        return None
    what = "a column" if name is None else f"column {name!r}"
    return (
        f"segments have {what} as a date that is a timestamp now, which Iceberg allows "
        "from format version 3 on: compact the table, or publish with format version 3, of which "
        "pyiceberg and Polars refuse such segments"
    )


def _location(own: str, scheme: str | None, uri: str) -> str:
    kind, _, rest = own.partition("://")
    if kind != "file" and scheme is not None and kind not in _SCHEMES:
        raise InvalidInput(f"a table at {kind}:// has no other scheme: leave it out")
    if _UNSAFE.search(own):
        raise InvalidInput(
            f"engines read the URI {own!r} in different ways: publish a table whose path has no "
            "'%', '#' or '?'",
            table=uri,
        )
    return f"{scheme}://{rest}" if scheme and kind != "file" else own


def _scheme_of(uri: str) -> str | None:
    scheme = uri.partition("://")[0]
    return scheme if scheme in _SCHEMES else None
