"""Tests of the history checker: against brute force, and with each kind of violation planted."""

import base64
import copy
import itertools
import json
import random
from collections import Counter
from types import SimpleNamespace

import pytest
from pyroaring import BitMap64
from simulation import compactors, naive, plans
from simulation.contents import Change, Contents, body_of
from simulation.history import Call, Fetch, Look, check, check_real_time, read_log
from simulation.ledger import COMMIT, ROOT, Ledger, Step, Violation, check_claims, segment_key
from simulation.runners import check_outcome
from simulation.simulate import check_production, finish, run
from simulation.world import WatchedStore, World

from eventlog import compaction
from eventlog.model.actions import Assess, ChunkChange, Fence, Horizon, Replace, SetPin
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Analysed, ChunkState
from eventlog.model.records import App

pytestmark = pytest.mark.usefixtures("in_turn")

WRONG = "0" * 64


@pytest.fixture(scope="module")
def sound():
    """A recorded, sound world with some of every operation."""
    world = World(plans.Plan(seed=1, roles=(), segments=3, keyframe_commits=2))
    table = world.open("somebody")

    def commit(kind, *actions, **options):
        return table.commit(table.transaction(kind, actions, **options))

    commit("append", world.stage(table, "2013-01-07"), app=App("job", 1))
    commit("append", world.stage(table, "2013-01-08"))
    commit("pin", SetPin("mine", 3, "somebody"))
    commit("vacuum", Fence(2), Horizon(3))
    commit("append", world.stage(table, "2013-01-08"))
    snapshot = world.look(table)
    world.fetch(table, snapshot.version, snapshot.segments())
    world.look(table)
    check(world.record, world.store.objects())
    return world


@pytest.fixture(scope="module")
def compacted():
    """A world with a compaction under a claim in version 4, another granularity, an analysis."""
    world = World(plans.Plan(seed=4, roles=(), segments=2, keyframe_commits=100))
    table = world.open("compactor")
    day = parse_chunk("2013-01-07")
    lease = table.claim(day.start, day.end, owner="compactor")
    task = compactors.task_of(table.session.head(), day.start, day.end, "hour")
    rows = world.fetch(table, task.version, task.inputs)
    adds = [world.stage(table, chunk, part) for chunk, part in compactors.cut(task, rows)]
    actions = [Replace(task.version, 0), *map(compactors.drop_of, task.inputs), *adds]
    table.commit(table.transaction("compact", actions, claim=lease.token))
    lease.release()
    table.set_granularity("hour")
    state = ChunkChange("2013-01-08", ChunkState("deferred", 1, 1, 0, 0))
    analysed = Analysed(table.session.head().version, WRONG)
    table.commit(table.transaction("assess", [Assess(None, analysed, (state,))]))
    world.fetch(table, table.session.head().version, table.session.head().segments())
    check(world.record, world.store.objects())
    assert world.store.contents.rewritten == len(rows) > 0
    return world


@pytest.fixture
def plant(sound):
    """The record and the objects of a sound run, to be corrupted."""
    return copy.deepcopy(sound.record), sound.store.objects()


def found(record, objects):
    with pytest.raises(Violation) as caught:
        check(record, objects)
    return caught.value.rule


def spoil(objects, version, change, *, relink=True):
    """Change a commit's JSON, and relink the commits after it."""
    keys = sorted((k for k in objects if COMMIT.fullmatch(k)), reverse=True)
    before = None
    for number, key in enumerate(keys):
        commit = json.loads(objects[key])
        if number == version:
            change(commit)
        elif number > version and relink:
            commit["header"]["prev"] = before
        objects[key] = naive.canonical(commit).encode()
        before = naive.digest(objects[key])
    return objects


def set_in(*path, to):
    def change(commit):
        at = commit
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = to(at[path[-1]]) if callable(to) else to

    return change


