"""What goes wrong around a commit (hazards C, P, R, I): nothing is lost, doubled or torn."""

import contextlib
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from support import builders
from support.builders import (
    LateStore,
    Spy,
    accepted_in,
    add,
    check_sound,
    commit,
    create,
    events,
    reopen,
    row_names,
)

from eventlog import errors
from eventlog.commit import keyframe_writing
from eventlog.commit.protocol.contention import CROWD
from eventlog.format import codec, keys
from eventlog.model.actions import SetProperties
from eventlog.model.records import App
from eventlog.state import keyframe
from eventlog.state.delta import Delta
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite

TRIES = 8


def slot_puts(spy, version):
    return [body for key, body in spy.puts if key == keys.commit_key(version)]


def stuck_append(behind=0, combine_after="0"):
    """A transaction whose commit hangs before the store, and whose handle is `behind` commits."""
    inner = MemoryStore()
    create(inner, properties={"combine_after": combine_after})
    store = LateStore(inner)
    table = reopen(store, seed=5)
    other = reopen(inner, seed=6)
    for _ in range(behind):
        commit(other, add(other))
    transaction = table.transaction("append", [add(table)])
    store.stuck = True
    with pytest.raises(errors.CommitUnknown) as caught:
        table.commit(transaction)
    store.stuck = False
    assert caught.value.version == behind + 1
    assert caught.value.transaction == transaction.id
    table.clock.advance(5_000)  # another time in the header would make other bytes
    return store, table, transaction


# --- C1: the response is lost -----------------------------------------------------------------


@pytest.mark.hazard("C1", "I3")
@pytest.mark.parametrize("effect", ["lost_response", "not_applied_unknown", "duplicate"])
def test_c1_applied_then_timeout_is_accepted_once(effect):
    store = FaultyStore(MemoryStore())
    table = create(store)
    store.inject(Fault("put", effect, "_log/"))
    assert append(table, events(3)) == 1
    assert append(table, events(3, first=3)) == 2
    assert builders.row_names(check_sound(store)) == [f"row {n}" for n in range(6)]
    assert [f.effect for f in store.fired] == [effect]


@pytest.mark.hazard("C1")
def test_c1_applied_then_412_on_the_retry():
    store = FaultyStore(MemoryStore())
    table = create(store)
    spy = Spy(store)
    table.session.store = table.session.log.store = spy
    store.inject(Fault("put", "lost_response", "_log/"))
    store.inject(Fault("get", "unavailable", keys.commit_key(1)))
    assert append(table, events(3)) == 1
    assert len(slot_puts(spy, 1)) == 2  # the second one was refused by our own first
    assert append(table, events(1, first=3)) == 2
    check_sound(store)


@pytest.mark.hazard("C1")
def test_c1_creating_a_table_survives_a_lost_response():
    store = FaultyStore(MemoryStore(), [Fault("put", "lost_response", "_log/")])
    table = create(store)
    assert append(table, events(1)) == 1
    check_sound(store)


# --- C2: the PUT lands late -------------------------------------------------------------------


@pytest.mark.hazard("C2")
@pytest.mark.parametrize("calls", range(1, 12))
def test_c2_put_lands_while_the_writer_waits(calls):
    store = FaultyStore(MemoryStore())
    table = create(store)
    store.inject(Fault("put", "delayed", "_log/", amount=calls))
    transaction = table.transaction("append", [add(table)])
    assert table.commit(transaction) == 1
    commit(table, add(table))
    store.release()
    assert accepted_in(store, transaction.id) == [1]
    check_sound(store)


@pytest.mark.sample(30)
@pytest.mark.hazard("C2")
@pytest.mark.parametrize("combine_after", ["0", "2"])
@pytest.mark.parametrize("behind", [0, 1, 5])
@pytest.mark.parametrize("calls", range(1, 16))
def test_c2_same_transaction_after_unknown_while_its_put_lands(calls, behind, combine_after):
    store, table, transaction = stuck_append(behind, combine_after)
    store.land_in(calls)
    assert table.commit(transaction) == behind + 1
    if store.held:
        assert not store.land()  # too late: its slot is taken, by the same transaction
    commit(table, add(table))
    assert accepted_in(store, transaction.id) == [behind + 1]
    assert check_sound(store).session.head().version == behind + 2


@pytest.mark.hazard("C2")
@pytest.mark.parametrize("behind", [0, 5])
@pytest.mark.parametrize("calls", range(1, 16))
def test_c2_put_lands_while_a_refreshed_handle_tries_again(calls, behind):
    store, table, transaction = stuck_append(behind)
    table.refresh()
    store.land_in(calls)
    assert table.commit(transaction) == behind + 1
    assert accepted_in(store, transaction.id) == [behind + 1]
    check_sound(store)


