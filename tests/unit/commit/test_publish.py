"""What is published and what a leader finds: forms, names, bounds, order and requests."""

from bisect import bisect_left
from dataclasses import replace

import pytest
from support.builders import HASH, START_MS, TABLE, Spy, add, commit, create, reopen, replaced
from support.intents import Intents, Staged

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.commit import rebase
from eventlog.commit.intents import (
    MAX_TAKEN,
    MAX_TAKEN_BYTES,
    WINDOW,
    combinable,
    published_form,
)
from eventlog.format import codec, keys
from eventlog.model.actions import Add, Drop
from eventlog.model.records import App, Published, Transaction
from eventlog.state import fold
from eventlog.state.small import rules
from eventlog.state.small.rules import MAX_WINDOW
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.store.testing.wrappers import CountingStore

OWN = "f" * 32


def name(number):
    return f"{number:032x}"


def segment(number, **changes):
    return replaced(Add(name(number), "2013-01-07", 0, 1, 100, HASH, 1), **changes)


def append(number, until=WINDOW, **changes):
    made = Transaction(name(number), "append", "me", 0, until, actions=(segment(number),))
    return replaced(made, **changes)


def changed(head, **changes):
    return replace(head, state=replace(head.state, **changes))


def put(store, transaction, **named):
    until = named.get("until", transaction.until)
    key = keys.intent_key(until, named.get("id", transaction.id))
    assert store.put_if_absent(key, codec.encode_transaction(transaction, TABLE))


@pytest.fixture
def store():
    return Staged()


@pytest.fixture
def head(store):
    return create(store).session.head()


def intents(store):
    return Intents(store, ManualClock(START_MS))


def pending(store, head, own=OWN):
    return intents(store).pending(append(0, id=own), head)


def test_a_publication_is_the_same_append_with_a_window(head):
    transaction = append(1, until=None, app=App("job", 3), info={"note": "x"})
    published = published_form(transaction, head)
    assert published.until == head.version + WINDOW
    assert replaced(published, until=None) == transaction
    assert WINDOW <= MAX_WINDOW


@pytest.mark.parametrize(
    ("actions", "answer"),
    [
        ((), True),
        ((segment(1), segment(2)), True),
        ((Drop(name(1), "2013-01-07", HASH),), False),
        ((segment(1), Drop(name(1), "2013-01-07", HASH)), False),
        (tuple(segment(n) for n in range(2000)), False),
    ],
)
def test_what_may_be_published(actions, answer):
    transaction = append(1, until=None, actions=actions)
    assert combinable(transaction) is answer


