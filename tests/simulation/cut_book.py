"""What every version of a table and of its branches had, whatever becomes of its log later.

An observer of all that is stored. It folds each commit as it comes, keeps the rows of each segment
whose bytes it ever saw, and says at once if a slot is used twice, a stub is wrong, or something is
deleted that a kept version needs.
"""

from collections import Counter
from io import BytesIO

import pyarrow.parquet as pq
from msgspec import UNSET
from pyroaring import BitMap64
from simulation.ledger import hold
from support.builders import ApartStore
from support.folds import advance

from eventlog.format import codec, keys
from eventlog.log import spills
from eventlog.log.log import Log
from eventlog.model.actions import Add, Advance
from eventlog.model.records import Meta, cut_of
from eventlog.state import fold

MAIN = ""


class BookedStore(ApartStore):
    """A store that tells a book of each change."""

    book = None

    def put_if_absent(self, key, body):
        created = super().put_if_absent(key, body)
        if created and self.book:
            self.book.put(key, bytes(body))
        return created

    def replace(self, key, old, body):
        stored = self.get(key)
        done = super().replace(key, old, body)
        if stored == old and self.book:
            self.book.replaced(key, old, bytes(body))
        return done

    def delete(self, keys):
        batch = [*keys]
        if self.book:
            self.book.deleted(batch)
        super().delete(batch)


class LogBook:
    """The states of one log, by version."""

    def __init__(self, place, states=(), bodies=()):
        self.place = place
        self.states, self.bodies = [*states], [*bodies]
        self.entered = {}  # name of a row -> the versions whose appends brought it
        self.stubs = set()

    @property
    def last(self):
        return len(self.states) - 1

    @property
    def meta(self):
        return self.states[-1].meta

    def hash(self, version):
        return self.states[version].commit_hash


