"""What an analysis for compaction leaves in the log: when it is taken, how long it counts."""

import pytest
from support.builders import add, check_sound, commit, create, reopen, replaced

from eventlog import errors
from eventlog.model.actions import Assess, ChunkChange
from eventlog.model.entries import Analysed, ChunkState
from eventlog.state.small import assessment

POLICY, OTHER = "a" * 64, "b" * 64
DAY, HOUR = "2013-01-07", "2013-01-07T05"
FIRST = Analysed(1, POLICY)


def state(version=1, segments=1, *, standing="unstable", failures=0, until=0):
    return ChunkState(standing, version, segments, failures, until)


def change(chunk=DAY, made=None, **fields):
    return ChunkChange(chunk, made or state(**fields))


@pytest.fixture
def table():
    """Version 2 has one analysis: of version 1, with a state of one chunk."""
    table = create()
    commit(table, add(table))
    commit(table, Assess(None, FIRST, (change(),)), operation="assess")
    return table


def test_what_was_found_is_there_and_goes_again(table):
    meta = table.session.head().meta
    assert (meta.analysed, dict(meta.chunks)) == (FIRST, {DAY: state()})
    later = Analysed(2, OTHER)
    changes = (change(HOUR, version=2), change("2014", standing="deferred"))
    commit(table, Assess(FIRST, later, changes))
    assert list(table.session.head().meta.chunks) == [DAY, HOUR, "2014"]
    assert table.session.head().meta.analysed == later
    commit(table, Assess(later, None, (ChunkChange(DAY, None), ChunkChange("2013-05", None))))
    assert list(table.session.head().meta.chunks) == [HOUR, "2014"]
    assert table.session.head().meta.analysed is None
    check_sound(table.store)


def test_it_survives_key_frames():
    table = create(properties={"keyframe_commits": "1"})
    commit(table, add(table))
    commit(table, Assess(None, FIRST, (change(),)))
    table.write_keyframe()
    commit(table, add(table))
    meta = reopen(table.store).session.head().meta
    assert (meta.analysed, dict(meta.chunks)) == (FIRST, {DAY: state()})
    check_sound(table.store)


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (Assess(None, FIRST, ()), "another analysis"),
        (Assess(replaced(FIRST, version=0), FIRST, ()), "another analysis"),
        (Assess(replaced(FIRST, policy=OTHER), FIRST, ()), "another analysis"),
        (Assess(FIRST, Analysed(3, POLICY), ()), "cannot have been analysed"),
        (Assess(FIRST, Analysed(1, POLICY.upper()), ()), "64 lower-case"),
        (Assess(FIRST, Analysed(1, "a" * 63), ()), "64 lower-case"),
        (Assess(FIRST, FIRST, (change(version=3),)), "does not exist yet"),
        (Assess(FIRST, FIRST, (change("2013-1"),)), "not a time chunk"),
        (Assess(FIRST, FIRST, (change("2013-02-30"),)), "no such date"),
        (Assess(FIRST, FIRST, (change(HOUR), change(DAY))), "in order"),
        (Assess(FIRST, FIRST, (change(), ChunkChange(DAY, None))), "in order"),
    ],
)
def test_what_is_not_taken_changes_nothing(table, action, why):
    before = table.session.head().meta
    with pytest.raises(errors.CommitConflict, match=why):
        commit(table, action)
    assert table.refresh().meta == before


@pytest.mark.hazard("K8")
def test_of_two_analyses_at_once_the_second_is_void(table):
    other = reopen(table.store)
    mine, theirs = Analysed(2, POLICY), Analysed(2, OTHER)
    commit(other, Assess(FIRST, theirs, ()))
    with pytest.raises(errors.CommitConflict, match="another analysis"):
        commit(table, Assess(FIRST, mine, (ChunkChange(DAY, None),)))
    assert table.refresh().meta.analysed == theirs
    assert list(table.session.head().meta.chunks) == [DAY]


def test_there_are_so_many_states_at_most(table):
    def years(first, count):
        return tuple(change(f"{n:04d}") for n in range(first, first + count))

    commit(table, Assess(FIRST, FIRST, years(1000, 499)))
    assert len(table.session.head().meta.chunks) == assessment.MAX_STATES == 500
    with pytest.raises(errors.CommitConflict, match="more than 500"):
        commit(table, Assess(FIRST, FIRST, years(5000, 1)))
    commit(table, Assess(FIRST, FIRST, (ChunkChange("1000", None), *years(5000, 1))))
    assert len(table.session.head().meta.chunks) == 500


@pytest.mark.parametrize(
    ("version", "segments", "current"), [(4, 2, True), (5, 2, False), (4, 3, False), (3, 1, False)]
)
def test_a_state_counts_while_its_chunk_is_as_it_was(version, segments, current):
    assert assessment.is_current(state(4, 2), version, segments) == current
