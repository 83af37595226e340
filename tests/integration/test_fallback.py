"""Lost segments that compaction wrote: what they were compacted from is read in their place."""

import logging
from datetime import timedelta

import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from support.builders import SCHEMA, create, drop_of, events, live, reopen, replace_object
from support.replacements import replace, rewrite

from eventlog import Table, errors
from eventlog.cli.program import build
from eventlog.compaction import vacuum
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.model.chunks import HOUR_MS
from eventlog.readers import scan
from eventlog.recovery import fallback
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def table(store):
    """Four segments of two days: rows 0 to 19, of which odd ones lie on the second day."""
    table = create(store)
    for first in (0, 10):
        append(table, events(10, first=first, days=2))
    return table


def compact(table, day=None, **options):
    """Rewrite all live segments, or those of a day; return the new ones."""
    before = live(table.refresh())
    chosen = [s for s in before if day is None or s.chunk == day]
    version = replace(table, chosen, **options)
    return [s for s in live(table.session.head()) if s.version == version]


def lose(table, *segments):
    table.store.delete([keys.key_of(segment) for segment in segments])


def damage(table, segment):
    body = bytearray(table.store.get(keys.key_of(segment)))
    body[len(body) // 2] ^= 1
    replace_object(table.store, keys.key_of(segment), bytes(body))


def names(table, **options):
    return sorted(scan(table, **options).to_table().column("name").to_pylist())


def rows(count):
    return sorted(f"row {n}" for n in range(count))


def check(table, wanted, **options):
    """Every way to consume the scan gives these rows, once each."""
    found = scan(table, fallback=True, **options)
    assert sorted(found.to_table().column("name").to_pylist()) == wanted
    streamed = [n for batch in found.to_batches() for n in batch.column("name").to_pylist()]
    assert sorted(streamed) == wanted
    assert found.count() == len(wanted)
    assert scan(table, ["at"], "value <> 0.25", fallback=True, **options).count() == len(wanted)


@pytest.mark.parametrize("harm", [lose, damage])
def test_the_whole_group_is_swapped_for_what_it_was_compacted_from(table, harm, caplog):
    first, *_ = made = compact(table, parts=2)
    assert len(made) == 4
    harm(table, first)
    with pytest.raises(errors.DataLoss, match="fallback=True"):
        names(table)
    with caplog.at_level(logging.WARNING):
        check(table, rows(20))
    said = caplog.text
    assert all(keys.key_of(segment) in said for segment in made)
    assert "in place of" in said
    assert names(table, version=2) == rows(20)


def test_nothing_is_swapped_where_nothing_is_lost(table, caplog):
    compact(table)
    with caplog.at_level(logging.WARNING):
        check(table, rows(20))
    assert not caplog.text


def test_what_came_beside_stays(table):
    made = compact(table)
    append(table, events(3, first=20))
    lose(table, made[0])
    check(table, rows(23))
    check(table, rows(20), version=3)


def test_rows_that_the_other_segments_hold_pass_the_filter_too(table):
    """What comes back spans more than was asked for, and one time chunk only was."""
    made = compact(table, granularity="month")
    assert len(made) == 1
    lose(table, *made)
    odd = sorted(f"row {n}" for n in range(1, 20, 2))
    second = "at >= '1970-01-02' AND at < '1970-01-03'"
    assert names(table, where=second, fallback=True) == odd


def test_what_comes_back_may_have_another_granularity(table):
    month = compact(table, granularity="month")
    hours = compact(table, granularity="hour")
    assert sorted(s.chunk for s in hours) == ["1970-01-01T00", "1970-01-02T00"]
    lose(table, hours[0])
    assert fallback.find_fallback(
        table.session.log, table.session.head(), [hours[0]]
    ).back == tuple(month)
    check(table, rows(20))
    # The hour asked for needed no filter: all its rows passed. What comes back does.
    for hour, first in (("1970-01-01T00", 0), ("1970-01-02T00", 1)):
        where = f"at >= '{hour}:00:00' AND at < '{hour[:11]}01:00:00'"
        assert scan(table, where=where).plan.filter is None
        assert names(table, where=where, fallback=True) == sorted(
            f"row {n}" for n in range(first, 20, 2)
        )


def test_generation_by_generation_down_to_one_that_is_there(table):
    first = compact(table, "1970-01-01")
    second = compact(table, "1970-01-01", parts=2)
    third = compact(table, "1970-01-01")
    lose(table, *third)
    found = fallback.find_fallback(table.session.log, table.session.head(), third)
    assert [s.id for s in found.back] == sorted(s.id for s in second)
    check(table, rows(20))
    lose(table, second[1])
    assert fallback.find_fallback(table.session.log, table.session.head(), third).back == tuple(
        first
    )
    check(table, rows(20))
    lose(table, *first)
    check(table, rows(20))
    at_first = [s for s in live(table.snapshot(2)) if s.chunk == "1970-01-01"]
    assert fallback.find_fallback(table.session.log, table.session.head(), third).back == tuple(
        at_first
    )
    lose(table, at_first[0])
    with pytest.raises(errors.DataLoss, match="the object is missing") as caught:
        names(table, fallback=True)
    assert "fallback=True" not in caught.value.message


def test_what_was_made_of_the_rest_of_the_group_goes_with_it(table):
    """Of {a, b, ...} a was compacted again, together with a later append."""
    made = compact(table, parts=2)
    append(table, events(5, first=20))
    again = [
        made[0],
        *(s for s in live(table.session.head()) if s.version == table.session.head().version),
    ]
    version = replace(table, again)
    latest = [s for s in live(table.session.head()) if s.version == version]
    lose(table, made[1])
    found = fallback.find_fallback(table.session.log, table.session.head(), [made[1]])
    assert {s.id for s in found.out} == {s.id for s in (*made[1:], *latest)}
    assert again[1] in found.back
    check(table, rows(25))
    lose(table, *again[1:])
    with pytest.raises(errors.DataLoss):
        names(table, fallback=True)
    assert fallback.find_fallback(table.session.log, table.session.head(), [made[1]]).missing == (
        made[1],
    )


def test_the_drop_is_found_among_many_versions(table):
    made = compact(table, parts=2)
    for n in range(9):
        append(table, events(1, first=20 + n))
    replace(table, [made[0]])
    for n in range(4):
        append(table, events(1, first=29 + n))
    lose(table, made[1])
    check(table, rows(33))


def test_rows_that_were_deleted_do_not_come_back(table):
    """A rewrite that left rows out holds other rows than what it was made from."""
    made = compact(table, keep=lambda found: pc.less(found.column("value"), 5))
    lose(table, made[0])
    with pytest.raises(errors.DataLoss) as caught:
        names(table)
    assert "fallback=True" not in caught.value.message
    with pytest.raises(errors.DataLoss):
        names(table, fallback=True)


@pytest.mark.parametrize("left", [0, 1])
def test_never_across_an_overwrite_of_a_part_of_the_group(table, left):
    made = compact(table)
    first, second = sorted(made, key=lambda s: s.chunk)
    overwrite(table, events(left, first=90), start="1970-01-01", end="1970-01-02")
    assert first not in live(table.refresh())
    lose(table, second)
    with pytest.raises(errors.DataLoss) as caught:
        names(table)
    assert "fallback=True" not in caught.value.message
    with pytest.raises(errors.DataLoss):
        names(table, fallback=True)
    check(table, rows(20), version=3)


def test_never_across_a_restore(table):
    """The segments that it brought back are whole; what was compacted before is not asked."""
    made = compact(table)
    again = compact(table)
    table.restore(3)
    assert {s.id for s in live(table.refresh())} == {s.id for s in made}
    lose(table, made[0])
    with pytest.raises(errors.DataLoss):
        names(table, fallback=True)
    assert names(table, version=4) == rows(20)
    lose(table, *again)
    check(table, rows(20), version=4)


def test_never_where_a_restore_brought_back_a_part_of_the_group(table):
    """The part that came back is another entry, of another transaction."""
    made = sorted(compact(table), key=lambda s: s.chunk)
    overwrite(table, events(1, day=1), start="1970-01-02", end="1970-01-03")
    table.restore(3)
    assert {s.id for s in live(table.refresh())} == {s.id for s in made}
    lose(table, made[0])
    assert fallback.find_fallback(table.session.log, table.session.head(), [made[0]]).missing == (
        made[0],
    )
    with pytest.raises(errors.DataLoss):
        names(table, fallback=True)


def test_what_a_restore_brought_back_is_not_read_twice(table):
    """One of a group was compacted again, and brought back; then the other one is lost."""
    left, again = compact(table, "1970-01-01", parts=2)
    replace(table, [again])
    table.restore(3)
    lose(table, left)
    found = fallback.find_fallback(table.session.log, table.refresh(), [left])
    assert (found.out, found.back, found.missing) == ((), (), (left,))


def test_an_appended_segment_has_nothing_to_fall_back_on(table):
    lose(table, live(table.refresh())[0])
    with pytest.raises(errors.DataLoss) as caught:
        names(table, fallback=True)
    assert "fallback" not in caught.value.message
    with pytest.raises(errors.DataLoss) as caught:
        names(table)
    assert "fallback" not in caught.value.message


def test_what_vacuum_took_is_lost_for_good(store, table):
    made = compact(table, parts=2)
    table.clock.advance(HOUR_MS)
    append(table, events(1, first=20))
    vacuum(table, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    table.refresh()
    lose(table, made[0])
    with pytest.raises(errors.DataLoss) as caught:
        names(table)
    assert "fallback" not in caught.value.message
    with pytest.raises(errors.DataLoss):
        names(table, fallback=True)


def test_counting_and_streams_say_the_same(table):
    made = compact(table, parts=2)
    lose(table, made[0])
    with pytest.raises(errors.DataLoss, match="fallback=True"):
        scan(table, where="value > 2").count()
    with pytest.raises(errors.DataLoss, match="fallback=True"):
        list(scan(table).to_batches())
    assert scan(table, where="value > 2", fallback=True).count() == 15
    in_order = scan(table, fallback=True).to_table().column("at").to_pylist()
    assert len(in_order) == 20


def test_the_look_costs_requests_only_after_a_loss(store, table):
    made = compact(table)
    reader = reopen(store)
    assert scan(reader, fallback=True).to_table().num_rows == 20
    calls = Gets(store)
    scan(reopen(calls), fallback=True).to_table()
    quiet = [key for key in calls.keys if key.startswith("data/")]
    assert sorted(quiet) == sorted(keys.key_of(segment) for segment in made)


class Gets:
    """A store that notes which keys are read."""

    def __init__(self, inner):
        self.inner, self.keys = inner, []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def get(self, key, **options):
        self.keys.append(key)
        return self.inner.get(key, **options)


def test_fsck_says_which_lost_segments_can_be_read_around(table):
    made = compact(table, "1970-01-01")
    rest = [s for s in live(table.refresh()) if s not in made]
    lose(table, made[0], rest[0])
    told = {f.key: f.message for f in fsck(table).findings if f.severity == "error"}
    assert "scan --fallback" in told[keys.key_of(made[0])]
    assert "fallback" not in told[keys.key_of(rest[0])]
    assert "missing" in told[keys.key_of(rest[0])]


def test_fsck_says_it_of_a_damaged_one_too(table):
    made = compact(table)
    damage(table, made[0])
    (told,) = [f for f in fsck(table, checksums=True).findings if f.severity == "error"]
    assert "sha256" in told.message
    assert "scan --fallback" in told.message


def test_the_shell_reads_around_it(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, time_column="at", properties={"inline_bytes": "0"})
    append(table, events(10, days=2))
    lose(table, compact(table)[0])
    question = ["scan", table.uri, "--count", "--where", "value <> 0.25"]
    refused = CliRunner().invoke(build(), question)
    assert refused.exit_code == 4
    assert "--fallback" in refused.output
    answered = CliRunner().invoke(build(), [*question, "--fallback"])
    assert (answered.exit_code, answered.stdout.strip()) == (0, "10")


def test_a_rewrite_that_lost_its_race_made_nothing_to_fall_back_on(table):
    """A transaction that is void overshadows nothing, though it stands in the log."""
    stale = rewrite(table, live(table.refresh()))
    made = compact(table)
    with pytest.raises(errors.CommitConflict):
        table.commit(stale)
    lose(table, made[0])
    found = fallback.find_fallback(table.session.log, table.refresh(), [made[0]])
    assert len(found.back) == 4
    assert drop_of(made[0]).id in {s.id for s in found.out}
