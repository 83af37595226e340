"""Branches: what they read and write, what their parent keeps for them, and deaths on the way."""

import pickle
from datetime import timedelta

import msgspec
import pyarrow as pa
import pytest
from support.builders import (
    SCHEMA,
    START_MS,
    check_sound,
    create,
    events,
    live,
    replace_object,
    resealed,
    row_names,
)
from support.crashes import COMPACTION, HOUR_MS

from eventlog import Table, errors, readers, replication
from eventlog.clock import ManualClock
from eventlog.compaction import plan, run, vacuum
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.store.branching.branch import BranchStore
from eventlog.store.branching.roots import root_of
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Fault, FaultyStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, overwrite, upsert

NOW = timedelta(0)
HELD = "pin 'branch:audit' of eventlog branch"


def on(store, *branches, seed=500):
    """A handle of another process to a branch, or a branch of a branch; a greater seed is later."""
    for name in branches:
        store = BranchStore(store, name)
    return Table.open("", store=store, clock=ManualClock(START_MS + seed * HOUR_MS, seed))


def filled(store=None, appends=2):
    """A table with `appends` versions of two rows each."""
    table = create(store, properties={"keyframe_commits": "3"})
    for n in range(appends):
        append(table, events(2, days=2, first=2 * n))
    return table


def numbers(table):
    return sorted(int(name.removeprefix("row ")) for name in row_names(table))


def sweep(table, **options):
    return vacuum(table, dry_run=False, retention=NOW, staging=NOW, **options)


def stored(store, prefix=""):
    return {row.key: store.get(row.key) for row in store.list(prefix)}


def test_a_branch_begins_as_its_parent_and_both_go_on():
    store = MemoryStore()
    table = filled(store)
    branch = table.branch("audit")
    assert branch.uri == f"{store.uri}/_branches/audit"
    assert (
        (branch.id, branch.session.head().version)
        == (table.id, table.session.head().version)
        == (table.id, 3)
    )
    assert stored(store, "_branches/").keys() == {"_branches/audit/_fork.json"}
    append(branch, events(3, days=2, first=100))
    append(table, events(1, first=50))
    assert numbers(branch) == [0, 1, 2, 3, 100, 101, 102]
    assert numbers(table) == [0, 1, 2, 3, 50]
    assert branch.session.head().version == table.session.head().version == 4
    (found,) = table.branches()
    assert (found.name, found.fork, found.head, found.held) == ("audit", 3, 4, True)
    assert not found.unfinished
    check_sound(store)
    check_sound(branch.store)
    assert fsck(table).findings == fsck(branch, checksums=True).findings == ()
    assert {left.kind for left in fsck(table).leftovers} == {"probe"}
    assert fsck(branch).leftovers == ()


def test_versions_below_and_above_the_fork_are_read():
    store = MemoryStore()
    table = filled(store, appends=4)
    branch = table.branch("old", at=2)
    append(branch, events(2, first=100))
    append(branch, events(1, first=200))
    append(table, events(1, first=50))
    seen = [readers.scan(branch, version=v).to_table().num_rows for v in range(5)]
    assert seen == [0, 2, 4, 6, 7]
    assert [entry.version for entry in branch.history()] == [4, 3, 2, 1, 0]
    with pytest.raises(errors.VersionNotFound):
        branch.snapshot(5)
    assert branch.snapshot(2).commit_hash == table.snapshot(2).commit_hash
    assert branch.snapshot(3).commit_hash != table.snapshot(3).commit_hash


def test_a_branch_of_a_branch():
    store = MemoryStore()
    table = filled(store)
    append(table.branch("a"), events(2, first=100))
    deeper = on(store, "a").branch("b")
    append(deeper, events(1, first=200))
    append(on(store, "a"), events(1, first=300))
    append(table, events(1, first=400))
    assert numbers(on(store, "a", "b")) == [0, 1, 2, 3, 100, 101, 200]
    assert numbers(on(store, "a")) == [0, 1, 2, 3, 100, 101, 300]
    assert numbers(on(store)) == [0, 1, 2, 3, 400]
    assert fsck(deeper, checksums=True).findings == ()
    assert [b.name for b in on(store, "a").branches()] == ["b"]
    assert on(store, "a", "b").branches() == []
    roots = {root_of(deeper.store, keys.key_of(s)) for s in live(deeper.refresh())}
    top = store.uri
    below, own = (fork.id for fork in reversed(deeper.store.forks))
    middle = f"{top}/_branches/a/{below}"
    assert roots == {top, middle, f"{middle}/_branches/b/{own}"}
    listed = {row.key for row in store.list("_branches/")}
    for segment in live(deeper.session.head()):
        root = root_of(deeper.store, keys.key_of(segment)).removeprefix(top).lstrip("/")
        assert not root or f"{root}/{keys.key_of(segment)}" in listed
    assert open_store(middle).uri == on(store, "a").uri  # as an engine or an event names it
    with pytest.raises(errors.InvalidInput, match="delete b first"):
        table.delete_branch("a")
    on(store, "a").delete_branch("b")
    table.delete_branch("a")
    assert stored(store, "_branches/") == {}


