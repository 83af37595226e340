"""No operation asks a store for more of an object than the format or the log allows it to have.

A damaged or hostile object may have any size. What is read of it is bounded before it is read.
"""

from contextlib import suppress
from dataclasses import dataclass

import pytest
from support.builders import create, events

from eventlog import Table, errors, limits, replication
from eventlog.compaction import Policy, run, vacuum
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import changes, scan
from eventlog.store.branching.branch import BranchStore
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

GIB = 2**30


@dataclass(frozen=True)
class Asked:
    """A GET: the key, and the length that was asked for."""

    key: str
    length: int | None


@pytest.fixture
def asked(monkeypatch):
    """What stores in memory are asked for."""
    found, real = set(), MemoryStore.get

    def get(self, key, *, start=0, length=None):
        found.add(Asked(key, length))
        return real(self, key, start=start, length=length)

    monkeypatch.setattr(MemoryStore, "get", get)
    return found


def most_of(key):
    """Return how many bytes of an object may be asked for, by its kind."""
    name = key.rpartition("/")[2]
    if name == keys.FORK_KEY:
        return limits.FORK_BYTES + 1
    if "_starts/" in key:
        return limits.START_BYTES + 1
    if name.endswith(".keyframe.json"):
        return limits.KEYFRAME_BYTES + 1
    if "_log/" in key:
        return limits.COMMIT_BYTES + 1
    if "_intents/" in key:
        return limits.INTENT_BYTES + 1
    return 1 << 20  # of what these tables have: segments, leaves, spills, probes


def build(store):
    table = create(store, properties={"keyframe_commits": "2", "user.a": "b"})
    for n in range(5):
        append(table, events(2, first=10 * n))
    table.write_keyframe()
    branch = table.branch("audit")
    append(branch, events(1, first=90))
    return table


def everything(store):
    """Yield the name of each operation, and the operation."""
    table, copy, two = Table(store), "memory://sizes-copy", "memory://sizes-late"
    branch = Table(BranchStore(store, "audit"))
    day = {"start": "1970-01-01", "end": "1970-01-02"}
    yield "scan", lambda: scan(Table(store)).to_table()
    yield "old version", lambda: scan(Table(store), version=2).to_table()
    yield "changes", lambda: changes(table, 0).to_table()
    yield "history", lambda: list(table.history())
    yield "append", lambda: append(table, events(1, first=70))
    yield "appender", lambda: appended_by_an_appender(table)
    yield "overwrite", lambda: overwrite(table, events(1), **day)
    yield "restore", lambda: table.restore(3)
    yield "branches", table.branches
    yield "branch", lambda: table.branch("other")
    yield "rows of a branch", lambda: scan(branch).to_table()
    yield "append to a branch", lambda: append(branch, events(1, first=71))
    yield "fsck", lambda: fsck(table, checksums=True)
    yield "fsck of a branch", lambda: fsck(branch, checksums=True)
    yield "repair", lambda: fsck(table, repair=True)
    yield "follow", lambda: replication.follow(table, copy)
    yield "follow again", lambda: replication.follow(table, copy)
    yield "follow from a version", lambda: replication.follow(table, two, start="keyframe")
    yield "backfill", lambda: replication.backfill(table, two)
    yield "backfilled", lambda: list(Table.open(two).history())
    yield "append to a copy", lambda: append(Table.open(copy), events(1, first=80))
    yield "merge", lambda: replication.merge(Table.open(copy), table)
    yield "publish", lambda: table.merge("audit")
    yield "compaction", lambda: run(table, policy=Policy(claim_bytes=0, small_task_bytes=0))
    yield "vacuum", lambda: vacuum(table, dry_run=False, full=True)
    yield "deletion", lambda: table.delete_branch("other")


def appended_by_an_appender(table):
    """Append a row by an appender."""
    with table.appender(app_id="sizes") as out:
        out.append(events(1, first=72), app_seq=(out.committed() or 0) + 1)


@pytest.mark.hazard("W4")
def test_every_request_names_how_much_it_takes(asked):
    store = MemoryStore("memory://sizes")
    build(store)
    for name, call in everything(store):
        asked.clear()
        call()
        assert asked, name
        wrong = {a for a in asked if a.length is None or a.length > most_of(a.key)}
        assert not wrong, name


class Sparse(LocalStore):
    """Counts the bytes that it returns."""

    taken = 0

    def get(self, key, *, start=0, length=None):
        body = super().get(key, start=start, length=length)
        self.taken += len(body)
        assert self.taken < 128 * 2**20, f"{self.taken} bytes by {key}"
        return body


LARGE = {
    "fork": "_branches/audit/_fork.json",
    "commit": "_log/*[0-9].json",
    "segment": "data/*/*/*.parquet",
    "leaf": "_frames/*.parquet",
}
VERBS = {
    "scan": lambda s: scan(Table(s)).to_table(),
    "branch": lambda s: scan(Table(BranchStore(s, "audit"))).to_table(),
    "branches": lambda s: Table(s).branches(),
    "history": lambda s: list(Table(s).history()),
    "append": lambda s: append(Table(s), events(1, first=70)),
    "fsck": lambda s: fsck(Table(s)),
    "follow": lambda s: replication.follow(Table(s), f"memory://of{s.uri}"),
    "deletion": lambda s: Table(s).delete_branch("audit"),
}


@pytest.mark.hazard("W4")
@pytest.mark.parametrize("kind", LARGE)
def test_an_object_of_a_gibibyte_is_refused_without_being_read(tmp_path, kind):
    build(LocalStore(tmp_path))
    for path in tmp_path.glob(LARGE[kind]):
        path.chmod(0o644)
        with path.open("r+b") as file:
            file.truncate(GIB)
    for verb in VERBS.values():
        with suppress(errors.EventLogError):
            verb(Sparse(tmp_path))
