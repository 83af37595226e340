"""The options of input files and of units of work, and the rows of the files.

Needs the extra `cli`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import click
import pyarrow as pa

from eventlog import Table
from eventlog.cli import terminal
from eventlog.errors import InvalidInput
from eventlog.keyed.rule import MergeRule
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.staging.upsert_rows import MISSING
from eventlog.table.evolving import evolve_for
from eventlog.writers.batch import check_evolved
from eventlog.writers.files import (
    FORMATS,
    Lacking,
    file_schemas,
    open_rows,
    with_progress,
    with_row_count,
)

MEGABYTE = 2**20

_WORK: list[Callable[[Any], Any]] = [
    click.option("--app-id", help="With --app-seq: an (id, sequence) takes effect once."),
    click.option(
        "--app-seq", type=click.IntRange(min=0), help="Must grow with every unit of work."
    ),
    click.option(
        "--memory-mb",
        type=click.IntRange(min=1),
        default=DEFAULT_MEMORY_BYTES // MEGABYTE,
        show_default=True,
        help="Memory limit for rows, in MiB.",
    ),
]
_FILES: list[Callable[[Any], Any]] = [
    click.option(
        "--format", "file_format", type=click.Choice(FORMATS), help="Default: by file name."
    ),
    click.option(
        "--null",
        "nulls",
        multiple=True,
        metavar="TEXT",
        help="CSV: unquoted text that means null, such as NA.",
    ),
    click.option(
        "--rows",
        "expected",
        type=click.IntRange(min=0),
        help="Commit only if the input has this many rows.",
    ),
    *_WORK,
]
evolving = click.option(
    "--evolve",
    is_flag=True,
    help="First add the columns of FILES that the table lacks, and widen types. Parquet, Arrow.",
)
replaced_columns = click.option(
    "--missing",
    type=click.Choice(MISSING),
    help="The value of columns and fields that the rows lack.",
)


class Input(NamedTuple):
    """The options of input files, as a verb gets them."""

    files: Sequence[str]
    file_format: str | None
    nulls: Sequence[str]
    expected: int | None
    app_id: str | None
    app_seq: int | None
    memory_mb: int


@dataclass
class InputRows:
    """The rows of input files.

    Attributes:
        reader: reads them, once.
        read: the number of rows that were read so far.
    """

    reader: pa.RecordBatchReader
    read: int = 0


def of_files(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb the options of input files, which `Input` has."""
    for option in reversed(_FILES):
        command = option(command)
    return command


def of_work(command: Callable[..., None]) -> Callable[..., None]:
    """Give a verb without files the options `app_id`, `app_seq` and `memory_mb`."""
    for option in reversed(_WORK):
        command = option(command)
    return command


def evolve_table(table: Table, given: Input) -> int | None:
    """Give a table the columns and the wider types of files that it lacks, in one commit.

    Returns: see `evolve_for`.

    Raises:
        CommitConflict: another writer changed the same columns in the meantime.
        InvalidInput: see `file_schemas`; or a name or a type is not possible.
    """
    head = table.session.head()
    files = file_schemas(given.files, head.schema, given.file_format)

    def check(new: pa.Schema) -> None:
        for source, schema in files:
            try:
                check_evolved(schema, new, head.layout, complete=False)
            except InvalidInput as error:
                raise source.refused(error.message) from None

    return evolve_for(table.session, [schema for _, schema in files], check)


@contextmanager
def rows_of(
    given: Input,
    wanted: pa.Schema,
    time_column: str | None,
    *,
    complete: MergeRule | None = None,
    lacking: Lacking = "null",
) -> Iterator[InputRows]:
    """A context with the rows of the files, which shows its progress.

    Args:
        given: the options.
        wanted: see `open_rows`.
        time_column: see `open_rows`.
        complete: see `open_rows`.
        lacking: see `open_rows`.

    Raises:
        InvalidInput: see `open_rows`.
    """
    rows = open_rows(
        given.files,
        wanted,
        time_column,
        given.file_format,
        nulls=given.nulls,
        complete=complete,
        lacking=lacking,
        memory_bytes=given.memory_mb * MEGABYTE,
    )
    reader = rows.reader if given.expected is None else with_row_count(rows.reader, given.expected)
    with terminal.row_progress(rows.total, rows.size) as advance:

        def count(number: int) -> None:
            found.read = number
            advance(number, rows.position())

        found = InputRows(with_progress(reader, count))
        yield found