@pytest.mark.parametrize("place", ["directory", "memory", pytest.param("s3", id="s3")])
def test_everything_that_takes_a_uri_takes_that_of_a_branch(place, request, tmp_path):
    uri = {
        "directory": lambda: str(tmp_path / "t"),
        "memory": lambda: f"memory://{request.node.name}",
        "s3": lambda: f"s3://{request.getfixturevalue('bucket')}/t",
    }[place]()
    own = {"inline_bytes": "0"}
    table = Table.create(uri, SCHEMA, time_column="at", properties=own)
    append(table, events(2))
    Table.open(uri).branch("audit")
    branch = Table.open(uri, branch="audit")
    append(branch, events(2, first=10))
    assert readers.scan(f"{branch.uri}/").to_table().num_rows == 4
    assert readers.scan(uri).to_table().num_rows == 2
    branch.branch("x.1")
    nested = Table.open(branch.uri, branch="x.1")
    assert repr(open_store(nested.uri)) == repr(nested.store)
    assert pickle.loads(pickle.dumps(nested)).session.head().totals == branch.session.head().totals
    files, root = nested.store.filesystem()
    paths = [f"{root}/{keys.key_of(s)}" for s in live(nested.session.head())]
    sizes = [info.size for info in files.get_file_info([*paths, f"{root}/data/none"])]
    assert sizes == [*(s.bytes for s in live(nested.session.head())), None]
    assert fsck(nested, checksums=True).findings == ()
    branch.delete_branch("x.1")
    table.delete_branch("audit")
    with pytest.raises(errors.TableNotFound, match="no branch 'audit'"):
        Table.open(branch.uri).refresh()


@pytest.mark.parametrize("name", ["", ".", "..", ".a", "a/b", "a b", "ä", "a" * 101, "a%41", None])
def test_names_that_no_branch_may_have(name):
    store = MemoryStore()
    table = filled(store, appends=0)
    before = stored(store)
    for call in (table.branch, lambda given: BranchStore(store, given)):
        with pytest.raises(errors.InvalidInput, match="not a branch's name"):
            call(name)
    assert stored(store) == before


def test_what_is_no_branch_is_told_and_creates_no_table():
    store = MemoryStore()
    filled(store)
    missing = BranchStore(store, "none")
    for call in (
        lambda: Table.open("", store=store, branch="none").refresh(),
        lambda: Table.create("", SCHEMA, time_column="at", store=missing),
        lambda: on(store).delete_branch("none"),
    ):
        with pytest.raises(errors.TableNotFound, match="eventlog branch"):
            call()
    assert stored(store, "_branches/") == {}


def test_opening_a_branch_costs_its_fork_and_a_listing_of_its_parent():
    store = CountingStore(MemoryStore())
    table = create(store, properties={"keyframe_commits": "64"})
    append(table, events(2))
    with store.measure() as made:
        branch = table.branch("audit")
    assert (made.get, made.put, made.list, made.delete) == (4, 2, 0, 0)
    with store.measure() as opening:
        on(store).refresh()
    plain = (opening.get, opening.list)
    with store.measure() as opening:
        on(store, "audit").refresh()
    assert (opening.get, opening.list) == (plain[0] + 1, plain[1] + 1)
    for n in range(20):
        append(branch, events(1, first=100 + n))
    with store.measure() as opening:
        on(store, "audit").refresh()
    # Its own log is long enough.
    assert (opening.get, opening.list) == (plain[0] + 1, plain[1])
    with store.measure() as appending:
        append(branch, events(1, first=200))
    # One looks whether the branch is still there.
    assert (appending.get, appending.put, appending.list) == (1, 2, 0)


