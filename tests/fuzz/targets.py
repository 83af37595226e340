"""What is fuzzed: one function a parser, bytes in.

A target returns where the bytes are accepted and hold what is promised of accepted ones, and raises
an error of `REFUSALS` where they are refused. Whatever else leaves it is a bug: `Broken` where a
promise does not hold, any other exception where a parser trips.
"""

import contextlib
import functools
import logging
import re
from collections.abc import Callable, Iterable

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from support import builders

from eventlog import Table, errors
from eventlog.commit import proposal
from eventlog.format import codec, keys
from eventlog.format.deletion_vectors import encode_bitmap, join_bitmaps, positions_in_entry
from eventlog.format.frames import entry_columns, frame_bytes, spill_columns
from eventlog.model import stats
from eventlog.model.entries import ColumnStats, Segment, Vector
from eventlog.model.records import Leaf, Meta
from eventlog.model.schema import from_arrow
from eventlog.model.schema_text import name_text, parse_schema, type_text
from eventlog.query import predicate
from eventlog.state import keyframe
from eventlog.store.memory import MemoryStore

REFUSALS = (errors.Corrupt, errors.InvalidInput, errors.UnsupportedFormat)
MAX_ROWS = 100_000  # that a frame object may claim here
VECTOR_ROWS = 100_000  # of the segment whose deletion vectors are read

_VERSION = re.compile(rb'"version":(\d{1,12})[,}]')
_VARYING = re.compile(r"[0-9a-f]{16,}|\d+|'[^']*'|\"[^\"]*\"|\([^)]*=.*\)")


class Broken(AssertionError):
    """A promise about accepted bytes does not hold."""


def outcome(target: Callable[[bytes], None], body: bytes) -> str:
    """Run a target; return `accepted`, or the refusal without what varies in its text."""
    try:
        target(body)
    except REFUSALS as error:
        said = _VARYING.sub("_", error.message)[:70]
        return f"{type(error).__name__}: {said}"
    return "accepted"


def commit(body: bytes) -> None:
    """A commit, whole and by its header alone."""
    refused = None
    try:
        header = codec.decode_header(body[: codec.HEADER_BYTES])
    except REFUSALS as error:
        refused = error
    stored = codec.decode_commit(body)
    if refused is not None:
        raise Broken("the commit is accepted, its header alone is not") from refused
    if stored.header != header:
        raise Broken("the header read alone is another")
    _same(codec.encode_commit, stored, body)
    if header.keyframe is None:
        codec.meta_patch(Meta(), stored.state)


def key_frame(body: bytes) -> None:
    """A key frame root, and what it adds up to."""
    root = codec.decode_keyframe(body, version_in(body))
    _same(codec.encode_keyframe, root, body)
    keyframe.check_key_frame(root)
    entries = entry_columns.from_segments(root.segments)
    if entry_columns.to_segments(entries) != list(root.segments):
        raise Broken("the inlined entries are others in columns")


def intent(body: bytes) -> None:
    """A published transaction, and its check before a leader takes it along."""
    transaction = codec.decode_transaction(body, builders.TABLE)
    _same(functools.partial(codec.encode_transaction, table=builders.TABLE), transaction, body)
    proposal.check_proposed(msgspec.structs.replace(transaction, until=None))
    codec.decode_whole(transaction)


def fork(body: bytes) -> None:
    """Where a branch forks, and its place in keys."""
    found = codec.decode_fork(body, "audit")
    _same(codec.encode_fork, found, body)
    keys.commit_key(found.version)
    if found.held > found.version:
        raise Broken("a version is held that the branch does not have")


def key(body: bytes) -> None:
    """Keys: what parses is built back to the same text, and is plain enough for any store."""
    text = _text(body)
    log = keys.parse_log_key(text)
    segment = keys.parse_segment_key(text)
    published = keys.parse_intent_key(text)
    built = []
    if log is not None:
        built.append((keys.keyframe_key if log[1] else keys.commit_key)(log[0]))
    if segment is not None:
        built.append(keys.segment_key(*segment))
    if published is not None:
        built.append(keys.intent_key(*published))
    if not built:
        raise errors.InvalidInput("no key of a table")
    if built != [text]:
        raise Broken(f"{text!r} is built back as {built!r}")
    MemoryStore().put_if_absent(text, b"")


