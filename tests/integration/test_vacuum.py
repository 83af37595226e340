"""Vacuum: what goes, what stays and why, and what could take a row that somebody needs."""

from datetime import date, timedelta

import msgspec
import pyarrow as pa
import pytest
from support.builders import (
    HASH,
    Spy,
    check_sound,
    commit,
    create,
    events,
    live,
    reopen,
    replace_object,
    resealed,
    row_names,
)

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.model.actions import Ack, Add, Attach, Detach, Horizon, Restore, SetPin
from eventlog.readers import count, scan
from eventlog.state.delta import add_of
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite
from eventlog.writers.batch import stage

HOUR_MS = 3_600_000
DAY = {"start": "1970-01-01", "end": "1970-01-02"}
NOW = {"retention": timedelta(0), "staging": timedelta(0)}
A_DAY = {"retention": timedelta(hours=24), "staging": timedelta(hours=24)}


def objects(store):
    return {found.key for found in store.list(keys.SEGMENTS_PREFIX)}


def live_keys(table):
    return {keys.key_of(segment) for segment in live(table.refresh())}


def later(table, hours):
    table.clock.advance(hours * HOUR_MS)


def replaced_twice():
    """Versions 1 and 2 replaced by 3; a day later 4; another day later."""
    table = create()
    append(table, events(2))
    append(table, events(2, first=10))
    overwrite(table, events(1, first=20), **DAY)
    later(table, 30)
    overwrite(table, events(1, first=30), **DAY)
    later(table, 30)
    return table


def test_without_run_nothing_is_changed():
    table = replaced_twice()
    before, head = {o.key for o in table.store.list("")}, table.session.head().version
    report = vacuum(table, **A_DAY)
    assert report.dry_run
    assert report.gone["unnamed"].objects + report.gone["dropped"].objects == 3
    assert {o.key for o in table.store.list("")} == before
    assert table.refresh().version == head


def test_a_dry_run_says_what_the_run_does():
    table = replaced_twice()
    dry = vacuum(table, **A_DAY)
    done = vacuum(table, dry_run=False, **A_DAY)
    assert (dry.gone, dry.kept, dry.fence, dry.horizon) == (
        done.gone,
        done.kept,
        done.fence,
        done.horizon,
    )
    assert live_keys(table) == objects(table.store)
    assert row_names(table) == ["row 30"]


def test_versions_within_the_retention_stay_readable():
    table = replaced_twice()
    append(table, events(1, first=40))
    overwrite(table, events(1, first=50), **DAY)
    report = vacuum(table, dry_run=False, **A_DAY)
    assert report.horizon == 4
    assert report.kept == {"retention": pytest.approx(report.kept["retention"])}
    assert report.kept["retention"].objects == 2
    for version, rows in ((4, 1), (5, 2), (6, 1)):
        assert count(table, version=version) == scan(table, version=version).to_table().num_rows
        assert count(table, version=version) == rows


def test_a_second_vacuum_finds_nothing_and_writes_nothing():
    table = replaced_twice()
    vacuum(table, dry_run=False, **A_DAY)
    before = {o.key for o in table.store.list("")}
    again = vacuum(table, dry_run=False, **A_DAY)
    assert sum(sums.objects for sums in again.gone.values()) == 0
    head = table.refresh()
    assert {o.key for o in table.store.list("")} - before <= {
        keys.commit_key(v) for v in range(head.version + 1)
    }
    vacuum(table, dry_run=False, **A_DAY)
    assert table.refresh().version == head.version


@pytest.mark.hazard("V1")
def test_v1_an_upload_under_way_is_left_alone():
    table = replaced_twice()
    late = stage(table, table.session.head(), events(1, first=60), 2**29)
    vacuum(table, dry_run=False, **A_DAY)
    assert commit(table, *late) == table.session.head().version
    assert "row 60" in row_names(table)


@pytest.mark.hazard("V1", "V3")
def test_v1_an_upload_that_the_fence_passed_goes_and_its_commit_is_void():
    table = create()
    append(table, events(1))
    late = stage(table, table.snapshot(0), events(1, first=60), 2**29)
    later(table, 30)
    report = vacuum(table, dry_run=False, **NOW)
    assert report.gone["unnamed"].objects == 1
    with pytest.raises(errors.CommitConflict, match="below the fence"):
        commit(table, *late)
    assert row_names(table) == ["row 0"]


