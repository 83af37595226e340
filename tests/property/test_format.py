"""Round trips of everything that is written: JSON, keys, chunk names, leaves, spills."""

import functools

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import builders
from support.builders import replaced

from eventlog.errors import Corrupt
from eventlog.format import codec, entry_order, keys
from eventlog.format.frames import entry_columns, frame_bytes, spill_columns
from eventlog.log import spills
from eventlog.model import chunks, schema, stats
from eventlog.model.actions import (
    Ack,
    Action,
    Add,
    Advance,
    AppRise,
    Assess,
    Attach,
    Break,
    ChunkChange,
    DeleteRows,
    Detach,
    Drop,
    Fence,
    Horizon,
    Merge,
    PropertyChange,
    Release,
    Renew,
    Replace,
    Restore,
    SameSegments,
    SetBuckets,
    SetClock,
    SetCut,
    SetGranularity,
    SetLayout,
    SetOrigin,
    SetPin,
    SetProperties,
    SetSchema,
    Swept,
    TakeClaim,
    Unchanged,
    Unpin,
    Update,
)
from eventlog.model.columns import column_types
from eventlog.model.entries import (
    GRANULARITIES,
    Analysed,
    ChunkState,
    Column,
    ColumnStats,
    Layout,
    Schema,
    Segment,
    Spill,
    StoredBitmap,
    Sweep,
    Vector,
)
from eventlog.model.records import (
    App,
    AppMark,
    Claim,
    Commit,
    CommitChanges,
    DeltaRecord,
    Header,
    KeyFrame,
    Leaf,
    Meta,
    Origin,
    Pin,
    Published,
    Replica,
    Token,
    Totals,
    Transaction,
)
from eventlog.state import delta, fold
from eventlog.store.memory import MemoryStore


def ordered(items):
    return dict(sorted(items.items(), key=lambda item: item[0].encode()))


counts = st.integers(0, 2**63 - 1)
splits = st.just(msgspec.UNSET) | st.integers(1, 12)
ints = st.integers(-(2**63) + 1, 2**63 - 1)
small = st.integers(0, 10**6)
first = st.integers(1, 10**6)  # ids of schemas
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
hex32 = st.binary(min_size=16, max_size=16).map(bytes.hex)
hex64 = st.binary(min_size=32, max_size=32).map(bytes.hex)
times = st.integers(chunks.MIN_MS, chunks.MAX_MS - 1)
granularities = st.sampled_from(GRANULARITIES)
chunk_names = st.builds(lambda t, g: chunks.chunk_of(t, g).name, times, granularities)
# One kind of bounds a column, as the fold demands: odd columns are text.
column_stats = st.lists(st.integers(1, 6), unique=True, max_size=4).flatmap(
    lambda ids: st.tuples(
        *(
            st.builds(
                ColumnStats,
                st.just(column),
                st.none() | (texts if column % 2 else ints),
                st.none() | (texts if column % 2 else ints),
                counts,
            )
            for column in sorted(ids)
        )
    )
)
places = st.builds(StoredBitmap, small, hex32, counts, st.integers(1, 2**31), hex64)
deleted = st.integers(1, 99)
vectors = st.builds(Vector, deleted, stored=places) | st.builds(
    Vector, deleted, st.binary(min_size=1, max_size=50)
)


def with_vector(kind, *parts):
    """Entries of a kind, some of them with a deletion vector, which deletes fewer rows."""

    def build(values, vector):
        entry = kind(*values)
        return entry if entry.rows < 100 else msgspec.structs.replace(entry, vector=vector)

    return st.builds(build, st.tuples(*parts), st.just(msgspec.UNSET) | vectors)


