"""Every byte of every metadata object of a small table, flipped and cut: noticed, or no change.

Two steps make the whole product cheap. What reads an object alone (its decoder, its hash) sees
every damage there is, and must refuse it. A fresh handle then opens every version of a table that
holds a sample of them, and gives the answers from before or an error, never another state.
`EVENTLOG_FLIPS=all` opens the tables for all of them: for an hour or so, with `-o timeout=0`.

What stays next to the hostile input is what the fold from version 0 makes of damaged commits.
"""

import os

import pytest
from fuzz import corpus, targets
from support import builders
from support.builders import replace_object
from support.intents import Intents, Staged

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.commit.intents import WINDOW
from eventlog.format import codec, keys
from eventlog.state import keyframe

ALL = os.environ.get("EVENTLOG_FLIPS") == "all"
EACH = 1 if ALL else 97  # one of so many damages is put into a table; no divisor of 8
BITS = tuple(range(8))
NOTICED = (errors.Corrupt, errors.UnsupportedFormat)


def flips(body, bits=None):
    """The body with one bit of each byte flipped; with all of `bits` where they are given."""
    for at in range(len(body)):
        for bit in bits or (at % 8,):
            yield f"bit {bit} of byte {at}", flipped(body, at, bit)


def flipped(body, at, bit):
    return body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :]


def cuts(body):
    for length in range(len(body)):
        yield f"cut to {length} bytes", body[:length]


def damages(body, bits=None):
    yield from flips(body, bits)
    yield from cuts(body)


def answers(store):
    """What a fresh handle says of every version: its state, or that it refuses it."""
    found = []
    for version in range(len(versions(store))):
        try:
            snapshot = Table(store).snapshot(version)
            state = snapshot.commit_hash, snapshot.totals, snapshot.meta, builders.live(snapshot)
        except NOTICED as error:
            state = type(error)
        found.append(state)
    try:
        head = Table(store).session.head()
        found.append((head.version, head.totals, head.meta, builders.live(head)))
    except NOTICED as error:
        found.append(type(error))
    return found


def versions(store):
    parsed = (keys.parse_log_key(o.key) for o in store.list(keys.LOG_PREFIX))
    return [p[0] for p in parsed if p is not None and not p[1]]


def check_answers(store, before, what):
    """Check that nothing is answered otherwise than before."""
    after = answers(store)
    wrong = [
        n
        for n, (old, new) in enumerate(zip(before, after, strict=True))
        if new != old and not isinstance(new, type)
    ]
    assert not wrong, f"{what} changes what is read of version {wrong[0]}"
    return after


def check_in_table(store, key, body, bad):
    """Put each of the damaged bodies into the table and read it; return how many were refused."""
    before, refused = answers(store), 0
    assert not any(isinstance(state, type) for state in before)
    with targets.quiet():
        for what, changed in bad:
            replace_object(store, key, changed)
            refused += check_answers(store, before, f"{what} of {key}") != before
    replace_object(store, key, body)
    assert answers(store) == before
    return refused


def sampled(bad, each=EACH):
    return [pair for number, pair in enumerate(bad) if number % each == 0]


STORES = {"tiny": targets.tiny_store, "leaves": corpus.leaf_store}


@pytest.fixture(params=STORES)
def store(request):
    return STORES[request.param]()


def objects(store, *, frames):
    """(version, key, body) of all commits, or of all key frame roots."""
    for found in list(store.list(keys.LOG_PREFIX)):
        version, is_frame = keys.parse_log_key(found.key)
        if is_frame == frames:
            yield version, found.key, store.get(found.key)


def refuse_all(decode, bad):
    """Check that the decoder refuses each; return their number."""
    count = 0
    for what, changed in bad:
        try:
            decode(changed)
        except NOTICED:
            count += 1
            continue
        pytest.fail(f"{what} is accepted")
    return count


def test_every_bit_of_every_commit_is_noticed():
    count = 0
    for version, _, body in objects(targets.tiny_store(), frames=False):
        # The bound stands, so that a default argument binds this round's version.
        count += refuse_all(lambda b, v=version: codec.decode_commit(b, v), damages(body, BITS))
    assert count > 50_000


def test_every_bit_of_every_root_is_noticed(store):
    count = 0
    for version, _, body in objects(store, frames=True):
        count += refuse_all(lambda b, v=version: codec.decode_keyframe(b, v), damages(body, BITS))
    assert count > 10_000