@pytest.mark.hazard("V2")
@pytest.mark.parametrize("holder", ["pin", "replica"])
def test_v2_what_is_held_stays_until_it_is_let_go(holder):
    table = replaced_twice()
    if holder == "pin":
        table.pin("report", 2)
    else:
        commit(table, Attach("copy", 2, "me"))
        token = table.session.head().meta.replicas["copy"].token
    report = vacuum(table, dry_run=False, **NOW)
    name = "report" if holder == "pin" else "copy"
    assert report.horizon == 2
    assert [why for why in report.kept if name in why]
    assert scan(table, version=2).to_table().num_rows == 4
    if holder == "pin":
        table.unpin("report")
    else:
        commit(table, Ack("copy", token, 4))
        commit(table, Detach("copy", token))
    vacuum(table, dry_run=False, **NOW)
    assert objects(table.store) == live_keys(table)
    with pytest.raises(errors.VersionVacuumed):
        scan(table, version=2)


@pytest.mark.hazard("V2")
def test_v2_a_pin_that_comes_between_the_look_and_the_marks_is_seen():
    table = replaced_twice()
    spy = Spy(table.store)
    mine = Table.open(spy.uri, store=spy, clock=table.clock)
    other = reopen(table.store)

    def pin_once(key):
        spy.before_put = lambda _: None
        assert key == keys.commit_key(table.session.head().version + 1)
        other.pin("late", 3)

    spy.before_put = pin_once
    report = vacuum(mine, dry_run=False, **NOW)
    assert report.horizon == 3
    assert scan(table, version=3).to_table().num_rows == 1


@pytest.mark.hazard("V3")
def test_v3_what_is_added_between_the_look_and_the_marks_stays():
    table = create()
    append(table, events(1))
    late = stage(table, table.snapshot(0), events(1, first=60), 2**29)
    later(table, 30)
    spy = Spy(table.store)
    mine = Table.open(spy.uri, store=spy, clock=table.clock)

    def slip_in(_):
        spy.before_put = lambda _: None
        commit(reopen(table.store), *late)

    spy.before_put = slip_in
    vacuum(mine, dry_run=False, **NOW)
    assert row_names(table) == ["row 0", "row 60"]
    assert live_keys(table) == objects(table.store)


@pytest.mark.hazard("V4")
def test_v4_foreign_keys_are_never_deleted():
    table = replaced_twice()
    foreign = [
        "data/notes.txt",
        "data/000000000000/2013-01-01/readme.parquet",
        "data/000000000000/2013-13-01/" + "a" * 32 + ".parquet",
        "data/000000000000/2013-01-01/" + "A" * 32 + ".parquet",
        "data/0/2013-01-01/" + "a" * 32 + ".parquet",
        "elsewhere/000000000000/2013-01-01/" + "a" * 32 + ".parquet",
    ]
    for key in foreign:
        table.store.put_if_absent(key, b"mine")
    vacuum(table, dry_run=False, full=True, **NOW)
    assert set(foreign) <= {o.key for o in table.store.list("")}


@pytest.mark.hazard("V5")
def test_v5_an_older_program_does_not_touch_a_newer_table():
    table = replaced_twice()
    key = keys.commit_key(table.session.head().version)
    newer = table.store.get(key).replace(b'"min_writer":1', b'"min_writer":2')
    replace_object(table.store, key, resealed(newer))
    before = objects(table.store)
    with pytest.raises(errors.UnsupportedFormat):
        vacuum(reopen(table.store), dry_run=False, **NOW)
    assert objects(table.store) == before


@pytest.mark.hazard("V6")
def test_v6_a_listing_that_shows_nothing_only_leaves_more_behind():
    table = replaced_twice()
    history = [o.key for o in table.store.list(keys.SEGMENTS_PREFIX)]
    blind = FaultyStore(
        table.store, [Fault("list", "stale_list", keys.SEGMENTS_PREFIX, 0, 1000)], history
    )
    mine = Table.open(blind.uri, store=blind, clock=table.clock)
    vacuum(mine, dry_run=False, **NOW)
    assert live_keys(table) <= objects(table.store)
    assert row_names(table) == ["row 30"]
    vacuum(table, dry_run=False, full=True, **NOW)
    assert objects(table.store) == live_keys(table)


