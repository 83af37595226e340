"""Row groups that a rewrite takes as they are, instead of encoding their rows once more.

That is so for large segments with the columns of the table, all rows of which stay, in their order.
Their rows are decoded nevertheless, and dropped: a segment that no reader can read is not taken.
Imports eventlog and readers only.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise

import pyarrow as pa
from msgspec import UnsetType

from eventlog import limits
from eventlog.decoding import decode, most_bytes
from eventlog.errors import Corrupt, DataLoss, EventLogError
from eventlog.format import keys, parts
from eventlog.format.codec import sha256
from eventlog.model import stats
from eventlog.model.entries import ColumnStats, Segment
from eventlog.readers.segment_reader import read_runs
from eventlog.rewriting.row_digest import NOTHING, Digest, digest
from eventlog.segments.fragments import Reading
from eventlog.staging.encoding import Recipe, StoredGroups
from eventlog.staging.parquet.joined_files import footer_tree, same_columns_stored
from eventlog.staging.parquet.thrift_trees import Tree
from eventlog.store.memory import MemoryStore
from eventlog.store.parallel import read_ahead, threads

# A row group of fewer rows and bytes costs each of its readers more than it is worth to keep.
_ROWS = limits.ROW_GROUP_ROWS // 4
_CHECKED_ROWS = 64 * 1024  # that are decoded at once

Runs = Mapping[str, Sequence[Segment]]


class OneObject(MemoryStore):
    """A store of one object, whatever its key.

    Args:
        body: its bytes.
        uri: that of the table, for messages.
    """

    def __init__(self, body: bytes | memoryview, uri: str) -> None:
        super().__init__()
        self._body, self._uri = memoryview(body), uri

    @property
    def uri(self) -> str:
        """The table's URI."""
        return self._uri

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:  # noqa: ARG002
        """Return bytes of the object."""
        return bytes(self._body[start : None if length is None else start + length])


@dataclass(frozen=True, slots=True)
class Taken:
    """The rows of a segment, as they are stored.

    Attributes:
        stored: the row groups.
        digest: that of the rows, or only their number, if it is not asked for.
    """

    stored: StoredGroups
    digest: Digest

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.stored.rows


@dataclass(frozen=True, slots=True)
class Taking:
    """Which segments are taken as they are, and how.

    Attributes:
        recipe: of the new segments.
        form: the footer of one of them (`eventlog.staging.encoding.footer_without_rows`).
        most_bytes: of a segment that is taken.
        digests: whether the rows have digests, not only numbers.
    """

    recipe: Recipe
    form: Tree
    most_bytes: int
    digests: bool

    def may_take(self, segment: Segment) -> bool:
        """Return whether a segment may be taken, as far as its entry says."""
        return (
            segment.schema == self.recipe.schema.id
            and isinstance(segment.vector, UnsetType)
            and isinstance(segment.slice, UnsetType)
            and limits.WHOLE_BYTES < segment.bytes <= self.most_bytes
            and segment.rows >= _ROWS
        )


def read_or_take(
    reading: Reading, runs: Runs, taking: Taking | None
) -> Generator[tuple[str, pa.Table | Taken], None, None]:
    """Yield the rows of named runs of segments, in the order given: (name of the run, rows).

    Args:
        reading: how segments are read.
        runs: names of runs, each with its segments.
        taking: which are taken as they are; None: none.

    Raises:
        DataLoss: a segment is missing or damaged.
        Unavailable: the store does not answer.
    """
    if taking is None:
        yield from read_runs(reading, runs.items())
        return
    for name, run in runs.items():
        for taken, some in groupby(run, key=taking.may_take):
            if taken:
                yield from ((name, rows) for rows in _taken_or_read(reading, list(some), taking))
            else:
                yield from read_runs(reading, [(name, list(some))])


def _taken_or_read(
    reading: Reading, segments: Sequence[Segment], taking: Taking
) -> Iterator[pa.Table | Taken]:
    with threads() as pool:
        bodies = read_ahead(
            pool,
            segments,
            partial(_fetched, reading),
            weigh=lambda segment: segment.bytes,
            most=reading.ahead_bytes,
        )
        for segment, body in zip(segments, bodies, strict=True):
            taken = _taken(reading, segment, body, taking)
            if taken is not None:
                yield taken
                continue
            for batch in reading.batches([segment]):
                yield pa.Table.from_batches([batch])


def _fetched(reading: Reading, segment: Segment) -> bytes:
    """Return the bytes of a segment's object; none if they cannot be fetched."""
    try:
        # Ask for one byte more than expected, to notice an object that is too long.
        return reading.store.get(keys.key_of(segment), length=segment.bytes + 1)
    except EventLogError:
        return b""