entries = with_vector(
    Segment, hex32, chunk_names, small, small, small, small, small, hex64, first, column_stats
)
adds = with_vector(Add, hex32, chunk_names, small, small, small, hex64, first, column_stats)
drops = st.builds(Drop, hex32, chunk_names, hex64)
deletes = st.builds(DeleteRows, hex32, chunk_names, hex64, vectors)
names = st.sampled_from(["at", "größe", "x y", "列"])
types = st.sampled_from(
    ["timestamp", "string", "decimal(10,2)", {"list": {"id": 7, "type": "int8"}}]
)
columns = st.builds(Column, small, names, types, st.booleans())
retired = st.just(msgspec.UNSET) | st.lists(small, min_size=1, max_size=2).map(tuple)
schemas = st.builds(Schema, small, st.lists(columns, max_size=3).map(tuple), retired)
layouts = st.builds(
    Layout,
    time_column=st.just(msgspec.UNSET) | small,
    granularity=granularities,
    order_by=st.lists(small, max_size=2).map(tuple),
)
changes = st.builds(PropertyChange, texts, st.none() | texts, st.none() | texts)
kinds = st.sampled_from(["exclusive", "shared"])
some = st.just(msgspec.UNSET) | st.integers(1, 2**63 - 1)  # absent, and never 0
spilled = st.builds(Spill, hex64, counts, counts, counts, some)
sweeps = st.builds(
    Sweep, counts, counts, counts, st.none() | spilled, st.just(msgspec.UNSET) | texts
)
noted = st.none() | st.builds(Analysed, counts, hex64)
chunk_states = st.builds(
    ChunkState,
    st.sampled_from(["stable", "unstable", "deferred"]),
    counts,
    counts,
    counts,
    ints,
)
chunk_changes = st.builds(ChunkChange, texts, st.none() | chunk_states)
BUILT = {
    Add: adds,
    Drop: drops,
    DeleteRows: deletes,
    SetLayout: st.builds(SetLayout, layouts),
    SetSchema: st.builds(SetSchema, schemas),
    SetProperties: st.builds(SetProperties, st.lists(changes, max_size=3).map(tuple)),
    Unchanged: st.builds(Unchanged, ints, ints),
    Fence: st.builds(Fence, counts),
    Horizon: st.builds(Horizon, counts),
    SetCut: st.builds(SetCut, counts, counts, counts),
    Swept: st.builds(Swept, sweeps),
    SetPin: st.builds(SetPin, texts, counts, texts),
    Unpin: st.builds(Unpin, texts, texts, counts),
    TakeClaim: st.builds(
        TakeClaim,
        hex32,
        ints,
        ints,
        st.lists(hex32, max_size=2).map(tuple),
        kinds,
        ints,
        texts,
        texts,
    ),
    Renew: st.builds(Renew, hex32, counts),
    Release: st.builds(Release, hex32, counts),
    Break: st.builds(Break, st.sampled_from(["pin", "claim", "replica"]), texts, counts, counts),
    Attach: st.builds(Attach, texts, counts, texts),
    Ack: st.builds(Ack, texts, counts, counts),
    Detach: st.builds(Detach, texts, counts),
    Restore: st.builds(Restore, counts),
    SameSegments: st.builds(SameSegments, hex64),
    Replace: st.builds(Replace, counts, counts),
    Update: st.builds(Update, counts, st.booleans()),
    Merge: st.builds(
        Merge,
        counts,
        chunk_names,
        *[counts] * 4,
        st.lists(hex32, max_size=2).map(tuple),
        counts,
        counts,
        splits,
    ),
    SetBuckets: st.builds(SetBuckets, counts, counts),
    SetGranularity: st.builds(SetGranularity, granularities, granularities),
    SetClock: st.builds(SetClock, counts, ints, ints),
    Advance: st.builds(Advance, texts, st.none() | counts, counts),
    SetOrigin: st.builds(
        SetOrigin,
        texts,
        st.none() | counts,
        counts,
        texts,
        st.dictionaries(
            texts,
            st.builds(
                AppRise,
                st.none() | counts,
                st.lists(st.tuples(counts, counts), max_size=2).map(tuple),
            ),
            max_size=2,
        ).map(ordered),
        st.none() | counts,
    ),
    Assess: st.builds(Assess, noted, noted, st.lists(chunk_changes, max_size=2).map(tuple)),
}
actions = st.one_of(*BUILT.values())
transactions = st.builds(
    Transaction,
    id=hex32,
    operation=texts,
    writer=texts,
    read_version=st.integers(-1, 2**63 - 1),
    app=st.none() | st.builds(App, texts, counts),
    claim=st.none() | st.builds(Token, hex32, counts),
    actions=st.lists(actions, max_size=3).map(tuple),
    spill=st.none() | spilled,
    info=st.dictionaries(texts, texts, max_size=2).map(ordered),
)
totals = st.builds(Totals, counts, counts, counts, some)


def features_of(summed):
    return () if summed.deleted is msgspec.UNSET else ("vectors",)


