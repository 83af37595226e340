"""The verb erase. Needs the extra `cli`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from eventlog.cli import terminal
from eventlog.cli.place import Place, common, only_with_run
from eventlog.cli.screen.paging import listing
from eventlog.erasing import ErasureReport, erase
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.quantities import count_text, size_text

_MOST_HOURS = 876_000  # a hundred years


@click.command("erase")
@common
@click.option("--where", required=True, help="Erase the rows that this SQL expression selects.")
@only_with_run
@click.option(
    "--retention-hours",
    type=click.FloatRange(min=0),
    help="How long older versions stay readable; default: property retention_hours (168). 0 ends "
    "them at once, and uploads that are under way.",
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report with every object that was searched, as JSON, to this file.",
)
@listing
def erase_(
    place: Place, *, where: str, run: bool, retention_hours: float | None, report: Path | None
) -> int:
    """Delete rows from storage, and search every object for them.

    Without --run it only searches. With it the rows are deleted, the segments that have them are
    written again, and a vacuum deletes the old ones and cuts the log. What a pin, a tag, a branch,
    a copy or the retention still holds is named with what ends it: then run the same command again.
    The exit code of --run is 0 if no object has such a row any more, and 3 if one may have.
    """
    table = place.open()
    if report is not None:
        _write(report, b"")  # before anything is erased
    with terminal.progress() as advance:
        found = erase(
            table,
            where,
            dry_run=not run,
            retention=_hours(retention_hours),
            progress=advance,
        )
    if report is not None:
        _write(report, msgspec.json.format(msgspec.json.encode(_json(found))) + b"\n")
    if place.as_json:
        terminal.json_document(_json(found))
    else:
        _show(found)
    return 0 if found.none_left or not run else CommitConflict.exit_code


VERBS = (erase_,)


def _hours(number: float | None) -> timedelta | None:
    if number is None:
        return None
    if not number <= _MOST_HOURS:  # in this form it refuses NaN too
        raise InvalidInput(f"hours must be a number from 0 to {_MOST_HOURS:,}")
    return timedelta(hours=number)


def _write(path: Path, body: bytes) -> None:
    try:
        path.write_bytes(body)
    except OSError as error:
        raise InvalidInput(f"the report cannot be written to {path}: {error.strerror}") from None


def _json(found: ErasureReport) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(found)
    values["searched"] = [
        {**one, "verdict": of.verdict}
        for one, of in zip(values["searched"], found.searched, strict=True)
    ]
    for row in values["held_by"]:
        row["until"] = None if row["until"] is None else terminal.iso(row["until"])
    return {"none_left": found.none_left, **values}


def _show(found: ErasureReport) -> None:
    size = size_text(sum(one.bytes for one in found.searched))
    terminal.facts(
        [
            ("table", found.table),
            ("where", found.where),
            ("deleted", None if found.deleted is None else f"in version {found.deleted}"),
            ("rewritten", count_text(found.rewritten, "segment") if found.rewritten else None),
            ("vacuumed", count_text(found.vacuumed, "object") if found.vacuumed else None),
            ("searched", f"{count_text(len(found.searched), 'object')}, {size}"),
        ]
    )
    terminal.say()
    terminal.table(
        ("kind", "objects", "with rows", "with values", "unknown"),
        [(kind, *map(terminal.with_thousands, counts)) for kind, counts in _by_kind(found).items()],
        right=("objects", "with rows", "with values", "unknown"),
    )
    if found.held_by:
        terminal.say()
        terminal.table(
            ("held by", "until", "objects", "bytes", "what to do"),
            [
                (
                    f"{row.kind} {row.name}".rstrip(),
                    "" if row.until is None else terminal.time_text(row.until),
                    terminal.with_thousands(row.objects),
                    size_text(row.bytes),
                    row.advice,
                )
                for row in found.held_by
            ],
            right=("objects", "bytes"),
            prose=("what to do",),
        )
    for reason in found.failures:
        terminal.note(f"segments could not be written again: {reason}")
    for one in found.copies:
        terminal.note(
            f"copy {one.name!r} of {one.owner} has objects of its own, which were not searched: "
            "search there, too"
        )
    terminal.say()
    none = "none left: no object under the root has such a row, or a value of one"
    terminal.say(none if found.none_left else f"{count_text(len(found.left), 'object')} left")
    if found.dry_run:
        more = "" if found.none_left else ": --run erases these rows"
        terminal.note(f"nothing was changed{more}")


def _by_kind(found: ErasureReport) -> Mapping[str, tuple[int, int, int, int]]:
    """Return, by kind, how many objects there are, and how many have what."""
    counts = Counter((one.kind, one.verdict) for one in found.searched)
    kinds = sorted({kind for kind, _ in counts})
    return {
        kind: (
            sum(number for (other, _), number in counts.items() if other == kind),
            counts[kind, "rows"],
            counts[kind, "values"],
            counts[kind, "unknown"],
        )
        for kind in kinds
    }
