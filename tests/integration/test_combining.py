"""Combining (FORMAT.md section 9.6): published appends are neither lost nor doubled."""

import threading

import pyarrow as pa
import pytest
from support.builders import (
    SCHEMA,
    Crash,
    Spy,
    accepted_in,
    add,
    bodies,
    check_sound,
    commit,
    create,
    drop_of,
    events,
    fold_all,
    live,
    reopen,
    replaced,
)
from support.copies import small_objects
from support.forked_histories import copied
from support.intents import Staged

from eventlog import errors
from eventlog.commit.intents import WINDOW
from eventlog.commit.proposal import propose
from eventlog.commit.protocol.contention import CROWD
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.model.records import App
from eventlog.readers import scan
from eventlog.replication import merge
from eventlog.state import fold
from eventlog.state.small.rules import MAX_WINDOW
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite, upsert


def table_at(store=None, **properties):
    """A store with a table whose writers publish after one lost race."""
    store = Staged() if store is None else store
    chosen = {"combine_after": "1", **{k: str(v) for k, v in properties.items()}}
    create(store, properties=chosen)
    return store


def crowded(store, seed=1000):
    """A handle that expects others: it publishes, looks and takes along."""
    table = reopen(store, seed)
    table.session.committer.writer.contention.expected = CROWD
    return table


def direct(store, seed=2000):
    """A handle that is up to date, and commits without a look at what is published."""
    table = reopen(store, seed)
    table.session.committer.writer.contention.expected = 0
    return table


def unseen(store, count, seed=60):
    """Commits of as many writers, none of which looks at what is published; return the last."""
    for n in range(count):
        table = direct(store, seed + n)
        commit(table, add(table))
    return table


def published(store):
    parsed = (keys.parse_intent_key(o.key) for o in store.list(keys.INTENTS_PREFIX))
    return [p for p in parsed if p is not None]


def appending(table, **options):
    return table.transaction("append", [add(table)], **options)


def publish_and_die(store, *, seed=5, app=None):
    """Return a transaction that was published by a writer who died then."""
    crashing = FaultyStore(store, [Fault("put", "crash_after", keys.INTENTS_PREFIX)])
    table = crowded(crashing, seed)
    transaction = appending(table, app=app)
    with pytest.raises(Crash):
        table.commit(transaction)
    assert transaction.id in [found[1] for found in published(store)]
    return transaction


def put_intent(store, transaction, *, name=None, until=None, body=None):
    """Publish what no writer would."""
    until = transaction.until if until is None else until
    key = keys.intent_key(until, name or transaction.id)
    body = codec.encode_transaction(transaction, reopen(store).id) if body is None else body
    assert store.put_if_absent(key, body)


def during(table, count, act, *, prefix=keys.LOG_PREFIX):
    """Let `act` happen just before each of the first `count` puts of the handle under a prefix."""
    spy = Spy(table.store)
    left = [count]

    def before(key):
        if left[0] and key.startswith(prefix):
            left[0] -= 1
            act()

    spy.before_put = before
    table.session.store = table.session.log.store = spy
    return spy


# --- Taken along ------------------------------------------------------------------------------


def test_the_winner_takes_along_what_a_loser_published():
    store = table_at()
    loser, winner = crowded(store, 6), crowded(store, 7)
    during(loser, 1, lambda: commit(winner, add(winner, rows=5)))
    transaction = appending(loser)
    assert loser.commit(transaction) == 1
    (state, effect) = fold_all(store)[1]
    assert len(effect.accepted) == 2
    assert transaction.id in effect.accepted
    changes = state.header.changes
    assert (changes.transactions, changes.adds, changes.rows) == (2, 2, 6)
    assert loser.session.head().version == 1
    assert loser.find_transaction(transaction.id) == 1
    assert len(bodies(store)) == 2
    check_sound(store)


def test_a_leader_takes_many_along_and_each_finds_itself():
    store = table_at()
    left = [publish_and_die(store, seed=n) for n in range(110, 130)]
    leader = crowded(store)
    assert commit(leader, add(leader)) == 1
    assert [accepted_in(store, t.id) for t in left] == [[1]] * 20
    assert check_sound(store).session.head().header.changes.transactions == 21
    assert commit(leader, add(leader)) == 2
    assert len(fold_all(store)[2][1].accepted) == 1


