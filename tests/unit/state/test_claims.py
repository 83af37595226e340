"""The rules of claims, pins and replicas: who gets one, who waits, who loses it."""

import pytest
from support.builders import add, check_sound, commit, create, drop_of, live, reopen, replaced

from eventlog import errors
from eventlog.model.actions import (
    Ack,
    Attach,
    Break,
    Detach,
    Horizon,
    Release,
    Renew,
    SetPin,
    Swept,
    TakeClaim,
    Unpin,
)
from eventlog.model.entries import Sweep
from eventlog.model.records import Claim, Token
from eventlog.state.small import claims

A, B, C = "a" * 32, "b" * 32, "c" * 32
S1, S2, S3 = "1" * 32, "2" * 32, "3" * 32


def claim(name=A, start=0, end=10, *, segments=(), kind="exclusive", priority=0, group=None):
    return TakeClaim(name, start, end, segments, kind, priority, group or name, "me")


def standing(**options):
    made = claim(**options)
    return Claim(*(getattr(made, n) for n in Claim.__struct_fields__[:7]), token=1, renewed=1)


@pytest.fixture
def table():
    table = create()
    commit(table, add(table), add(table))
    return table


@pytest.mark.parametrize(
    ("first", "second", "meet"),
    [
        ({}, {"start": 9, "end": 20}, True),
        ({}, {"start": 10, "end": 20}, False),
        ({"start": 5}, {"end": 5}, False),
        ({"kind": "shared"}, {"kind": "shared"}, False),
        ({"kind": "shared"}, {}, True),
        ({}, {"kind": "shared", "start": 9, "end": 11}, True),
        ({"segments": (S1, S2)}, {"segments": (S2, S3)}, True),
        ({"segments": (S1,)}, {"segments": (S2,)}, False),
        ({"segments": (S1,), "kind": "shared"}, {"segments": (S1,)}, True),
        ({"segments": (S1,), "kind": "shared"}, {"segments": (S1,), "kind": "shared"}, False),
        ({"segments": (S1,)}, {}, True),
        ({"segments": (S1,)}, {"start": 10, "end": 20}, False),
        ({"segments": (S1,), "kind": "shared"}, {"kind": "shared"}, False),
    ],
)
def test_which_claims_conflict(table, first, second, meet):
    assert claims.conflicts(standing(**first), standing(**second)) == meet
    assert claims.conflicts(standing(**second), standing(**first)) == meet
    commit(table, claim(**first))
    if meet:
        with pytest.raises(errors.CommitConflict, match=f"claim {A} of me"):
            commit(table, claim(B, **second))
    else:
        commit(table, claim(B, **second))
        assert set(table.session.head().meta.claims) == {A, B}


@pytest.mark.hazard("K2")
@pytest.mark.parametrize(("priority", "granted"), [(-1, False), (0, False), (1, True)])
def test_a_greater_priority_revokes(table, priority, granted):
    commit(table, claim())
    commit(table, claim(C, 10, 20))
    token = Token(A, table.session.head().version - 1)
    if granted:
        commit(table, claim(B, 5, 15, priority=priority))
        assert set(table.session.head().meta.claims) == {B}
        mine = replaced(table.transaction("replace", [add(table)]), claim=token)
        with pytest.raises(errors.ClaimLost, match="no longer held"):
            table.commit(mine)
        assert len(live(table.refresh())) == 2
    else:
        with pytest.raises(errors.CommitConflict, match="is in the way"):
            commit(table, claim(B, 5, 15, priority=priority))
        table.commit(replaced(table.transaction("replace", [add(table)]), claim=token))
        assert len(live(table.refresh())) == 3
    check_sound(table.store)


def test_one_greater_claim_in_the_way_is_enough_to_refuse(table):
    commit(table, claim(A, priority=1))
    commit(table, claim(C, 10, 20, priority=3))
    with pytest.raises(errors.CommitConflict, match=C):
        commit(table, claim(B, 5, 15, priority=2))
    assert set(table.session.head().meta.claims) == {A, C}