COMMITS = {
    "another version": (set_in("header", "version", to=9), "log"),
    "another predecessor": (set_in("header", "prev", to=WRONG), "chain"),
    "time that stands still": (set_in("header", "time", to=1), "time"),
    "totals": (set_in("header", "totals", "rows", to=77), "header"),
    "state hash": (set_in("header", "state_hash", to=WRONG), "header"),
    "changes": (set_in("header", "changes", "adds", to=9), "header"),
    "a key frame to come": (set_in("header", "keyframe", to=4), "header"),
    "an add too few": (set_in("delta", "adds", to=lambda adds: adds[1:]), "delta"),
    "a field that did not change": (set_in("state", to={"fence": 1}), "delta"),
    "an epoch of the future": (set_in("transactions", 0, "actions", 0, "epoch", to=50), "void"),
    "a claim that nobody has": (
        set_in("transactions", 0, "claim", to={"id": "a" * 32, "token": 1}),
        "void",
    ),
}


@pytest.mark.parametrize("what", COMMITS)
def test_a_spoilt_commit_is_found(plant, what):
    record, objects = plant
    change, rule = COMMITS[what]
    assert found(record, spoil(objects, 4, change)) == rule


def in_compaction(field, to, action=0):
    return 4, set_in("transactions", 0, "actions", action, field, to=to)


def actions_to(change):
    return 4, set_in("transactions", 0, "actions", to=change)


REWRITES = {
    "rows too many": (in_compaction("rows", lambda n: n + 1, action=-1), "F10 rows"),
    "more deleted than said": (in_compaction("deletes", 1), "F10 rows"),
    "inputs younger than the plan": (in_compaction("version", 0), "F10 late"),
    "a plan later than what was read": (in_compaction("version", 4), "F10 read"),
    "nothing replaced": (
        actions_to(lambda actions: [a for a in actions if a["action"] != "drop"]),
        "F10 nothing",
    ),
    "two plans": (actions_to(lambda actions: [actions[0], *actions]), "F10 twice"),
    "another claim's token": (
        (4, set_in("transactions", 0, "claim", "token", to=lambda token: token - 1)),
        "F8",
    ),
    "another granularity": (
        (6, set_in("transactions", 0, "actions", 0, "old", to="month")),
        "R14.4",
    ),
    "another analysis": (
        (7, set_in("transactions", 0, "actions", 0, "old", to={"version": 1, "policy": WRONG})),
        "R14.6 old",
    ),
    "an analysis to come": (
        (7, set_in("transactions", 0, "actions", 0, "analysed", "version", to=7)),
        "R14.6 version",
    ),
    "a policy without a name": (
        (7, set_in("transactions", 0, "actions", 0, "analysed", "policy", to="z" * 64)),
        "R14.6 policy",
    ),
    "a chunk without a name": (
        (7, set_in("transactions", 0, "actions", 0, "chunks", 0, "chunk", to="2013-13")),
        "R14.6 name",
    ),
    "a state to come": (
        (7, set_in("transactions", 0, "actions", 0, "chunks", 0, "state", "version", to=7)),
        "R14.6 state",
    ),
    "a chunk twice": (
        (7, set_in("transactions", 0, "actions", 0, "chunks", to=lambda chunks: chunks * 2)),
        "R14.6 order",
    ),
}


@pytest.mark.parametrize("what", REWRITES)
def test_a_spoilt_rewrite_is_found(compacted, what):
    (version, change), rule = REWRITES[what]
    objects = spoil(compacted.store.objects(), version, change)
    with pytest.raises(Violation, match=rule) as caught:
        check(compacted.record, objects)
    assert caught.value.rule == "void"


def test_work_under_a_claim_that_is_gone_is_found():
    work = {"id": "x", "app": None, "claim": {"id": "a", "token": 3}}
    Ledger()._check_effects([work], ["x"], 6, {"claims": {"a": {"token": 3}}})
    Ledger()._check_effects([work], [], 6, {"claims": {}})
    for claims in ({}, {"a": {"token": 4}}, {"b": {"token": 3}}):
        with pytest.raises(Violation, match="gone"):
            Ledger()._check_effects([work], ["x"], 6, {"claims": claims})