@pytest.mark.hazard("V2")
def test_v2_a_vacuum_of_the_parent_keeps_what_a_branch_reads():
    store = MemoryStore()
    table = filled(store, appends=3)
    branch = table.branch("audit")
    append(branch, events(1, first=100))
    overwrite(table, events(1, first=50), start="1970-01-01", end="1970-01-03")
    with pytest.raises(errors.CommitConflict, match=r"branch .* audit --delete"):
        table.unpin("branch:audit")
    assert sweep(on(store)).gone["dropped"].objects == 0
    assert numbers(on(store, "audit")) == [0, 1, 2, 3, 4, 5, 100]
    assert fsck(on(store, "audit"), checksums=True).findings == ()
    assert len(stored(store, "data/")) == 7
    table.delete_branch("audit")
    assert stored(store, "_branches/") == {}
    sweep(on(store, seed=900))
    assert len(stored(store, "data/")) == 1


def test_what_the_parent_vacuumed_before_the_branch_is_told_and_not_restored():
    store = MemoryStore()
    table = filled(store)
    overwrite(table, events(1, first=50), start="1970-01-01", end="1970-01-03")
    branch = table.branch("audit")
    append(table, events(1, first=60))
    sweep(on(store))  # up to the pin
    assert table.refresh().meta.horizon == 3
    with pytest.raises(errors.VersionVacuumed, match="older than the branch"):
        readers.scan(branch, version=2).to_table()
    for call in (
        lambda: branch.restore(2),
        lambda: branch.pin("keep", 2),
        lambda: branch.branch("x", at=2),
    ):
        with pytest.raises(errors.VersionVacuumed, match="older than the branch"):
            call()
    with pytest.raises(errors.VersionVacuumed):
        table.branch("y", at=2)
    assert [b.name for b in table.branches()] == ["audit"]


@pytest.mark.hazard("V2")
def test_v2_a_branch_of_a_branch_holds_no_version_that_its_parent_does_not():
    table = filled()
    audit = table.branch("audit")
    audit.branch("fix")
    replication.follow(audit, table)  # the table did nothing since, and has that pin from now on
    audit.delete_branch("fix")
    table.delete_branch("audit")
    for n in (20, 30):
        overwrite(table, events(1, first=n), start="1970-01-01", end="1970-01-03")
    old = table.refresh().meta.pins["branch:audit/fix"].version
    audit = table.branch("audit")
    fix = audit.branch("fix")
    below, above = fix.store.forks
    assert old < above.held <= below.held
    with pytest.raises(errors.CommitConflict, match=r"unpin .* branch:audit/fix --break"):
        table.unpin("branch:audit/fix")
    table.break_pin("branch:audit/fix")
    sweep(table)
    append(fix, events(1, first=40))
    assert fsck(fix).errors == 0
    for version in range(below.held, fix.session.head().version):
        assert readers.scan(fix, version=version).count() == 1
    with pytest.raises(errors.VersionVacuumed):
        fix.restore(old)
    assert replication.follow(fix, Table(MemoryStore())).start == below.held


@pytest.mark.hazard("V2")
def test_v2_a_pin_from_before_a_branch_keeps_no_version_there():
    table = filled()
    table.pin("kept", 1, owner="me")
    branch = table.branch("audit")
    assert branch.store.forks[0].held > 1
    with pytest.raises(errors.VersionVacuumed, match="older than the branch"):
        branch.pin("kept", 1, owner="me")
    with pytest.raises(errors.CommitConflict, match="unpin it"):
        branch.pin("kept", owner="me")
    branch.unpin("kept", owner="me")
    assert branch.pin("kept", owner="me") == branch.pin("kept", owner="me") == 5


def test_a_restore_on_a_branch_reads_old_segments_where_they_lie():
    store = MemoryStore()
    table = filled(store)
    branch = table.branch("audit", at=2)
    overwrite(branch, events(1, first=50), start="1970-01-01", end="1970-01-03")
    append(branch, events(1, first=60))
    overwrite(table, events(1, first=70), start="1970-01-01", end="1970-01-03")
    sweep(on(store))
    assert branch.restore(2) == 5
    assert numbers(on(store, "audit")) == [0, 1, 2, 3]
    assert {s.version for s in live(branch.refresh())} == {5}
    assert {s.epoch < 2 for s in live(branch.session.head())} == {True}
    assert branch.restore(4) == 6
    assert numbers(on(store, "audit")) == [50, 60]
    assert fsck(branch, checksums=True).findings == ()