@pytest.mark.hazard("C2")
@pytest.mark.parametrize("behind", [0, 3])
def test_c2_another_writer_takes_the_slot_first(behind):
    store, table, transaction = stuck_append(behind)
    other = reopen(store.inner, seed=7)
    commit(other, add(other))
    assert not store.land()
    assert table.commit(transaction) == behind + 2
    assert accepted_in(store, transaction.id) == [behind + 2]
    check_sound(store)


@pytest.mark.hazard("C2")
@pytest.mark.parametrize("combine_after", ["0", "2"])
@pytest.mark.parametrize("behind", [0, 3])
def test_c2_an_unanswered_slot_stays_open_while_the_store_is_down(behind, combine_after):
    """A second try that was surely refused says nothing about the first one."""
    store, table, transaction = stuck_append(behind, combine_after)
    store.down = True
    with pytest.raises(errors.CommitUnknown):
        table.commit(transaction)
    store.down = False
    assert store.land()
    other = reopen(store.inner, seed=7)
    commit(other, add(other))
    table.refresh()
    assert table.commit(transaction) == behind + 1
    assert accepted_in(store, transaction.id) == [behind + 1]
    check_sound(store)


@pytest.mark.hazard("C2")
def test_c2_unreadable_slot_after_unknown_is_still_unknown():
    store, table, transaction = stuck_append()
    faulty = FaultyStore(store.inner, [Fault("get", "unavailable", "_log/", occurrence=0)])
    store.inner = faulty
    store.down = True
    with pytest.raises(errors.CommitUnknown):
        table.commit(transaction)
    store.inner = faulty.inner
    store.down = False
    assert store.land()
    assert table.commit(transaction) == 1
    assert accepted_in(store, transaction.id) == [1]


@pytest.mark.hazard("C2")
def test_c2_find_transaction_answers_after_unknown():
    store, table, transaction = stuck_append()
    with pytest.raises(errors.CommitUnknown, match="may still take effect") as caught:
        table.find_transaction(transaction.id, start=1)
    assert (caught.value.version, caught.value.until) == (1, 1)
    assert store.land()
    assert table.find_transaction(transaction.id, start=1) == 1


@pytest.mark.hazard("C2")
def test_c2_find_transaction_says_no_once_the_slot_is_another_s():
    store, table, transaction = stuck_append()
    append(reopen(store.inner, seed=7), events(1))
    assert table.find_transaction(transaction.id, start=1, until=1) is None
    with pytest.raises(errors.CommitUnknown):
        table.find_transaction(transaction.id, start=1, until=9)


@pytest.mark.hazard("C2")
def test_c2_refused_puts_without_any_unclear_one_mean_that_nothing_was_committed():
    inner = MemoryStore()
    create(inner)
    store = FaultyStore(inner, [Fault("put", "unavailable", "_log/", occurrence=0)])
    table = reopen(store)
    with pytest.raises(errors.Unavailable) as caught:
        append(table, events(1))
    assert not isinstance(caught.value, errors.CommitUnknown)
    assert len(builders.bodies(inner)) == 1


# --- C3, C4, C7, C8 ---------------------------------------------------------------------------


@pytest.mark.hazard("C3")
def test_c3_unknown_is_never_taken_for_exists():
    """Nothing is in the slot after an unclear answer: the same slot is tried again, no other."""
    inner = MemoryStore()
    create(inner)
    spy = Spy(
        FaultyStore(
            inner,
            [Fault("put", "not_applied_unknown", "_log/", occurrence=n) for n in (1, 1, 1, 1)],
        )
    )
    table = reopen(spy)
    assert append(table, events(2)) == 1
    assert len(slot_puts(spy, 1)) == 5
    assert not slot_puts(spy, 2)
    check_sound(inner)


def everything(table):
    """Every writing and reading verb of a table."""
    append(table, events(4, days=2))
    append(table, events(4, days=2, first=4), app_id="job", app_seq=1)
    overwrite(table, events(1), start="1970-01-01", end="1970-01-02")
    table.set_properties({"user.note": "x", "keyframe_commits": "2"})
    table.add_columns(builders.SCHEMA.append(pa.field("extra", pa.int64())))
    table.write_keyframe()
    append(table, events(1, day=3))
    list(table.history())
    table.diff(1, 4)
    table.find_transaction("0" * 32)
    table.snapshot(timestamp=table.session.head().timestamp)