def test_an_outcome_that_is_not_so_is_found(compacted):
    head = compacted.open("somebody").session.head()
    there = compactors.task_of(head, 0, 2**45, "day")
    for status, why in (("superseded", "are live"), ("out of time", "out of time")):
        outcome = compaction.Outcome(task="f" * 32, status=status)
        with pytest.raises(Violation, match=why) as caught:
            check_outcome(compacted, outcome, there)
        assert caught.value.rule == "outcome"
    check_outcome(compacted, compaction.Outcome(task="f" * 32, status="failed"), there)
    record = copy.deepcopy(compacted.record)
    wrong = compaction.Outcome(task=record.calls[1].id, status="done", version=7)
    world = SimpleNamespace(record=record, done=Counter())
    check_outcome(world, wrong, there)
    assert found(record, compacted.store.objects()) == "found"


def test_claims_that_cannot_stand_together_are_found():
    def claim(start, end, kind="exclusive", segments=()):
        return {"start": start, "end": end, "kind": kind, "segments": [*segments]}

    mine = claim(0, 10)
    for other in (claim(10, 20), claim(-5, 0)):
        check_claims({"a": mine, "b": other}, 1)
    for other in (claim(9, 20), claim(3, 4, "shared"), claim(0, 10, segments="x")):
        with pytest.raises(Violation, match="both stand"):
            check_claims({"a": mine, "b": other}, 1)
    check_claims({"a": claim(0, 10, "shared"), "b": claim(0, 10, "shared")}, 1)
    check_claims({"a": claim(0, 10, segments="xy"), "b": claim(0, 10, segments="z")}, 1)
    with pytest.raises(Violation, match="both stand"):
        check_claims({"a": claim(0, 10, segments="xy"), "b": claim(0, 10, segments="y")}, 1)


def added(name, rows, vector=None):
    """The action that adds a segment of which a vector deletes some rows."""
    action = {"action": "add", "id": name, "epoch": 0, "chunk": "2013-01-07", "rows": rows}
    return action if vector is None else action | {"vector": vector_of(vector)}


def vector_of(positions):
    """A vector whose bitmap stands in the log."""
    bitmap = base64.b64encode(BitMap64(positions).serialize()).decode()
    return {"rows": len(positions), "bitmap": bitmap}


def deleting(name, positions):
    return {"action": "delete_rows", "id": name, "vector": vector_of(positions)}


class Told(Contents):
    """What is live after transactions that follow each other."""

    def __init__(self, **segments):
        objects = {segment_key(added(name, 0)): body_of(rows) for name, rows in segments.items()}
        super().__init__(objects.__getitem__)
        self.version = -1
        self.commit()

    def commit(self, *actions):
        self.version += 1
        txn = {"id": f"t{self.version}", "read_version": self.version - 1, "actions": actions}
        commit = {"transactions": [txn]}
        adds = [action for action in actions if action["action"] == "add"]
        live = {a["id"]: a | {"version": self.version, "partition": n} for n, a in enumerate(adds)}
        step = Step(commit, "", {"live": live}, [f"t{self.version}"], {})
        self.advance(step, self.version)
        return sorted(self.live)


def rewritten(outputs, deletes=0, rows=None):
    """Replace segments with rows 1, 2 and with row 3 by outputs with these rows."""
    named = {f"out{n}": out for n, out in enumerate(outputs)}
    told = Told(a=["1", "2"], b=["3"], **named)
    told.commit(added("a", 2), added("b", 1))
    drops = [{"action": "drop", "id": name} for name in "ab"]
    replace = {"action": "replace", "version": 1, "deletes": deletes}
    adds = [added(name, len(out) if rows is None else rows) for name, out in named.items()]
    return told.commit(replace, *drops, *adds)