def test_what_cannot_take_effect_is_left_out():
    store = table_at()
    app = App("job", 1)
    first, second = (publish_and_die(store, seed=n, app=app) for n in (11, 12))
    leader = crowded(store)
    commit(leader, add(leader))
    assert sorted([accepted_in(store, first.id), accepted_in(store, second.id)]) == [[], [1]]
    assert not any(effect.void for _, effect in fold_all(store))


@pytest.mark.parametrize("threads", [4])
def test_threads_of_one_handle(threads):
    store = table_at()
    table = crowded(store)
    for n in range(30, 50):
        publish_and_die(store, seed=n)
    problems, versions = [], []

    def work():
        try:
            versions.extend(commit(table, add(table)) for _ in range(10))
        except Exception as error:  # noqa: BLE001 - asserted below
            problems.append(error)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(240)
    assert problems == []
    assert len(versions) == 10 * threads
    assert sum(len(effect.accepted) for _, effect in fold_all(store)[1:]) == 10 * threads + 20
    check_sound(store)


# --- The publisher dies, or its store does ----------------------------------------------------


@pytest.mark.parametrize("lands", ["before", "after", "during", "never"])
@pytest.mark.parametrize("again", [direct, crowded])
def test_a_rerun_after_a_crash_has_one_effect(lands, again):
    store = table_at()
    app = App("job", 7)
    dead = publish_and_die(store, app=app)
    leader = crowded(store, 40)
    if lands == "before":
        commit(leader, add(leader))
    if lands == "never":
        store.delete([keys.intent_key(WINDOW, dead.id)])
    rerun = again(store, 41)
    if lands == "during":
        during(rerun, 1, lambda: commit(leader, add(leader)))
    transaction = appending(rerun, app=app)
    version = rerun.commit(transaction)
    if lands == "after":
        commit(leader, add(leader))
    commit(leader, add(leader))
    effects = [accepted_in(store, dead.id), accepted_in(store, transaction.id)]
    assert sorted(effects) == [[], [version]]
    assert check_sound(store).session.head().meta.apps["job"].seq == 7


def interrupted(store):
    """A handle whose store died when its append had been published."""
    faulty = FaultyStore(store)
    table = crowded(faulty, 5)
    transaction = appending(table)
    for verb in ("list", "get"):
        faulty.inject(Fault(verb, "unavailable", occurrence=0))
    faulty.inject(Fault("put", "unavailable", keys.LOG_PREFIX, occurrence=0))
    with pytest.raises(errors.CommitUnknown) as caught:
        table.commit(transaction)
    assert (caught.value.version, caught.value.transaction) == (1, transaction.id)
    assert f"until version {WINDOW}" in str(caught.value)
    return faulty, table, transaction


@pytest.mark.parametrize("lands", ["before", "during", "never"])
@pytest.mark.parametrize("refreshed", [False, True])
def test_the_same_handle_tries_again_after_its_store_came_back(lands, refreshed):
    store = table_at()
    faulty, table, transaction = interrupted(store)
    faulty._plan.clear()
    leader = crowded(store, 40)
    expected = 1
    if lands == "before":
        commit(leader, add(leader))
        commit(leader, add(leader))
    if refreshed:
        table.refresh()
    if lands == "during":
        during(table, 1, lambda: commit(leader, add(leader)))
    assert table.commit(transaction) == expected
    commit(leader, add(leader))
    assert accepted_in(store, transaction.id) == [1]
    check_sound(store)


@pytest.mark.sample(10)
@pytest.mark.parametrize("verb", ["get", "put", "list"])
@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("versions", [0, 1, 3, WINDOW, WINDOW + 3])
def test_an_open_append_is_never_called_not_committed(versions, landed, verb):
    """While the published copy may land, only `CommitUnknown` is true of it."""
    store = table_at(keyframe_commits=2)
    faulty, table, transaction = interrupted(store)
    if landed:
        commit(crowded(store, 40), add(table))
    other = direct(store, 41)
    for _ in range(versions):
        commit(other, add(other))
    faulty._plan.clear()
    occurrence = 0
    while True:
        occurrence += 1
        faulty.inject(Fault(verb, "unavailable", occurrence=occurrence))
        try:
            version = table.commit(transaction)
        except errors.CommitUnknown:
            assert table.session.committer.writer.unresolved
        except errors.Unavailable:
            assert not accepted_in(store, transaction.id)
            assert other.refresh().version > WINDOW or not published(store)
        else:
            break
        faulty._plan.clear()
    assert accepted_in(store, transaction.id) == [version]
    check_sound(store)