@pytest.mark.hazard("C4")
def test_c4_no_verb_deletes_or_reuses_a_key():
    class NoDelete(Spy):
        def delete(self, keys):
            raise AssertionError(f"deleted {list(keys)}")

    store = NoDelete(MemoryStore())
    everything(create(store))
    names = [key for key, _ in store.puts if key.startswith(keys.LOG_PREFIX)]
    assert len(names) == len(set(names))
    check_sound(store.inner)


@pytest.mark.hazard("C4")
def test_c4_a_stalled_writer_is_refused_at_a_used_slot():
    store, _, transaction = stuck_append()
    other = reopen(store.inner, seed=7)
    for _ in range(5):
        commit(other, add(other))
    before = builders.bodies(store.inner)
    assert not store.land()
    assert builders.bodies(store.inner) == before
    assert accepted_in(store.inner, transaction.id) == []


@pytest.mark.hazard("C7")
@pytest.mark.parametrize("failure", ["conflict", "unavailable", "unknown", "bad rows", "crash"])
def test_c7_a_failing_writer_deletes_nothing(failure):
    inner = MemoryStore()
    create(inner)
    faulty = FaultyStore(inner)
    spy = Spy(faulty)
    table = reopen(spy)
    append(table, events(2))
    before = {o.key for o in inner.list("")}
    if failure == "conflict":
        (gone,) = builders.live(table.session.head())
        overwrite(reopen(inner, seed=8), events(1))
        with pytest.raises(errors.CommitConflict):
            commit(table, builders.drop_of(gone), add(table), operation="replace")
    elif failure == "bad rows":
        nulls = pa.array([None, None], builders.SCHEMA.field(0).type)
        with pytest.raises(errors.InvalidInput):
            append(table, events(2).set_column(0, builders.SCHEMA.field(0), nulls))
    else:
        effect = {"unknown": "not_applied_unknown", "crash": "crash_before"}.get(failure, failure)
        faulty.inject(Fault("put", effect, "_log/", occurrence=0))
        with pytest.raises((errors.Unavailable, errors.CommitUnknown, builders.Crash)):
            append(table, events(2, first=2))
    assert spy.deletes == []
    assert before <= {o.key for o in inner.list("")}


@pytest.mark.hazard("C8")
@pytest.mark.parametrize("tries", [1, 4, TRIES - 1])
def test_c8_every_retry_sends_the_same_bytes(tries):
    inner = MemoryStore()
    create(inner)
    spy = Spy(
        FaultyStore(inner, [Fault("put", "not_applied_unknown", "_log/") for _ in range(tries)])
    )
    table = reopen(spy)
    assert append(table, events(2)) == 1
    sent = slot_puts(spy, 1)
    assert len(sent) == tries + 1
    assert len(set(sent)) == 1
    assert table.clock.now_ms() > builders.START_MS  # time passed between the tries


@pytest.mark.hazard("C8")
def test_c8_a_lost_race_keeps_the_transaction_id():
    inner = MemoryStore()
    create(inner)
    spy = Spy(inner)
    table, other = reopen(spy, seed=5), reopen(inner, seed=6)
    transaction = table.transaction("append", [add(table)])
    commit(other, add(other))
    assert table.commit(transaction) == 2
    (first,), (second,) = slot_puts(spy, 1), slot_puts(spy, 2)
    ids = {codec.decode_commit(body).transactions[0].id for body in (first, second)}
    assert ids == {transaction.id}


# --- C5, C6: strangers in the log --------------------------------------------------------------


def foreign(store, version, **changes):
    """The newest commit of the table, put at another version with other header fields."""
    stored = codec.decode_commit(builders.bodies(store)[-1])
    header = builders.replaced(stored.header, version=version, prev=builders.HASH, **changes)
    return codec.encode_commit(builders.replaced(stored, header=header))


def three_commits(kind=MemoryStore):
    store = kind()
    table = create(store)
    for n in range(2):
        append(table, events(1, first=n))
    return store, table


@pytest.mark.hazard("C5")
def test_c5_gap_is_corrupt_on_open_and_never_served():
    store, table = three_commits()
    assert store.put_if_absent(keys.commit_key(4), foreign(store, 4))
    with pytest.raises(errors.Corrupt):
        reopen(store)
    # One GET of version 3 is all that a refresh costs: it sees no news, and no stranger.
    assert table.refresh().version == 2
    assert append(table, events(1, first=2)) == 3
    with pytest.raises(errors.Corrupt):
        table.refresh()
    with pytest.raises(errors.Corrupt):
        append(table, events(1, first=3))


