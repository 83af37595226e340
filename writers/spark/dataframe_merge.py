"""`merge` of a DataFrame into a table without a key: Spark joins it with the rows of the table.

Imports eventlog, readers and pyspark. The rows of the table come with their segment and position,
and the driver gets the positions of those that match, a few bytes for each. Columns are numbered:
Spark would take a name with a dot for a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from eventlog import Snapshot, Table
from eventlog.errors import Corrupt, InvalidInput
from eventlog.model.actions import Add, Update
from eventlog.model.entries import Segment
from eventlog.query.sql.parsing import qualified
from eventlog.readers.spark.types import declared, to_spark
from eventlog.readers.spark.workers import explained
from eventlog.segments.fragments import POSITION, Reading
from eventlog.staging.encoding import Recipe
from eventlog.staging.incoming.casting import conform
from eventlog.staging.incoming.problems import Problem
from eventlog.writers.batch import naming_version
from eventlog.writers.changing.finding import Found, Place, Selected, row_text
from eventlog.writers.changing.joining import SOURCE, TableMatching, as_table_rows, several_match
from eventlog.writers.changing.updating import NewValues, with_values
from eventlog.writers.spark.changing import SparkSearch, decode_shares, frame_of, shares_of
from eventlog.writers.spark.jobs import STAGED, adds_of, stage_task

_ENDS = {"low": f.min, "high": f.max}
_PLACE = pa.schema([("segment", pa.string()), ("version", pa.int64()), ("position", pa.int64())])


@dataclass
class SparkMatching(TableMatching):
    """Matches the rows of a DataFrame.

    Attributes:
        source: the rows of the source, in the table's types, with numbered columns (`conformed`).
        source_schema: their schema, with the columns' own names.
        evolved: a version that has the columns which were added for the source; None: none were.
    """

    search: SparkSearch
    source: DataFrame
    source_schema: pa.Schema
    evolved: int | None = None
    _inserted: int | None = field(default=None, init=False)

    def to_insert(self) -> object:
        """See `TableMatching.to_insert`: any change of the segments may change them."""
        return [(s.id, s.version, len(self.gone[s.id, s.version])) for s in self.segments]

    def inserted(self) -> int:
        """See `TableMatching.inserted`."""
        snapshot = self.search.t.session.head()
        return int(self._unmatched(snapshot).count())

    def match(self, segments: Sequence[Segment], snapshot: Snapshot) -> None:
        """See `TableMatching.match`."""
        found: dict[Place, Iterable[int]] = {(s.id, s.version): BitMap64() for s in segments}
        if segments:
            on = self.merging.on
            target = self._target(segments, snapshot, on)
            joined = target.join(self._keys(), self._equal(target, on), "inner")
            keys = [target[f"t{n}"] for n in range(len(on))]
            counted = [f.first(key).alias(key_name(n)) for n, key in enumerate(keys)]
            counted.append(f.count(f.lit(1)).alias("matches"))
            places = target["segment"], target["version"], target["position"]
            rows = joined.groupBy(*places).agg(*counted)
            several = rows.where("matches > 1").limit(1).collect()
            if several:
                key = {name: several[0][key_name(n)] for n, name in enumerate(on)}
                raise several_match(row_text(key))
            listed = rows.groupBy("segment", "version").agg(
                f.collect_list("position").alias("positions")
            )
            for row in listed.collect():
                found[row.segment, row.version] = BitMap64(row.positions)
        self.matches.update(found)

    def staged(self, found: Found) -> tuple[Sequence[Add], Update | None]:
        """See `TableMatching.staged`."""
        adds, head = list[Add](), found.snapshot
        update = None
        wanted = 0 if self.values is None else self.live_matches()
        if self.values is not None and wanted:
            made = self._stage(self._updated(found, self.values), head)
            rows = sum(add.rows for add in made)
            if rows != wanted:
                raise Corrupt(
                    f"{rows} rows were matched again, where {wanted} had been found: the source "
                    "must have the same rows each time that Spark computes it; nothing was "
                    "committed",
                    table=self.search.t.uri,
                )
            adds, update = made, Update(rows, paired=False)
        if self.merging.inserts:
            adds += self._stage(self._unmatched(head), head, self.source_schema)
        self.search.t.session.log.staged.vouch(adds)
        return sorted(adds, key=lambda add: add.chunk), update

    def _updated(self, found: Found, values: Mapping[str, NewValues]) -> DataFrame:
        """Return the new forms of the matched rows, with numbered columns."""
        schema, on = found.snapshot.schema, self.merging.on
        segments = [
            one.segment
            for one in found.selected
            if BitMap64(self.matches[one.segment.id, one.segment.version])
        ]
        target = self._target(segments, found.snapshot, schema.names)
        places = [schema.names.index(name) for name in on]
        joined = target.join(self.source, self._equal(target, on, places), "inner")
        columns = [target[f"t{n}"] for n in range(len(schema))]
        columns += [self.source[f"s{n}"] for n in range(len(self.source_schema))]
        beside = [qualified(SOURCE, name) for name in self.source_schema.names]
        task = _NewRows(schema, [*schema.names, *beside], dict(values))
        named = NamedTask(task.rows, self.evolved)
        return joined.select(*columns).mapInArrow(named.rows, numbered(schema, "t"))

    def _unmatched(self, snapshot: Snapshot) -> DataFrame:
        """Return the rows of the source that match none, with numbered columns."""
        if not self.segments:
            return self.source
        on = self.merging.on
        target = self._target(self.segments, snapshot, on)
        return self.source.join(target, self._equal(target, on), "left_anti")

    def _keys(self) -> DataFrame:
        names = self.source_schema.names
        return self.source.select(*(f"s{names.index(name)}" for name in self.merging.on))

    def _equal(
        self, target: DataFrame, on: Sequence[str], places: Sequence[int] | None = None
    ) -> Column:
        """Return the condition that rows of the table and of the source match.

        Args:
            target: the rows of the table.
            on: the columns to match.
            places: the numbers of these columns in `target`; None: they are its first ones.
        """
        names = self.source_schema.names
        parts = [
            target[f"t{place}"] == self.source[f"s{names.index(name)}"]
            for place, name in zip(places or range(len(on)), on, strict=True)
        ]
        return reduce(lambda left, right: left & right, parts)

    def _target(
        self, segments: Sequence[Segment], snapshot: Snapshot, names: Sequence[str]
    ) -> DataFrame:
        """Return rows of the table with numbered columns, their segments and positions."""
        schema = pa.schema([snapshot.schema.field(name) for name in names])
        wanted = Found(snapshot, tuple(Selected(s, None) for s in segments))
        reading = self.search.reading_of(wanted, pa.schema([*schema, POSITION]))
        frame = frame_of(self.search.spark, shares_of(segments))
        fields = [*numbered(schema, "t").fields, *to_spark(_PLACE).fields]
        return frame.mapInArrow(_Placed(reading, len(names)).rows, StructType(fields))

    def _stage(self, rows: DataFrame, head: Snapshot, schema: pa.Schema | None = None) -> list[Add]:
        """Stage rows with numbered columns; see `as_table_rows` for those that the schema lacks."""
        t, recipe = self.search.t, Recipe.of(head, fills=True)
        task = StageTask(t, recipe, schema or head.schema, self.search.memory_bytes)
        with explained():
            done = rows.mapInArrow(NamedTask(task.rows, self.evolved).rows, STAGED).collect()
        return adds_of(t, recipe, (bytes(row.adds) for row in done), self.search.memory_bytes)


def key_name(number: int) -> str:
    """Return the name of a column with a value of the key."""
    return f"key{number}"


def bounds_of(source: DataFrame, schema: pa.Schema, on: Sequence[str]) -> pc.Expression:
    """Return a filter that excludes only rows that match none of the source. One Spark job.

    Args:
        source: the rows of the source, with numbered columns.
        schema: their schema, with the columns' own names.
        on: the columns to match.
    """
    places = [schema.names.index(name) for name in on]
    ends = [end(f"s{place}").alias(f"{n}{place}") for place in places for n, end in _ENDS.items()]
    found = source.agg(*ends).collect()[0]
    parts = []
    for name, place in zip(on, places, strict=True):
        kind = schema.field(name).type
        low, high = (_scalar(found[f"{n}{place}"], kind) for n in _ENDS)
        parts.append((pc.field(name) >= low) & (pc.field(name) <= high))
    return reduce(lambda left, right: left & right, parts)


def _scalar(value: object, kind: pa.DataType) -> pa.Scalar:
    """Return a value of Spark in the table's type; its instants come in the local zone."""
    if isinstance(value, datetime) and pa.types.is_timestamp(kind) and kind.tz is not None:
        value = value.astimezone(UTC)
    return pa.scalar(bytes(value) if isinstance(value, bytearray) else value, kind)


