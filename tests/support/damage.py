"""Tables whose objects can be replaced and removed, for the tests of fsck."""

import itertools

import msgspec
import pyarrow as pa

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format import codec, keys
from eventlog.format.frames import frame_bytes
from eventlog.fsck.check import fsck
from eventlog.state import keyframe
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

SCHEMA = pa.schema([("time", pa.timestamp("us", tz="UTC")), ("id", pa.int64())])
DAY_US = 86_400_000_000
_numbers = itertools.count()


def rows(day, count=3):
    times = [day * DAY_US + n for n in range(count)]
    return pa.table([pa.array(times, SCHEMA.field(0).type), list(range(count))], schema=SCHEMA)


class Damaged:
    """A memory store whose objects can be replaced and removed."""

    def __init__(self, commits=10, every=4):
        self.store = MemoryStore(f"memory://checked-{next(_numbers)}")
        self.table = Table.create(
            self.store.uri,
            SCHEMA,
            time_column="time",
            granularity="day",
            properties={"inline_bytes": None, "keyframe_commits": str(every)},
            store=self.store,
            clock=ManualClock(1_700_000_000_000),
        )
        for day in range(commits):
            append(self.table, rows(day))

    @classmethod
    def of(cls, store, clock=None):
        """Wrap an existing store, to damage it."""
        damaged = cls.__new__(cls)
        damaged.store, damaged.table = store, Table(store, clock=clock)
        return damaged

    def copy(self):
        """The same objects in another store, to be damaged separately."""
        store = MemoryStore(f"memory://checked-{next(_numbers)}")
        for key in self.keys(""):
            assert store.put_if_absent(key, self.store.get(key))
        return Damaged.of(store, ManualClock(self.table.clock.now_ms(), seed=1))

    def replace(self, key, body):
        self.store.delete([key])
        assert self.store.put_if_absent(key, body)

    def change(self, key, old, new):
        body = self.store.get(key)
        assert body.count(old) >= 1
        self.replace(key, body.replace(old, new, 1))

    def fsck(self, **options):
        # Another handle, so that nothing is cached.
        return fsck(Table(self.store), **options)

    def forge_root(self, version, change):
        """Change the key frame root of a version, and recompute its digests."""
        key = keys.keyframe_key(version)
        root = change(codec.decode_keyframe(self.store.get(key), version))
        self.replace(key, codec.encode_keyframe(root))

    def forge_leaf(self, version, change, leaf=0):
        """Change the table of a leaf, and recompute its name, the root and all digests."""

        def forged(root):
            old = root.leaves[leaf]
            table = change(frame_bytes.from_parquet(self.store.get(frame_key(old)), old.segments))
            body = frame_bytes.to_parquet(table)
            new = keyframe._leaf(table, body)
            self.store.put_if_absent(frame_key(new), body)
            leaves = [*root.leaves]
            leaves[leaf] = new
            return msgspec.structs.replace(root, leaves=tuple(leaves))

        self.forge_root(version, forged)

    def forge_commit(self, version, change):
        """Change a commit and recompute its own digests, but not the chain after it."""
        key = keys.commit_key(version)
        commit = change(codec.decode_commit(self.store.get(key), version))
        self.replace(key, codec.encode_commit(commit))

    def keyframes(self):
        found = [keys.parse_log_key(row.key) for row in self.store.list(keys.LOG_PREFIX)]
        return sorted(version for version, is_keyframe in filter(None, found) if is_keyframe)

    def keys(self, prefix):
        return [row.key for row in self.store.list(prefix)]

    def errors(self, **options):
        report = self.fsck(**options)
        return [f for f in report.findings if f.severity == "error"]


def frame_key(leaf):
    """The key of a leaf in a root."""
    return keys.frame_key(leaf.sha256)