@pytest.mark.hazard("K6")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"outputs": [["1", "2"]]}, "lost rows"),
        ({"outputs": [["1", "2"]], "deletes": 2}, "lost rows"),
        ({"outputs": [["1", "2", "3"]], "deletes": 1}, "lost rows"),
        ({"outputs": [["1", "2"], ["3", "3"]]}, "twice"),
        ({"outputs": [["1", "2"], ["3", "1"]]}, "twice"),
        ({"outputs": [["1", "2"], ["4"]]}, "made rows"),
        ({"outputs": [["1", "2", "3"]], "rows": 4}, "has 3 rows"),
    ],
)
def test_rows_that_a_rewrite_lost_or_doubled_are_found(options, why):
    assert rewritten([["3", "1"], ["2"]]) == ["1", "2", "3"]
    assert rewritten([["3"]], deletes=2) == ["3"]
    with pytest.raises(Violation, match=why) as caught:
        rewritten(**options)
    assert caught.value.rule == "rows"


def test_rows_that_are_deleted_by_their_positions_are_not_live():
    told = Told(a=["1", "2", "3"], b=["4", "2"], c=["3", "5"])
    told.commit(added("a", 3))
    assert told.commit(deleting("a", [1])) == ["1", "3"]
    assert told.commit(deleting("a", [1, 2])) == ["1"]
    assert told.commit(added("b", 2, [1])) == ["1", "4"]
    replace = {"action": "replace", "version": 4, "deletes": 0}
    with pytest.raises(Violation, match="a rewrite made rows"):
        told.commit(replace, {"action": "drop", "id": "a"}, added("c", 2))


@pytest.mark.parametrize(
    ("actions", "why"),
    [
        ([deleting("a", [0])], "brings rows back"),
        ([deleting("a", [1])], "brings rows back"),
        ([deleting("a", [1, 3])], "has positions"),
        ([deleting("a", [1]) | {"vector": vector_of([0, 1]) | {"rows": 3}}], "has positions"),
        ([added("b", 2, [2])], "has positions"),
    ],
)
def test_vectors_of_other_rows_are_found(actions, why):
    told = Told(a=["1", "2", "3"], b=["4", "5"])
    told.commit(added("a", 3))
    told.commit(deleting("a", [1]))
    with pytest.raises(Violation, match=why):
        told.commit(*actions)


@pytest.mark.parametrize(
    ("change", "actions", "why"),
    [
        ({}, [deleting("a", [0])], "does not select"),
        ({}, [], "leaves rows"),
        ({}, [deleting("a", [1]), added("b", 1)], "adds rows"),
        ({"updates": True}, [deleting("a", [1])], "adds rows"),
        ({"updates": True}, [deleting("a", [1]), added("b", 1)], "adds rows"),
        ({"updates": True}, [deleting("a", [1]), added("b", 1), added("c", 1)], "adds rows"),
        ({"new": ("4",)}, [deleting("a", [1])], "adds rows"),
    ],
)
def test_changes_that_do_not_do_what_they_should_are_found(change, actions, why):
    told = Told(a=["1", "2"], b=["4"], c=["2:1"])
    told.commit(added("a", 2))
    told.changes["t2"] = Change(1, lambda row: row.startswith("2"), **change)
    with pytest.raises(Violation, match=why) as caught:
        told.commit(*actions)
    assert caught.value.rule == "change"


def test_a_change_is_not_asked_for_rows_that_came_after_its_start():
    told = Told(a=["1", "2"], b=["3"])
    told.commit(added("a", 2))
    told.commit(added("b", 1))
    told.changes["t3"] = Change(1, lambda row: row in "23")
    assert told.commit(deleting("a", [1])) == ["1", "3"]
    told.changes["t4"] = Change(1, lambda row: row == "3")
    with pytest.raises(Violation, match="came after its start"):
        told.commit({"action": "drop", "id": "b"})


def test_the_spoiler_alone_is_not_what_is_found(plant):
    record, objects = plant
    spoil(objects, 4, lambda commit: None)
    roots = [key for key in objects if ROOT.fullmatch(key)]
    for key in roots:  # they have hashes of commits
        del objects[key]
    check(record, objects)


