"""What judging transactions takes from a key frame, and the view that it is made on."""

import pytest
from support.builders import add as added
from support.builders import commit, create, drop_of, live, reopen, replaced

from eventlog.format.frames import entry_columns
from eventlog.model.actions import Add, Drop, SameSegments, Unchanged
from eventlog.model.chunks import parse_chunk
from eventlog.model.records import App, Stem, Token
from eventlog.state import fold, keyframe
from eventlog.state.judging import Judging

DAYS = [f"2013-01-{day:02d}" for day in range(1, 7)]


STEMS = {"ROOT_LEAVES": 2, "STEM_TARGET": 2, "STEM_SMALL": 0}


@pytest.fixture(params=[{}, STEMS], ids=["leaves", "stems"])
def table(monkeypatch, request):
    """Six days of a segment each, in a key frame of one leaf a day; then one commit more."""
    small = {"INLINE_SEGMENTS": 2, "LEAF_TARGET": 1, "LEAF_SMALL": 0} | request.param
    for name, value in small.items():
        monkeypatch.setattr(keyframe, name, value)
    table = create()
    for day in DAYS:
        commit(table, added(table, day), app=App("job", int(day[-2:])))
    table.write_keyframe()
    commit(table, added(table, DAYS[0]))
    table = reopen(table.store)
    table.write_keyframe()
    commit(table, added(table, DAYS[0]))
    assert len(table.session.head().leaves()) == len(DAYS)
    return table


def read(question, table):
    """The state with the stems that a question needs, and the leaves that it needs then."""
    state, frames = table.session.head().state, table.session.log.key_frames
    while stems := [piece for piece in question.needs(state) if isinstance(piece, Stem)]:
        state = state.having(frames.stems(stems))
    return state, question.needs(state)


def days_needed(table, *actions, fresh=(), **options):
    """The days of the leaves that a transaction of these actions takes."""
    transaction = table.transaction("test", actions, **options)
    needed = read(Judging([transaction], fresh), table)[1]
    return [leaf.first.partition("/")[0] for leaf in needed]


def unchanged(day):
    span = parse_chunk(day)
    return Unchanged(span.start, span.end)


def upload(add):
    return {(add.id, add.epoch, add.chunk)}


def test_a_fresh_add_takes_no_leaf_an_earlier_one_its_own_and_a_foreign_one_all(table):
    new = added(table, DAYS[2])
    assert days_needed(table, new, fresh=upload(new)) == []
    earlier = replaced(new, epoch=table.session.head().base.version - 1)
    assert days_needed(table, earlier, fresh=upload(earlier)) == [DAYS[2]]
    for other in (set(), upload(earlier), upload(replaced(new, chunk=DAYS[1]))):
        assert days_needed(table, new, fresh=other) == DAYS[: len(days_needed(table, new))]
        assert len(days_needed(table, new, fresh=other)) > 3


def test_a_drop_takes_the_leaf_that_holds_it_unless_it_came_since(table):
    first, *_, newest = sorted(live(table.session.head()), key=lambda s: s.version)
    assert days_needed(table, drop_of(first)) == [DAYS[0]]
    assert days_needed(table, drop_of(newest)) == []
    assert days_needed(table, Drop(first.id, "no chunk", "")) == []
    assert days_needed(table, *(drop_of(s) for s in live(table.session.head()))) == DAYS


def test_an_unchanged_range_takes_its_leaves_where_they_may_be_newer(table):
    base = table.session.head().base.version
    assert days_needed(table, unchanged(DAYS[3]), read_version=base) == []
    assert days_needed(table, unchanged(DAYS[3]), read_version=base - 1) == [DAYS[3]]


@pytest.mark.parametrize("change", [{"app": App("job", 6)}, {"claim": Token("a" * 32, 1)}])
def test_what_the_small_state_makes_void_takes_no_leaf(table, change):
    actions = [drop_of(segment) for segment in live(table.session.head())]
    (head, leaves) = table.session.head(), {}
    void = replaced(table.transaction("test", actions), **change)
    question = Judging([void])
    assert not question.needs(head.state)
    view = question.answer(head.state, leaves)
    assert void.id in fold.judge([void], view, head.header.time + 1).void
    # A later one of a commit meets another small state, which may have forgotten the app.
    assert Judging([table.transaction("test", []), void]).needs(head.state)


def test_the_view_answers_what_was_asked_for_and_nothing_else(table):
    head = table.session.head()
    first, *rest = live(head)
    transaction = table.transaction("test", [drop_of(first), unchanged(first.chunk)])
    _, view = table.session.log.load_view(head, [transaction])
    assert view.live([drop_of(first)]) == {first.id: first}
    span = parse_chunk(first.chunk)
    assert view.arrived(span.start, span.end, transaction.read_version) is None
    questions = [
        lambda: view.live([drop_of(rest[0])]),
        lambda: view.present([Add(rest[0].id, DAYS[0], 0, 1, 1, "", 1)]),
        lambda: view.arrived(span.start, span.end, 0),
        view.hash_sum,
    ]
    for question in questions:
        with pytest.raises(LookupError):
            question()
    compared = table.transaction("test", [SameSegments(head.hash_sum())])
    assert table.session.log.load_view(head, [compared])[1].hash_sum() == head.hash_sum()


def test_what_arrived_before_the_key_frame_is_seen(table):
    span, third = parse_chunk(DAYS[2]), 3
    for read_version, arrives in ((third - 1, True), (third, False)):
        asked = table.transaction("test", [unchanged(DAYS[2])], read_version=read_version)
        _, view = table.session.log.load_view(table.session.head(), [asked])
        segment = view.arrived(span.start, span.end, read_version)
        assert (segment is not None and segment.version == third) == arrives


def test_a_question_reads_nothing_that_it_did_not_name(table):
    """Handed the leaves of what it needs, and empty ones for the rest, it answers the same."""
    some = [drop_of(segment) for segment in live(table.session.head())[:2]]
    question = Judging([table.transaction("test", some)])
    state, leaves = read(question, table)
    needed = {leaf.sha256: table.session.log.key_frames.leaf(leaf) for leaf in leaves}
    others = {leaf.sha256: entry_columns.EMPTY for leaf in table.session.head().leaves()}
    assert question.answer(state, needed) == question.answer(state, others | needed)