def test_a_published_append_may_have_landed_when_the_readback_fails():
    """The slot's answer was lost, the store is gone: whoever asks then is told of the window."""
    store = table_at()
    faulty = FaultyStore(store)
    table = crowded(faulty, 5)
    faulty.inject(Fault("put", "lost_response", keys.LOG_PREFIX, occurrence=0))
    faulty.inject(Fault("get", "unavailable", keys.LOG_PREFIX, occurrence=0))
    transaction = appending(table)
    with pytest.raises(errors.CommitUnknown) as caught:
        table.commit(transaction)
    assert caught.value.version == 1
    assert f"until version {WINDOW}" in str(caught.value)
    faulty._plan.clear()
    assert table.commit(transaction) == 1
    assert table.find_transaction(transaction.id, start=caught.value.version) == 1


# --- Windows ----------------------------------------------------------------------------------


def test_a_window_that_ended_is_dead_for_ever_and_the_append_lands_once_later():
    store = table_at()
    faulty, table, transaction = interrupted(store)
    unseen(store, WINDOW)
    leader = crowded(store, 42)
    commit(leader, add(leader))
    assert accepted_in(store, transaction.id) == []
    faulty._plan.clear()
    version = table.commit(transaction)
    assert version > WINDOW + 1
    commit(leader, add(leader))
    assert accepted_in(store, transaction.id) == [version]
    check_sound(store)


def test_a_dead_one_that_a_commit_lists_is_void():
    store = table_at()
    dead = replaced(publish_and_die(store), until=WINDOW)
    other = unseen(store, WINDOW)
    head = other.session.head()
    mine = appending(other)
    _, view = other.session.log.load_view(head, [mine, dead])
    effect = fold.judge([mine, dead], view, head.header.time + 1)
    assert "until version" in effect.void[dead.id]
    proposal = propose(
        head,
        [mine, dead],
        effect,
        table_id=other.id,
        time_ms=head.header.time + 1,
        log=other.session.log,
    )
    assert store.put_if_absent(keys.commit_key(WINDOW + 1), proposal.body)
    assert other.refresh().header.changes.transactions == 1
    assert other.find_transaction(dead.id) is None
    assert other.find_transaction(mine.id) == WINDOW + 1
    assert accepted_in(store, dead.id) == []
    check_sound(store)


def test_one_append_published_in_two_windows_lands_once():
    store = table_at()
    transaction = publish_and_die(store)
    for until in (WINDOW - 2, WINDOW + 3, MAX_WINDOW):
        put_intent(store, replaced(transaction, until=until))
    leader = crowded(store, 40)
    for _ in range(4):
        commit(leader, add(leader))
    assert accepted_in(store, transaction.id) == [1]
    check_sound(store)


@pytest.mark.parametrize("keyframe_commits", [1, 2, 5, 64])
def test_marks_last_as_long_as_the_window_on_every_road(keyframe_commits):
    store = table_at(keyframe_commits=keyframe_commits)
    leader = crowded(store, 40)
    for n in range(20):
        if n % 3 == 0:
            publish_and_die(store, seed=100 + n)
        commit(leader, add(leader))
    for _ in range(WINDOW + 1):
        leader.session.committer.writer.contention.expected = 0
        commit(leader, add(leader))
    steps = fold_all(store)
    landed = [
        (t.id, version, t.until)
        for version, body in enumerate(bodies(store))
        for t in codec.decode_commit(body).transactions
        if t.until is not None and t.id in steps[version][1].accepted
    ]
    marked = [len(state.meta.published) for state, _ in steps]
    assert max(marked) >= 3
    assert marked[-1] == 0
    for state, _ in steps:
        marks = {i: (v, until) for i, v, until in landed if v <= state.version <= until}
        found = {i: (m.version, m.until) for i, m in state.meta.published.items()}
        assert found == marks
    check_sound(store)


def test_what_was_dropped_does_not_come_back_with_a_late_copy():
    store = table_at()
    transaction = publish_and_die(store)
    leader = crowded(store, 40)
    commit(leader, add(leader))
    both = live(leader.session.head())
    commit(leader, *(drop_of(s) for s in both), add(leader, rows=2), operation="replace")
    for _ in range(WINDOW + 1):
        commit(leader, add(leader))
    assert accepted_in(store, transaction.id) == [1]
    table = check_sound(store)
    assert not {s.id for s in both} & {s.id for s in live(table.session.head())}


