"""Rows from files: Parquet, CSV, JSON lines and Arrow IPC as one stream, in bounded memory.

Imports eventlog only. A file is read completely or refused; nothing ambiguous about its name,
format or end is guessed. Text formats are read with the table's types: the table decides whether
`1` is a number or a string.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from eventlog.errors import EventLogError, InvalidInput
from eventlog.keyed.rule import OP, MergeRule
from eventlog.staging.compact_arrays import pieces
from eventlog.staging.incoming.casting import FieldPath, absent_fields, check_columns, left_out
from eventlog.staging.incoming.streams import spelled
from eventlog.staging.stager import DEFAULT_MEMORY_BYTES
from eventlog.staging.upsert_rows import (
    deletes_only,
    erased,
    incomplete,
    replacing_incomplete,
)
from eventlog.writers.files import arrow_rows, csv_rows, json_rows, parquet_rows
from eventlog.writers.files.folders import find_files
from eventlog.writers.files.partitions import Partition
from eventlog.writers.files.sources import FORMATS, STDIN, SUFFIXES, InputFile, OpenInput
from eventlog.writers.files.texts import is_text

__all__ = [
    "FORMATS",
    "STDIN",
    "SUFFIXES",
    "FileRows",
    "Lacking",
    "open_rows",
    "with_progress",
    "with_row_count",
]

_BATCH_ROWS = 64 * 1024
_ERASED = (
    "which would erase the value of its key. Give every object the field, as null if that is "
    "meant; or say --missing null; or, for whole columns, make a table of the merge rule "
    "`partial`, where values are kept"
)
_REPLACED = (
    "which would lose its value in the rows that are replaced. Give every object the field, as "
    "null if that is meant; or say --missing null"
)
_KEPT = (
    "so it is not clear whether the row keeps its value. Give every object the field; or give "
    "Parquet, CSV or Arrow files without that column, and the rows keep its values"
)
_NAMED = "by which the row would be found"
_ALONE = "Where rows are deleted or ignored, give the columns of --on alone"
_SHARE = 16  # of the memory for rows, what is decoded at once: a writer holds others beside it

Advance = Callable[[int], None]
# What becomes of a column or a field that a file lacks, or an object of JSON: it is null; it is
# refused; or it is refused unless all files lack it; or, for rows that only name others, it is
# refused, and so is every further column.
Lacking = Literal["null", "refused", "alike", "alone"]


@dataclass(frozen=True, slots=True)
class FileRows:
    """A stream of rows, and their number if the files' metadata has it."""

    reader: pa.RecordBatchReader
    total: int | None
    sources: Sequence[InputFile] = ()

    @property
    def size(self) -> int | None:
        """The bytes of the files, or None if one is a pipe."""
        sizes = [source.size for source in self.sources]
        return None if None in sizes else sum(size or 0 for size in sizes)

    def position(self) -> int:
        """Return about how many bytes of the files of text have been read."""
        return sum(source.position() for source in self.sources)


@dataclass(frozen=True, slots=True)
class _Target:
    """The table's columns, what else means null in CSV, the rule of complete rows, and memory."""

    wanted: pa.Schema
    time_column: str | None
    nulls: tuple[str, ...]
    rule: MergeRule | None = None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    lacking: Lacking = "null"

    def missing(self, given: pa.Schema) -> list[FieldPath]:
        """Return the columns and fields that rows of the given columns lack, but need."""
        if self.lacking == "refused":  # against replaced-values-lost-by-a-file
            return left_out(given, self.wanted)
        if OP not in given.names:
            given = given.append(pa.field(OP, pa.string()))
        return erased(self.wanted, self.rule, given)