def test_a_vacuum_of_a_branch_deletes_its_own_only():
    store = MemoryStore()
    table = filled(store)
    theirs = stored(store, "data/")
    branch = table.branch("audit")
    append(branch, events(2, first=100))
    overwrite(branch, events(1, first=50), start="1970-01-01", end="1970-01-03")
    # Its own fork's pin is in the state that it has from its parent.
    report = sweep(on(store, "audit"))
    assert (report.gone["dropped"].objects, [*report.kept]) == (0, [HELD])
    branch.break_pin("branch:audit")
    append(branch, events(1, first=60))
    report = sweep(on(store, "audit", seed=700))
    assert (report.gone["dropped"].objects, [*report.kept]) == (1, [])
    assert stored(store, "data/") == theirs
    assert numbers(on(store, "audit")) == [50, 60]
    assert numbers(on(store)) == [0, 1, 2, 3]
    for table in (on(store, seed=900), on(store, "audit", seed=900)):
        assert fsck(table, checksums=True).findings == ()
    assert sweep(on(store, "audit", seed=900)).gone["dropped"].objects == 0


def test_compaction_on_a_branch_leaves_the_parent_alone():
    store = MemoryStore()
    table = filled(store, appends=4)
    before = stored(store, "data/")
    branch = table.branch("audit")
    append(branch, events(2, days=2, first=100))
    tasks = plan(branch, COMPACTION).tasks
    assert tasks
    report = run(branch, policy=COMPACTION)
    assert all(outcome.ok for outcome in report.outcomes)
    assert len(live(branch.refresh())) == 2
    assert numbers(on(store, "audit")) == [*range(8), 100, 101]
    assert stored(store, "data/") == before
    assert plan(table, COMPACTION).tasks


def test_a_keyed_table_on_a_branch():
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us")), ("o", pa.int64())])
    rows = lambda *found: pa.Table.from_pylist(
        [{"k": k, "at": 0, "o": o} for k, o in found], schema
    )
    seen = lambda t: {r["k"]: r["o"] for r in readers.scan(t).to_table().to_pylist()}
    store = MemoryStore()
    table = create(store, schema=schema, key="k", order_by="o", buckets=2)
    upsert(table, rows((1, 1), (2, 1)))
    branch = table.branch("audit")
    upsert(branch, rows((2, 5), (3, 1)))
    upsert(table, rows((1, 9)))
    delete(branch, keys=rows((1, 4)).select(["k"]))
    assert seen(on(store, "audit")) == {2: 5, 3: 1}
    assert seen(on(store)) == {1: 9, 2: 1}
    assert fsck(branch, keys=True).findings == ()


def test_a_parent_that_is_another_log_by_now_is_noticed():
    store = MemoryStore()
    table = filled(store)
    branch = table.branch("audit")
    append(branch, events(1, first=100))
    key = keys.commit_key(3)
    body = store.get(key)
    other = filled(MemoryStore())
    append(other, events(1, first=7))
    replace_object(store, key, other.store.get(key))
    with pytest.raises(errors.Corrupt, match="not the one that branch 'audit' forked from"):
        on(store, "audit").snapshot(3)
    assert {f.key for f in fsck(on(store, "audit")).findings} >= {key}
    replace_object(store, key, body)
    assert fsck(on(store, "audit")).findings == ()


def test_a_fork_is_read_strictly():
    store = MemoryStore()
    table = filled(store)
    branch = table.branch("audit")
    body = store.get("_branches/audit/_fork.json")
    assert codec.decode_fork(body, "audit") == branch.store.forks[0]
    with pytest.raises(errors.Corrupt, match="that of 'audit'"):
        codec.decode_fork(body, "other")
    for changed in (
        body.replace(b'"held":2', b'"held":1'),
        resealed(body.replace(b'"held":2', b'"held":4')),
        resealed(body.replace(b'"version":3', b'"version":-3')),
        resealed(body.replace(b'"commit":"', b'"commit":"0')),
        resealed(body.replace(b"{", b"{ ", 1)),
        body + b" " * 5000,
    ):
        with pytest.raises(errors.Corrupt):
            codec.decode_fork(changed, "audit")
    with pytest.raises(errors.UnsupportedFormat):
        codec.decode_fork(resealed(body.replace(b'"min_reader":1', b'"min_reader":2')), "audit")


@pytest.mark.hazard("W9")
def test_w9_a_handle_notices_that_its_branch_was_deleted_and_made_again():
    store = MemoryStore()
    table = filled(store)
    for commits in (0, 1):
        branch = table.branch("audit")
        for n in range(commits):
            append(branch, events(1, first=100 + n))
        known = branch.session.head()
        table.delete_branch("audit")
        with pytest.raises(errors.TableNotFound, match="was deleted"):
            append(branch, events(1, first=200))
        again = table.branch("audit", at=3)  # beside the segments that it was about to commit
        assert branch.session.known == known
        with pytest.raises(errors.TableNotFound, match="was deleted"):
            append(branch, events(1, first=200))
        assert numbers(again) == [0, 1, 2, 3]
        table.delete_branch("audit")


