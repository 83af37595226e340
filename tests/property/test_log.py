"""Any sequence of transactions: every road to a version leads to the same state."""

from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UnsetType
from support import builders, repeatable
from support.builders import create, live, reopen

from eventlog import errors
from eventlog.format import codec, entry_order, keys
from eventlog.format.frames import entry_columns
from eventlog.log.snapshot import Snapshot
from eventlog.model import chunks
from eventlog.model.actions import PropertyChange, SetProperties, SetSchema, Unchanged
from eventlog.model.columns.edits import add_fields
from eventlog.model.entries import ColumnStats
from eventlog.model.records import App, Stem, pieces_in
from eventlog.state import fold, keyframe
from eventlog.state.pieces import places
from eventlog.store.memory import MemoryStore

DAYS = [(date(2013, 1, 1) + timedelta(n)).isoformat() for n in range(12)]
CHUNKS = [*DAYS, "2013-01-03T05", "2013-01", "2013", "all"]


@pytest.fixture(autouse=True)
def small_leaves(monkeypatch):
    for name, value in (
        ("INLINE_SEGMENTS", 3),
        ("LEAF_TARGET", 4),
        ("LEAF_SMALL", 2),
        ("LEAF_MAX", 6),
        ("ROOT_LEAVES", 4),
        ("STEM_TARGET", 3),
        ("STEM_SMALL", 2),
    ):
        monkeypatch.setattr(f"eventlog.state.keyframe.{name}", value)


@dataclass(frozen=True)
class Step:
    """What one transaction does, in numbers that fit any state."""

    add: list = field(default_factory=list)
    drop: list = field(default_factory=list)
    app: int | None = None
    note: int | None = None
    widen: bool = False
    spill: bool = False


some = st.integers(0, 1000)
steps = st.builds(
    Step,
    add=st.lists(st.sampled_from(CHUNKS), max_size=4),
    drop=st.lists(some, max_size=3),
    app=st.none() | st.integers(0, 3),
    note=st.none() | st.integers(0, 2),
    widen=st.integers(0, 9).map(lambda n: n == 0),
)
histories = st.tuples(
    st.integers(1, 5),
    st.lists(steps | st.builds(Step, add=st.lists(st.sampled_from(CHUNKS), min_size=4, max_size=9)),
             min_size=5, max_size=25 if repeatable.EXAMPLES else 16),
)  # fmt: skip


