"""Tables whose time a wrong clock drove off, and the way out that a person takes (FORMAT.md R10.2).

On stores that tell no time commits are stamped by their writers' clocks. Whatever those said, no
row is lost and no unit of work takes effect twice: only what old versions are worth goes wrong, and
can be corrected.
"""

import json
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from click.testing import CliRunner
from simulation import naive
from support.builders import (
    START_MS,
    add,
    bodies,
    check_sound,
    commit,
    create,
    events,
    fold_all,
    live,
    reopen,
    replace_object,
    sorted_names,
)

from eventlog import Table, errors
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import codec
from eventlog.fsck.check import fsck
from eventlog.model.actions import SetClock
from eventlog.model.chunks import MAX_MS
from eventlog.model.entries import Correction
from eventlog.readers import count
from eventlog.state.small import rules, timing
from eventlog.store.local import LocalStore
from eventlog.writers import append, overwrite

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
NOW_MS = START_MS + 30 * DAY_MS  # what a right clock says when somebody looks


def at(table, ms, seed=50):
    """Another process's handle, at another time."""
    return Table.open("", store=table.store, clock=ManualClock(ms, seed))


@pytest.fixture
def early(tmp_path):
    """A table that a machine without the time of day made in 1970."""
    table = create(LocalStore(tmp_path / "early"), clock=ManualClock(1_000, 1))
    for n in range(3):
        append(table, events(1, first=n), app_id=f"job {n}", app_seq=1)
    return table


@pytest.fixture
def late(tmp_path):
    """A table of which one writer was nine years ahead: versions 4 and 5, and what came after."""
    table = create(LocalStore(tmp_path / "late"))
    for n in range(3):
        append(table, events(1, first=n))
        table.clock.advance(DAY_MS)
    wild = at(table, START_MS + 9 * YEAR_MS)
    overwrite(wild, events(1, first=9), start="1970-01-01", end="1970-01-02")
    append(wild, events(1, first=10))
    right = at(table, START_MS + 3 * DAY_MS, 60)
    append(right, events(1, first=11))
    return right


def test_a_table_of_1970_is_written_again_once_its_time_is_corrected(early):
    table = at(early, NOW_MS)
    before = sorted_names(table)
    for verb in (
        lambda: append(table, events(1, first=9)),
        lambda: table.pin("mine"),
        lambda: vacuum(table, dry_run=False),
    ):
        with pytest.raises(
            errors.InvalidInput, match=r"eventlog clock TABLE --set.*Table.set_clock"
        ):
            verb()
    assert table.set_clock() == 4
    assert table.session.head().timestamp == datetime.fromtimestamp(NOW_MS / 1000, UTC)
    append(table, events(1, first=9))
    assert sorted_names(table) == [*before, "row 9"]
    # Nobody knows when the others were written: they are not given up before their time.
    assert {e.time for e in table.history(3)} == {table.snapshot(4).timestamp}
    vacuum(table, dry_run=False)
    assert table.refresh().meta.horizon == 0
    with pytest.raises(errors.VersionNotFound):
        table.snapshot(timestamp="2020-01-01")
    check_sound(table.store)


def test_years_ahead_are_taken_back(late):
    table = at(late, NOW_MS)
    retention = timedelta(days=7)
    week = {"retention": retention, "staging": retention}
    assert vacuum(table, dry_run=False, **week).horizon == 3
    true_ms = NOW_MS + 60_000
    assert table.snapshot(timestamp=timing.shown_time(true_ms)).version == 3
    version = table.set_clock(datetime.fromtimestamp(true_ms / 1000, UTC))
    stamps = [e.time.timestamp() * 1000 for e in table.history()]
    assert stamps == sorted(stamps, reverse=True)
    assert stamps[0] == true_ms
    assert table.snapshot(timestamp=timing.shown_time(true_ms)).version == version
    assert table.snapshot(timestamp=timing.shown_time(true_ms - 1_000)).version == 3
    table.clock.advance(8 * DAY_MS)
    append(table, events(1, first=12))
    report = vacuum(table, dry_run=False, **week)
    assert report.horizon == version
    assert report.gone["dropped"].objects == 3
    assert sorted_names(table) == ["row 10", "row 11", "row 12", "row 9"]
    check_sound(table.store)


@pytest.mark.verify
def test_a_unit_of_work_takes_effect_once_whatever_the_clock_was_set_to(early):
    table = at(early, NOW_MS)
    for n in range(rules.APP_VERSIONS + 5):  # by versions alone the first marks could be forgotten
        early.set_properties({"user.n": str(n)})
    table.refresh()
    table.set_clock()
    append(table, events(1, first=50), app_id="another", app_seq=1)
    for n in range(3):
        assert append(table, events(1, first=n), app_id=f"job {n}", app_seq=1) <= 3
    assert sorted_names(table) == ["row 0", "row 1", "row 2", "row 50"]
    table.clock.advance(91 * DAY_MS)
    append(table, events(1, first=51), app_id="a third", app_seq=1)
    table.clock.advance(91 * DAY_MS)
    append(table, events(1, first=52), app_id="a fourth", app_seq=1)
    assert set(table.session.head().meta.apps) == {"another", "a third", "a fourth"}


def test_times_that_are_right_cannot_be_set(late):
    table = create()
    append(table, events(1))
    newest = table.session.head().header.time
    for ms in (newest, newest + 1, newest + YEAR_MS, newest + timing.MAX_LEAP_MS):
        with pytest.raises(errors.CommitConflict, match="needs no correction"):
            table.set_clock(datetime.fromtimestamp(ms / 1000, UTC))
    with pytest.raises(errors.InvalidInput):
        table.set_clock(5)  # of no unit
    assert table.refresh().version == 1