def test_a_chain_that_is_not_linked_again_is_found(plant):
    record, objects = plant
    spoil(objects, 4, set_in("header", "time", to=lambda t: t + 1), relink=False)
    assert found(record, objects) == "chain"


def test_a_missing_commit_is_found(plant):
    record, objects = plant
    del objects[next(k for k in sorted(objects)[1:] if COMMIT.fullmatch(k))]
    assert found(record, objects) == "log"


def twice(field):
    def change(commit):
        first = commit["transactions"][0]
        commit["transactions"][0] = first | field

    return change


def test_a_transaction_and_a_unit_that_take_effect_twice_are_found(plant):
    record, objects = plant
    first = json.loads(objects[sorted(k for k in objects if COMMIT.fullmatch(k))[4]])
    again = twice({"id": first["transactions"][0]["id"]})
    assert first["header"]["version"] == 3
    assert found(record, spoil(dict(objects), 4, again)) == "once"
    ledger = read_log(objects)
    ledger.units["job", 1] = 2
    ledger.steps.pop()
    with pytest.raises(Violation, match="unit"):
        ledger._check_effects([{"id": "x", "app": {"id": "job", "seq": 1}}], ["x"], 6, {})


def root_of(objects):
    return next(key for key in objects if ROOT.fullmatch(key))


@pytest.mark.parametrize("field", ["commit", "segments", "state"])
def test_a_key_frame_that_says_something_else_is_found(plant, field):
    record, objects = plant
    root = json.loads(objects[root_of(objects)])
    root[field] = {"commit": WRONG, "segments": [], "state": {}}[field]
    objects[root_of(objects)] = naive.canonical(root).encode()
    assert found(record, objects) == "key frame"


def test_a_missing_segment_is_found_where_it_is_not_given_up(plant):
    record, objects = plant
    ledger = read_log(objects)
    kept = ledger.needed()
    for key in sorted(kept):
        assert found(record, {k: v for k, v in objects.items() if k != key}) == "loss"
    for key in [k for k in objects if k.startswith("data/") and k not in kept]:
        check(record, {k: v for k, v in objects.items() if k != key})


def test_a_delete_of_what_is_not_dead_is_found_at_once(sound):
    ledger = read_log(sound.store.objects())
    store = WatchedStore(sound.store.inner, ledger)
    segments = [key for key in sound.store.objects() if key.startswith("data/")]
    dead = [key for key in segments if ledger.dead(key)]
    assert dead
    assert not set(dead) & ledger.needed()
    for key in (*(k for k in segments if k not in dead), "_log/999999999999.json", "data/x"):
        with pytest.raises(Violation) as caught:
            store.delete([key])
        assert caught.value.rule == "delete"
        assert caught.value in store.broken
    for key in segments:
        sound.store.get(key)  # nothing was deleted


def spoilt_calls():
    def lost(record):
        record.calls.append(Call("a", "append", "f" * 32, None, 98, 99, "acknowledged", 3))

    def elsewhere(record):
        record.calls[1].version -= 1

    def not_refused(record):
        record.calls[1].answer = "failed"

    def unit_lost(record):
        record.calls.append(Call("a", "unit", "f" * 32, ("job", 2), 98, 99, "acknowledged", 3))

    def unit_early(record):
        record.calls.append(Call("a", "unit", "f" * 32, ("job", 1), 98, 99, "acknowledged", 1))

    def order(record):
        record.calls[0].began, record.calls[0].ended = 500, 501

    def misread(record):
        record.looks[0].entries = dict(list(record.looks[0].entries.items())[1:])

    def ahead(record):
        record.looks[0].version += 10

    def backwards(record):
        record.looks[1].version -= 1
        record.looks[1].entries = None
        record.looks[1].fresh = False

    def behind(record):
        record.looks.append(Look("b.1", 1, 400, 401, fresh=True))

    def missing(record):
        record.fetches.append(Fetch("b.1", 3, ["a"], 3))

    def wrongly_found(record):
        record.found.append((record.calls[0].id, 2))

    return {
        lost: "acknowledged",
        elsewhere: "acknowledged",
        unit_lost: "acknowledged",
        unit_early: "acknowledged",
        not_refused: "failed",
        order: "real time",
        misread: "read",
        ahead: "read",
        backwards: "session",
        behind: "fresh",
        missing: "loss",
        wrongly_found: "found",
    }