# --- What lands in between --------------------------------------------------------------------


def test_a_schema_change_in_between():
    store = table_at()
    transaction = publish_and_die(store)
    direct(store, 41).add_columns(SCHEMA.append(pa.field("extra", pa.int64())))
    leader = crowded(store, 42)
    commit(leader, add(leader))
    assert accepted_in(store, transaction.id) == [2]
    check_sound(store)


def test_an_append_with_a_schema_that_is_not_there_yet_is_refused_and_never_published():
    """Published, it would take effect when the schema arrives, after its writer was told no."""
    store = table_at()
    table = crowded(store)
    wrong = table.transaction("append", [replaced(add(table), schema=2)])
    with pytest.raises(errors.CommitConflict):
        table.commit(wrong)
    other = direct(store, 41)
    other.add_columns(SCHEMA.append(pa.field("extra", pa.int64())))
    leader = crowded(store, 42)
    commit(leader, add(leader))
    assert accepted_in(store, wrong.id) == []
    assert wrong.id not in [found[1] for found in published(store)]


def test_a_stale_writer_whose_schema_is_there_is_no_conflict():
    store = table_at()
    table = crowded(store)
    other = direct(store, 41)
    other.add_columns(SCHEMA.append(pa.field("extra", pa.int64())))
    for _ in range(WINDOW):
        commit(other, add(other))
    newer = table.transaction("append", [replaced(add(table), schema=2)])
    version = table.commit(newer)
    assert accepted_in(store, newer.id) == [version]


def test_combining_may_be_turned_off_in_between():
    store = table_at()
    transaction = publish_and_die(store)
    other = direct(store, 41)
    other.set_properties({"combine_after": "0"})
    before = published(store)
    table = crowded(store, 42)
    for _ in range(3):
        commit(table, add(table))
    assert published(store) == before
    assert accepted_in(store, transaction.id) == []


# --- Strangers --------------------------------------------------------------------------------


KINDS = [
    "drops", "adds and drops", "long app", "long writer", "long info", "bad chunk", "bad id",
    "bad checksum", "later epoch", "no window", "a window too far",
]  # fmt: skip


def hostile(table):
    """Transactions that nobody may take along, by what is wrong with them."""
    good = replaced(appending(table), until=WINDOW)
    token = table.clock.random_id
    fresh = lambda **changes: replaced(good, id=token(), **changes)
    segment = lambda **changes: (replaced(add(table), **changes),)
    victim = live(table.session.head())[0]
    return {
        "drops": fresh(actions=(drop_of(victim),)),
        "adds and drops": fresh(actions=(*good.actions, drop_of(victim))),
        "long app": fresh(app=App("x" * 5000, 1)),
        "long writer": fresh(writer="x" * 5000),
        "long info": fresh(info={"note": "x" * 50_000}),
        "bad chunk": fresh(actions=segment(chunk="../../etc")),
        "bad id": fresh(actions=segment(id="../../etc/passwd")),
        "bad checksum": fresh(actions=segment(checksum="zz")),
        "later epoch": fresh(actions=segment(epoch=10**9)),
        "no window": fresh(until=None),
        "a window too far": fresh(until=10**6),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_transactions_are_not_taken_along(kind):
    store = table_at()
    table = direct(store)
    commit(table, add(table))
    strangers = hostile(table)
    assert set(strangers) == set(KINDS)
    stranger = strangers[kind]
    put_intent(store, stranger, until=stranger.until or WINDOW)
    leader = crowded(store, 42)
    assert commit(leader, add(leader)) == 2
    assert accepted_in(store, stranger.id) == []
    assert check_sound(store).session.head().totals.segments == 2


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"\xff" * 100, b"[" * 100_000, b"0" * (codec.MAX_INTENT_BYTES + 1)],
    ids=["empty", "object", "bytes", "nested", "large"],
)
def test_garbage_is_ignored(body):
    store = table_at()
    leader = crowded(store, 42)
    assert store.put_if_absent(keys.intent_key(WINDOW, "0" * 32), body)
    assert store.put_if_absent(f"{keys.INTENTS_PREFIX}stranger", body)
    assert [commit(leader, add(leader)) for _ in range(3)] == [1, 2, 3]
    check_sound(store)