def numbered(schema: pa.Schema, letter: str) -> StructType:
    """Return the Spark schema of columns that are named by a letter and their number."""
    fields = [f.with_name(f"{letter}{n}") for n, f in enumerate(schema)]
    return to_spark(pa.schema(fields))


def conformed(given: pa.Schema, table: pa.Schema) -> pa.Schema:
    """Return the schema of a source in which the table's columns have the table's types.

    Args:
        given: the source's schema.
        table: the table's.
    """
    return pa.schema(
        [table.field(f.name).with_nullable(True) if f.name in table.names else f for f in given]
    )


def in_table_types(
    df: DataFrame, wanted: pa.Schema, time_column: str | None, evolved: int | None
) -> DataFrame:
    """Return the rows of a source in the table's types, with numbered columns (`s0`, …).

    Args:
        df: the source.
        wanted: `conformed`.
        time_column: the table's; None: it has none.
        evolved: see `SparkMatching`.
    """
    plain = df.toDF(*(f"s{n}" for n in range(len(df.columns))))
    task = NamedTask(ConformTask(wanted, time_column).rows, evolved)
    return plain.mapInArrow(task.rows, numbered(wanted, "s"))


@dataclass(frozen=True, slots=True)
class NamedTask:
    """A task whose errors of rows say which version has their columns; see `naming_version`."""

    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    version: int | None

    def rows(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task."""
        with naming_version(self.version):
            yield from self.task(given)


@dataclass(frozen=True, slots=True)
class ConformTask:
    """The task that casts the rows of a source."""

    wanted: pa.Schema
    time_column: str | None

    def rows(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows. Raises `InvalidInput`: a value does not fit its column."""
        for batch in given:
            named = batch.rename_columns(self.wanted.names)
            table = conform(named, self.wanted, self.time_column, time_required=False)
            if isinstance(table, Problem):
                raise InvalidInput(
                    f"column {table.column!r}: {table.count} {table.why}, for example "
                    f"{table.example}; nothing was committed"
                )
            yield from in_spark_types(table, "s")


@dataclass(frozen=True, slots=True)
class _Placed:
    """The task that reads rows of the table with their places."""

    reading: Reading
    columns: int

    def rows(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of segments."""
        for share in decode_shares(given):
            for segment, batch in self.reading.located(share):
                rows = pa.Table.from_batches([batch])
                plain = rows.select(list(range(self.columns)))
                for part in in_spark_types(plain, "t"):
                    count = part.num_rows
                    columns = [
                        *part.columns,
                        pa.repeat(pa.scalar(segment.id), count),
                        pa.repeat(pa.scalar(segment.version, pa.int64()), count),
                        batch.column(batch.num_columns - 1),
                    ]
                    yield pa.record_batch(columns, [*part.schema.names, *_PLACE.names])


@dataclass(frozen=True, slots=True)
class _NewRows:
    """The task that computes new forms of rows.

    Attributes:
        schema: of the table.
        names: of the columns that it is given: the table's, and `source`'s.
        values: the new values, by column.
    """

    schema: pa.Schema
    names: list[str]
    values: Mapping[str, NewValues]

    def rows(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the new rows, with numbered columns."""
        for batch in given:
            rows = pa.Table.from_batches([batch]).rename_columns(self.names)
            yield from in_spark_types(with_values(rows, self.values, self.schema), "t")


@dataclass(frozen=True, slots=True)
class StageTask:
    """The task that stages rows.

    Attributes:
        t: the table.
        recipe: how rows become segments.
        given: the schema of the rows, whose columns are numbered.
        memory_bytes: bound on the memory for rows.
    """

    t: Table
    recipe: Recipe
    given: pa.Schema
    memory_bytes: int

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what was staged, in the form of `eventlog.writers.spark.jobs.STAGED`."""
        adds = stage_task(self.t, self.recipe, self._named(batches), self.memory_bytes)
        yield pa.record_batch([pa.array([adds], pa.binary())], ["adds"])

    def _named(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch]).rename_columns(self.given.names)
            yield from as_table_rows(rows.cast(self.given), self.recipe.schema).to_batches()


def in_spark_types(rows: pa.Table, letter: str) -> Iterator[pa.RecordBatch]:
    """Yield rows with numbered columns, in the Arrow types that Spark expects."""
    wanted = declared(numbered(rows.schema, letter))
    for batch in rows.rename_columns(wanted.names).to_batches():
        columns = [c.cast(f.type) for c, f in zip(batch.columns, wanted, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=wanted)