def open_rows(
    files: Sequence[str],
    wanted: pa.Schema,
    time_column: str | None,
    file_format: str | None = None,
    *,
    nulls: Sequence[str] = (),
    complete: MergeRule | None = None,
    lacking: Lacking = "null",
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> FileRows:
    """Return the rows of all files, in the order given.

    Headers and footers are checked before the first row is read, one file at a time. Rows are read
    as the stream is consumed.

    Args:
        files: paths of files or folders of one format, or `-` alone for standard input, which is
            an Arrow IPC stream unless `file_format` is CSV or JSON.
        wanted: the table's schema, whose types text files are read with.
        time_column: name of the time column; None: the rows have none. Text formats leave it as
            text: an append parses any ISO 8601.
        file_format: one of `FORMATS`; derived from the files' names if None.
        nulls: CSV: texts that mean null in an unquoted field, besides the empty field.
        complete: the merge rule of the keyed table that the rows are for, if they must not erase
            values of columns and fields that a file, or an object of JSON, lacks.
        lacking: in tables without a key: what becomes of a column, or a field of its structs, that
            a file or an object of JSON lacks. With `alike` files may lack columns and fields, but
            all the same ones, and objects none. With `alone` they have all of `wanted`, which is
            a part of the table's columns, and no others.
        memory_bytes: bound on the memory for rows, those that wait to be written included.

    Raises:
        InvalidInput: a file cannot be read completely or does not fit the table, or the files have
            several formats. Reading the stream may raise it too.
    """
    table = _Target(wanted, time_column, tuple(nulls), complete, memory_bytes, lacking)
    if STDIN in files:
        if len(files) > 1:
            raise InvalidInput("'-' reads standard input and cannot be combined with files")
        if sys.stdin is None:
            raise InvalidInput("standard input is closed: there is nothing to read")
        kind = file_format or "arrow"
        sources = [InputFile("standard input", kind, Partition(), stream=sys.stdin.buffer)]
    else:
        sources = find_files(files, wanted, file_format)
    if nulls and any(source.kind != "csv" for source in sources):
        raise InvalidInput("--null is for CSV only: other formats have their own null")
    if len(sources) == 1:
        part = _open(sources[0], table)
        return FileRows(_reader(part.schema, _batches(sources[0], part)), part.rows, sources)
    return _several(sources, table)


def file_schemas(
    files: Sequence[str], wanted: pa.Schema, file_format: str | None
) -> list[tuple[InputFile, pa.Schema]]:
    """Return each file with its columns, whether the table has them or not.

    Args:
        files: see `open_rows`.
        wanted: see `open_rows`.
        file_format: see `open_rows`.

    Raises:
        InvalidInput: a file cannot be read, is text, whose columns have no types, or is standard
            input, which can be read only once.
    """
    if STDIN in files:
        raise InvalidInput(
            "--evolve reads the columns of the files first, and standard input can be read only "
            "once: give a file, or add the columns by: eventlog columns URI add"
        )
    schemas = []
    for source in find_files(files, wanted, file_format):
        if source.kind in ("csv", "json"):
            raise source.refused(
                "--evolve needs files whose columns have types, Parquet or Arrow: add the columns "
                "by: eventlog columns URI add NAME:TYPE"
            )
        with source.errors_named():
            if source.kind == "arrow":
                part = arrow_rows.open_arrow(source)
            else:
                part = parquet_rows.open_parquet(source, DEFAULT_MEMORY_BYTES // _SHARE)
        part.close()
        schemas.append((source, part.schema))
    return schemas


def with_progress(reader: pa.RecordBatchReader, advance: Advance) -> pa.RecordBatchReader:
    """Return the same stream, which calls `advance` with the number of rows read so far."""

    def batches() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in reader:
            done += batch.num_rows
            advance(done)
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def with_row_count(reader: pa.RecordBatchReader, rows: int) -> pa.RecordBatchReader:
    """Return the same stream, which raises InvalidInput unless it has exactly `rows` rows."""

    def batches() -> Iterator[pa.RecordBatch]:
        done = 0
        for batch in reader:
            done += batch.num_rows
            if done > rows:
                break
            yield batch
        if done != rows:
            seen = f"more than {rows}" if done > rows else f"only {done}"
            raise InvalidInput(
                f"the input has {seen} rows where {rows} were expected; nothing was committed"
            )

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def _several(sources: Sequence[InputFile], table: _Target) -> FileRows:
    """Return the rows of several files, after checking the columns of each."""
    schemas, total = list[pa.Schema](), 0
    if not sources:  # a folder of empty files only, whose writer had finished
        return FileRows(_reader(table.wanted, iter(())), 0)
    for source in sources:
        part = _open(source, table)
        part.close()
        if table.lacking in ("alike", "alone") and schemas:
            _check_alike(source, part.schema, sources[0], schemas[0], table)
        schemas.append(part.schema)
        total = -1 if part.rows is None or total < 0 else total + part.rows
    schema = _common_schema(sources, schemas, table)

    def batches() -> Iterator[pa.RecordBatch]:
        for source, known in zip(sources, schemas, strict=True):
            part = _open(source, table)
            if part.schema != known:
                raise source.refused(
                    "it has changed since its columns were checked; append it again"
                )
            for batch in _batches(source, part):
                for piece in pieces(batch):
                    yield _aligned(source, piece, schema)

    return FileRows(_reader(schema, batches()), None if total < 0 else total, sources)


def _check_alike(
    source: InputFile, given: pa.Schema, first: InputFile, known: pa.Schema, table: _Target
) -> None:
    """Check that a file lacks the same columns as the first one, and the same fields of structs."""

    def listed(schema: pa.Schema) -> dict[str, str]:
        partial = {path[0] for path in absent_fields(schema, table.wanted)}
        return {f.name: f"{f.name} ({f.type})" if f.name in partial else f.name for f in schema}

    ours, theirs = listed(given), listed(known)
    if ours != theirs:  # against files-of-other-columns-merged
        raise source.refused(
            f"it has the columns {', '.join(ours.values())}, and {first.path} has "
            f"{', '.join(theirs.values())}: in rows that change others a column or a field that is "
            "missing means another thing than null. Give them separately"
        )


def _open(source: InputFile, table: _Target) -> OpenInput:
    """Open one file and check its columns, including those in its path."""
    with source.errors_named():
        if source.kind == "csv":
            part = csv_rows.open_csv(source, table.wanted, table.time_column, table.nulls)
        elif source.kind == "json":
            part = _open_json(source, table)
        elif source.kind == "arrow":
            part = arrow_rows.open_arrow(source)
        else:
            part = parquet_rows.open_parquet(source, table.memory_bytes // _SHARE)
        if source.kind in ("arrow", "parquet"):
            part = _spelled(part, table)
        part = source.partition.added_to(
            part, table.wanted, nulls_say_nothing=source.kind == "json"
        )
    try:
        names = part.schema.names
        _check_matching(names, table)
        check_columns(part.schema, table.wanted, table.time_column)
        lacking = table.missing(part.schema)
        if lacking and table.rule is None:
            raise InvalidInput(replacing_incomplete(lacking))
        if lacking and OP not in names:
            raise InvalidInput(incomplete(lacking, table.rule))
        if lacking:
            part = dataclasses.replace(part, batches=_deletes(part, source, table.rule, lacking))
    except (EventLogError, UnicodeDecodeError) as error:
        part.close()
        why = error.message if isinstance(error, EventLogError) else f"a column's name: {error}"
        raise source.refused(why) from None
    return part


def _check_matching(names: Sequence[str], table: _Target) -> None:
    """Check that rows of a merge have the columns that a new row needs, or only those to match."""
    wanted = table.wanted.names
    if table.lacking == "alone" and set(names) != set(wanted):
        raise InvalidInput(f"it has the columns {', '.join(names)}. {_ALONE}, {', '.join(wanted)}")
    for field in table.wanted if table.lacking == "alike" else ():
        needed = not field.nullable or field.name == table.time_column
        if needed and field.name not in names:
            raise InvalidInput(
                f"it lacks column {field.name!r}, which new rows need: add it, or give "
                "--when-not-matched ignore"
            )


def _spelled(part: OpenInput, table: _Target) -> OpenInput:
    """Return a file with the names of its columns as the table spells them."""
    schema = spelled(part.schema, table.wanted.names)
    batches = (batch.rename_columns(schema.names) for batch in part.batches)
    return dataclasses.replace(part, schema=schema, batches=batches)


def _open_json(source: InputFile, table: _Target) -> OpenInput:
    """Open a file of JSON, whose objects may each lack other fields."""
    known = pa.schema([f for f in table.wanted if f.name in (OP, *source.partition.values)])
    if table.rule is not None:
        whole, why = erased(table.wanted, table.rule, known), _ERASED
    elif table.lacking == "null":
        return json_rows.open_json(source, table.wanted, table.time_column)
    else:
        whole = left_out(known, table.wanted)
        why = {"refused": _REPLACED, "alone": _NAMED}.get(table.lacking, _KEPT)
    others = _ALONE if table.lacking == "alone" else json_rows.EXTEND
    needed = json_rows.Needed(frozenset(name for name, *_ in whole), why, others)
    return json_rows.open_json(source, table.wanted, table.time_column, needed)


def _deletes(
    part: OpenInput, source: InputFile, rule: MergeRule | None, lacking: Sequence[FieldPath]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file that lacks columns: all of them must be deletes."""
    for batch in part.batches:
        if not deletes_only(batch.column(part.schema.get_field_index(OP))):
            raise source.refused(incomplete(lacking, rule))
        yield batch


def _batches(source: InputFile, part: OpenInput) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one file in batches of a moderate size."""
    rows = 0
    with source.errors_named():
        for batch in part.batches:
            rows += batch.num_rows
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(start, _BATCH_ROWS)
    if part.rows is not None and rows != part.rows:
        raise source.refused(f"its metadata records {part.rows} rows, but it has {rows}")


def _reader(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, batches)


def _common_schema(
    sources: Sequence[InputFile], schemas: Sequence[pa.Schema], table: _Target
) -> pa.Schema:
    """Return the columns that any file has, with the table's types where the files differ."""
    fields = []
    for field in table.wanted:
        kinds = {s.field(field.name).type for s in schemas if field.name in s.names}
        if len(kinds) == 1:
            fields.append(pa.field(field.name, kinds.pop()))
        elif kinds:
            kind = field.type
            if field.name == table.time_column and any(map(_is_text, kinds)):
                if not all(_is_text(kind) or pa.types.is_null(kind) for kind in kinds):
                    raise sources[0].refused(
                        f"event times {field.name!r} are text in some of the files and times in "
                        "others: append each kind separately"
                    )
                kind = pa.large_string()
            fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _aligned(source: InputFile, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with exactly these columns; columns that the file lacks are null."""
    columns = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        try:
            values = batch.column(at)
            if pa.types.is_dictionary(values.type) and values.type != field.type:
                values = values.dictionary_decode()
            # No cast to the same type: Arrow's cast damages lists of nulls only.
            columns.append(values if values.type == field.type else values.cast(field.type))
        except pa.ArrowInvalid as error:
            raise source.refused(f"column {field.name!r} does not fit: {error}") from None
    return pa.RecordBatch.from_arrays(columns, schema=schema)
