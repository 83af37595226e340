"""The program's output: tables for people, JSON for programs, progress on stderr.

Needs the extra `cli`. Colours, progress bars and the pager are used only on a terminal; elsewhere a
table is plain text in aligned columns, and nothing is cut or wrapped.

JSON is one document: an object, or an array of what a verb lists, `[]` if that is nothing. Rows of
tables, and the reports of a verb that goes on, are one value a line.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from eventlog.cli.screen import grid
from eventlog.cli.screen.paging import asked, echo, terminal_width
from eventlog.display import plain, plain_json
from eventlog.model.chunks import MAX_MS, MIN_MS, utc
from eventlog.model.records import Totals
from eventlog.quantities import count_text, size_text
from eventlog.state.small.timing import shown_time

# Called with the phase, the work done, and the total (None: unknown).
Advance = Callable[[str, int, int | None], None]
_COLOURS = ("green", "yellow", "cyan", "magenta", "blue", "red")


def say(text: str = "") -> None:
    """Print a line for people."""
    echo(plain(text))


def line(text: str, before: Sequence[tuple[str, int]] = ()) -> None:
    """Print a line of a list, cut at the width of a terminal unless --wide was given.

    Args:
        text: the line.
        before: characters before it, each with the number of its colour.
    """
    width = None if asked("wide") else terminal_width()
    shown = plain(text)
    if width is not None:
        ellipsis = grid.ELLIPSIS if encodes(grid.ELLIPSIS) else "..."
        shown = grid.shortened(shown, max(1, width - len(before)), ellipsis)
    while before and not shown and before[-1][0] == " ":
        before = before[:-1]
    colours = (click.style(char, fg=_COLOURS[number % len(_COLOURS)]) for char, number in before)
    echo("".join(colours) + shown)


def encodes(text: str) -> bool:
    """Return whether standard output can have these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (LookupError, UnicodeEncodeError):
        return False
    return True


def title(text: str) -> None:
    """Print a heading, in bold on a terminal."""
    echo(click.style(plain(text), bold=True))


def note(text: str, *, kept: str = "") -> None:
    """Print a remark about the output, or an error, on stderr.

    Args:
        text: of anybody.
        kept: see `eventlog.display.plain`.
    """
    echo(plain(text, kept=kept), err=True)


def trace(error: BaseException) -> None:
    """Print the traceback of an error on stderr."""
    click.echo(plain("".join(traceback.format_exception(error)), kept="\n"), err=True, nl=False)