def test_the_same_group_asking_again_keeps_what_it_has(table):
    first = commit(table, claim(group="job"))
    commit(table, claim(B, group="job"))
    assert table.session.head().meta.claims.keys() == {A}
    assert table.session.head().meta.claims[A].token == first
    with pytest.raises(errors.CommitConflict):
        commit(table, claim(B, group="job", kind="shared"))


@pytest.mark.hazard("K2")
def test_a_replace_under_a_claim_needs_the_claim_of_that_token(table):
    token = commit(table, claim())
    commit(table, Release(A, token))
    again = commit(table, claim())
    old, new = (
        replaced(table.transaction("replace", [add(table)]), claim=Token(A, t))
        for t in (token, again)
    )
    with pytest.raises(errors.ClaimLost):
        table.commit(old)
    assert table.commit(new) == again + 1


@pytest.mark.parametrize("action", [Renew, Release])
def test_a_renewal_or_release_is_of_the_claim_of_that_token(table, action):
    first = commit(table, claim())
    commit(table, Release(A, first))
    second = commit(table, claim())
    with pytest.raises(errors.CommitConflict, match="no longer held"):
        commit(table, action(A, first))
    assert table.refresh().meta.claims[A].renewed == second
    commit(table, action(A, second))
    check_sound(table.store)


def test_a_claim_can_be_given_up_by_the_replace_itself(table):
    token = commit(table, claim())
    segment = live(table.session.head())[0]
    actions = [drop_of(segment), add(table), Release(A, token)]
    table.commit(replaced(table.transaction("replace", actions), claim=Token(A, token)))
    assert not table.session.head().meta.claims


@pytest.mark.hazard("K3")
def test_a_break_names_the_last_renewal_that_was_seen(table):
    token = commit(table, claim())
    other = reopen(table.store)
    renewed = commit(table, Renew(A, token))
    with pytest.raises(errors.CommitConflict, match=f"renewed in version {renewed}"):
        commit(other, Break("claim", A, token, token))
    with pytest.raises(errors.CommitConflict, match="no claim"):
        commit(other, Break("claim", A, token + 1, renewed))
    commit(other, Break("claim", A, token, renewed))
    with pytest.raises(errors.CommitConflict, match="no longer held"):
        commit(table, Renew(A, token))


@pytest.mark.parametrize(
    "wrong",
    [
        claim("A" * 32),
        claim("a"),
        claim(start=10, end=10),
        claim(end=2**62),
        claim(segments=(S2, S1)),
        claim(segments=(S1, S1)),
        claim(segments=("x",)),
        replaced(claim(), group=""),
        replaced(claim(), owner="x" * 256),
        claim(segments=tuple(f"{n:032x}" for n in range(10_001))),
    ],
)
def test_a_malformed_claim_is_void(table, wrong):
    with pytest.raises(errors.CommitConflict):
        commit(table, wrong)
    assert not table.session.head().meta.claims


def test_a_thousand_claims_are_enough(table):
    commit(table, *(claim(f"{n:032x}", n, n + 1) for n in range(1000)))
    with pytest.raises(errors.CommitConflict, match="1000"):
        commit(table, claim(A, 5000, 5001))


