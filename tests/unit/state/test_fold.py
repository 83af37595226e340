"""The rules of the fold, one by one: what is void, and what the log must be."""

import pytest
from support.builders import (
    HASH,
    add,
    check_sound,
    commit,
    create,
    drop_of,
    fold_all,
    live,
    replaced,
    view_of,
)
from support.folds import advance

from eventlog import errors
from eventlog.format.frames import entry_columns
from eventlog.model.actions import Drop, Fence, Replace, SetGranularity, SetLayout, Unchanged
from eventlog.model.entries import Layout
from eventlog.model.records import App, Transaction
from eventlog.state import fold
from eventlog.state.small import rules


@pytest.fixture
def table():
    t = create()
    commit(t, add(t, "2013-01-07"))
    commit(t, add(t, "2013-01-08"))
    return t


def judged(table, *actions, read_version=2, app=None, others=()):
    """The reason why a transaction is void on top of a table, or None."""
    transaction = Transaction("a" * 32, "test", "test", read_version, app=app, actions=actions)
    state = fold_all(table.store)[-1][0]
    on_state = fold.judge([*others, transaction], state, state.header.time + 1)
    view = view_of(table, *others, transaction)
    on_snapshot = fold.judge([*others, transaction], view, state.header.time + 1)
    assert on_state == on_snapshot
    return on_state.void.get("a" * 32)


def judged_text(reason, text):
    return reason is not None and text in reason


@pytest.mark.hazard("K1")
def test_what_is_void(table):
    first, second = live(table.session.head())
    again = replaced(drop_of(first), hash=HASH)
    cases = [
        ((add(table, epoch=3),), "not yet in the log"),
        ((replaced(add(table), schema=2),), "schema 2"),
        ((replaced(add(table), tested=9),), "tested with schema 9"),
        ((Drop("0" * 32, "2013-01-07", HASH),), "no longer live"),
        ((again,), "no longer live"),
        ((drop_of(first), drop_of(first)), "no longer live"),
        ((SetLayout(Layout(time_column=1, granularity="day")),), "when the table is created"),
        ((Fence(0),), "fence"),
        ((Fence(4),), "fence"),
        ((Fence(2), add(table, epoch=1)), "below the fence"),
    ]
    for actions, why in cases:
        assert judged_text(judged(table, *actions), why), why
    assert judged(table, drop_of(first), drop_of(second), add(table), Fence(2)) is None


@pytest.mark.parametrize(
    ("read_version", "start", "end", "void"),
    [(2, None, None, False), (1, None, None, True), (1, 0, 1, False), (0, 0, 2**60, True)],
)
def test_unchanged_looks_at_what_came_after_the_read_version(table, read_version, start, end, void):
    low, high = (1_357_603_200_000, 1_357_689_600_000) if start is None else (start, end)
    reason = judged(table, Unchanged(low, high), read_version=read_version)
    assert (reason is not None) == void


@pytest.mark.parametrize(("seq", "void"), [(0, True), (4, True), (5, True), (6, False)])
def test_an_app_goes_forward_only(table, seq, void):
    table.commit(table.transaction("append", [add(table)], app=App("job", 5)))
    assert (judged(table, app=App("job", seq)) is not None) == void
    assert judged(table, app=App("other", seq)) is None


def test_transactions_of_one_commit_see_each_other(table):
    first, _ = live(table.session.head())
    earlier = Transaction("b" * 32, "test", "test", 2, app=App("job", 1), actions=(drop_of(first),))
    assert judged_text(judged(table, drop_of(first), others=[earlier]), "no longer live")
    assert judged_text(judged(table, app=App("job", 1), others=[earlier]), "already at sequence")
    assert judged(table, app=App("job", 2), others=[earlier]) is None
    staged = add(table)
    adding = Transaction("c" * 32, "test", "test", 2, actions=(staged,))
    assert judged_text(judged(table, staged, others=[adding]), "added twice")
    new = fold.judge([adding], view_of(table, adding), 2**40).adds[0]
    assert judged(table, drop_of(new), others=[adding]) is None