def where(body: bytes) -> None:
    """A predicate in SQL: parsed, asked everything, and never pruning a row that passes."""
    question = predicate.parse_predicate(_text(body), from_arrow(_ROWS.schema))
    question.to_arrow()
    if not question.columns() <= set(_ROWS.column_names):
        raise Broken("columns that the table does not have")
    low, high = question.interval("at")
    entries = _row_entries()
    kept = question.prune(entries, "at").to_pylist()
    sure = question.covers(entries, "at")
    leaf_kept = question.leaf_may_match(_leaf_entry(), "at")
    if len(kept) != entries.num_rows or None in kept:
        raise Broken("not one answer for each entry")
    with contextlib.suppress(pa.ArrowInvalid):  # arithmetic that overflows on these very rows
        passing = _ROWS.filter(question.to_arrow()).column("row").to_pylist()
        if any(not kept[row] for row in passing):
            raise Broken("an entry was pruned whose row passes")
        if any(not low <= _ROW_MS[row] < high for row in passing):
            raise Broken("a row that passes lies outside the interval")
        if (sure and len(passing) < _ROWS.num_rows) or (passing and not leaf_kept):
            raise Broken("all rows were said to pass, or none of the leaf's")


def leaf(body: bytes) -> None:
    """A frame object: a key frame's leaf, or a spill."""
    rows = _claimed_rows(body)
    spilled = "drop" in frame_bytes.read_frame(body, rows).column_names
    table = frame_bytes.from_parquet(body, rows, spilled=spilled)
    if spilled:
        rows = spill_columns.from_spill(table, 7)
        if sum(map(len, rows)) != table.num_rows:
            # Whoever names a spill names these counts, and refuses others.
            raise errors.Corrupt("a spill's rows are neither adds nor drops nor deletes")
        return
    entry_columns.hash_sum(table)
    entries = entry_columns.to_segments(table)
    for entry in entries:
        keys.key_of(entry)
        codec.entry_hash(entry)
    if entry_columns.to_segments(entry_columns.from_segments(entries)) != entries:
        raise Broken("the entries are others after another round in columns")


def vector(body: bytes) -> None:
    """A deletion vector in its entry: 4 bytes of its rows, and the bitmap."""
    rows = max(1, int.from_bytes(body[:4], "little"))
    try:
        found = list(positions_in_entry(Vector(rows, body[4:]), VECTOR_ROWS))
    except errors.DataLoss as error:
        raise errors.Corrupt(error.message) from None
    if len(found) != rows or found != sorted(set(found)) or found[-1] >= VECTOR_ROWS:
        raise Broken("positions that no such segment has")


def schema_text(body: bytes) -> None:
    """A schema as people write it: what it means is written so that it means the same."""
    schema = parse_schema(_text(body))
    columns = from_arrow(schema).columns
    again = ", ".join(
        f"{name_text(c.name)}:{type_text(c.type)}{'' if c.nullable else ' not null'}"
        for c in columns
    )
    try:
        same = from_arrow(parse_schema(again)).columns == columns
    except errors.InvalidInput as error:
        raise Broken(f"{again!r} is refused") from error
    if not same:
        raise Broken(f"{again!r} means another schema")


def opened(body: bytes) -> None:
    """A whole table of which one commit or one key frame root is these bytes.

    A changed commit is refused, or read and folded alike; a changed root changes no answer.
    """
    objects, answer = _table()
    version = version_in(body)
    framed = not body.startswith(b'{"header"')
    if framed:
        name = keys.keyframe_key(version if version in (2, 5) else 2)
    else:
        name = keys.commit_key(min(version, 5))
    store = MemoryStore()
    for stored, content in {**objects, name: body}.items():
        store.put_if_absent(stored, content)
    with quiet():
        found = _answer(store)
        if framed and found != answer:
            raise Broken("a key frame changed the answer")
        if not framed:
            try:
                builders.check_sound(store)
            except AssertionError as error:
                raise Broken("a snapshot is not the fold") from error


TARGETS: dict[str, Callable[[bytes], None]] = {
    "commit": commit,
    "keyframe": key_frame,
    "intent": intent,
    "fork": fork,
    "keys": key,
    "predicate": where,
    "leaf": leaf,
    "schema_text": schema_text,
    "opened": opened,
    "vector": vector,
}