@pytest.mark.parametrize(
    ("made", "wrong", "why"),
    [
        ((), SetPin("p", 2, "me"), "does not exist yet"),
        ((), SetPin("", 1, "me"), "255"),
        ((), SetPin("p", 1, "x" * 256), "255"),
        ((SetPin("p", 1, "me"),), SetPin("p", 1, "me"), "held by me"),
        ((SetPin("p", 1, "me"),), Unpin("p", "you", 2), "belongs to me"),
        ((SetPin("p", 1, "me"),), Unpin("p", "me", 1), "no pin"),
        ((SetPin("p", 1, "me"),), Unpin("q", "me", 2), "no pin"),
        ((SetPin("p", 1, "me"),), Break("pin", "p", 1), "no pin"),
        ((SetPin("p", 0, "me"),), Horizon(1), "pin 'p' of me"),
        ((Attach("r", 0, "me"),), Horizon(1), "replica 'r' of me"),
        ((Attach("r", 0, "me"),), Attach("r", 1, "me"), "already attached"),
        ((Attach("r", 0, "me"),), Ack("r", 1, 1), "no replica"),
        ((Attach("r", 1, "me"),), Ack("r", 2, 1), "cannot acknowledge"),
        ((Attach("r", 1, "me"),), Ack("r", 2, 3), "cannot acknowledge"),
        ((Attach("r", 1, "me"),), Detach("r", 1), "no replica"),
        ((Attach("r", 1, "me"),), Break("replica", "r", 1), "no replica"),
        ((Horizon(1),), Horizon(1), "must be above"),
        ((Horizon(1),), SetPin("p", 0, "me"), "below the horizon"),
        ((), Swept(Sweep(1, 0, 1)), "ahead of the log"),
        ((), Swept(Sweep(0, 1, 1)), "ahead of the log"),
        ((), Swept(Sweep(0, 0, 2)), "ahead of the log"),
        ((Swept(Sweep(0, 0, 1)),), Swept(Sweep(0, 0, 1)), "is further ahead"),
    ],
)
def test_what_is_void_of_pins_replicas_and_marks(table, made, wrong, why):
    if made:
        commit(table, *made)
    before = table.session.head().meta
    with pytest.raises(errors.CommitConflict, match=why):
        commit(table, wrong)
    assert table.refresh().meta == before


@pytest.mark.parametrize(
    ("made", "then"),
    [
        (SetPin("p", 1, "me"), Unpin("p", "me", 2)),
        (SetPin("p", 1, "me"), Break("pin", "p", 2)),
        (Attach("r", 1, "me"), Detach("r", 2)),
        (Attach("r", 1, "me"), Break("replica", "r", 2)),
    ],
)
def test_what_is_taken_can_be_given_up(table, made, then):
    commit(table, made)
    commit(table, then)
    meta = table.session.head().meta
    assert not meta.pins
    assert not meta.replicas
    commit(table, Horizon(3))


def test_an_emptied_replica_that_comes_back_has_another_token(table):
    first = commit(table, Attach("r", 1, "me"))
    commit(table, Detach("r", first))
    second = commit(table, Attach("r", 0, "me"))
    with pytest.raises(errors.CommitConflict):
        commit(table, Ack("r", first, 2))
    commit(table, Ack("r", second, 2))
    assert table.session.head().meta.replicas["r"].acked == 2


@pytest.mark.hazard("P4")
def test_what_is_held_survives_key_frames():
    table = create(properties={"keyframe_commits": "1"})
    commit(table, add(table))
    token = commit(table, claim())
    table.pin("p", 1)
    commit(table, Attach("r", 1, "me"))
    meta = reopen(table.store).session.head().meta
    assert (meta.claims[A].token, meta.pins["p"].version, meta.replicas["r"].acked) == (token, 1, 1)
    check_sound(table.store)


def test_pins_of_the_public_face(table):
    assert table.pin("p") == 1
    assert table.pin("p") == 1
    assert table.pin("p", 1) == 1
    with pytest.raises(errors.CommitConflict, match="held by"):
        table.pin("p", 0)
    with pytest.raises(errors.VersionNotFound):
        table.pin("q", 99)
    with pytest.raises(errors.CommitConflict, match="belongs to"):
        table.unpin("p", owner="somebody")
    with pytest.raises(errors.InvalidInput, match="'p'"):
        table.unpin("q")
    table.break_pin("p")
    assert not table.session.head().meta.pins
    assert [entry.operation for entry in table.history(limit=2)] == ["break", "pin"]