@pytest.mark.hazard("C4")
def test_only_vacuum_deletes_and_only_segments():
    table = replaced_twice()
    spy = Spy(table.store)
    mine = Table.open(spy.uri, store=spy, clock=table.clock)
    append(mine, events(1, first=70))
    overwrite(mine, events(1, first=80), **DAY)
    mine.pin("p")
    mine.restore(4)
    assert spy.deletes == []
    vacuum(mine, dry_run=False, **NOW)
    assert spy.deletes
    assert all(key.startswith(keys.SEGMENTS_PREFIX) for key in spy.deletes)


def test_a_dropped_segment_waits_until_its_epoch_is_fenced():
    table = create()
    first = append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    later(table, 1)
    ages = {"retention": timedelta(0), "staging": timedelta(hours=24)}
    assert vacuum(table, **ages).kept["staging"].objects == 1
    report = vacuum(table, dry_run=False, **ages)
    assert (report.fence, report.horizon) == (0, 2)
    # Whoever still has an add of it under way may commit it: it is there.
    again = map(add_of, table.snapshot(first).delta.adds.values())
    commit(table, *again)
    assert row_names(table) == ["row 0", "row 1"]
    later(table, 30)
    vacuum(table, dry_run=False, **A_DAY)
    assert row_names(table) == ["row 0", "row 1"]
    assert objects(table.store) == live_keys(table)


def test_what_waits_is_remembered_by_the_next_vacuum():
    table = create()
    for n in range(4):
        append(table, events(1, first=n))
    table.pin("two", 2)
    overwrite(table, events(1, first=10), **DAY)
    later(table, 30)
    append(table, events(1, first=11, day=3))
    vacuum(table, dry_run=False, **NOW)
    assert table.refresh().meta.swept.pending is not None
    assert len(objects(table.store)) == 6
    table.unpin("two")
    report = vacuum(table, dry_run=False, **NOW)
    assert report.gone["dropped"].objects == 4
    assert objects(table.store) == live_keys(table)


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_lost_record_costs_time_and_no_row(how):
    table = create()
    for n in range(4):
        append(table, events(1, first=n))
    table.pin("two", 2)
    overwrite(table, events(1, first=10), **DAY)
    later(table, 30)
    append(table, events(1, first=11, day=3))
    vacuum(table, dry_run=False, **NOW)
    key = keys.frame_key(table.refresh().meta.swept.pending.sha256)
    if how == "missing":
        table.store.delete([key])
    else:
        replace_object(table.store, key, b"nothing")
    vacuum(table, dry_run=False, **NOW)
    assert scan(table, version=2).to_table().num_rows == 2
    table.unpin("two")
    vacuum(table, dry_run=False, **NOW)
    assert objects(table.store) == live_keys(table)
    assert row_names(table) == ["row 10", "row 11"]


def test_a_restored_segment_survives_below_the_fence():
    table = replaced_twice()
    table.pin("old", 2)
    vacuum(table, dry_run=False, **NOW)
    assert table.session.head().meta.fence > 2
    table.restore(2)
    table.unpin("old")
    later(table, 30)
    vacuum(table, dry_run=False, **NOW)
    vacuum(table, dry_run=False, full=True, **NOW)
    assert row_names(table) == ["row 0", "row 1", "row 10", "row 11"]
    assert objects(table.store) == live_keys(table)


def test_what_was_dropped_and_restored_since_the_last_vacuum_stays():
    table = replaced_twice()
    vacuum(table, dry_run=False, **NOW)
    before = table.refresh().version
    overwrite(table, events(1, first=50))
    table.restore(before)
    later(table, 30)
    vacuum(table, dry_run=False, **NOW)
    assert "row 50" not in row_names(table)
    assert objects(table.store) == live_keys(table)


def test_what_is_given_up_cannot_be_restored_nor_pinned():
    table = replaced_twice()
    vacuum(table, dry_run=False, **NOW)
    for call in (lambda: table.restore(1), lambda: table.pin("late", 1)):
        with pytest.raises(errors.VersionVacuumed, match="vacuumed"):
            call()
    for actions in ((Restore(1),), (SetPin("late", 1, "me"),), (Attach("copy", 1, "me"),)):
        with pytest.raises(errors.CommitConflict, match="horizon"):
            commit(table, *actions)