@pytest.mark.hazard("C5")
@pytest.mark.parametrize("strangers", [0, 15, 31])
def test_c5_gap_is_seen_behind_strangers(strangers):
    """Keys that do not parse must not push the version before the gap off the page."""
    store, _ = three_commits()
    for n in range(strangers):
        store.put_if_absent(f"_log/!stranger {n:03d}", b"")
    assert reopen(store).session.head().version == 2
    store.put_if_absent(keys.commit_key(4), foreign(store, 4))
    with pytest.raises(errors.Corrupt):
        reopen(store)


@pytest.mark.hazard("C5")
def test_c5_a_log_that_does_not_begin_at_0_is_corrupt():
    store, _ = three_commits()
    empty = MemoryStore()
    empty.put_if_absent(keys.commit_key(7), foreign(store, 7))
    with pytest.raises(errors.Corrupt):
        reopen(empty)


@pytest.mark.hazard("C5")
def test_c5_version_in_the_body_must_be_that_of_the_key():
    store, table = three_commits()
    store.put_if_absent(keys.commit_key(3), foreign(store, 4))
    for look in (lambda: reopen(store), table.refresh, lambda: table.snapshot(3)):
        with pytest.raises(errors.Corrupt):
            look()


@pytest.mark.hazard("C5")
def test_c5_wrong_prev_is_corrupt():
    store, table = three_commits()
    store.put_if_absent(keys.commit_key(3), foreign(store, 3))
    with pytest.raises(errors.Corrupt):
        table.refresh()
    with pytest.raises(errors.Corrupt):
        append(table, events(1))
    with pytest.raises(errors.Corrupt):
        builders.fold_all(store)


@pytest.mark.hazard("C5", "W9")
def test_c5_another_table_in_the_slot_is_corrupt():
    store, table = three_commits()
    stored = codec.decode_commit(builders.bodies(store)[-1])
    header = builders.replaced(
        stored.header, version=3, prev=table.session.head().commit_hash, table="f" * 32
    )
    store.put_if_absent(
        keys.commit_key(3), codec.encode_commit(builders.replaced(stored, header=header))
    )
    with pytest.raises(errors.Corrupt):
        table.refresh()


def overwritten_head(kind=MemoryStore):
    """A warm handle, and a store in which its head was replaced by another valid commit."""
    store, table = three_commits(kind)
    stored = codec.decode_commit(builders.bodies(store)[-1])
    header = builders.replaced(stored.header, time=stored.header.time + 1)
    body = codec.encode_commit(builders.replaced(stored, header=header))
    builders.replace_object(store, keys.commit_key(2), body)
    return store, table


@pytest.mark.hazard("C6")
def test_c6_foreign_overwrite_is_seen_by_a_warm_handle():
    store, table = overwritten_head()
    append(reopen(store), events(1, first=2))
    with pytest.raises(errors.Corrupt):
        table.refresh()
    with pytest.raises(errors.Corrupt):
        append(table, events(1, first=3))


@pytest.mark.hazard("C6")
def test_c6_foreign_overwrite_is_seen_before_a_commit_where_reads_are_free():
    store, table = overwritten_head()
    with pytest.raises(errors.Corrupt, match="forked or changed"):
        append(table, events(1, first=2))
    assert len(builders.bodies(store)) == 3


@pytest.mark.hazard("C5", "C6")
def test_c6_foreign_overwrite_breaks_the_chain_of_the_next_commit():
    store, table = overwritten_head(lambda: CountingStore(MemoryStore()))
    append(table, events(1, first=2))
    with pytest.raises(errors.Corrupt, match="chain"):
        builders.fold_all(store)


# --- C9: the cost of a lost race ----------------------------------------------------------------


def cost_of_catching_up(missed, action):
    inner = MemoryStore()
    create(inner, properties={"combine_after": "0"})
    counting = CountingStore(inner)
    table, other = reopen(counting), reopen(inner, seed=7)
    for _ in range(missed):
        commit(other, add(other))
    with counting.measure() as counts:
        action(table)
    return counts


@pytest.mark.hazard("C9")
def test_c9_retry_cost_does_not_grow_with_the_commits_missed():
    costs = [
        cost_of_catching_up(missed, lambda t: commit(t, add(t, epoch=0)))
        for missed in (2, 10, 60, 150)
    ]
    # put refused, slot read, its key frame, the next slot, LIST, head, its key frame, put
    assert max(c.total for c in costs) <= 8
    assert all(c.put == 2 for c in costs)


