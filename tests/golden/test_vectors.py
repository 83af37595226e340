"""What a second implementation compares itself with is what this one answers."""

import functools
import json

import pytest
from golden import checks, vectors
from support import builders

from eventlog import Table
from eventlog.errors import Corrupt, DataLoss, UnsupportedFormat, VersionCut, VersionVacuumed
from eventlog.format import keys
from eventlog.log import chain, spills
from eventlog.log.log import Log
from eventlog.model.actions import Action
from eventlog.model.records import Stub, pieces_in
from eventlog.readers import scan
from eventlog.state.questions import Entries
from eventlog.store.branching.branch import BranchStore
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore

HERE = vectors.HERE
VECTORS = json.loads(vectors.VECTORS.read_text(encoding="utf-8"))
NEGATIVE = json.loads((HERE / "negative.json").read_text(encoding="utf-8"))
NAMES = vectors.names()
TABLES = [name for name in NAMES if "/" not in name]


@functools.cache
def objects(name):
    """All objects of a golden table by key."""
    store = LocalStore(vectors.TABLES / name)
    return {found.key: store.get(found.key) for found in store.list("")}


def stored(contents):
    store = MemoryStore()
    for key, body in contents.items():
        store.put_if_absent(key, body)
    return store


def store_of(name):
    """A copy of a golden table, or of the branch at this path below one."""
    table, *rest = name.split("/_branches/")
    return functools.reduce(BranchStore, rest, stored(objects(table)))


@functools.cache
def folded(name):
    return builders.fold_all(store_of(name))


def test_every_table_has_vectors():
    assert [*VECTORS] == NAMES


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", NAMES)
def test_the_answers_are_those_of_the_vectors(name):
    cut = any("cut" in one for one in VECTORS[name])
    if cut or any(key.startswith("_starts/") for key in objects(name.split("/", maxsplit=1)[0])):
        found = vectors.compute(name, store_of(name))  # its transactions cannot be folded from 0
    else:
        table = Table.open("memory:", store=store_of(name))
        table.refresh()  # the newest horizon, which refuses older versions
        effects = [effect for _, effect in folded(name)]
        found = [vectors.answer(table, version, effect) for version, effect in enumerate(effects)]
    assert found == VECTORS[name]


def test_there_is_a_void_transaction_for_every_rule_that_voids_one():
    rules = {rule for one in VECTORS["whole"] for rule in one["transactions"]}
    assert rules >= {f"F{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 10)}
    # F9 is the rules of single actions.
    assert rules >= {"R10.3", "R12.1", "R12.2", "R12.3", "R12.6"}
    assert rules >= {"R13.2", "R13.4", "R13.5", "R14.4", "R14.6"}
    assert len(rules) == 20  # and "accepted"


def test_there_is_a_void_transaction_for_every_rule_about_deletion_vectors():
    rules = {rule for one in VECTORS["deletion_vectors"] for rule in one["transactions"]}
    assert rules == {"accepted", "F3", "F5", "F6", "F7", "F10", "R20.3", "R20.5"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("parted", "rejoined"),
        ("parted_keys", "rejoined_keys"),
        ("chosen", "yielded"),
        ("chosen_keys", "yielded_keys"),
    ],
)
def test_copies_that_are_merged_both_ways_have_the_same_rows(one, other):
    heads = [VECTORS[name][-1] for name in (one, other)]
    assert heads[0]["commit"] != heads[1]["commit"]
    assert heads[0]["rows"] == heads[1]["rows"]


def changed(case):
    """The store of a table, or of a branch of it, after the changes of a negative vector."""
    branches = checks.branches_of(case["table"])
    return functools.reduce(BranchStore, branches, stored(checks.changed(case)))


def read(store, version):
    """Open the head, and a version, and read its rows."""
    head = Table.open("memory:", store=store).session.head()
    snapshot = Table.open("memory:", store=store).snapshot(version)
    entries = snapshot.entries()
    table = Table.open("memory:", store=store)
    if head.version == version:
        scan(table, version=version).to_table()
    return head, snapshot, entries


def version_of_base(store, version):
    """The version of the key frame that a reader ends with; the head may have one of its own."""
    table = Table.open("memory:", store=store)
    snapshot = table.session.head()
    snapshot = snapshot if snapshot.version == version else table.snapshot(version)
    state, _ = table.session.log.answer(snapshot.state, Entries())
    return state.base and state.base.version


def chained(store, version):
    log = Log(store)
    chain.check_follows(log.snapshot(version - 1), log.read(version)[0], store.uri)


@pytest.mark.parametrize("case", NEGATIVE, ids=lambda case: case["name"])
def test_a_reader_does_with_a_changed_table_what_the_vector_says(case):
    store, version = changed(case), case["version"]
    answer = next(one for one in VECTORS[case["table"]] if one["version"] == version)
    if case["what"] == "refuse":
        with pytest.raises(Corrupt):
            read(store, version)
    elif case["what"] == "unsupported":
        with pytest.raises(UnsupportedFormat):
            read(store, version)
    elif case["what"] == "lost":
        with pytest.raises(DataLoss):
            read(store, version)
    elif case["what"] == "vacuumed":
        table = Table.open("memory:", store=store)
        table.refresh()
        assert table.snapshot(version).entries().num_rows
        with pytest.raises(VersionVacuumed):
            scan(table, version=version).to_table()
    elif case["what"] == "cut":
        assert Table.open("memory:", store=store).session.head().version > version
        with pytest.raises(VersionCut):
            Table.open("memory:", store=store).snapshot(version)
    elif case["what"] == "chain":
        with pytest.raises(Corrupt):
            chained(store, version)
    elif case["what"] == "fold":
        assert Table.open("memory:", store=store).snapshot(version).header.version == version
        with pytest.raises(Corrupt):
            builders.fold_all(store)
    else:
        found = vectors.answer(Table.open("memory:", store=store), version)
        if case["what"] in ("older key frame", "either"):
            assert version_of_base(store, version) != version_of_base(
                store_of(case["table"]), version
            )
        for field in ("state_hash", "totals", "live", "transactions", "rows"):
            assert found[field] == answer[field]


def test_every_kind_of_object_and_every_action_stands_in_a_golden_table():
    kinds, actions = set(), set()
    for name in TABLES:
        log = Table.open("memory:", store=stored(objects(name))).session.log
        for key in objects(name):
            parsed = keys.parse_log_key(key)
            if parsed and parsed[1]:
                root = log.key_frames.root(parsed[0])
                kinds |= {"root"} | {type(p).__name__ for p in pieces_in(root)}
                kinds |= {"inlined"} if root.segments else set()
            elif parsed:
                commit, _ = log.slot(parsed[0])
                if isinstance(commit, Stub):
                    kinds.add("stub")
                    continue
                whole = spills.unpack(commit, log.spill)
                actions |= {type(a) for t in whole.transactions for a in t.actions}
                kinds |= {"commit"} | {"spill" for t in commit.transactions if t.spill}
                kinds |= {"delta's spill"} if commit.delta.spill else set()
                kinds |= {"tail" for segment in commit.delta.adds if segment.tail}
                kinds |= {"vector" for segment in commit.delta.adds if segment.vector}
                pending = (commit.state.get("swept") or {}).get("pending")
                kinds |= {"pending"} if pending else set()
            else:
                kinds.add(key.split("/")[0])
    assert actions == set(Action.__args__)
    assert kinds == {
        *("root", "Leaf", "Stem", "inlined", "commit", "spill", "delta's spill", "tail", "pending"),
        "stub",
        "vector",
        *("_frames", "_intents", "_probe", "data", "_branches", "_packs", "_starts"),
    }