def test_a_branch_writes_nothing_into_its_parent():
    store = MemoryStore()
    table = filled(store, appends=4)
    branch = table.branch("audit")
    before = {k: b for k, b in stored(store).items() if not k.startswith("_branches/")}
    for key in (keys.keyframe_key(3), keys.commit_key(5), keys.segment_key(2, "2013", "a" * 32)):
        with pytest.raises(errors.InvalidInput, match="before branch 'audit' forked"):
            branch.store.put_if_absent(key, b"x")
    branch.store.delete([*before])
    lost = next(key for key in before if key.endswith(".keyframe.json"))
    store.delete([lost])
    assert [(r.key, r.done) for r in fsck(branch, repair=True).repairs] == [(lost, False)]
    store.put_if_absent(lost, before[lost])
    for n in range(8):
        append(branch, events(1, first=100 + n))
    branch.write_keyframe()
    after = {k: b for k, b in stored(store).items() if not k.startswith("_branches/")}
    assert after == before
    assert fsck(branch).findings == ()


def test_what_the_audit_says_of_branches():
    store = MemoryStore()
    table = filled(store)
    table.branch("audit")
    table.branch("other")
    table.break_pin("branch:audit")
    store.delete(["_branches/other/_fork.json"])
    table.branch("third")
    store.delete(["_branches/third/_fork.json"])
    for key in ("_branches/other/_log/x", "_branches/odd", "_branches/.hidden/x"):
        store.put_if_absent(key, b"")
    found = {f.key: (f.severity, f.message) for f in fsck(table).findings}
    assert found.keys() == {"_branches/audit/_fork.json", "_branches/other/_fork.json"}
    severity, message = found["_branches/audit/_fork.json"]
    assert severity == "error"
    assert "pin version 2 under the name 'branch:audit'" in message
    severity, message = found["_branches/other/_fork.json"]
    assert severity == "warning"
    assert "--delete" in message
    assert [(b.name, b.held, b.unfinished, b.pin_only) for b in table.branches()] == [
        ("audit", False, False, False),
        ("other", True, True, False),
        ("third", True, True, True),  # a pin alone, as in a copy of the table, is no fault
    ]
    table.pin("branch:audit", 2)
    table.delete_branch("other")
    assert fsck(table).findings == ()


def test_a_branch_of_a_copy_that_lacks_versions():
    source = filled(appends=7)
    store = MemoryStore()
    replication.follow(source, Table(store), start="keyframe")
    copy = Table(store, ManualClock(START_MS + HOUR_MS, 700))
    head = copy.refresh().version
    branch = copy.branch("audit")
    append(branch, events(1, first=100))
    assert numbers(on(store, "audit", seed=900)) == [*range(14), 100]
    with pytest.raises(errors.VersionNotReplicated):
        branch.snapshot(2)
    for version in (head, head + 1):
        assert branch.snapshot(version).version == version
    assert fsck(branch).errors == fsck(copy).errors == 0


def test_a_branch_that_is_refused_leaves_the_copy_as_it_is():
    source, store = filled(appends=7), MemoryStore()
    replication.follow(source, Table(store), start="keyframe")
    had = stored(store)
    for version, error in ((2, errors.VersionNotReplicated), (99, errors.VersionNotFound)):
        with pytest.raises(error):
            on(store).branch("audit", at=version)
    assert stored(store) == had
    append(source, events(1, first=100))
    assert replication.follow(source, Table(store)).versions == 1


@pytest.mark.parametrize("at", [None, 0])
def test_a_branch_of_a_table_without_rows(at):
    store = MemoryStore()
    table = filled(store, appends=0)
    branch = table.branch("first", at=at)
    fork = branch.session.head().version
    assert (fork, table.session.head().version) == (1 if at is None else 0, 1)
    assert numbers(branch) == []
    assert table.merge(branch).commits == 0
    append(branch, events(3))
    overwrite(branch, events(1, first=9), start="1970-01-01", end="1970-01-02")
    assert [readers.scan(branch, version=v).count() for v in range(fork + 3)][-2:] == [3, 1]
    assert [entry.version for entry in branch.history()] == list(range(fork + 2, -1, -1))
    assert readers.changes(branch, 0).to_table().num_rows == 7
    assert branch.restore(0) == fork + 3
    append(branch, events(2, first=20))
    deeper = on(store, "first").branch("deeper", at=0)
    append(deeper, events(1, first=30))
    assert numbers(on(store, "first", "deeper")) == [30]
    for place in (store, branch.store, deeper.store):
        assert fsck(on(place), checksums=True).findings == ()
    on(store, "first").delete_branch("deeper")
    if at is None:
        assert table.merge(branch).commits == 1
        assert numbers(on(store)) == [20, 21]
    table.delete_branch("first")
    assert fsck(on(store)).findings == ()