def test_names_that_are_not_the_transactions_own_are_ignored():
    store = table_at()
    table = crowded(store, 42)
    stranger = replaced(appending(table), until=WINDOW)
    put_intent(store, stranger, name="0" * 32)
    put_intent(store, stranger, until=WINDOW - 1)
    commit(table, add(table))
    assert accepted_in(store, stranger.id) == []


@pytest.mark.parametrize("there", [False, True])
def test_what_was_published_under_another_root_is_not_taken_along(there, caplog):
    """A copy or a branch has the table's id, and its segments lie elsewhere."""
    store = table_at(MemoryStore())
    table = crowded(store, 42)
    mine, its = add(table), add(table)
    strangers = replaced(table.transaction("append", [mine, its]), until=WINDOW)
    for one in (mine, its) if there else (mine,):
        store.put_if_absent(keys.segment_key(one.epoch, one.chunk, one.id), b"rows")
    put_intent(store, strangers)
    assert [commit(table, add(table)) for _ in range(3)] == [1, 2, 3]
    assert accepted_in(store, strangers.id) == ([1] if there else [])
    assert (f"{strangers.id}.json: segments" in caplog.text) != there


@pytest.mark.parametrize("chunk", [None, "2013-01-09"])
def test_an_intent_with_the_id_of_a_live_segment_is_not_taken_along(chunk):
    """Only a leaf of the key frame has that id, and the epoch is the key frame's or later."""
    store = table_at(keyframe_commits=4)
    table = crowded(store, 42)
    with small_objects():
        old = [add(table) for _ in range(8)]
        for one in old:
            commit(table, one)
    again = replaced(old[0], epoch=table.refresh().version, chunk=chunk or old[0].chunk)
    strangers = replaced(
        table.transaction("append", [again]), until=table.session.head().version + WINDOW
    )
    put_intent(store, strangers)
    table = crowded(store, 43)
    assert [commit(table, add(table)) for _ in range(2)] == [9, 10]
    assert accepted_in(store, strangers.id) == []
    assert len(live(reopen(store).session.head())) == 10


@pytest.mark.hazard("C1")
@pytest.mark.parametrize("options", [{}, {"key": "name"}], ids=["plain", "keyed"])
def test_an_append_that_writers_of_two_copies_took_along_is_one_for_a_merge(options):
    put = upsert if options else append
    create(store := MemoryStore(), properties={"combine_after": "1"}, **options)
    crashing = FaultyStore(store, [Fault("put", "crash_after", keys.INTENTS_PREFIX)])
    with pytest.raises(Crash):
        put(crowded(crashing, 5), events(1, first=9))
    mirror = MemoryStore()
    for row in store.list(""):
        mirror.put_if_absent(row.key, store.get(row.key))
    put(crowded(store, 6), events(2, first=20))
    put(crowded(mirror, 7), events(2, first=30))
    for one in (store, mirror):
        assert reopen(one).session.head().header.changes.transactions == 2
    for source, target in ((store, mirror), (mirror, store), (store, mirror)):
        merge(reopen(source), reopen(target))
    for one in (store, mirror):
        names = sorted(scan(reopen(one)).to_table().column("name").to_pylist())
        assert names == ["row 20", "row 21", "row 30", "row 31", "row 9"]
        assert not fsck(reopen(one), objects=True).errors


@pytest.mark.hazard("C1")
@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("take", ["source", "target"])
def test_a_choice_counts_no_append_that_a_writer_took_along_as_a_unit_of_work(take, forgotten):
    create(store := MemoryStore(), properties={"combine_after": "1"})
    one, two = reopen(store, 8), reopen(copied(store), 9)
    for number, table in enumerate((one, two)):
        append(table, events(1, first=40), app_id="job", app_seq=1)
        overwrite(table, events(1, first=50 + number))
    if forgotten:
        one.restore(0, forget_units=True)
    crashing = FaultyStore(store, [Fault("put", "crash_after", keys.INTENTS_PREFIX)])
    with pytest.raises(Crash):
        append(crowded(crashing, 5), events(1, first=9))
    append(crowded(store, 6), events(2, first=20))
    merge(one, two, take=take)
    merge(two, one)
    counted = set() if forgotten and take == "source" else {"job"}
    assert [{*table.refresh().meta.apps} for table in (one, two)] == [counted] * 2
    for table in (one, two):  # the name that stands for such an append begins so
        assert not any(b"\\u0000" in table.store.get(key.key) for key in table.store.list("_log/"))