@pytest.mark.sample(1, verify=2)
@pytest.mark.parametrize("frames", [False, True], ids=["commits", "roots"])
def test_damaged_commits_and_roots_never_give_another_state(store, frames):
    for number, (version, key, body) in enumerate(list(objects(store, frames=frames))):
        bad = sampled(damages(body, BITS), EACH * (1 if ALL else 2 * len(versions(store))))
        refused = check_in_table(store, key, body, bad)
        # A root is derived: without it versions are read from the commits. A commit is not.
        assert refused == (0 if frames else len(bad)), (number, version)


@pytest.mark.verify
def test_every_bit_of_every_leaf_is_noticed():
    store = corpus.leaf_store()
    (root,) = [codec.decode_keyframe(b, v) for v, _, b in objects(store, frames=True)]
    assert len(root.leaves) >= 2
    for leaf in root.leaves:
        key = keys.frame_key(leaf.sha256)
        body = store.get(key)
        refuse_all(lambda b, of=leaf: keyframe.check_leaf(of, b), damages(body, BITS))
        assert (
            check_in_table(store, key, body, sampled(damages(body), (1 if ALL else 5) * EACH)) == 0
        )


@pytest.mark.verify
def test_every_byte_of_every_spill_is_noticed(monkeypatch):
    monkeypatch.setattr("eventlog.log.spills.SPILL_BYTES", 1500)
    store = corpus.leaf_store(spilled=6)
    head = Table(store).session.log
    named = {}
    for version, _, body in objects(store, frames=False):
        stored = codec.decode_commit(body, version)
        for part in (*stored.transactions, stored.delta):
            if part.spill:
                named[keys.frame_key(part.spill.sha256)] = part.spill
    assert len(named) >= 2
    for key, spill in named.items():
        body = store.get(key)

        def read(changed, key=key, spill=spill):
            replace_object(store, key, changed)
            return head.spill(spill)

        refuse_all(read, damages(body))
        replace_object(store, key, body)
        check_in_table(store, key, body, sampled(damages(body), (1 if ALL else 40) * EACH))


# --- intents --------------------------------------------------------------------------------------


def publish(store):
    """A published append, its key and its bytes."""
    table = builders.reopen(store)
    transaction = table.transaction("append", [builders.add(table, "2013-02-01", rows=7)])
    published = builders.replaced(transaction, until=table.session.head().version + WINDOW)
    Intents(store, table.clock).publish(published, table.id)
    key = keys.intent_key(published.until, published.id)
    return published, key, store.get(key)


def test_damaged_intents_change_no_version(store):
    _, key, body = publish(store)
    assert check_in_table(store, key, body, sampled(damages(body))) == 0


def test_a_damaged_intent_is_never_taken_along():
    store = Staged()
    builders.create(store)
    published, key, body = publish(store)
    table = builders.TABLE
    with targets.quiet():
        for _, changed in damages(body):
            replace_object(store, key, changed)
            assert Intents(store, ManualClock()).read({published.id: key}, table) == []
    replace_object(store, key, body)
    assert Intents(store, ManualClock()).read({published.id: key}, table) == [published]


# --- the checker itself ---------------------------------------------------------------------------


def test_a_damage_that_is_believed_is_seen(monkeypatch):
    store = targets.tiny_store()
    *_, (_, key, body) = objects(store, frames=True)
    bad = [("a planted digit", body.replace(b'"rows":6', b'"rows":9'))]
    assert bad[0][1] != body
    assert check_in_table(store, key, body, bad) == 0
    decode = codec.decode_keyframe
    believing = lambda body, version: decode(builders.resealed(body), version)
    monkeypatch.setattr(codec, "decode_keyframe", believing)
    monkeypatch.setattr(keyframe, "check_key_frame", lambda root: None)
    monkeypatch.setattr("eventlog.state.verification.check_sums", lambda *parts: None)
    monkeypatch.setattr("eventlog.state.verification.check_totals", lambda *parts: None)
    with pytest.raises(AssertionError, match="a planted digit"):
        check_in_table(store, key, body, bad)


def test_a_damage_that_is_accepted_is_seen():
    assert refuse_all(codec.decode_commit, [("nothing", b"")]) == 1
    body = builders.bodies(targets.tiny_store())[0]
    with pytest.raises(pytest.fail.Exception, match="no damage is accepted"):
        refuse_all(codec.decode_commit, [("no damage", body)])
    assert len(list(damages(b"ab", BITS))) == 2 * 8 + 2