def forged(parent, name, **changed):
    """Put another `_fork.json`, sealed as the format demands, in the place of a branch's."""
    key = f"_branches/{name}/_fork.json"
    fork = codec.decode_fork(parent.store.get(key), name)
    parent.store.delete([key])
    parent.store.put_if_absent(key, codec.encode_fork(msgspec.structs.replace(fork, **changed)))
    return lambda: Table(BranchStore(parent.store, name))


@pytest.mark.parametrize(
    ("changed", "held", "words"),
    [
        ({"table": "ab" * 16}, True, "forks from version 4 of another table"),
        ({"version": 2, "held": 0}, False, "forks from version 2 of another log"),
    ],
)
def test_a_branch_with_a_forged_fork_is_not_listed_as_whole(changed, held, words):
    table = create(MemoryStore())
    for n in range(3):
        append(table, events(1, first=n))
    table.branch("audit")
    forged(table, "audit", **changed)
    (listed,) = table.branches()
    assert (listed.held, words in str(listed.damage)) == (held, True)
    with pytest.raises(errors.Corrupt):
        append(on(table.store, "audit"), events(1, first=7))


@pytest.mark.parametrize("commits", [0, 1])
def test_a_fork_of_another_table_is_corrupt(commits):
    table = create(MemoryStore())
    append(table, events(1))
    branch = table.branch("audit")
    for _ in range(commits):
        append(branch, events(1, first=5))
    opened = forged(table, "audit", table="ab" * 16)
    for use in (
        lambda t: t.session.head(),
        lambda t: append(t, events(1, first=7)),
        lambda t: list(t.history()),
    ):
        with pytest.raises(errors.Corrupt, match="of another table"):
            use(opened())


def test_a_fork_that_claims_more_than_its_parent_holds_is_told_and_takes_no_rows():
    table = create(MemoryStore())
    for n in range(3):
        append(table, events(1, first=n))
    table.branch("audit")
    opened = forged(table, "audit", held=0)
    assert [b.held for b in table.branches()] == [False]
    assert any("no pin protects" in f.message for f in fsck(table).findings)
    with pytest.raises(errors.CommitConflict, match="no pin"):
        append(opened(), events(1, first=7))
    append(table, events(1, first=8))
    with pytest.raises(errors.CommitConflict, match="no pin"):
        replication.merge(table, opened())


def lose_newest(store, versions):
    """Delete the newest commits of a table, as one who puts an older `_log/` back does."""
    head = Table(store).refresh().version
    gone = range(head, head - versions, -1)
    store.delete([key for v in gone for key in (keys.commit_key(v), keys.keyframe_key(v))])


@pytest.mark.parametrize("lost", [1, 3, 7])
def test_a_branch_whose_parent_lost_what_it_forked_from_is_corrupt(lost):
    store = MemoryStore()
    warm = filled(store, appends=5).branch("audit")
    fork = warm.session.head().version
    lose_newest(store, lost)
    uses = [
        lambda t: t.session.head(),
        lambda t: readers.scan(t).to_table(),
        lambda t: append(t, events(1, first=9)),
        lambda t: t.branch("deeper"),
        lambda t: list(t.history()),
    ]
    for use in uses:
        with pytest.raises(errors.Corrupt, match=f"lacks version {fork}, from which the branch"):
            use(on(store, "audit"))
    for use in (warm.refresh, lambda: append(warm, events(1, first=9))):
        with pytest.raises(errors.Corrupt if lost < 7 else errors.TableNotFound):
            use()
    if lost == 7:
        return
    for branch in ("audit", warm):
        with pytest.raises(errors.Corrupt, match=f"version {fork}"):
            on(store).merge(branch)
    (found,) = on(store).branches()
    assert (found.name, found.fork, found.head, found.unfinished) == ("audit", fork, None, False)
    assert f"lacks version {fork}" in found.damage
    # What is committed to the parent now is not seen in the branch.
    for n in range(lost - 1):
        append(on(store, seed=600 + n), events(1, first=70 + n))
        with pytest.raises(errors.Corrupt, match=f"lacks version {fork}"):
            on(store, "audit").session.head()
    append(on(store, seed=700), events(1, first=80))
    for use in (
        lambda: Table.open("", store=store, branch="audit").refresh(),
        lambda: append(warm, events(1, first=9)),
    ):
        with pytest.raises(errors.Corrupt):
            use()