@pytest.mark.parametrize("prefix", ["!", "000000000000/", "zzz"])
def test_ten_thousand_strangers_hide_nothing(prefix):
    store = table_at()
    for n in range(10_000):
        store.put_if_absent(f"{keys.INTENTS_PREFIX}{prefix}{n:032x}.json", b"{}")
    waiting = publish_and_die(store)
    counting = CountingStore(store)
    leader = crowded(counting, 42)
    with counting.measure() as counts:
        assert commit(leader, add(leader)) == 1
    assert accepted_in(store, waiting.id) == [1]
    assert counts.total <= 8


def test_a_flood_of_plausible_garbage_slows_but_never_blocks():
    store = table_at()
    for n in range(2_000):
        store.put_if_absent(keys.intent_key(WINDOW, f"{n:032x}"), b"{}")
    counting = CountingStore(store)
    leader = crowded(counting, 42)
    with counting.measure() as counts:
        assert [commit(leader, add(leader)) for _ in range(3)] == [1, 2, 3]
    assert counts.total < 300
    check_sound(store)


def large(table, rows=1):
    """A published append of nearly the greatest size."""
    adds = [replaced(add(table), rows=rows) for _ in range(1150)]
    transaction = replaced(table.transaction("append", adds), until=WINDOW)
    assert 200_000 < len(codec.encode_transaction(transaction, "")) < codec.MAX_INTENT_BYTES
    return transaction


@pytest.mark.verify
def test_more_than_fits_into_one_commit_is_spread_over_several():
    store = table_at()
    table = crowded(store, 42)
    waiting = [large(table) for _ in range(36)]
    assert sum(len(codec.encode_transaction(t, "")) for t in waiting) > codec.MAX_COMMIT_BYTES
    for transaction in waiting:
        put_intent(store, transaction)
    for _ in range(6):
        commit(table, add(table))
    landed = [i for _, effect in fold_all(store) for i in effect.accepted]
    assert all(landed.count(t.id) == 1 for t in waiting)
    assert max(len(body) for body in bodies(store)) < codec.MAX_COMMIT_BYTES


@pytest.mark.parametrize("strangers", [2, 5])
def test_counts_that_pass_every_bound_stop_nobody_else(strangers):
    store = table_at()
    table = crowded(store, 42)
    for _ in range(strangers):
        segment = replaced(add(table), rows=2**63 - 1, bytes=2**63 - 1)
        put_intent(store, replaced(table.transaction("append", [segment]), until=WINDOW))
    assert [commit(table, add(table)) for _ in range(3)] == [1, 2, 3]
    assert check_sound(store).session.head().totals.rows == 3


# --- Faults at every call ---------------------------------------------------------------------

EFFECTS = {
    "put": ["unavailable", "lost_response", "not_applied_unknown", "delayed", "duplicate"],
    "get": ["unavailable"],
    "list": ["unavailable", "stale_list"],
}
CRASHES = ["crash_before", "crash_after"]


def race(verb, effect, at, who):
    """Two who race, one of them with a fault at its n-th call; say whether the fault struck."""
    store = table_at(keyframe_commits=2)
    history = []
    faulty = FaultyStore(store, history=history)
    loser = reopen(faulty if who == "loser" else store, 3)
    winner = crowded(faulty if who == "winner" else store, 4)
    faulty.inject(Fault(verb, effect, occurrence=at))
    app = App("job", 1)
    transactions = []

    def insist(table, **options):
        transaction = appending(table, **options)
        transactions.append(transaction)
        for _ in range(6):
            try:
                return table.commit(transaction)
            except errors.CommitUnknown:
                continue
            except errors.Unavailable:
                assert not accepted_in(store, transaction.id)
            except Crash:
                return None
        return None

    others = []
    during(loser, 3, lambda: others.append(insist(winner)))
    version = insist(loser, app=app)
    faulty.release()
    mine = next(t for t in transactions if t.app)
    if version is not None:
        assert accepted_in(store, mine.id) == [version]
    else:
        insist(reopen(store, 9), app=app)
    commit(crowded(store, 10), add(loser, epoch=0))
    for transaction in transactions:
        assert len(accepted_in(store, transaction.id)) <= 1
    assert sum(len(accepted_in(store, t.id)) for t in transactions if t.app) == 1
    check_sound(store)
    return bool(faulty.fired)