def test_void_transactions_leave_no_trace(table):
    bad = Transaction(
        "b" * 32, "test", "test", 2, app=App("job", 1), actions=(add(table, epoch=9),)
    )
    effect = fold.judge([bad], view_of(table, bad), 2**40)
    assert (effect.meta, effect.adds, effect.drops, effect.accepted) == (
        table.session.head().meta,
        (),
        (),
        (),
    )
    assert set(effect.void) == {"b" * 32}


def test_marks_are_forgotten_after_their_retention(monkeypatch):
    monkeypatch.setattr(rules, "APP_VERSIONS", 1)
    table = create(properties={"app_retention_days": "2"})
    for number, days in ((1, 0), (2, 1), (3, 2), (4, 3)):
        table.clock.advance(days * rules.DAY_MS)
        table.commit(table.transaction("append", [add(table)], app=App(f"job {number}", 1)))
    assert set(table.session.head().meta.apps) == {"job 2", "job 3", "job 4"}
    check_sound(table.store)


def test_the_order_of_entries_is_that_of_the_transactions(table):
    actions = [add(table, f"2013-01-{20 - n}") for n in range(5)]
    version = commit(table, *actions)
    found = sorted(
        (s for s in live(table.session.head()) if s.version == version), key=lambda s: s.partition
    )
    assert [s.id for s in found] == [a.id for a in actions]
    ordered = entry_columns.to_segments(table.session.head().entries())
    assert {s.id for s in ordered} == {s.id for s in live(table.session.head())}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2),
        ("version", 4),
        ("table", "f" * 32),
        ("prev", HASH),
        ("time", 0),
        ("state_hash", HASH),
        ("totals", None),
        ("changes", None),
    ],
)
def test_a_commit_that_does_not_follow_is_corrupt(table, field, value):
    commit(table, add(table))
    stored, body = table.session.log.read(3)
    before = fold_all(table.store)[2][0]
    advance(before, stored, HASH)
    if value is None:
        value = replaced(getattr(stored.header, field), rows=77)
    header = replaced(stored.header, **{field: value})
    with pytest.raises(errors.Corrupt):
        advance(before, replaced(stored, header=header), HASH)
    with pytest.raises(errors.Corrupt):
        advance(None, stored, HASH)
    assert body


def test_a_drop_that_names_no_chunk_hides_no_other():
    table = create(properties={"keyframe_commits": "1"})
    commit(table, add(table))
    found = live(table.refresh())
    asked = [Drop("0" * 32, "no chunk", HASH), *map(drop_of, found)]
    assert list(table.session.head().live(asked).values()) == found


@pytest.mark.hazard("I3", "I4")
def test_one_unit_of_work_takes_effect_once_whoever_hands_it_in():
    table = create()
    units = [table.transaction("append", [add(table)], app=App("job", 1)) for _ in range(2)]
    both = fold.judge(units, view_of(table, *units), 2**40)
    assert both.accepted == (units[0].id,)
    assert "already at sequence 1" in both.void[units[1].id]
    table.commit(units[0])
    assert units[1].id in fold.judge(units[1:], view_of(table, *units[1:]), 2**40).void


@pytest.mark.hazard("K1")
def test_a_replace_of_what_was_replaced_meanwhile_is_void():
    table = create()
    commit(table, add(table))
    (segment,) = live(table.session.head())
    first, second = (table.transaction("replace", [drop_of(segment), add(table)]) for _ in range(2))
    both = fold.judge([first, second], view_of(table, first, second), 2**40)
    assert "no longer live" in both.void[second.id]
    table.commit(first)
    with pytest.raises(errors.CommitConflict, match="no longer live"):
        table.commit(second)
    assert len(live(table.refresh())) == 1


@pytest.fixture
def day():
    """One day: 3 rows of version 1, 2 rows of version 2."""
    t = create()
    commit(t, add(t, rows=3))
    commit(t, add(t, rows=2))
    return t