@pytest.mark.hazard("W4")
@pytest.mark.parametrize("version", [0, 10**9])
def test_the_largest_publishable_append_can_be_read_back(store, head, version):
    each = (len(codec.encode_transaction(append(1, actions=(segment(0),) * 101), TABLE))) // 101 + 1
    actions = tuple(segment(n) for n in range(codec.MAX_INTENT_BYTES // each - 1))
    largest = append(1, until=None, actions=actions, writer="")
    room = range(codec.MAX_INTENT_BYTES)  # characters
    fitting = bisect_left(room, 1, key=lambda n: not combinable(replaced(largest, writer="x" * n)))
    largest = replaced(largest, writer="x" * (fitting - 1))
    assert not combinable(replaced(largest, writer=largest.writer + "x"))
    if len(largest.writer) > 128:  # what is left to fill goes where there is room for it
        largest = replaced(largest, writer="", info={"note": largest.writer[:-11]})
    assert combinable(largest)
    later = changed(head, header=replaced(head.header, version=version))
    published = published_form(largest, later)
    found = intents(store)
    found.publish(published, TABLE)
    assert found.read(found.pending(append(0, id=OWN), later), TABLE) == [published]


def test_publishing_twice_is_one_object(store):
    once = intents(store)
    once.publish(append(1), TABLE)
    once.publish(append(1), TABLE)
    assert [o.key for o in store.list(keys.INTENTS_PREFIX)] == [keys.intent_key(WINDOW, name(1))]


@pytest.mark.parametrize("effect", ["lost_response", "not_applied_unknown", "unavailable"])
def test_an_unclear_answer_is_asked_again(store, effect):
    faulty = FaultyStore(store, [Fault("put", effect)])
    intents(faulty).publish(append(1), TABLE)
    assert len(list(store.list(keys.INTENTS_PREFIX))) == 1


class Refusing(Spy):
    """A store that lets nobody publish, from the n-th try on; the tries before get no answer."""

    def __init__(self, inner, unclear=0):
        super().__init__(inner)
        self.unclear, self.tries = unclear, 0

    def put_if_absent(self, key, body):
        if not key.startswith(keys.INTENTS_PREFIX):
            return super().put_if_absent(key, body)
        self.tries += 1
        if self.tries <= self.unclear:
            raise errors.OutcomeUnknown("no answer", key=key)
        raise errors.InvalidInput("denied to create an object", key=key)


def test_a_refusal_is_told_from_what_may_have_been_sent(store):
    with pytest.raises(errors.InvalidInput, match="denied"):
        intents(Refusing(store)).publish(append(1), TABLE)
    with pytest.raises(errors.OutcomeUnknown):
        intents(Refusing(store, unclear=1)).publish(append(1), TABLE)


def racing(store, rivals):
    """A handle that others were faster than, as often as that, whenever it comes to its slot."""
    mine = Table(store, clock=ManualClock(START_MS, 5))
    rival = reopen(store.inner)
    left = [None] * rivals

    def lose(key):
        if key.startswith(keys.LOG_PREFIX) and left:
            left.pop()
            commit(rival, add(rival))

    store.before_put = lose
    return mine, left


def test_who_may_not_publish_races_on(caplog):
    store = Refusing(Staged())
    create(store, properties={"combine_after": "1"})
    mine, left = racing(store, rivals=3)
    version = commit(mine, add(mine))
    assert version == 4
    assert (store.tries, "will not publish" in caplog.text) == (1, True)
    left += [None, None]
    commit(mine, add(mine))  # it does not ask for what it may not do again
    assert store.tries == 1
    assert mine.session.head().totals.segments == 7


def test_who_may_have_published_before_it_was_denied_does_not_know():
    store = Refusing(Staged(), unclear=1)
    create(store, properties={"combine_after": "1"})
    mine, _ = racing(store, rivals=1)
    with pytest.raises(errors.CommitUnknown) as caught:
        commit(mine, add(mine))
    assert (caught.value.version, caught.value.until) == (2, 1 + WINDOW)


def test_pending_is_one_listing_of_the_others_in_open_windows(head):
    counting = CountingStore(Staged())
    for number, until in ((1, 0), (2, 1), (3, MAX_WINDOW), (4, MAX_WINDOW + 2), (5, 10**9)):
        put(counting, append(number, until=until))
    put(counting, append(0, id=OWN))
    with counting.measure() as counts:
        assert set(pending(counting, head)) == {name(2), name(3)}
    assert (counts.list, counts.total) == (1, 1)


def test_what_took_effect_is_no_longer_pending(store, head):
    for number in (1, 2):
        put(store, append(number))
    meta = replaced(head.meta, published={name(1): Published(0, WINDOW)})
    after = changed(head, meta=meta)
    assert set(pending(store, after)) == {name(2)}


def test_of_one_append_in_two_windows_one_copy_is_taken(store, head):
    put(store, append(1, until=WINDOW))
    put(store, append(1, until=WINDOW + 2))
    found = intents(store)
    wanted = found.pending(append(0, id=OWN), head)
    assert [t.id for t in found.read(wanted, TABLE)] == [name(1)]


def test_of_too_many_the_smallest_ids_are_taken_so_that_all_agree(store, head):
    for number in range(MAX_TAKEN + 20):
        put(store, append(number))
    taken = pending(store, head)
    assert list(taken) == [name(n) for n in range(MAX_TAKEN)]


def test_no_more_is_taken_than_fits_into_one_commit(store, head):
    actions = tuple(segment(n) for n in range(1000))
    size = len(codec.encode_transaction(append(1, actions=actions), TABLE))
    for number in range(MAX_TAKEN_BYTES // size + 5):
        put(store, append(number, actions=actions))
    assert len(pending(store, head)) == MAX_TAKEN_BYTES // size


def test_what_is_too_large_is_not_even_fetched(store, head):
    counting = CountingStore(store)
    store.put_if_absent(keys.intent_key(WINDOW, name(1)), b"0" * (codec.MAX_INTENT_BYTES + 1))
    put(store, append(2))
    assert set(pending(counting, head)) == {name(2)}


def test_strangers_before_the_open_windows_fill_no_page(store, head):
    for number in range(400):
        store.put_if_absent(f"{keys.INTENTS_PREFIX}!{number:06d}", b"junk")
        put(store, append(number, until=10**6))
    put(store, append(1000))
    assert set(pending(store, head)) == {name(1000)}


@pytest.mark.parametrize(
    "stranger",
    [
        append(1, id=name(7)),
        append(1, until=WINDOW + 1),
        append(1, until=None),
        append(1, writer="x" * 1000),
        append(1, operation="x" * 1000),
        append(1, info={"x": "y" * 100_000}),
        append(1, app=App("", 1)),
        append(1, app=App("x" * 256, 1)),
        append(1, actions=(Drop(name(1), "2013-01-07", HASH),)),
    ],
    ids=["id", "until", "no until", "writer", "operation", "info", "app", "long app", "drop"],
)
def test_what_is_not_an_append_of_that_name_is_left_out(store, head, stranger):
    put(store, stranger, id=name(1), until=WINDOW)
    put(store, append(2))
    found = intents(store)
    wanted = found.pending(append(0, id=OWN), head)
    assert set(wanted) == {name(1), name(2)}
    assert [t.id for t in found.read(wanted, TABLE)] == [name(2)]


@pytest.mark.parametrize("change", [lambda b: b + b" ", lambda b: b[:-1], lambda b: b"{}"])
def test_bytes_that_are_not_canonical_are_left_out(store, head, change):
    body = change(codec.encode_transaction(append(1), TABLE))
    store.put_if_absent(keys.intent_key(WINDOW, name(1)), body)
    found = intents(store)
    assert found.read(found.pending(append(0, id=OWN), head), TABLE) == []


def test_each_is_fetched_once(head):
    counting = CountingStore(Staged())
    for number in range(5):
        put(counting, append(number))
    found = intents(counting)
    wanted = found.pending(append(0, id=OWN), head)
    with counting.measure() as counts:
        first = found.read(wanted, TABLE)
        assert found.read(wanted, TABLE) == first
    assert counts.get == 10  # each, and the segment that it adds
    with counting.measure() as counts:
        assert [t.id for t in found.read(dict(list(wanted.items())[:2]), TABLE)] == [
            name(0),
            name(1),
        ]
    assert counts.total == 0


def test_what_vanished_is_left_out(store):
    assert intents(store).read({name(1): keys.intent_key(WINDOW, name(1))}, TABLE) == []


def test_a_store_that_does_not_answer_is_said_so(store, head):
    put(store, append(1))
    faulty = FaultyStore(store, [Fault("get", "unavailable"), Fault("list", "unavailable")])
    found = intents(faulty)
    with pytest.raises(errors.Unavailable):
        found.pending(append(0, id=OWN), head)
    wanted = found.pending(append(0, id=OWN), head)
    with pytest.raises(errors.Unavailable):
        found.read(wanted, TABLE)
    assert len(found.read(wanted, TABLE)) == 1


# --- The fold's side --------------------------------------------------------------------------


def judged(head, *transactions):
    return fold.judge(transactions, view_on(head, *transactions), head.header.time + 1)


def rebased(head, own, *others):
    return rebase.rebase(own, view_on(head, own, *others), head.header.time + 1, others)


def view_on(head, *transactions):
    return head.log.load_view(head, transactions)[1]


@pytest.mark.parametrize(
    ("until", "void"), [(0, True), (1, False), (1 + MAX_WINDOW, False), (2 + MAX_WINDOW, True)]
)
def test_a_published_append_takes_effect_within_its_window_only(head, until, void):
    transaction = append(1, until=until)
    effect = judged(head, transaction)
    assert (transaction.id in effect.void) is void
    assert (effect.meta.published == {}) is void
    assert len(effect.adds) == (0 if void else 1)


def test_a_void_one_leaves_no_mark(head):
    wrong = append(1, actions=(segment(1, schema=9),))
    effect = judged(head, wrong, append(2))
    assert effect.accepted == (name(2),)
    assert set(effect.meta.published) == {name(2)}


def test_marks_are_forgotten_when_the_window_has_ended(head):
    marked = rules.mark_published(head.meta, name(1), Published(1, 5))
    assert rules.forget_published(marked, 5) is marked
    assert rules.forget_published(marked, 6).published == {}


def test_a_mark_makes_the_own_append_done_and_the_others_left_out(store):
    table = reopen(create(store).store)
    table.session.committer.writer.contention.expected = 8
    transaction = table.transaction("append", [add(table)])
    assert table.commit(transaction) == 1
    head = table.session.head()
    copy = replaced(transaction, until=WINDOW)
    assert rebase.rebase(
        transaction, view_on(head, transaction), head.header.time + 1
    ) == rebase.Done(1)
    verdict = rebased(head, append(3), copy)
    assert [t.id for t in verdict.transactions] == [name(3)]


def test_the_own_form_is_kept_where_its_copy_is_pending_too(head):
    own, copy = append(1, until=None), append(1)
    verdict = rebase.rebase(
        own, view_on(head, own, copy, append(2)), head.header.time + 1, [copy, append(2)]
    )
    assert verdict.transactions == (own, append(2))