FAULTS = [(v, e) for v, effects in EFFECTS.items() for e in effects + CRASHES]
# The winner's reads and listings, by which it takes others along, fail in long runs only.
RACES = [
    pytest.param(*fault, who, marks=[pytest.mark.long] * (who == "winner" and fault[0] != "put"))
    for fault in FAULTS
    for who in ("loser", "winner")
]


@pytest.mark.sample(6, verify=12)
@pytest.mark.parametrize(("verb", "effect", "who"), RACES)
def test_a_fault_at_every_call_of_a_race(verb, effect, who):
    at = 1
    while race(verb, effect, at, who):
        at += 1
    assert at > 1


# --- What it costs ----------------------------------------------------------------------------


def kinds(counts):
    return counts.get, counts.put, counts.list, counts.delete


def test_a_lone_writer_seldom_looks_and_never_publishes():
    counting = CountingStore(table_at())
    table = reopen(counting)
    for number in range(1, 41):
        with counting.measure() as counts:
            commit(table, add(table))
        assert kinds(counts) == (0, 1, number in (4, 8, 24, 40), 0)
    assert published(counting) == []


def test_a_writer_who_is_alone_again_is_back_at_one_request_a_commit():
    counting = CountingStore(table_at())
    table = crowded(counting)
    with counting.measure() as counts:
        commit(table, add(table))
    assert kinds(counts) == (1, 2, 1, 0)  # publish, look for a leader and a commit, commit
    with counting.measure() as counts:
        commit(table, add(table))
    assert kinds(counts) == (0, 1, 0, 0)  # nobody waited


def test_a_leader_whose_followers_have_gone_looks_for_them_for_a_while():
    counting = CountingStore(table_at())
    publish_and_die(counting.inner)
    table = crowded(counting)
    commit(table, add(table))
    for _ in range(CROWD - 1):
        with counting.measure() as counts:
            commit(table, add(table))
        assert kinds(counts) == (0, 1, 1, 0)  # commit, and look meanwhile who would ride along
    commit(table, add(table))
    with counting.measure() as counts:
        commit(table, add(table))
    assert kinds(counts) == (0, 1, 0, 0)


def test_after_a_pause_a_writer_that_rode_along_expects_nobody():
    store = table_at()
    rider, leader = crowded(store, 6), crowded(store, 7)
    during(rider, 1, lambda: commit(leader, add(leader)))
    commit(rider, add(rider))
    rider.clock.advance(60_000)
    counting = CountingStore(rider.store)
    rider.session.store = rider.session.log.store = counting
    before = len(published(store))
    commit(rider, add(rider))
    assert counting.counts.list == 0
    assert len(published(store)) == before


@pytest.mark.parametrize("lost", [1, 3, 6])
def test_combine_after_is_the_number_of_races_lost_before_an_append_is_published(lost):
    for combine_after in (1, 3, 6):
        store = table_at(combine_after=combine_after)
        table, other = reopen(store, 3), direct(store, 4)
        during(table, lost, lambda other=other: commit(other, add(other)))
        commit(table, add(table))
        assert bool(published(store)) == (lost >= combine_after)


def test_combine_after_zero_never_publishes():
    store = table_at(combine_after=0)
    table, other = crowded(store, 3), direct(store, 4)
    during(table, 12, lambda: commit(other, add(other)))
    assert commit(table, add(table)) == 13
    assert published(store) == []
    assert other.refresh().version == 13


def test_what_is_no_append_is_never_published():
    store = table_at()
    table, other = crowded(store, 3), direct(store, 4)
    during(table, 5, lambda: commit(other, add(other)))
    table.set_properties({"user.note": "new"})
    assert published(store) == []


@pytest.mark.parametrize("behind", [1, 10, 300])
def test_a_handle_far_behind_does_not_walk_through_what_it_missed(behind):
    store = table_at(keyframe_bytes=2**20)
    counting = CountingStore(store)
    table = crowded(counting, 3)
    other = direct(store, 4)
    for _ in range(behind):
        commit(other, add(other))
    with counting.measure() as counts:
        assert commit(table, add(table)) == behind + 1
    assert counts.total < 30


def test_a_clock_that_is_set_forward_while_publishing_delays_nobody():
    store = table_at()
    publish_and_die(store, seed=8)
    table = crowded(store, 3)
    during(table, 1, lambda: table.clock.advance(86_400_000), prefix=keys.INTENTS_PREFIX)
    started = table.clock.now_ms()
    commit(table, add(table))
    assert table.clock.now_ms() - started < 86_400_000 + 60_000