@st.composite
def headers(draw):
    version = draw(st.integers(0, keys.MAX_VERSION))
    summed = draw(totals)
    return Header(
        format="eventlog",
        min_reader=1,
        min_writer=draw(st.integers(0, 9)),
        features=features_of(summed),
        table=draw(hex32),
        version=version,
        prev=draw(hex64) if version else None,
        time=draw(times),
        keyframe=draw(st.none() | st.integers(0, version - 1)) if version else None,
        totals=summed,
        state_hash=draw(hex64),
        changes=draw(
            st.builds(CommitChanges, texts, texts, counts, counts, counts, ints, ints, some)
        ),
    )


claims = st.builds(
    Claim,
    ints,
    ints,
    st.lists(hex32, max_size=2).map(tuple),
    kinds,
    ints,
    texts,
    texts,
    counts,
    counts,
)
metas = st.builds(
    Meta,
    layout=st.none() | layouts,
    schema=st.none() | schemas,
    properties=st.dictionaries(texts, texts, max_size=3).map(ordered),
    apps=st.dictionaries(texts, st.builds(AppMark, counts, counts, ints), max_size=3).map(ordered),
    published=st.dictionaries(hex32, st.builds(Published, counts, counts), max_size=2).map(ordered),
    claims=st.dictionaries(hex32, claims, max_size=2).map(ordered),
    pins=st.dictionaries(texts, st.builds(Pin, counts, texts, counts, ints), max_size=2).map(
        ordered
    ),
    replicas=st.dictionaries(texts, st.builds(Replica, counts, texts, counts), max_size=2).map(
        ordered
    ),
    fence=counts,
    horizon=counts,
    swept=st.none() | sweeps,
    chunks=st.dictionaries(texts, chunk_states, max_size=2).map(ordered),
    analysed=noted,
    origins=st.just(msgspec.UNSET)
    | st.dictionaries(hex64, st.builds(Origin, counts, hex64, counts), min_size=1, max_size=2).map(
        ordered
    ),
)


def as_read(value):
    return msgspec.json.decode(msgspec.json.encode(value))


@st.composite
def commits(draw):
    header = draw(headers())
    version = header.version
    listed = [
        msgspec.structs.replace(t, read_version=min(t.read_version, version - 1))
        for t in draw(st.lists(transactions, min_size=1, max_size=2))
    ]
    return Commit(
        header,
        as_read(codec.meta_diff(draw(metas), draw(metas))),
        tuple(listed),
        draw(st.builds(DeltaRecord, spill=spilled) | records(header.keyframe, version)),
    )


@st.composite
def records(draw, base, version):
    """Deltas as a commit of `version` over the key frame of `base` can have them."""
    added = draw(st.lists(entries, max_size=3, unique_by=lambda s: s.id))
    first = -1 if base is None else base
    added = [
        msgspec.structs.replace(s, version=min(first + 1 + s.version, version), partition=n)
        for n, s in enumerate(added)
    ]
    dropped = draw(st.lists(drops, max_size=3, unique_by=lambda d: d.id))
    return delta.Delta({s.id: s for s in added}, {d.id: d for d in dropped}).record()


@given(commits())
def test_a_commit_has_one_encoding(commit):
    body = codec.encode_commit(commit)
    again = codec.decode_commit(body, commit.header.version)
    assert again == commit
    if again.delta.spill is None:
        assert spills.delta_of(again, None).record() == again.delta
    assert codec.encode_commit(again) == body
    assert codec.decode_header(body[: codec.HEADER_BYTES], commit.header.version) == commit.header


@pytest.mark.parametrize("writer", ['"', "\\", '\\"', '"}', '{["', ']}}\\\\"}', '"digest":"}'])
def test_a_header_ends_where_it_ends_whatever_its_writer_is_called(writer):
    store = MemoryStore()
    builders.create(store)
    (body,) = builders.bodies(store)
    header = codec.decode_header(body[: codec.HEADER_BYTES], 0)
    renamed = replaced(header, changes=replaced(header.changes, writer=writer))
    commit = replaced(codec.decode_commit(body, 0), header=renamed)
    again = codec.encode_commit(commit)
    assert codec.decode_header(again[: codec.HEADER_BYTES], 0) == renamed
    assert codec.decode_commit(again, 0) == commit


@given(transactions)
def test_a_transaction_has_one_encoding(transaction):
    body = codec.encode_transaction(transaction, "ab" * 16)
    assert codec.decode_transaction(body, "ab" * 16) == transaction
    with pytest.raises(Corrupt):
        codec.decode_transaction(body, "cd" * 16)


