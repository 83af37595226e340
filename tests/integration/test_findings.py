"""Ways to lose, double or block data that a review found, each closed for good."""

import builders
import msgspec
import pyarrow as pa
import pytest
from builders import create, events, reopen

from eventlog import Table, errors
from eventlog.chunks import MAX_MS
from eventlog.clock import ManualClock
from eventlog.keys import key_of
from eventlog.model import Fence
from readers import count, scan
from readers.objects import check_sizes
from writers import append, overwrite

DAY_MS = 86_400_000


class Expiring:
    """A store whose credentials expire: from some request on it denies everything."""

    def __init__(self, inner, *, landed):
        self.inner, self.landed = inner, landed
        self.armed = self.denied = False

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def get(self, key, **span):
        if self.denied:
            raise errors.InvalidInput("denied (ExpiredToken)")
        return self.inner.get(key, **span)

    def put_if_absent(self, key, body):
        if self.denied:
            raise errors.InvalidInput("denied (ExpiredToken)")
        if self.armed and key.startswith("_log/"):
            self.denied = True
            if self.landed:
                self.inner.put_if_absent(key, body)
            raise errors.OutcomeUnknown("the answer was lost")
        return self.inner.put_if_absent(key, body)


@pytest.mark.parametrize("landed", [True, False])
def test_credentials_that_expire_in_a_commit_leave_its_outcome_unknown(landed):
    store = Expiring(create().store, landed=landed)
    table = reopen(store)
    store.armed = True
    transaction = table.transaction("append", [builders.add(table)])
    with pytest.raises(errors.CommitUnknown):
        table.commit(transaction)
    store.armed = store.denied = False
    assert table.commit(transaction) == 1
    assert reopen(store).head().totals.segments == 1
    builders.check_sound(store.inner)


def test_an_id_that_is_live_cannot_be_added_under_another_key():
    table = create()
    append(table, events(1))
    (segment,) = table.snapshot().segments()
    twin = msgspec.structs.replace(
        builders.add(table), id=segment.id, chunk=segment.chunk, epoch=segment.epoch + 1
    )
    with pytest.raises(errors.CommitConflict, match="live already"):
        table.commit(table.transaction("append", [twin]))
    assert reopen(table.store).head().version == 1
    append(table, events(1))
    builders.check_sound(table.store)


@pytest.mark.parametrize("isolation", ["carry", "serializable"])
def test_what_came_after_the_version_read_is_not_replaced_unseen(isolation):
    table = create()
    append(table, events(3))
    version = table.snapshot().version
    rows = scan(table, version=version).to_table()
    append(reopen(table.store, seed=5), events(5))
    if isolation == "serializable":
        with pytest.raises(errors.CommitConflict):
            overwrite(table, rows, isolation=isolation, read_version=version)
    else:
        overwrite(table, rows, read_version=version)
    assert count(table) == 8


def test_a_wrong_clock_makes_no_job_run_twice():
    table = create()
    append(table, events(1), app_id="load", app_seq=1)
    ahead = ManualClock(table.head().header.time + 1000 * DAY_MS, seed=9)
    append(Table.open("", store=table.store, clock=ahead), events(1), app_id="other", app_seq=1)
    append(reopen(table.store), events(1), app_id="load", app_seq=1)
    assert count(table) == 2


def test_a_clock_at_the_end_of_time_cannot_end_the_table():
    table = create()
    last = Table.open("", store=table.store, clock=ManualClock(MAX_MS - 1, seed=9))
    with pytest.raises(errors.InvalidInput, match="clock"):
        append(last, events(1))
    assert append(table, events(1)) == 1


def test_a_warm_handle_gets_in_after_a_fence():
    table = create()
    append(table, events(1))
    other = reopen(table.store, seed=3)
    other.commit(other.transaction("fence", [Fence(2)]))
    append(other, events(1))
    append(table, events(1))
    assert count(table) == 3


def test_info_is_stored_in_order():
    table = create()
    made = table.transaction("append", [builders.add(table)], info={"b": "1", "a": "2"})
    table.commit(made)
    assert list(table.log.read(1)[0].transactions[0].info) == ["a", "b"]
    unsorted = msgspec.structs.replace(made, id="1" * 32, info={"b": "1", "a": "2"})
    with pytest.raises(errors.InvalidInput, match="order"):
        table.commit(unsorted)


def test_columns_that_differ_by_case_alone_are_refused():
    table = create()
    taken = table.head().schema.names[1].upper()
    with pytest.raises(errors.InvalidInput):
        table.add_columns(table.head().schema.append(pa.field(taken, pa.int64())))


@pytest.mark.parametrize("damage", ["missing", "shorter"])
def test_files_that_are_handed_to_an_engine_are_looked_at_first(damage, tmp_path):
    table = Table.create(tmp_path / "table", builders.SCHEMA, time_column="at")
    append(table, events(1000))
    segments = table.snapshot().segments()
    check_sizes(table.store, segments, 1)
    path = tmp_path / "table" / key_of(segments[0])
    body = path.read_bytes()
    path.unlink()
    if damage == "shorter":
        path.write_bytes(body[:-1])
    with pytest.raises(errors.DataLoss, match="eventlog fsck"):
        check_sizes(table.store, segments, 1)