@pytest.mark.hazard("C9")
def test_c9_refresh_costs_the_same_for_any_number_of_commits_missed():
    costs = [cost_of_catching_up(n, lambda t: t.refresh()).total for n in (0, 1, 10, 150)]
    assert costs[0] == 1
    assert max(costs) <= 4


# --- P: key frames -----------------------------------------------------------------------------


def framed(commits=7, every=3, chunks=1):
    """A table with a key frame after every 3 commits, and its newest one over that of 5."""
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": str(every)})
    for n in range(commits):
        commit(table, add(table, f"2013-01-{1 + n % chunks:02d}"))
    assert table.session.head().base.version == (commits + 1) // every * every - 1
    return store


def damage_truncated(body):
    return body[:-7]


def damage_flipped(body):
    at = body.index(b'"totals"') + 30
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


def damage_empty(body):
    return b""


@pytest.mark.hazard("P1")
@pytest.mark.parametrize(
    "damage", [None, damage_truncated, damage_flipped, damage_empty, "stale", "foreign", "newer"]
)
def test_p1_unusable_key_frame_is_stepped_over(damage, caplog):
    store = framed()
    key = keys.keyframe_key(5)
    body = store.get(key)
    if damage is None:
        store.delete([key])
    elif damage == "stale":
        old = codec.decode_keyframe(store.get(keys.keyframe_key(2)), 2)
        builders.replace_object(
            store, key, codec.encode_keyframe(builders.replaced(old, version=5))
        )
    elif damage == "foreign":
        builders.replace_object(store, key, framed(every=2).get(keys.keyframe_key(5)))
    elif damage == "newer":
        builders.replace_object(store, key, body.replace(b'"min_reader":1', b'"min_reader":9', 1))
    else:
        builders.replace_object(store, key, damage(body))
    counting = CountingStore(store)
    with counting.measure() as counts:
        table = reopen(counting)
    # LIST, commit 7, key frame 5 (unusable), commit 5, key frame 2
    assert (counts.list, counts.get) == (1, 4)
    assert "unusable" in caplog.text
    check_sound(store)
    commit(table, add(table))
    commit(table, add(table))
    commit(table, add(table))  # the next key frame falls due over the damaged one
    assert check_sound(store).session.head().version == 10


@pytest.mark.hazard("P1")
def test_p1_all_key_frames_lost():
    store = framed(commits=10)
    store.delete([o.key for o in store.list("") if "keyframe" in o.key])
    counting = CountingStore(store)
    with counting.measure() as counts:
        reopen(counting)
    # LIST, then the commits 10, 8, 5 and 2, and the key frames between them that are missing
    assert (counts.list, counts.get) == (1, 7)
    check_sound(store)


@pytest.fixture
def small_leaves(monkeypatch):
    for name, value in (("INLINE_SEGMENTS", 2), ("LEAF_TARGET", 3), ("LEAF_SMALL", 1)):
        monkeypatch.setattr(f"eventlog.state.keyframe.{name}", value)


@pytest.mark.sample(2)
@pytest.mark.hazard("P1")
@pytest.mark.parametrize("damage", ["missing", "flipped", "swapped", "empty"])
@pytest.mark.usefixtures("small_leaves")
def test_p1_damaged_leaf_is_stepped_over(damage):
    store = framed(commits=20, chunks=10)
    table = reopen(store)
    leaves = [keys.frame_key(leaf.sha256) for leaf in table.session.head().base.leaves]
    assert len(leaves) > 2
    body = store.get(leaves[1])
    if damage == "missing":
        store.delete([leaves[1]])
    elif damage == "swapped":
        builders.replace_object(store, leaves[1], store.get(leaves[0]))
    else:
        bad = b"" if damage == "empty" else body[:50] + bytes([body[50] ^ 4]) + body[51:]
        builders.replace_object(store, leaves[1], bad)
    check_sound(store)
    # Writing goes on, and every chunk can still be dropped and rewritten.
    table = reopen(store)
    for _ in range(7):
        gone = live_of(table)[0]
        commit(table, builders.drop_of(gone), add(table, gone.chunk), operation="replace")
    check_sound(store)


def live_of(table):
    return builders.live(table.refresh())