@pytest.mark.parametrize("commits", [0, 1, 20])
def test_the_audit_lists_what_the_parent_of_a_branch_lost(commits):
    store = MemoryStore()
    branch = filled(store, appends=5).branch("audit")
    fork = branch.session.head().version
    for n in range(commits):
        append(branch, events(1, first=100 + n))
    lose_newest(store, 3)
    found = {
        f.key for f in fsck(Table(BranchStore(store, "audit"))).findings if f.severity == "error"
    }
    assert found >= {keys.commit_key(v) for v in range(fork - 2, fork + 1)}
    (told,) = fsck(on(store)).findings
    assert (told.severity, told.key) == ("error", "_branches/audit/_fork.json")
    assert f"'audit' is damaged: it forks from version {fork}, which is not in this" in told.message


def test_a_stale_listing_does_not_make_a_new_branch_corrupt():
    store = FaultyStore(MemoryStore())
    branch = filled(store, appends=3).branch("audit")
    store.inject(Fault("list", "stale_list", "_log/", 0, 3))
    assert [p.version for p in (on(store).session.head(), branch.session.head())] == [
        2,
        4,
    ]  # it is stale
    assert on(store, "audit").session.head().commit_hash == branch.session.head().commit_hash


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"table": "ab" * 16}, "of another table"),
        ({"commit": "ab" * 32}, "of another log"),
        ({"version": 99}, "which is not in this log"),
    ],
)
@pytest.mark.parametrize("commits", [0, 2])
@pytest.mark.parametrize("pinned", [True, False])
def test_the_audit_names_forks_of_another_log(changed, problem, commits, pinned):
    store = MemoryStore()
    table = filled(store)
    branch = table.branch("audit")
    other = table.branch("other")
    append(other, events(1, first=50))
    for n in range(commits):
        append(branch, events(1, first=100 + n))
    forged(table, "audit", **changed)
    if not pinned:
        table.break_pin("branch:audit")
    (found,) = fsck(table, checksums=True).findings
    assert (found.severity, found.key) == ("error", "_branches/audit/_fork.json")
    assert "branch 'audit' is damaged" in found.message
    assert problem in found.message
    if not pinned:
        with pytest.raises(errors.Corrupt, match=problem) as refused:
            sweep(table)
        assert "obody can open" not in refused.value.message
    assert [b.name for b in table.branches()] == ["audit", "other"]
    assert numbers(on(store, "other")) == [0, 1, 2, 3, 50]
    table.delete_branch("audit")
    assert fsck(on(store)).findings == ()


def test_one_damaged_branch_does_not_hide_the_others():
    store = MemoryStore()
    table = filled(store)
    for name in ("a", "b", "c"):
        table.branch(name)
    body = store.get("_branches/a/_fork.json")
    replace_object(store, "_branches/a/_fork.json", body.replace(b'"held"', b'"hale"'))
    newer = resealed(body.replace(b'"min_reader":1', b'"min_reader":2'))
    replace_object(store, "_branches/b/_fork.json", newer)
    one, two, three = table.branches()
    assert (one.name, one.fork, one.head, one.held, one.unfinished) == (
        "a",
        None,
        None,
        True,
        False,
    )
    assert "not a fork" in one.damage or "digest" in one.damage
    assert (two.name, two.fork) == ("b", None)
    assert two.damage
    assert (three.name, three.fork, three.head, three.damage) == ("c", 5, 5, None)
    with pytest.raises(errors.Corrupt) as told:
        Table.open("", store=BranchStore(store, "a")).refresh()
    assert told.value.key == "_fork.json"
    found = {f.key: f for f in fsck(table).findings}
    assert found.keys() == {"_branches/a/_fork.json", "_branches/b/_fork.json"}
    assert "'a' is damaged" in found["_branches/a/_fork.json"].message
    assert found["_branches/b/_fork.json"].severity == "warning"


