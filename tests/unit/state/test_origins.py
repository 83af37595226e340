"""What was carried from another log: once, and with the marks of its apps."""

import pytest
from support.builders import HASH, add, check_sound, commit, create

from eventlog import Table, errors
from eventlog.model import actions, records
from eventlog.model.actions import AppRise, SetOrigin
from eventlog.model.records import App, origins_of
from eventlog.state.small import rules

ID, OTHER = "1a" * 32, "2b" * 32


def origin(old, version, of=ID, checked=None, **apps):
    return SetOrigin(
        of, old, version, HASH, {name: rise(*pair) for name, pair in apps.items()}, checked
    )


def rise(old, *seqs):
    return AppRise(old, tuple((seq, seq) for seq in seqs))


@pytest.fixture
def table():
    return create()


def refused(table, *actions):
    with pytest.raises(errors.CommitConflict) as caught:
        commit(table, *actions)
    return str(caught.value)


@pytest.mark.hazard("G3")
def test_g3_a_version_of_an_origin_is_carried_once(table):
    commit(table, origin(None, 5), add(table, "2013-01-07"))
    for old, version in ((None, 5), (4, 7), (None, 7)):
        again = refused(table, origin(old, version), add(table, "2013-01-08"))
        assert "the versions up to 5 of this origin are merged by now" in again
    assert "does not come after 5" in refused(table, origin(5, 5))
    commit(table, origin(5, 6), origin(None, 0, OTHER))
    assert origins_of(table.session.head().meta) == {
        ID: records.Origin(6, HASH, 2),
        OTHER: records.Origin(0, HASH, 2),
    }
    assert table.session.head().header.features == ("merged",)
    check_sound(table.store)


@pytest.mark.hazard("G3")
def test_g3_what_is_carried_raises_the_marks_of_apps_and_lowers_none(table):
    table.commit(table.transaction("append", [], app=App("job", 7)))
    commit(table, origin(None, 1, checked=1, job=(7, 3), other=(None, 2)))
    marks = table.session.head().meta.apps
    assert (marks["job"].seq, marks["job"].version) == (7, 1)
    assert (marks["other"].seq, marks["other"].version) == (2, 2)
    commit(table, origin(1, 2, job=(7, 8)))
    assert table.session.head().meta.apps["job"].seq == 8
    table.commit(table.transaction("append", [add(table, "2013-01-07")], app=App("job", 8)))
    assert table.session.head().totals.segments == 0  # it is done


@pytest.mark.parametrize(
    "action",
    [
        SetOrigin("1A" * 32, None, 1, HASH),
        SetOrigin("1a" * 16, None, 1, HASH),
        SetOrigin(ID, None, 1, "x"),
    ],
)
def test_an_origin_is_named_by_hashes(table, action):
    assert "must be named by hashes" in refused(table, action)


def test_there_is_a_limit(table, monkeypatch):
    monkeypatch.setattr(rules, "MAX_ORIGINS", 1)
    commit(table, origin(None, 1))
    assert "there are already 1 origins, the limit" in refused(table, origin(None, 1, OTHER))
    commit(table, origin(1, 2))


def test_a_table_without_merges_has_no_trace_of_them(table):
    table.write_keyframe()
    logged = [table.store.get(row.key) for row in table.store.list("_log/")]
    assert len(logged) == 2
    assert not any(b"origin" in body or b"merged" in body for body in logged)
    commit(table, origin(None, 1))
    table.write_keyframe()
    assert origins_of(Table.open("", store=table.store).session.head().meta)[ID].version == 1


@pytest.mark.hazard("G3")
def test_g3_an_app_that_goes_on_meanwhile_voids_what_was_planned_before(table):
    table.commit(table.transaction("append", [], app=App("job", 7)))
    for seen in (None, 6):
        assert "'job' has gone on meanwhile" in refused(table, origin(None, 1, job=(seen, 8)))


@pytest.mark.hazard("G3")
def test_g3_what_two_carry_below_the_mark_at_once_is_carried_by_one(table):
    table.commit(table.transaction("append", [], app=App("job", 7)))
    assert "was not looked" in refused(table, origin(None, 1, job=(7, 3)))
    assert "may have brought the same" in refused(table, origin(None, 1, checked=2, job=(7, 3)))
    commit(table, origin(None, 1, checked=1, job=(7, 3)))
    again = refused(table, origin(None, 1, OTHER, checked=1, job=(7, 3)))
    assert "may have brought the same" in again
    assert "may have brought the same" in refused(table, origin(None, 1, OTHER, checked=1))
    commit(table, origin(1, 2, checked=1, job=(7, 4)))  # the same log
    commit(table, origin(None, 1, OTHER, checked=3, job=(7, 5, 8)))
    assert table.session.head().meta.apps["job"].seq == 8


@pytest.mark.hazard("G3")
def test_g3_what_is_carried_is_named_by_hashes():
    table = create()
    for commits in ((), ((1, "ab"),)):
        named = SetOrigin(ID, None, 1, HASH, {}, None, commits)
        assert "must be named by hashes" in refused(table, named)
    commit(table, SetOrigin(ID, None, 1, HASH, {}, None, ((1, HASH), (2, OTHER))))
    check_sound(table.store)


@pytest.mark.hazard("W18")
def test_w18_the_state_of_another_log_is_that_of_the_version_that_is_merged(table):
    for restored in (actions.Restore(2, origin=ID), actions.Restore(1, origin=OTHER)):
        assert "is not merged by the transaction" in refused(table, origin(None, 1), restored)
    commit(table, origin(None, 1), actions.Restore(1, origin=ID), add(table))
    assert "is not merged by the transaction" in refused(table, actions.Restore(1, origin=ID))
    check_sound(table.store)


@pytest.mark.parametrize("done", [(), ((4, 3),), ((4, 5), (5, 6)), ((7, 7), (4, 4))])
def test_sequences_that_are_carried_are_in_order(table, done):
    action = SetOrigin(ID, None, 1, HASH, {"job": AppRise(None, done)})
    assert "empty, or not in order" in refused(table, action)