@pytest.mark.hazard("R1")
def test_r1_a_missing_segment_is_vacuumed_below_the_horizon_and_lost_above():
    table = replaced_twice()
    before = reopen(table.store)
    old = scan(before, version=2)
    vacuum(table, dry_run=False, **NOW)
    with pytest.raises(errors.VersionVacuumed):
        old.to_table()  # opened before, read after
    with pytest.raises(errors.VersionVacuumed):
        scan(reopen(table.store), version=2)
    table.store.delete(live_keys(table))
    with pytest.raises(errors.DataLoss):
        scan(table).to_table()


@pytest.mark.hazard("R1")
def test_r1_a_version_that_was_given_up_still_has_its_log():
    table = replaced_twice()
    vacuum(table, dry_run=False, **NOW)
    assert len(live(table.snapshot(2))) == 2
    assert [entry.version for entry in table.history()][-1] == 0
    check_sound(table.store)


def test_a_horizon_never_passes_what_the_head_shows():
    table = replaced_twice()
    with pytest.raises(errors.CommitConflict, match="horizon"):
        commit(table, Horizon(table.session.head().version + 1))


def test_a_clock_that_runs_wild_takes_no_live_row():
    table = replaced_twice()
    for jump in (-(10**12), 10**11, -(10**11)):
        table.clock.advance(jump)
        vacuum(table, dry_run=False, **A_DAY)
        assert row_names(table) == ["row 30"]
    wild = Table.open(table.store.uri, store=table.store, clock=ManualClock(2**45))
    with pytest.raises(errors.InvalidInput, match="clock"):
        vacuum(wild, dry_run=False, **A_DAY)


def test_times_are_not_negative():
    with pytest.raises(errors.InvalidInput, match="0 or more"):
        vacuum(create(), retention=timedelta(seconds=-1))


@pytest.mark.parametrize("ages", [NOW, {}], ids=["given", "own"])
@pytest.mark.parametrize("others", [1, 3])
def test_vacuums_at_once_delete_nothing_that_is_needed(others, ages):
    table = replaced_twice()
    spy = Spy(table.store)
    mine = Table.open(spy.uri, store=spy, clock=table.clock)
    left = [others]

    def meanwhile(_):
        if left[0]:
            left[0] -= 1
            other = reopen(table.store, seed=left[0])
            vacuum(other, dry_run=False, **NOW)
            append(other, events(1, first=100 + left[0]))

    spy.before_put = meanwhile
    vacuum(mine, dry_run=False, **ages)
    assert live_keys(table) <= objects(table.store)
    assert sorted(row_names(table)) == [*(f"row {100 + n}" for n in range(others)), "row 30"]
    check_sound(table.store)


def day_of_news(segments, commits):
    """A table of so many segments that was vacuumed, then got so many appends and overwrites."""
    store = MemoryStore()
    table = create(store)
    days = [date.fromordinal(date(2013, 1, 1).toordinal() + n).isoformat() for n in range(365)]
    token = table.clock.random_id
    adds = [Add(token(), days[n % 365], 0, 10, 1000, HASH, 1) for n in range(segments)]
    for segment in adds:
        store.put_if_absent(keys.segment_key(segment.epoch, segment.chunk, segment.id), b"x")
    commit(table, *adds)
    later(table, 30)
    append(table, events(1))
    vacuum(table, dry_run=False, **A_DAY)
    for n in range(commits):
        append(table, events(1, first=n, day=16_071))
    overwrite(table, events(1, day=16_071), start="2014-01-01", end="2014-01-02")
    later(table, 30)
    append(table, events(1))
    later(table, 30)
    counting = CountingStore(store)
    report = vacuum(
        Table.open(store.uri, store=counting, clock=table.clock), dry_run=False, **A_DAY
    )
    assert report.gone["dropped"].objects == commits
    counts = counting.counts
    return counts.get + counts.put + counts.list + counts.delete


@pytest.mark.verify
def test_the_requests_of_a_vacuum_follow_the_news_and_not_the_table():
    small, large = day_of_news(1_000, 20), day_of_news(30_000, 20)
    assert large <= small + 5
    assert large <= 20 + 22
    twice = day_of_news(1_000, 40)
    assert small + 15 <= twice <= small + 30