@st.composite
def leaves(draw):
    first = draw(chunk_names)
    reach = draw(st.integers(chunks.parse_chunk(first).end, chunks.MAX_MS))
    return Leaf(
        sha256=draw(hex64),
        size=draw(counts),
        first=f"{first}/{draw(hex32)}",
        end=reach,
        segments=draw(st.integers(1, 2**63 - 1)),
        rows=draw(counts),
        bytes=draw(counts),
        hash_sum=draw(hex64),
        stats=draw(column_stats),
        deleted=draw(some),
    )


inlined = st.lists(entries, max_size=3, unique_by=lambda s: s.id).map(
    lambda found: tuple(sorted(found, key=lambda s: entry_order.entry_key(s.chunk, s.id)))
)
in_leaves = st.lists(leaves(), max_size=3, unique_by=lambda leaf: leaf.first).map(
    lambda found: tuple(sorted(found, key=entry_order.first_key))
)


@given(st.data())
def test_a_key_frame_has_one_encoding(data):
    in_root, summed = data.draw(st.booleans()), data.draw(totals)
    root = KeyFrame(
        format="eventlog",
        min_reader=1,
        features=features_of(summed),
        table=data.draw(hex32),
        version=data.draw(small),
        commit=data.draw(hex64),
        time=data.draw(times),
        totals=summed,
        state_hash=data.draw(hex64),
        state=data.draw(metas),
        segments=data.draw(inlined) if in_root else (),
        leaves=() if in_root else data.draw(in_leaves),
    )
    body = codec.encode_keyframe(root)
    again = codec.decode_keyframe(body, root.version)
    assert again == root
    assert codec.encode_keyframe(again) == body


@given(metas, metas)
def test_a_patch_leads_from_one_small_state_to_the_other(old, new):
    if new.layout is None and old.layout is not None:
        return  # a layout is never taken back
    assert codec.meta_patch(old, codec.meta_diff(old, new)) == new
    difference = codec.meta_hash(new) - codec.meta_hash(old)
    assert codec.meta_hash_change(old, new) == difference % codec.HASH_MODULUS
    assert (codec.meta_hash(old) == codec.meta_hash(new)) == (old == new)


@given(st.integers(0, keys.MAX_VERSION), st.integers(0, keys.MAX_VERSION))
def test_log_keys_round_trip_and_sort_newest_first(a, b):
    assert keys.parse_log_key(keys.commit_key(a)) == (a, False)
    assert keys.parse_log_key(keys.keyframe_key(a)) == (a, True)
    assert (keys.commit_key(a) < keys.commit_key(b)) == (a > b)


@given(st.integers(0, keys.MAX_VERSION), chunk_names, hex32)
def test_segment_keys_round_trip(epoch, chunk, segment_id):
    assert keys.parse_segment_key(keys.segment_key(epoch, chunk, segment_id)) == (
        epoch,
        chunk,
        segment_id,
    )


@pytest.mark.verify
@given(st.text(max_size=60))
def test_a_key_that_parses_is_the_one_that_is_built(text):
    for prefix in ("", "_log/", "data/000000000001/", "data/000000000001/2013-01-07/"):
        parsed = keys.parse_segment_key(prefix + text)
        assert parsed is None or keys.segment_key(*parsed) == prefix + text
        found = keys.parse_log_key(prefix + text)
        build = keys.keyframe_key if found and found[1] else keys.commit_key
        assert found is None or build(found[0]) == prefix + text


@given(times, granularities)
def test_chunk_names_round_trip(time_ms, granularity):
    chunk = chunks.chunk_of(time_ms, granularity)
    assert chunk.start <= time_ms < chunk.end
    assert chunk.granularity == granularity
    assert chunks.parse_chunk(chunk.name) == chunk
    for inside in (chunk.start, chunk.end - 1):
        assert chunks.chunk_of(inside, granularity) == chunk
    if chunk.end < chunks.MAX_MS:
        assert chunks.chunk_of(chunk.end, granularity).start == chunk.end


@given(st.lists(entries, max_size=8, unique_by=lambda s: s.id))
def test_entries_round_trip_through_a_leaf(found):
    table = entry_columns.from_segments(found)
    assert entry_columns.to_segments(table) == found
    body = frame_bytes.to_parquet(table)
    again = frame_bytes.from_parquet(body, len(found))
    assert entry_columns.to_segments(again) == found
    assert entry_columns.hash_sum(again) == sum(map(codec.entry_hash, found)) % codec.HASH_MODULUS
    # A leaf that is read and written again is the same object: key frames share it by its hash.
    assert frame_bytes.to_parquet(again) == body