@pytest.mark.hazard("K6", "K7")
@pytest.mark.parametrize(
    ("plan", "rows", "read", "why"),
    [
        (Replace(2, 0), [5], 2, None),
        (Replace(2, 0), [1, 4], 2, None),
        (Replace(2, 2), [3], 2, None),
        (Replace(2, 5), [], 2, None),
        (Replace(2, 0), [4], 2, "lost or duplicated"),
        (Replace(2, 0), [6], 2, "lost or duplicated"),
        (Replace(2, 0), [5, 5], 2, "lost or duplicated"),
        (Replace(2, 0), [], 2, "lost or duplicated"),
        (Replace(2, 1), [5], 2, "lost or duplicated"),
        (Replace(2, 1), [3], 2, "lost or duplicated"),
        (Replace(1, 0), [5], 2, "is newer than the plan"),
        (Replace(2, 0), [5], 1, "after the version that it read"),
    ],
)
def test_k6_k7_a_replacement_holds_the_rows_that_it_was_planned_on(day, plan, rows, read, why):
    drops = [drop_of(s) for s in live(day.session.head())]
    adds = [add(day, rows=n) for n in rows]
    reason = judged(day, plan, *drops, *adds, read_version=read)
    assert reason is None if why is None else judged_text(reason, why)
    unbalanced = judged(day, *drops, *adds, read_version=read)
    assert unbalanced is None  # only where the transaction says that it replaces


@pytest.mark.hazard("K6")
def test_k6_a_replacement_drops_something_and_says_once_that_it_is_one(day):
    first, _ = live(day.session.head())
    same = add(day, rows=first.rows)
    assert judged_text(judged(day, Replace(2, 0)), "must drop a segment")
    assert judged_text(judged(day, Replace(2, 0), add(day, rows=0)), "must drop a segment")
    twice = (Replace(2, 0), Replace(2, 0), drop_of(first), same)
    assert judged_text(judged(day, *twice), "must drop a segment")
    assert judged(day, *twice[1:]) is None


@pytest.mark.hazard("K7")
def test_k7_what_arrives_after_the_plan_stays(day):
    """A late append to the same chunk is neither dropped nor in the way, in either order."""
    drops = [drop_of(s) for s in live(day.session.head())]
    rewrite = day.transaction("compact", [Replace(2, 0), *drops, add(day, rows=5)])
    version = commit(day, late := add(day, rows=7))
    assert day.commit(rewrite) == version + 1
    assert sorted(s.rows for s in live(day.session.head())) == [5, 7]
    (arrived,) = [s for s in live(day.session.head()) if s.id == late.id]
    greedy = [Replace(2, 0), drop_of(arrived), add(day, rows=7)]
    assert judged_text(judged(day, *greedy, read_version=4), "is newer than the plan")
    assert judged(day, Replace(3, 0), *greedy[1:], read_version=4) is None


@pytest.mark.hazard("K1")
def test_k1_of_two_rewrites_of_one_segment_the_second_is_void(day):
    first, second = live(day.session.head())
    one = day.transaction("compact", [Replace(2, 0), drop_of(first), add(day, rows=first.rows)])
    both = [Replace(2, 0), drop_of(first), drop_of(second), add(day, rows=5)]
    assert judged_text(judged(day, *both, others=[one]), "no longer live")
    day.commit(one)
    with pytest.raises(errors.CommitConflict, match="no longer live"):
        day.commit(day.transaction("compact", both))
    assert day.session.head().totals.rows == 5


@pytest.mark.parametrize(
    ("old", "new", "void"),
    [("day", "hour", False), ("day", "day", False), ("hour", "month", True), ("all", "day", True)],
)
def test_a_granularity_is_changed_as_it_was_seen(table, old, new, void):
    assert (judged(table, SetGranularity(old, new)) is not None) == void
    again = Transaction("b" * 32, "test", "test", 2, actions=(SetGranularity("day", "year"),))
    assert judged_text(judged(table, SetGranularity(old, new), others=[again]), "'year'")


def test_what_is_void_without_a_time_column():
    table = create(time_column=None)
    commit(table, add(table, "all"))
    assert judged(table, add(table, "all"), read_version=1) is None
    for chunk in ("2013", "2013-01-07"):
        reason = judged(table, add(table, chunk), read_version=1)
        assert judged_text(reason, f"lies in chunk {chunk}, and the table has no time column")
    for new in ("day", "all"):
        reason = judged(table, SetGranularity("all", new), read_version=1)
        assert judged_text(reason, "the table has no time column")