def test_who_set_the_clock_last_is_not_overtaken(late):
    first, second = at(late, NOW_MS, 70), at(late, NOW_MS, 80)
    head = second.session.head()
    first.set_clock()
    stale = SetClock(head.version, head.header.time, NOW_MS)
    with pytest.raises(errors.CommitConflict, match="is not the newest"):
        commit(second, stale)
    newest = second.refresh()
    lying = SetClock(newest.version, newest.header.time + 1, NOW_MS - 1)
    with pytest.raises(errors.InvalidInput, match="cannot be set from"):
        commit(second, lying)
    twice = SetClock(newest.version, newest.header.time, NOW_MS - 1)
    with pytest.raises(errors.CommitConflict, match="once per commit"):
        commit(second, twice, twice)
    assert second.refresh().version == newest.version


def test_the_corrections_are_bounded(late):
    table = at(late, NOW_MS)
    for n in range(timing.MAX_CORRECTIONS):
        table.set_clock(datetime.fromtimestamp(NOW_MS / 1000 - n, UTC))
    with pytest.raises(errors.CommitConflict, match="100 times"):
        table.set_clock(datetime.fromtimestamp(NOW_MS / 1000 - 200, UTC))
    append(table, events(1, first=12))
    stamps = [e.time for e in table.history()]
    assert stamps == sorted(stamps, reverse=True)
    check_sound(table.store)


def test_a_claim_is_not_taken_for_abandoned_because_the_clock_was_set(early):
    table = at(early, 2_000)
    lease = table.claim()
    other = at(early, NOW_MS, 90)
    other.set_clock()
    with pytest.raises(errors.CommitConflict, match="in the way"):
        other.claim(take_over=True)
    lease.renew()


def test_fsck_names_the_way_out(early, late):
    for table, says in ((early, "nothing can be committed"), (late, "kept longer")):
        looking = at(table, NOW_MS)
        report = fsck(looking)
        (finding,) = report.findings
        assert (report.errors, report.warnings) == (0, 1)
        assert says in finding.message
        assert f"`eventlog clock {looking.uri} --set`" in finding.message
        looking.set_clock()
        assert fsck(looking).findings == ()


def test_a_time_that_falls_without_a_correction_is_corrupt(late):
    store = late.store
    body = bodies(store)[-1]
    stored = codec.decode_commit(body)
    header = msgspec.structs.replace(stored.header, time=START_MS)
    changed = codec.encode_commit(msgspec.structs.replace(stored, header=header))
    replace_object(store, f"_log/{999_999_999_999 - header.version:012d}.json", changed)
    report = fsck(at(late, START_MS + 9 * YEAR_MS))
    assert any("is not later than" in finding.message for finding in report.findings)


@pytest.mark.parametrize("kind", ["early", "late"])
def test_a_second_fold_agrees(kind, request):
    table = at(request.getfixturevalue(kind), NOW_MS)
    table.set_clock()
    append(table, events(1, first=20), app_id="new", app_seq=1)
    commit(table, add(table))
    state = naive.empty()
    steps = fold_all(table.store)
    for version, body in enumerate(bodies(table.store)):
        found = json.loads(body)
        state, _, void = naive.fold(state, found["transactions"], version, found["header"]["time"])
        assert not void
        assert naive.state_hash(state) == found["header"]["state_hash"]
        assert sorted(state["live"]) == sorted(steps[version][0].segments)
    assert len(live(table.refresh())) == len(state["live"])


def test_the_program_shows_and_sets_the_time(early):
    uri = early.store.uri

    def run(*arguments):
        return CliRunner().invoke(build(), ["clock", uri, *arguments])

    shown = run()
    assert "1970-01-01" in shown.output
    assert "--set" in shown.output
    told = json.loads(run("--json").stdout)
    assert told["odd"] is not None
    assert (told["store_time"], told["committed"]) == (None, False)
    assert run("--time", "2020-01-01").exit_code == 2
    corrected = json.loads(run("--set", "--time", "2020-01-01", "--json").stdout)
    assert (corrected["version"], corrected["committed"]) == (4, True)
    told = json.loads(run("--json").stdout)
    assert told["corrections"] == [
        {"version": 3, "old": "1970-01-01T00:00:01.003Z", "new": "2020-01-01T00:00:00.000Z"}
    ]


@pytest.mark.parametrize(
    ("clock", "version", "time_ms", "wanted"),
    [
        ([], 3, 50, 50),
        ([Correction(5, 90, 40)], 5, 90, 40),
        ([Correction(5, 90, 40)], 4, 30, 30),
        ([Correction(5, 90, 40)], 6, 90, 90),
        ([Correction(5, 1, 40)], 5, 1, 40),
        ([Correction(5, 90, 40), Correction(8, 60, 20)], 5, 90, 20),
        ([Correction(5, 90, 10), Correction(8, 15, 50)], 2, 5, 50),
    ],
)
def test_effective_times(clock, version, time_ms, wanted):
    assert timing.effective_time(clock, version, time_ms) == wanted


def test_a_wrong_clock_makes_no_job_run_twice():
    table = create()
    append(table, events(1), app_id="load", app_seq=1)
    ahead = ManualClock(table.session.head().header.time + 1000 * DAY_MS, seed=9)
    append(Table.open("", store=table.store, clock=ahead), events(1), app_id="other", app_seq=1)
    append(reopen(table.store), events(1), app_id="load", app_seq=1)
    assert count(table) == 2


def test_a_clock_at_the_end_of_time_cannot_end_the_table():
    table = create()
    last = Table.open("", store=table.store, clock=ManualClock(MAX_MS - 1, seed=9))
    with pytest.raises(errors.InvalidInput, match="clock"):
        append(last, events(1))
    assert append(table, events(1)) == 1