@pytest.mark.parametrize(("change", "rule"), spoilt_calls().items())
def test_a_wrong_answer_is_found(plant, change, rule):
    record, objects = plant
    change(record)
    assert found(record, objects) == rule


def test_what_is_unknown_may_be_there_or_not(plant):
    record, objects = plant
    record.calls[1].answer, record.calls[1].version = "unknown", None
    record.calls.append(Call("a", "append", "f" * 32, None, 98, None))
    record.fetches.append(Fetch("b.1", 2, ["a"], 3))  # below the horizon
    check(record, objects)


def test_a_production_snapshot_that_differs_is_found(sound):
    ledger = read_log(sound.store.objects())
    sound.store.ledger.head  # noqa: B018
    check_production(sound.store, ledger)
    last = ledger.steps[-1]
    for name, value in (("hash", WRONG), ("state", last.state | {"fence": 1})):
        before = getattr(last, name)
        setattr(last, name, value)
        with pytest.raises(Violation, match="snapshot"):
            check_production(sound.store, ledger)
        setattr(last, name, before)
    last.state = last.state | {"live": {}}
    with pytest.raises(Violation, match="entries"):
        check_production(sound.store, ledger)


def test_the_end_of_a_run_needs_a_table_that_works():
    world = World(plans.Plan(seed=2, roles=()))
    world.store.ledger.steps.append(world.store.ledger.steps[-1])
    with pytest.raises(Violation, match="head"):
        finish(world)


def test_what_a_vacuum_leaves_is_found(monkeypatch):
    def idle(t, **_options):
        version = t.refresh().version
        t.commit(t.transaction("vacuum", [Fence(version), Horizon(version)]))

    def world():
        return World(plans.Plan(seed=3, roles=(("vacuum", 1),)))

    finish(world())
    monkeypatch.setattr(compaction, "vacuum", idle)
    with pytest.raises(Violation, match="garbage"):
        finish(world())


def brute_force(placed):
    """Return whether an order of all operations fits both real time and the versions."""
    for order in itertools.permutations(placed):
        position = {id(one): n for n, one in enumerate(order)}
        fits_time = all(
            position[id(a)] < position[id(b)]
            for a in placed
            for b in placed
            if a is not b and a[1] is not None and a[1] < b[0]
        )
        if fits_time and all(x[2] < y[2] for x, y in itertools.pairwise(order)):
            return True
    return False


def test_real_time_agrees_with_all_orders_of_small_histories():
    rng = random.Random(7)
    verdicts = []
    for _ in range(3000):
        count = rng.randint(1, 5)
        versions = rng.sample(range(1, 9), count)
        if rng.random() < 0.4:
            versions.sort()
        placed = []
        for number, version in enumerate(versions):
            began = number * 2 + rng.randint(0, 5)
            ended = began + rng.randint(1, 6) if rng.random() < 0.8 else None
            placed.append((began, ended, version))
        try:
            check_real_time(placed)
        except Violation:
            verdicts.append(False)
        else:
            verdicts.append(True)
        assert verdicts[-1] == brute_force(placed), placed
    assert 500 < sum(verdicts) < 2500


def test_the_naive_fold_and_the_ledger_say_the_same_of_grown_and_of_read_logs():
    for seed in range(5):
        world = run(plans.draw(seed))
        again = read_log(world.store.objects())
        grown = world.store.ledger
        assert isinstance(again, Ledger)
        assert (again.bodies, again.accepted, again.units) == (
            grown.bodies,
            grown.accepted,
            grown.units,
        )
        assert again.last_live == grown.last_live
        for key in world.store.objects():
            assert again.dead(key) == grown.dead(key)
            assert not (again.dead(key) and key in again.needed())