def test_properties_say_how_long_things_are_kept():
    table = create(properties={"retention_hours": "2", "staging_hours": "1"})
    append(table, events(1))
    overwrite(table, events(1, first=1), **DAY)
    later(table, 3)
    overwrite(table, events(1, first=2), **DAY)
    later(table, 1)
    assert vacuum(table).horizon == 2
    assert vacuum(table).fence == 3
    assert vacuum(table, retention=timedelta(0)).horizon == 3


def test_a_horizon_that_would_free_nothing_stays():
    table = create(properties={"retention_hours": "2", "staging_hours": "1"})
    for n in range(3):
        append(table, events(1, first=n))
        later(table, 3)
        report = vacuum(table, dry_run=False)  # the first one without a record, the others with it
        assert (report.horizon, report.gone["dropped"].objects) == (0, 0)
    assert scan(table, version=1).to_table().num_rows == 1
    overwrite(table, events(1, first=9), **DAY)
    dropped_by = table.refresh().version
    later(table, 3)
    report = vacuum(table, dry_run=False)
    assert (report.horizon, report.gone["dropped"].objects) == (dropped_by, 3)
    append(table, events(1, first=20, day=4))
    later(table, 3)
    assert vacuum(table, dry_run=False).horizon == dropped_by
    append(table, events(1, first=21, day=4))
    assert vacuum(table, dry_run=False, retention=timedelta(0)).horizon > dropped_by


def test_the_program_shows_then_deletes(tmp_path):
    from click.testing import CliRunner  # noqa: PLC0415

    from eventlog.cli.program import build  # noqa: PLC0415

    uri = str(tmp_path / "t")
    schema, own = pa.schema([("at", pa.timestamp("us", "UTC"))]), {"inline_bytes": "0"}
    table = Table.create(uri, schema, time_column="at", properties=own)
    rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    append(table, rows)
    overwrite(table, rows, **DAY)
    table.pin("keep", 1)

    def asked(*arguments):
        result = CliRunner().invoke(
            build(), ["vacuum", uri, "--retention-hours", "0", "--staging-hours", "0", *arguments]
        )
        return result.output

    assert "would be deleted" in asked()
    assert "pin 'keep'" in asked()
    assert len(objects(table.store)) == 2
    table.unpin("keep")
    told = msgspec.json.decode(asked("--run", "--json"))
    assert sum(each["objects"] for each in told["gone"]) == 1
    assert objects(table.store) == live_keys(table)


@pytest.mark.hazard("V6")
def test_v6_a_stale_head_takes_no_row_of_a_newer_one():
    table = replaced_twice()
    vacuum(table, dry_run=False, **NOW)
    later(table, 30)
    append(table, events(1, first=70))
    known = [o.key for o in table.store.list("_log/")]
    append(table, events(1, first=80))
    late = stage(table, table.session.head(), events(1, first=90), 2**29)
    commit(table, *late)
    stale = FaultyStore(
        table.store,
        [Fault("list", "stale_list", "_log/", 0, 2)],
        [
            *known,
            *(
                keys.commit_key(v)
                for v in (table.session.head().version - 1, table.session.head().version)
            ),
        ],
    )
    behind = Table.open(stale.uri, store=stale, clock=table.clock)
    assert behind.session.head().version < table.session.head().version
    vacuum(behind, dry_run=False, full=True, **NOW)
    assert live_keys(table) == objects(table.store)
    assert sorted(row_names(table)) == ["row 30", "row 70", "row 80", "row 90"]


@pytest.mark.hazard("W7")
@pytest.mark.parametrize("hours", ["nan", "1e15", "-1", "many"])
def test_the_program_refuses_hours_that_are_none(hours, tmp_path):
    from click.testing import CliRunner  # noqa: PLC0415

    from eventlog.cli.program import build  # noqa: PLC0415

    uri = str(tmp_path / "t")
    Table.create(uri, pa.schema([("at", pa.timestamp("us", "UTC"))]), time_column="at")
    for option in ("--retention-hours", "--staging-hours"):
        result = CliRunner().invoke(build(), ["vacuum", uri, option, hours])
        assert result.exit_code == 2, result.output