@pytest.mark.hazard("P1")
@pytest.mark.usefixtures("small_leaves")
def test_p1_key_frames_go_on_when_a_leaf_is_lost():
    """A leaf that five key frames share is lost and then touched: the delta must not grow on."""
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": "3"})
    commit(table, *(add(table, f"2013-01-{day:02d}") for day in range(1, 13)))
    for _ in range(16):
        commit(table, add(table, "2013-02-01"))
    first = table.session.head().base.leaves[0]
    roots = [table.session.log.key_frames.root(v) for v in range(2, 18, 3)]
    assert all(first in root.leaves for root in roots)
    store.delete([keys.frame_key(first.sha256)])
    table = reopen(store)
    for _ in range(4):
        commit(table, add(table, "2013-01-01"))
    assert table.session.head().base.version > 17
    check_sound(store)


@pytest.mark.hazard("P1")
def test_p1_a_key_frame_of_another_commit_is_not_used():
    store = framed()
    table = reopen(store)
    root = table.session.log.key_frames.root(5)
    at_five = table.snapshot(5)
    assert at_five.on_keyframe(root).base is root
    for changes in ({"commit": builders.HASH}, {"table": "f" * 32}):
        with pytest.raises(errors.Corrupt):
            at_five.on_keyframe(builders.replaced(root, **changes))
    with pytest.raises(errors.Corrupt):
        at_five.on_keyframe(table.session.log.key_frames.root(2))


@pytest.mark.hazard("P2")
def test_p2_two_writers_of_one_key_frame_write_the_same_bytes():
    store = MemoryStore()
    create(store, properties={"keyframe_commits": "1024"})
    writer = reopen(store)
    for n in range(30):
        commit(writer, add(writer, f"2013-01-{1 + n % 9:02d}"))
    spies = [Spy(store), Spy(store), Spy(store)]
    tables = [reopen(spy, seed=n) for n, spy in enumerate(spies)]
    for table in tables:
        table.write_keyframe()
    assert spies[0].puts == spies[1].puts == spies[2].puts != []
    check_sound(store)


@pytest.mark.hazard("P2")
@pytest.mark.usefixtures("small_leaves")
def test_p2_two_writers_over_shared_leaves_write_the_same_bytes():
    store = framed(commits=20, chunks=10, every=4)
    spies = [Spy(store), Spy(store)]
    tables = [reopen(spy, seed=n) for n, spy in enumerate(spies)]
    assert tables[0].session.head().base.leaves
    assert tables[0].session.head().base.version < 20
    for table in tables:
        live_of(table)
        table.write_keyframe()
    assert spies[0].puts == spies[1].puts != []


@pytest.mark.hazard("P3")
@pytest.mark.usefixtures("small_leaves")
def test_p3_a_key_frame_cannot_be_built_from_part_of_the_state():
    store = framed(commits=20, chunks=10, every=4)
    head = reopen(store).session.head()
    part = Delta(dict(list(head.delta.adds.items())[:-1]), head.delta.drops)
    leaves = {leaf.sha256: head.log.key_frames.leaf(leaf) for leaf in head.base.leaves}
    whole = {"header": head.header, "commit_hash": head.commit_hash, "meta": head.meta}
    keyframe.build_key_frame(head.base, head.delta, leaves, **whole)
    with pytest.raises(errors.Corrupt):
        keyframe.build_key_frame(head.base, part, leaves, **whole)


@pytest.mark.hazard("P4")
def test_p4_app_marks_survive_key_frames_and_deduplicate():
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": "1"})
    assert append(table, events(2), app_id="job", app_seq=7) == 1
    for n in range(5):
        commit(table, add(table, f"2013-01-0{1 + n}"))
    again = reopen(store)
    assert again.session.head().base.version >= 5
    assert append(again, events(2), app_id="job", app_seq=7) == 1
    assert append(again, events(2), app_id="job", app_seq=6) == 1
    assert again.refresh().version == 6
    assert append(again, events(2, first=2), app_id="job", app_seq=8) == 7
    check_sound(store)


@pytest.mark.hazard("P4")
def test_p4_marks_of_several_apps_stand_side_by_side():
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": "2"})
    jobs = ["b", "a", "ä", "A"]
    for n, job in enumerate(jobs):
        append(table, events(1, first=n), app_id=job, app_seq=n)
    for n, job in enumerate(jobs):
        assert append(reopen(store), events(1), app_id=job, app_seq=n) == n + 1
    assert list(check_sound(store).session.head().meta.apps) == ["A", "a", "b", "ä"]


# --- R: readers ---------------------------------------------------------------------------------


@pytest.mark.hazard("R2")
def test_r2_a_snapshot_never_changes():
    store = framed(commits=5)
    snapshot = reopen(store).session.head()
    before = builders.live(snapshot)
    overwrite(reopen(store), events(1))
    assert builders.live(snapshot) == before
    assert snapshot.version == 5