def stored_vector(positions: Iterable[int]) -> tuple[bytes, Vector]:
    """The bitmap of a deletion vector, and how an entry describes it that is stored."""
    rows = BitMap64(positions)
    body, (place,) = join_bitmaps(1, "a" * 32, [encode_bitmap(rows)])
    return body, Vector(len(rows), stored=place)


@contextlib.contextmanager
def quiet():
    """Say nothing of the key frames that are stepped over."""
    logger = logging.getLogger("eventlog")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def tiny_store() -> MemoryStore:
    """Few bytes with much in them: an app's mark, a drop, a property, two key frames."""
    store = MemoryStore()
    table = builders.create(store, properties={"keyframe_commits": "3"})
    for n in range(4):
        builders.commit(table, builders.add(table, f"2013-01-{7 + n % 2:02d}", rows=5 + n))
    gone = builders.live(table.session.head())[0]
    app = builders.App("job", 4)
    builders.commit(table, builders.drop_of(gone), app=app, operation="replace")
    return store


def version_in(body: bytes) -> int:
    """The first version that a commit or root names, 0 where there is none."""
    found = _VERSION.search(body)
    return int(found[1]) if found else 0


def _text(body: bytes) -> str:
    # As arguments of a program come: bytes that are no UTF-8 are lone surrogates.
    return body.decode("utf-8", "surrogateescape")


def _same(encode, value, body: bytes) -> None:
    try:
        again = encode(value)
    except Exception as error:
        raise Broken("what was accepted cannot be encoded") from error
    if again != body:
        raise Broken("what was accepted is encoded to other bytes")


def _claimed_rows(body: bytes) -> int:
    try:
        return min(pq.read_metadata(pa.BufferReader(body)).num_rows, MAX_ROWS)
    except (pa.ArrowException, OSError, ValueError):
        return 1


@functools.cache
def _table() -> tuple[dict[str, bytes], object]:
    store = tiny_store()
    return {o.key: store.get(o.key) for o in store.list("")}, _answer(store)


def _answer(store: MemoryStore) -> object:
    table = Table(store)
    found = [table.session.head(), table.snapshot(4)]
    return [(s.version, s.totals, s.meta, builders.live(s), builders.live(s, 0, 1)) for s in found]


_ROWS = pa.table(
    {
        "at": pa.array([0, 1, 86_400_000_000, 1_357_516_800_000_001], pa.timestamp("us", tz="UTC")),
        "d": pa.array([None, 0, 1, 15_712], pa.date32()),
        "n": pa.array([-(2**63) + 1, 0, None, 2**63 - 1], pa.int64()),
        "f": pa.array([float("nan"), -0.0, None, 1e300], pa.float64()),
        "s": pa.array(["", "a%b", None, "p" * 40], pa.string()),
        "flag": pa.array([True, False, None, True], pa.bool_()),
        "row": pa.array(range(4), pa.int64()),
    }
)
_ROW_MS = [0, 0, 86_400_000, 1_357_516_800_000]
_DAYS = ("1970-01-01", "1970-01-01", "1970-01-02", "2013-01-07")


@functools.cache
def _row_entries() -> pa.Table:
    """One entry a row."""
    columns = [c for c in from_arrow(_ROWS.schema).columns if c.name != "row"]
    return entry_columns.from_segments(
        [
            Segment(f"{n:032x}", day, 0, 1, n, 1, 100, builders.HASH, 1, known)
            for n, day in enumerate(_DAYS)
            for known in (stats.compute(_ROWS.slice(n, 1), columns),)
        ]
    )


@functools.cache
def _leaf_entry() -> Leaf:
    entries = _row_entries()
    column = from_arrow(_ROWS.schema).columns[0]
    (bounds,) = stats.compute(_ROWS, [column])
    end = max(entries.column("chunk_end").to_pylist())
    known = (ColumnStats(column.id, bounds.min, bounds.max, bounds.nulls),)
    first = f"{_DAYS[0]}/{0:032x}"
    return Leaf(builders.HASH, 1, first, end, 4, 4, 400, builders.HASH, known)