class CutBook:
    """All logs of one table.

    Args:
        store: the store, which tells it of each change from now on.
        units: returns the rows of the units of work (app, first, last).
    """

    def __init__(self, store, units):
        self.store, self.units = store, units
        self.logs = {MAIN: LogBook(MAIN)}
        self.segments = {}  # id -> bytes
        self.names = {}  # id -> names of its rows
        self.dropped_frames = self.advances = self.translated = 0
        self.forks, self.ended = {}, set()  # places: of branches by name, of deleted ones
        self.broken = []
        store.book = self

    def put(self, key, body):
        self._watch(self._put, key, body)

    def replaced(self, key, old, body):
        self._watch(self._replaced, key, old, body)

    def deleted(self, batch):
        for key in batch:
            self._watch(self._deleted, key)

    def rows(self, place, version):
        """The names of the rows of a version, in order."""
        state = self.logs[place].states[version]
        return sorted(name for one in state.segments.values() for name in self._rows_of(one))

    def _watch(self, see, *what):
        try:
            see(*what)
        except AssertionError as error:  # the code under test may catch it
            self.broken.append(error)
            raise

    def _put(self, key, body):
        place, inner = self._split(key)
        parsed = keys.parse_data_key(inner)
        if parsed is not None:
            self.segments.setdefault(parsed[1], body)
        elif inner == keys.FORK_KEY:
            self._fork(key, body)
        elif place in self.logs and (at := keys.parse_log_key(inner)) and not at[1]:
            self._commit(self.logs[place], at[0], body)

    def _split(self, key):
        """The place of a log, and the key in it."""
        if not key.startswith(keys.BRANCHES_PREFIX):
            return MAIN, key
        name, _, rest = key.removeprefix(keys.BRANCHES_PREFIX).partition("/")
        if rest == keys.FORK_KEY:
            return name, rest
        branch_id, _, rest = rest.partition("/")
        return f"{name}/{branch_id}", rest

    def _fork(self, key, body):
        name = self._split(key)[0]
        fork = codec.decode_fork(body, name)
        place, main = f"{name}/{fork.id}", self.logs[MAIN]
        self.forks[name] = place
        hold(main.hash(fork.version) == fork.commit, "fork", f"{place} at {fork.version}")
        ends = slice(fork.version + 1)
        self.logs.setdefault(place, LogBook(place, main.states[ends], main.bodies[ends]))

    def _commit(self, log, version, body):
        if log.place in self.ended:  # a writer slept while the branch was deleted
            return
        hold(version == log.last + 1, "slot", f"{log.place} has {log.last}, and gets {version}")
        fetch = Log(self._root_of(log.place)).spill
        commit = spills.unpack(codec.decode_commit(body, version), fetch)
        before = log.states[-1] if log.states else None
        hold(commit.header.prev == (before and before.commit_hash), "chain", f"version {version}")
        after, effect = advance(before, commit, codec.sha256(body))
        hold(not effect.void, "void", f"version {version} has void transactions: {effect.void}")
        meta = before.meta if before else Meta()
        totals = fold.add_effect(before and before.header, meta, effect)
        hold(totals == (commit.header.totals, commit.header.state_hash), "fold", f"{version}")
        log.states.append(after)
        log.bodies.append(body)
        for transaction in commit.transactions:
            for add in transaction.actions:
                if isinstance(add, Add) and add.parquet is not UNSET:
                    self.segments.setdefault(add.id, bytes(add.parquet))
        self._check_rows(log, version, commit)

    def _root_of(self, place):
        """A store that reads the objects of a log as they lie."""
        prefix = f"{keys.BRANCHES_PREFIX}{place}/" if place else ""
        return _Under(self.store, prefix)

    def _check_rows(self, log, version, commit):
        rows = self.rows(log.place, version)
        twice = [name for name, count in Counter(rows).items() if count > 1]
        hold(not twice, "once", f"version {version} of {log.place!r} has rows twice: {twice}")
        operations = {transaction.operation for transaction in commit.transactions}
        if operations == {"compact"}:
            same = rows == self.rows(log.place, version - 1)
            hold(same, "rows", f"the compaction {version} changed what rows there are")
        for transaction in commit.transactions:
            adds = [a for a in transaction.actions if isinstance(a, Add)]
            names = [name for add in adds for name in self._names_of(add.id)]
            if transaction.operation == "append":
                for name in names:
                    log.entered.setdefault(name, []).append(version)
            advances = [a for a in transaction.actions if isinstance(a, Advance)]
            if advances and transaction.operation == "append":
                self.advances += len(advances)
                wanted = {n for a in advances for n in self.units(a.app, a.old, a.new)}
                hold(set(names) == wanted, "units", f"version {version} advances {advances}")

    def _replaced(self, key, old, body):
        place, inner = self._split(key)
        version, framed = keys.parse_log_key(inner)
        log = self.logs[place]
        hold(place == MAIN and not framed, "stub", f"{key} became a stub")
        hold(codec.sha256(old) == log.hash(version), "stub", f"{version} was another commit")
        self.check_stub(version, body)
        hold(version < cut_of(log.meta), "stub", f"{version} became a stub above the cut")
        log.stubs.add(version)

    def check_stub(self, version, body):
        stub, log = codec.decode_stub(body, version), self.logs[MAIN]
        hold(stub.commit == log.hash(version), "stub", f"hash of the stub of {version}")
        hold(stub.header == log.states[version].header, "stub", f"header of the stub of {version}")

    def _deleted(self, key):
        if key.startswith(keys.BRANCHES_PREFIX):
            self._deleted_of_branch(key)
            return
        log, at = self.logs[MAIN], keys.parse_log_key(key)
        hold(at is None or at[1], "slot", f"{key} was deleted")
        if at is not None:
            self.dropped_frames += 1
            hold(at[0] < cut_of(log.meta), "key frame", f"key frame {at[0]} above the cut went")
        if keys.parse_data_key(key) is not None:
            needed = key in self.needed()
            hold(not needed, "loss", f"{key} was deleted, which a kept version needs")

    def _deleted_of_branch(self, key):
        place, inner = self._split(key)
        if inner == keys.FORK_KEY:  # by whoever deletes the branch, and again by the next who does
            self.ended.add(self.forks.get(place))
        elif place in self.logs and (at := keys.parse_log_key(inner)) and not at[1]:
            hold(place in self.ended, "slot", f"{key} was deleted")

    def needed(self):
        """The keys of what kept versions of the table need and no commit has."""
        log = self.logs[MAIN]
        kept = log.states[log.meta.horizon :]
        entries = (entry for state in kept for entry in state.segments.values())
        return {keys.key_of(e) for e in entries if e.inline is UNSET or e.inline in log.stubs}

    def _rows_of(self, entry):
        """The names of the rows of a segment that are not deleted."""
        names = self._names_of(entry.id)
        if entry.vector is UNSET:
            return names
        hold(entry.vector.stored is UNSET, "vector", f"{entry.id} has a large one")
        gone = BitMap64.deserialize(entry.vector.bitmap)
        few = len(gone) == entry.vector.rows and gone.max() < len(names)
        hold(few, "vector", f"{entry.id} deletes {list(gone)} of {len(names)} rows")
        self.translated += 1
        return [name for at, name in enumerate(names) if at not in gone]

    def _names_of(self, segment):
        if segment not in self.names:
            hold(segment in self.segments, "loss", f"segment {segment} was never stored")
            table = pq.read_table(BytesIO(self.segments[segment]), columns=["name"])
            self.names[segment] = table.column("name").to_pylist()
        return self.names[segment]


class _Under:
    """The objects of a branch by hash, as its log reads them."""

    uri, forks = "memory://book", ()

    def __init__(self, store, prefix):
        self._store, self._prefix = store, prefix

    def get(self, key, *, start=0, length=None):
        return self._store.get(f"{self._prefix}{key}", start=start, length=length)