@pytest.mark.hazard("R3")
@pytest.mark.parametrize("hidden", [1, 2, 5, 40])
def test_r3_a_stale_list_never_takes_a_handle_backwards(hidden):
    inner, history = MemoryStore(), []
    writer = create(FaultyStore(inner, history=history), properties={"keyframe_commits": "3"})
    store = FaultyStore(inner, history=history)
    table = reopen(store)
    seen = 0
    for n in range(12):
        commit(writer, add(writer))
        if n % 2:
            commit(writer, add(writer))
        store.inject(Fault("list", "stale_list", "_log/", amount=hidden))
        version = table.refresh().version
        assert version >= seen + 1  # the GET of the next version has seen one more at least
        seen = version
    assert builders.check_snapshot(table.session.head(), builders.fold_all(inner)[seen][0]) is None


@pytest.mark.hazard("R3")
def test_r3_a_refresh_that_was_overtaken_does_not_take_the_handle_back():
    """Two threads share a handle; here the slower one's refresh spans the faster one's appends."""

    class Overtaken(Spy):
        def list(self, prefix, **options):
            rows = [*self.inner.list(prefix, **options)]
            if pending:
                pending.pop()()
            return iter(rows)

    store, pending = MemoryStore(), []
    create(store)
    table, other = reopen(Overtaken(store), seed=5), reopen(store, seed=6)
    commit(other, add(other))
    pending.append(lambda: [append(table, events(1, first=n)) for n in range(3)])
    assert table.refresh().version == 1
    assert table.session.head().version == 4
    check_sound(store)


@pytest.mark.hazard("R3")
@pytest.mark.parametrize("hidden", [1, 3])
def test_r3_a_stale_list_costs_a_writer_only_time(hidden):
    inner, history = MemoryStore(), []
    writer = create(FaultyStore(inner, history=history))
    store = FaultyStore(inner, history=history)
    table = reopen(store)
    for _ in range(5):
        commit(writer, add(writer))
    store.inject(Fault("list", "stale_list", "_log/", occurrence=0, amount=hidden))
    transaction = table.transaction("append", [add(table)])
    assert table.commit(transaction) == 6
    assert accepted_in(inner, transaction.id) == [6]


# --- I: idempotence -----------------------------------------------------------------------------


@pytest.mark.hazard("I1")
def test_i1_every_attempt_stages_under_keys_of_its_own():
    store = MemoryStore()
    create(store)
    tables = [reopen(store, seed=n) for n in range(3)]
    for table in tables:  # three attempts of one task; the first one wins
        assert append(table, events(5), app_id="task", app_seq=0) == 1
    staged = [o.key for o in store.list("data/")]
    assert len(staged) == 3
    assert len(builders.row_names(check_sound(store))) == 5


@pytest.mark.hazard("I2", "I3")
@pytest.mark.parametrize("moment", ["crash_before", "crash_after"])
def test_i2_i3_a_new_attempt_after_a_crash_takes_effect_once(moment):
    inner = MemoryStore()
    create(inner)
    store = FaultyStore(inner, [Fault("put", moment, "_log/")])
    with pytest.raises(builders.Crash):
        append(reopen(store, seed=1), events(5), app_id="job", app_seq=3)
    assert append(reopen(inner, seed=2), events(5), app_id="job", app_seq=3) == 1
    assert builders.row_names(check_sound(inner)) == [f"row {n}" for n in range(5)]


@pytest.mark.hazard("I3")
def test_i3_unknown_then_a_new_process_with_the_same_unit_of_work():
    inner = MemoryStore()
    create(inner)
    store = LateStore(inner)
    table = reopen(store, seed=1)
    store.stuck = True
    with pytest.raises(errors.CommitUnknown):
        append(table, events(5), app_id="job", app_seq=3)
    fresh = reopen(inner, seed=2)
    assert append(fresh, events(5), app_id="job", app_seq=3) == 1
    assert not store.land()
    assert len(builders.row_names(check_sound(inner))) == 5


@pytest.mark.hazard("I3")
def test_i3_unknown_then_landed_then_a_new_process():
    inner = MemoryStore()
    create(inner)
    store = LateStore(inner)
    store.stuck = True
    with pytest.raises(errors.CommitUnknown):
        append(reopen(store, seed=1), events(5), app_id="job", app_seq=3)
    warm = reopen(inner, seed=2)
    assert store.land()
    assert append(warm, events(5), app_id="job", app_seq=3) == 1
    assert len(builders.row_names(check_sound(inner))) == 5