def _taken(reading: Reading, segment: Segment, body: bytes, taking: Taking) -> Taken | None:
    """Return the rows of an object as they are stored, if they can be taken.

    None where anything is wrong with it: then it is read like any other, which raises the error.
    """
    tail = segment.tail
    if len(body) != segment.bytes or tail is None or sha256(body[-tail.size :]) != tail.sha256:
        return None
    try:
        groups = _groups_in(memoryview(body), segment, taking)
        if groups is None:
            return None
        # This compares all other bytes with the log, too.
        column_stats, total = _looked_at(reading, groups, segment, taking)
    except (DataLoss, Corrupt, pa.ArrowException, OSError, ValueError):
        return None
    return Taken(groups._replace(column_stats=column_stats), total)


def _groups_in(file: memoryview, segment: Segment, taking: Taking) -> StoredGroups | None:
    """Return the row groups of an object whose tail was compared, if they can be taken.

    Raises:
        Corrupt: it is no segment.
        pa.ArrowException: neither.
    """
    assert segment.tail is not None  # noqa: S101 - the caller's guard, for the type checker
    footer, _ = parts.parse_tail(bytes(file[len(file) - segment.tail.size :]), len(file))
    tree = footer_tree(file)
    sizes = parts.decoded_sizes(footer, len(taking.recipe.schema.columns))
    # against columns-of-another-form-taken
    if sizes is None or not same_columns_stored(tree, taking.form):
        return None
    found = parts.chunk_checksums(file, segment.tail)
    if found is None or segment.rows < footer.num_row_groups * _ROWS:
        return None
    return StoredGroups(file, tree, segment.rows, (), sizes, *found)


def _looked_at(
    reading: Reading, groups: StoredGroups, segment: Segment, taking: Taking
) -> tuple[tuple[ColumnStats, ...], Digest]:
    """Return the statistics and the digest of a segment's rows, once all of them were decoded.

    Raises:
        DataLoss: they do not decode to rows of the table.
        Corrupt, pa.ArrowException, OSError, ValueError: neither.
    """
    wanted = taking.recipe.stats_columns
    known = {one.column: one for one in segment.stats}
    of_entry = all(column.id in known for column in wanted)
    if of_entry and not taking.digests:
        _check_decodes(reading, groups, segment)
        return tuple(known[column.id] for column in wanted), Digest(segment.rows, {})
    near = replace(reading, store=OneObject(groups.file, reading.store.uri))
    total, computed = NOTHING, list[tuple[int, tuple[ColumnStats, ...]]]()
    for batch in near.batches([segment]):
        rows = pa.Table.from_batches([batch])
        whole = taking.digests
        total += digest(rows, taking.recipe.layout.time_column) if whole else Digest(len(batch), {})
        if not of_entry:
            computed.append((len(batch), stats.compute(rows, wanted)))
    if of_entry:
        return tuple(known[column.id] for column in wanted), total
    return stats.merge_stats(computed), total


def _check_decodes(reading: Reading, groups: StoredGroups, segment: Segment) -> None:
    """Check that all bytes are those of the log, and that they decode to the rows of the entry.

    Readers make more of them than is made here: texts of dictionaries are not copied to their rows.
    The file has the columns of the table with their types, and none with nulls where the table
    allows none; so nothing else could fail.

    Args:
        reading: for its bounds on memory.
        groups: the row groups, whose columns were compared.
        segment: the entry.

    Raises:
        Corrupt: they are others, or decode to another number of rows.
        pa.ArrowException, OSError, ValueError: they do not decode.
    """
    file, tail = groups.file, segment.tail
    assert tail is not None  # noqa: S101 - the caller's guard, for the type checker
    footer, known = parts.parse_tail(bytes(file[len(file) - tail.size :]), len(file))
    spans = enumerate(pairwise(known.bounds))
    # against damaged-row-groups-taken
    if not all(known.check(number, file[start:end]) for number, (start, end) in spans):
        raise Corrupt("a part of the object is not what was committed")
    source, once = pa.BufferReader(file), reading.piece_bytes()
    columns = range(footer.num_columns)
    for number, sizes in enumerate(groups.sizes):
        most = most_bytes(source, footer, [number], columns, 4 * once, claimed=sum(sizes))
        fits = most.sure and most.size <= 4 * once
        bounded = None if fits else once
        rows = 0
        for batch in decode(
            source, footer, [number], columns, _CHECKED_ROWS, once=bounded, coded=True
        ):
            batch.validate(full=True)  # against undecodable-row-groups-taken
            rows += batch.num_rows
        if rows != footer.row_group(number).num_rows:
            raise Corrupt("a row group decodes to another number of rows")
    if not groups.rows == footer.num_rows == segment.rows:
        raise Corrupt("the object has another number of rows")