BROKEN = {
    "a byte": lambda body: body[:60] + bytes([body[60] ^ 1]) + body[61:],
    "empty": lambda _: b"",
    "missing": lambda _: None,
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("above", ["a", "a/b"])
def test_a_branch_that_cannot_be_opened_is_not_deleted_with_its_branches(above, broken):
    store = MemoryStore()
    append(filled(store).branch("a"), events(2, first=100))
    append(on(store, "a", seed=510).branch("b"), events(1, first=200))
    append(on(store, "a", "b", seed=520).branch("c"), events(1, first=300))
    depth = above.count("/") + 1
    forks = sorted((k for k in stored(store, "_branches/") if k.endswith("_fork.json")), key=len)
    key = forks[depth - 1]
    good = store.get(key)
    store.delete([key])
    if (body := BROKEN[broken](good)) is not None:
        store.put_if_absent(key, body)
    before = stored(store, "_branches/")
    names = above.split("/")
    parents = [on(store, *names[:n], seed=530 + n) for n in range(depth)]
    for parent, name in zip(parents, names, strict=True):
        with pytest.raises(errors.InvalidInput, match=r"_fork\.json|delete b first"):
            parent.delete_branch(name)
    assert stored(store, "_branches/") == before
    [found] = fsck(parents[-1]).findings
    assert (found.severity, found.key.rpartition("/")[2]) == ("error", "_fork.json")
    assert "is damaged" in found.message
    store.delete([key])
    store.put_if_absent(key, good)
    assert numbers(on(store, "a", "b", "c")) == [0, 1, 2, 3, 100, 101, 200, 300]
    on(store, "a", "b", seed=540).delete_branch("c")
    on(store, "a", seed=550).delete_branch("b")
    on(store, seed=560).delete_branch("a")
    assert not stored(store, "_branches/")


def test_a_branch_that_was_lost_and_made_again_is_not_deleted_with_branches_of_the_lost_one():
    store = MemoryStore()
    filled(store).branch("a")
    append(on(store, "a").branch("b"), events(1, first=200))
    good = store.get("_branches/a/_fork.json")
    store.delete(["_branches/a/_fork.json"])
    [inner] = [key for key in stored(store, "_branches/") if key.endswith("_fork.json")]
    with pytest.raises(errors.InvalidInput, match="has commits and no"):
        on(store, seed=500).branch("a")
    on(store, seed=510).break_pin("branch:a")
    on(store, seed=500).branch("a", at=2)
    with pytest.raises(errors.InvalidInput, match="would be deleted with branch 'a'"):
        on(store).delete_branch("a")
    [found] = fsck(on(store)).findings
    assert (found.severity, found.key) == ("error", inner)
    assert "branch 'a/b' of the one before" in found.message
    store.delete(["_branches/a/_fork.json"])
    store.put_if_absent("_branches/a/_fork.json", good)
    assert fsck(on(store)).findings == ()
    assert numbers(on(store, "a", "b"))[-1] == 200


def test_a_branch_that_cannot_be_opened_is_deleted_once_its_branches_are_given_up():
    store = MemoryStore()
    filled(store).branch("a")
    append(on(store, "a").branch("b"), events(1, first=200))
    store.delete(["_branches/a/_fork.json"])
    with pytest.raises(errors.InvalidInput) as told:
        on(store).delete_branch("a")
    [key] = [key for key in stored(store, "_branches/") if key.endswith("_fork.json")]
    assert f"remove the object {key} by hand" in str(told.value)
    store.delete([key])
    on(store).delete_branch("a")
    assert not stored(store, "_branches/")


@pytest.mark.parametrize("own", [0, 3])
def test_foreign_keys_in_the_parents_log_mean_nothing_to_a_branch(own):
    table = filled(appends=18)
    table.branch("audit")
    for n in range(own):
        append(on(table.store, "audit", seed=500 + n), events(1, first=100 + n))
    for version in range(12, 18):
        table.store.put_if_absent(f"{keys.commit_key(version)}.bak", b"")
    expected = [*range(36), *range(100, 100 + own)]
    assert numbers(on(table.store, "audit")) == expected
    append(on(table.store, "audit", seed=600), events(1, first=200))
    assert numbers(on(table.store, "audit")) == [*expected, 200]


def test_a_branch_whose_fork_is_lost_is_not_called_unfinished():
    table = filled()
    branch = table.branch("audit")
    append(branch, events(1, first=100))
    key = f"{keys.branch_root('audit')}/{keys.FORK_KEY}"
    body = table.store.get(key)
    table.store.delete([key])
    (found,) = fsck(on(table.store), objects=True).findings
    assert found.key == key
    assert "put that back from a copy" in found.message
    table.store.put_if_absent(key, body)
    assert numbers(on(table.store, "audit")) == [0, 1, 2, 3, 100]