@pytest.mark.hazard("I3")
def test_i3_a_replay_of_the_same_transaction_by_another_process_never_doubles_it():
    store = MemoryStore()
    table = create(store)
    transaction = table.transaction("append", [add(table)])
    table.commit(transaction)
    other = pickle.loads(pickle.dumps(table))
    with contextlib.suppress(errors.CommitConflict):  # also an answer; a second effect is none
        other.commit(transaction)
    assert accepted_in(store, transaction.id) == [1]
    assert check_sound(store).session.head().totals.segments == 1


@pytest.mark.hazard("I3")
def test_i3_the_same_segments_under_a_new_transaction_id_are_refused():
    """C8 seen from the log: staged segments committed twice would be rows twice."""
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": "1"})
    staged = add(table)
    commit(table, staged)
    commit(table, add(table))
    with pytest.raises(errors.CommitConflict):
        commit(reopen(store), staged)
    with pytest.raises(errors.CommitConflict):
        commit(table, staged)
    twice = add(table)
    with pytest.raises(errors.CommitConflict):
        commit(table, twice, twice)
    assert check_sound(store).session.head().totals.segments == 2


@pytest.mark.hazard("I4")
def test_i4_concurrent_deliveries_of_one_event_take_effect_once():
    store = MemoryStore()
    create(store)
    tables = [reopen(store, seed=n) for n in range(4)]
    assert {append(t, events(3), app_id="event", app_seq=0) for t in tables} == {1}
    assert len(builders.row_names(check_sound(store))) == 3


@pytest.mark.hazard("I4")
def test_i4_marks_outlive_unknown_outcomes_of_properties():
    store, table, _ = stuck_append()
    head = table.session.head()
    transaction = table.transaction(
        "properties", [SetProperties(())], read_version=head.version, app=App("conf", 1)
    )
    first = table.commit(transaction)
    assert table.commit(transaction) == first
    assert reopen(store.inner).commit(transaction) == first


@pytest.mark.hazard("I5")
def test_i5_a_replay_with_other_content_is_reported_and_the_first_stands(caplog):
    table = create()
    first = append(table, events(2), app_id="job", app_seq=1)
    assert append(reopen(table.store), events(2, first=50), app_id="job", app_seq=1) == first
    assert not caplog.records
    assert append(reopen(table.store), events(3, first=50), app_id="job", app_seq=1) == first
    assert "repeated sequence 1 with 3 rows" in caplog.text
    assert row_names(table) == ["row 0", "row 1"]


@pytest.mark.hazard("I4")
def test_i4_deliveries_at_once_in_threads_take_effect_once():
    store = MemoryStore()
    create(store)
    start = threading.Barrier(6)

    def deliver(number):
        table = reopen(store, seed=number)
        start.wait(240)
        return append(table, events(2), app_id="event", app_seq=7)

    with ThreadPoolExecutor(6) as pool:
        versions = list(pool.map(deliver, range(6)))
    assert len(set(versions)) == 1
    assert row_names(check_sound(store)) == ["row 0", "row 1"]


@pytest.mark.hazard("C2")
def test_an_interrupt_after_the_commit_leaves_its_transaction_to_be_settled(monkeypatch):
    """The key frame is written last and takes longest: the commit is in the log by then."""

    def interrupt(*_):
        raise KeyboardInterrupt

    store = MemoryStore()
    table = create(store)
    transaction = table.transaction("append", [add(table)])
    with monkeypatch.context() as patched:
        patched.setattr(keyframe_writing, "write_if_due", interrupt)
        with pytest.raises(KeyboardInterrupt):
            table.commit(transaction)
    other = reopen(store, seed=7)
    commit(other, add(other))
    table.refresh()
    assert table.commit(transaction) == 1
    assert accepted_in(store, transaction.id) == [1]
    check_sound(store)


@pytest.mark.parametrize("role", ["leads", "rides"])
def test_a_commit_lands_although_no_thread_can_be_started(role, monkeypatch):
    """As in an `atexit` handler, or at a limit of threads."""

    def refuse(*_args, **_options):
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    store = MemoryStore()
    table = create(store, properties={"combine_after": "1"})
    table.session.committer.writer.contention.expected = CROWD
    if role == "leads":
        commit(table, add(table))
    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    transaction = table.transaction("append", [add(table)])
    version = table.commit(transaction)
    assert accepted_in(store, transaction.id) == [version]
    check_sound(store)