class Warnings(logging.Handler):
    """Prints the warnings of the library on stderr, as lines for people."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Print one."""
        try:
            note(record.getMessage())
        except Exception:  # noqa: BLE001 - a warning must not end the command
            self.handleError(record)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    prose: Sequence[str] = (),
) -> None:
    """Print rows under their column names, or with --records one column a line.

    Args:
        columns: their names.
        rows: the values; None is blank.
        right: the columns of numbers, which are right-aligned.
        whole: further columns that are never cut, such as times.
        prose: the columns of sentences, which are wrapped where others are cut.
    """
    texts = [["" if cell is None else plain(str(cell)) for cell in row] for row in rows]
    columns = [plain(name) for name in columns]
    if asked("records"):
        for number, row in enumerate(texts):
            title(f"row {number + 1}")
            facts(zip(columns, row, strict=True))
        return
    width = None if asked("wide") else terminal_width()
    kinds = {"right": right, "whole": whole, "prose": prose}
    given = {kind: [plain(name) for name in names] for kind, names in kinds.items()}
    shown = grid.lay_out(columns, texts, **given, width=width)
    for line in (click.style(shown.header, bold=True), *shown.lines):
        echo(line)
    if shown.hidden:
        note(f"without {', '.join(shown.hidden)}: --wide or --records shows all columns")


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names and values in two columns, one pair per line; skips values of None."""
    shown = [(plain(name), plain(str(value))) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        echo(f"{click.style(name.ljust(width), bold=True)}{grid.GAP}{value}".rstrip())


def json_document(value: Any) -> None:
    """Print one JSON document."""
    click.echo(plain_json(json.dumps(value, indent=2, ensure_ascii=False, default=_jsonable)))


def json_list(values: Iterable[Any]) -> None:
    """Print one JSON array, an element a line, as the elements come."""
    empty = True
    for value in values:
        click.echo("[" if empty else ",")
        click.echo(_json_text(value), nl=False)
        empty = False
    click.echo("[]" if empty else "\n]")


def json_line(value: Any) -> None:
    """Print one JSON value on one line."""
    click.echo(_json_text(value))


def json_error(kind: str, message: str, exit_code: int, **more: Any) -> None:
    """Print an error as one line of JSON on stderr."""
    error = {"type": kind, "message": message, "exit_code": exit_code, **more}
    text = json.dumps({"error": error}, ensure_ascii=False, default=str)
    click.echo(plain_json(text), err=True)


def with_thousands(number: int) -> str:
    """Return a whole number with thousands separated."""
    return f"{number:,}"


def totals_text(totals: Totals) -> str:
    """Return totals as text for display."""
    return (
        f"{count_text(totals.segments, 'segment')}, {count_text(totals.rows, 'row')}"
        f"{f' without {totals.deleted:,} deleted ones' if totals.deleted else ''}, "
        f"{size_text(totals.bytes)}"
    )


def time_text(value: datetime | int) -> str:
    """Return a time (or ms UTC) in UTC, to the second."""
    if isinstance(value, int) and not MIN_MS <= value < MAX_MS:
        return shown_time(value)  # of a forged log: no action sets such a time
    return f"{_utc(value):%Y-%m-%d %H:%M:%S}Z"


def iso(value: datetime | int) -> str:
    """Return a time (or ms UTC) as ISO 8601 in UTC, to the millisecond: for programs."""
    return _utc(value).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@contextmanager
def progress() -> Iterator[Advance]:
    """Yield a function that updates a progress bar on stderr, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    bars: dict[str, Any] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as shown:

        def advance(what: str, done: int, total: int | None) -> None:
            if what not in bars:
                bars[what] = shown.add_task(what, total=total)
            shown.update(bars[what], completed=done, total=total)

        yield advance


@contextmanager
def row_progress(total: int | None, size: int | None) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of the rows and the bytes read so far, which updates a bar on stderr.

    The bar has the rows, the bytes, the rate, and the time that is left where it can be known.

    Args:
        total: the number of rows, if it is known.
        size: of the input in bytes, if it is known.
    """
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[bytes]}"),
        TextColumn("{task.fields[rate]}"), TextColumn("{task.fields[left]}"),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        whole = total if total is not None else size
        task = shown.add_task("rows", total=whole, bytes="", rate="", left="")

        def advance(rows: int, position: int) -> None:
            read = size * rows // total if total and size is not None else position
            of = "" if size is None else f" of {size_text(size)}"
            seconds = max(shown.tasks[0].elapsed or 0, 0.001)
            done = rows if total is not None else position
            shown.update(
                task,
                completed=done,
                description=f"{with_thousands(rows)} rows",
                bytes=f"{size_text(read)}{of}" if read or of else "",
                rate=f"{with_thousands(round(rows / seconds))} rows/s",
                left=left_text(done, whole, seconds),
            )

        yield advance


def left_text(done: int, whole: int | None, seconds: float) -> str:
    """Return the time that is left at the rate so far, or "" before anything is known of it.

    Args:
        done: the work done.
        whole: all work; None: unknown.
        seconds: how long that took.
    """
    if whole is None or not done:
        return ""
    left = max(round(seconds * (whole - done) / done), 0)
    return f"{timedelta(seconds=left)} left"


@contextmanager
def committed(version: int) -> Iterator[None]:
    """A context for the output of a command that has committed: a failure to print is no error.

    A caller that sees an error exit code may run the command again, and commit twice.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        note(f"eventlog: version {version} is committed; the output could not be written: {error}")


def discard_output() -> None:
    """Discard the rest of the output, so that Python's flush at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _json_text(value: Any) -> str:
    return plain_json(json.dumps(value, ensure_ascii=False, default=_jsonable))


def _utc(value: datetime | int) -> datetime:
    return utc(value) if isinstance(value, int) else value


def _jsonable(value: Any) -> Any:
    return iso(value) if isinstance(value, datetime) else str(value)