def perform(table, step, number):
    """Commit one step; what is void or done already is fine."""
    head = table.session.head()
    known = live(head)
    actions = []
    for n, chunk in enumerate(step.add):
        low = number * 10 + n
        stats = (ColumnStats(1, low, low + 5, 0), ColumnStats(2, f"row {low}", None, 1))
        actions.append(builders.add(table, chunk, rows=1 + n, stats=stats[: 1 + n % 2]))
    gone = {known[n % len(known)] for n in step.drop} if known else ()
    actions += [builders.drop_of(s) for s in gone]
    if step.note is not None:
        old = head.properties.get("user.note")
        actions.append(SetProperties((PropertyChange("user.note", old, str(step.note) or None),)))
    if step.widen:
        field_ = pa.field(f"extra {number}", pa.int64())
        actions.append(SetSchema(add_fields(head.stored_schema, [field_])))
    app = None if step.app is None else App(f"job {step.app}", number // 2)
    table.commit(table.transaction("replace", actions, app=app))


def build(history):
    every, doings = history
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": str(every)})
    for number, step in enumerate(doings):
        perform(table, step, number)
    return store


def key_frames(store):
    found = [keys.parse_log_key(o.key) for o in store.list(keys.LOG_PREFIX)]
    return sorted(p[0] for p in found if p is not None and p[1])


@pytest.mark.verify
@given(histories)
def test_every_snapshot_is_the_fold_from_version_0(history):
    store = build(history)
    table = builders.check_sound(store)
    states = [state for state, _ in builders.fold_all(store)]
    for version in key_frames(store):
        root = table.session.log.key_frames.root(version)
        keyframe.check_key_frame(root)
        on = table.snapshot(version).on_keyframe(root)
        builders.check_snapshot(on, states[version])
    for state in states:
        found = table.snapshot(state.version)
        held = state.segments.values()
        assert found.totals.segments == len(held)
        assert found.totals.rows == sum(s.rows for s in held)
        assert found.totals.bytes == sum(s.bytes for s in held)
        total = codec.meta_hash(state.meta) + sum(map(codec.entry_hash, held))
        assert found.header.state_hash == codec.hex_hash(total)


@pytest.mark.verify
@given(histories, some)
def test_any_key_frame_may_be_lost(history, which):
    store = build(history)
    frames = key_frames(store)
    if frames:
        store.delete([keys.keyframe_key(frames[which % len(frames)])])
    builders.check_sound(store)


@given(histories, some, some)
def test_diff_is_the_difference_of_the_folds(history, a, b):
    store = build(history)
    states = [state for state, _ in builders.fold_all(store)]
    a, b = a % len(states), b % len(states)
    found = reopen(store).diff(a, b)
    before, after = set(states[a].segments.values()), set(states[b].segments.values())
    assert set(found.added) == after - before
    assert set(found.dropped) == before - after
    assert len(found.added) == len(set(found.added))
    assert len(found.dropped) == len(set(found.dropped))


@pytest.mark.verify
@given(histories, st.sampled_from(CHUNKS), st.sampled_from(CHUNKS))
def test_entries_of_an_interval_are_those_of_a_full_scan(history, first, last):
    head = reopen(build(history)).session.head()
    start, end = chunks.parse_chunk(first).start, chunks.parse_chunk(last).end
    wanted = [s for s in live(head) if chunks.parse_chunk(s.chunk).overlaps(start, end)]
    assert live(head, start, end) == wanted
    expected = {}
    for s in live(head):
        n, rows, size = expected.get(s.chunk, (0, 0, 0))
        expected[s.chunk] = (n + 1, rows + s.rows, size + s.bytes)
    assert {c.chunk.name: (c.segments, c.rows, c.bytes) for c in head.chunks()} == expected


@pytest.mark.verify
@given(histories, some)
def test_live_and_arrived_answer_as_the_fold_does(history, after):
    store = build(history)
    table = reopen(store)
    head = table.session.head()
    states = [state for state, _ in builders.fold_all(store)]
    state = states[-1]
    ever = {s.id: s for past in states for s in past.segments.values()}
    asked = [builders.drop_of(s) for s in ever.values()]
    assert head.live(asked) == state.live(asked)
    after %= len(states)
    spans = [chunks.parse_chunk(chunk) for chunk in CHUNKS]
    unchanged = [Unchanged(span.start, span.end) for span in spans]
    view = builders.view_of(table, table.transaction("ask", unchanged, read_version=after))
    for span in spans:
        mine = view.arrived(span.start, span.end, after)
        assert (mine is None) == (state.arrived(span.start, span.end, after) is None)
        assert mine is None or (mine.version > after and state.segments[mine.id] == mine)
    staged = [
        builders.Add(s.id, s.chunk, s.epoch, s.rows, s.bytes, s.checksum, s.schema)
        for s in ever.values()
    ]
    view = builders.view_of(table, table.transaction("ask", [*asked, *staged]))
    assert view.live(asked) == state.live(asked)
    assert view.present(staged) == state.present(staged)


@pytest.mark.verify
@given(histories)
def test_a_new_key_frame_keeps_the_leaves_that_nothing_touched(history):
    store = build(history)
    table = reopen(store)
    frames = key_frames(store)
    for before, after in pairwise(frames):
        old, new = map(table.session.log.key_frames.root, (before, after))
        if table.snapshot(after).base != old:
            continue
        delta = table.snapshot(after).delta
        positions = [
            entry_order.entry_key(entry.chunk, entry.id)
            for entry in (*delta.adds.values(), *delta.drops.values())
        ]
        leaves, grown = map(table.session.log.key_frames.all_leaves, (old, new))
        touched = places.containing(leaves, positions)
        joined = {n + d for n in touched for d in (-1, 0, 1)}
        kept = {leaf.sha256 for leaf in grown}
        for number, leaf in enumerate(leaves):
            if number not in joined:
                assert leaf.sha256 in kept
        most = keyframe.LEAF_MAX + 3 * keyframe.LEAF_TARGET
        assert all(leaf.segments <= most for leaf in grown)


@pytest.mark.verify
@given(histories)
def test_a_new_key_frame_keeps_the_stems_that_nothing_touched(history):
    table = reopen(build(history))
    for before, after in pairwise(key_frames(table.store)):
        old, new = map(table.session.log.key_frames.root, (before, after))
        below = table.snapshot(after)
        if below.base != old or isinstance(old.stems, UnsetType):
            continue
        if sum(stem.leaves for stem in old.stems) < keyframe.ROOT_LEAVES // 2:
            continue
        positions = [
            entry_order.entry_key(entry.chunk, entry.id)
            for entry in (*below.delta.adds.values(), *below.delta.drops.values())
        ]
        touched = places.containing(old.stems, positions)
        joined = {n + d for n in touched for d in (-1, 0, 1)}
        kept = {piece.sha256 for piece in pieces_in(new)}
        for number, stem in enumerate(old.stems):
            assert number in joined or stem.sha256 in kept
        most = 1.5 * keyframe.STEM_TARGET
        assert all(stem.leaves <= most for stem in pieces_in(new) if isinstance(stem, Stem))


@pytest.mark.verify
@given(histories)
def test_key_frames_of_two_writers_are_the_same_bytes(history):
    store = build(history)
    spies = [builders.Spy(store) for _ in range(2)]
    writers = [reopen(spy, seed=number) for number, spy in enumerate(spies)]
    for writer in writers:  # opened before: neither sees the other's
        writer.write_keyframe()
    assert spies[0].puts == spies[1].puts


@pytest.mark.verify
@given(histories, st.lists(some, min_size=1, max_size=4))
def test_a_dropped_segment_may_come_back(history, which):
    """The same object added, dropped and added again: the delta holds its drop and its add."""
    store = build(history)
    table = reopen(store)
    table.write_keyframe()
    for n in which:
        known = live(table.session.head())
        if not known:
            break
        gone = known[n % len(known)]
        back = builders.Add(
            gone.id, gone.chunk, gone.epoch, gone.rows, gone.bytes, gone.checksum, gone.schema
        )
        builders.commit(table, builders.drop_of(gone), operation="replace")
        builders.commit(table, back)
        with pytest.raises(errors.CommitConflict):
            builders.commit(table, back)
    head = table.session.head().version
    store.delete([keys.keyframe_key(table.session.head().base.version)])
    builders.check_sound(store)
    found = reopen(store).diff(head - 2, head)
    assert {s.id for s in found.added} == {s.id for s in found.dropped}


@given(histories, some)
def test_a_precondition_is_void_in_the_fold_exactly_when_the_writer_is_told(history, n):
    store = build(history)
    table = reopen(store)
    head = table.session.head()
    known = live(head)
    states = builders.fold_all(store)
    span = chunks.parse_chunk(CHUNKS[n % len(CHUNKS)])
    asked = table.transaction(
        "overwrite", [Unchanged(span.start, span.end)], read_version=n % (head.version + 1)
    )
    dropped = [builders.drop_of(known[n % len(known)])] if known else []
    doubled = table.transaction("replace", dropped * 2)
    for transaction in (asked, doubled):
        view = builders.view_of(table, transaction)
        on_snapshot = fold.judge([transaction], view, head.header.time + 1)
        on_state = fold.judge([transaction], states[-1][0], head.header.time + 1)
        assert on_snapshot.accepted == on_state.accepted
        assert set(on_snapshot.void) == set(on_state.void)
        assert on_snapshot.drops == on_state.drops


def test_bounds_of_leaves_enclose_their_entries():
    store = build((3, [Step(add=CHUNKS) for _ in range(4)]))
    table = reopen(store)
    root = table.session.log.key_frames.root(key_frames(store)[-1])
    leaves = table.session.log.key_frames.all_leaves(root)
    assert len(leaves) > 3
    assert len(root.stems) > 1
    for leaf in leaves:
        entries = entry_columns.to_segments(table.session.log.key_frames.leaf(leaf))
        assert leaf.rows == sum(s.rows for s in entries)
        assert leaf.end == max(chunks.parse_chunk(s.chunk).end for s in entries)
        for stat in leaf.stats:
            for entry in entries:
                for own in entry.stats:
                    if own.column == stat.column:
                        assert stat.min is None or stat.min <= own.min
                        assert stat.max is None or stat.max >= own.max
    assert isinstance(table.session.head(), Snapshot)