@given(
    st.lists(entries, max_size=4, unique_by=lambda s: s.id),
    st.lists(adds, min_size=1, max_size=4, unique_by=lambda s: s.id),
    st.lists(drops, max_size=4, unique_by=lambda s: s.id),
    st.lists(deletes, max_size=4, unique_by=lambda s: s.id),
    small,
)
def test_spills_round_trip_for_whatever_slot_they_win(older, own, gone, shrunk, version):
    mine = [fold.segment_of(add, version, n) for n, add in enumerate(own)]
    older = [s for s in older if s.version != version]
    table = spill_columns.to_spill([*older, *mine], gone, version, shrunk)
    body = frame_bytes.to_parquet(table)
    count = len(older) + len(mine) + len(gone) + len(shrunk)
    again = frame_bytes.from_parquet(body, count, spilled=True)
    assert spill_columns.from_spill(again, version) == ([*older, *mine], gone, shrunk)
    moved, *_ = spill_columns.from_spill(spill_columns.to_spill(own, gone), version + 5)
    assert moved == [msgspec.structs.replace(s, version=version + 5) for s in mine]


@given(st.lists(st.sets(st.integers(0, 9), max_size=4), min_size=3, max_size=6))
def test_deltas_compose_in_any_grouping(toggles):
    """Each step flips some of ten segments; steps may be folded one by one or group by group."""
    live, steps = {}, []
    for version, numbers in enumerate(toggles):
        gone = [live.pop(n) for n in sorted(numbers) if n in live]
        back = numbers - {int(s.id, 16) for s in gone}
        new = [Segment(f"{n:032x}", "2013", 0, version, n, 1, 1, "0" * 64, 1) for n in sorted(back)]
        live |= {int(s.id, 16): s for s in new}
        steps.append(delta.Delta().then(new, gone))
    left = delta.Delta()
    for step in steps:
        left = left.compose(step)
    right = delta.Delta()
    for step in reversed(steps):
        right = step.compose(right)
    assert left == right
    assert dict(left.adds) == {s.id: s for s in live.values()}
    record = left.record()
    assert delta.from_lists(record.adds, record.drops, None, len(toggles)) == left
    # The first steps stand for a key frame, and the next ones for a newer one.
    for middle in range(2, len(steps)):
        earlier, after, whole = (_together(x) for x in (steps[1:middle], steps[middle:], steps[1:]))
        assert whole.since(earlier) == after


def _together(steps):
    return functools.reduce(delta.Delta.compose, steps, delta.Delta())


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=6))
def test_float_bounds_keep_the_order(values):
    encoded = [stats.encode(pa.scalar(v, pa.float64()), "float64") for v in values]
    for a, x in zip(values, encoded, strict=True):
        for b, y in zip(values, encoded, strict=True):
            if x is not None and y is not None:
                assert (a < b) == (x < y)
                assert (a == b) == (x == y)


@given(st.lists(texts.map(lambda t: t * 3), min_size=1, max_size=5))
def test_text_bounds_enclose_the_values(values):
    column = Column(1, "name", "string")
    (found,) = stats.compute(pa.table({"name": values}), [column])
    for value in values:
        assert found.min is None or found.min.encode() <= value.encode()
        assert found.max is None or found.max.encode() >= value.encode()
    assert len(found.min) <= stats.TEXT_LIMIT


arrow_types = st.recursive(
    st.sampled_from(list(column_types._PRIMITIVES.values())) | st.just(pa.decimal128(12, 3)),
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.lists(inner, min_size=1, max_size=2).map(
            lambda ts: pa.struct([(f"f{n}", t) for n, t in enumerate(ts)])
        ),
        inner.map(lambda t: pa.map_(pa.string(), t)),
    ),
    max_leaves=3,
)


@given(arrow_types)
def test_column_types_round_trip_or_are_refused(kind):
    try:
        stored = schema.from_arrow(pa.schema([("x", kind)]))
    except schema.InvalidInput:
        return
    assert schema.to_arrow(stored).field("x").type == kind
    meta = Meta(schema=stored)
    assert codec.meta_patch(Meta(), as_read(codec.meta_diff(Meta(), meta))) == meta


def test_every_action_of_the_format_is_generated_here():
    assert set(BUILT) == set(Action.__args__)
