"""The world of one run: a store, a table in it, the actors' handles, and the record."""

import hashlib
from collections import Counter
from contextlib import contextmanager

import msgspec
from simulation.contents import Contents, body_of, rows_in, without_deleted
from simulation.harsh import HarshStore, Late
from simulation.history import Call, Fetch, Look, Record
from simulation.ledger import COMMIT, SEGMENT, VECTORS, Ledger, Violation, hold, keys_of
from simulation.scheduler import Scheduler, WaitingClock
from support.builders import Crash, create, drop_of, live

from eventlog import Table, errors
from eventlog.format import keys
from eventlog.inline.inline_objects import objects_in
from eventlog.model.actions import Add
from eventlog.store.memory import MemoryStore
from eventlog.store.retry import put_once

# Errors that mean that nothing was committed.
REFUSED = (errors.CommitConflict, errors.ClaimLost, errors.Unavailable, errors.InvalidInput)
CHUNKS = ("2013-01-07", "2013-01-08", "2013-01-09")
HOURS = tuple(f"{day}T{hour}" for day in CHUNKS[:2] for hour in ("00", "23"))
# The chunks used for rows, by granularity.
CUTS = {"hour": HOURS, "day": CHUNKS, "month": ("2013-01",)}

__all__ = ["CHUNKS", "CUTS", "Crash", "World", "drop_of", "live"]


def bytes_of(store, segment):
    """Return the bytes of a segment, from its commit or at its key: nothing is remembered."""
    stands = as_json(segment).get("inline")
    found = {} if stands is None else objects_in(store.get, stands)
    return found.get(segment.checksum) or store.get(keys.key_of(segment))


def added_bytes(store, add):
    """Return the bytes of a segment that is to be added."""
    if add.parquet is not msgspec.UNSET:
        return add.parquet
    return store.get(keys.segment_key(add.epoch, add.chunk, add.id))


class WatchedStore:
    """The store itself, with a ledger that checks each commit and each delete."""

    def __init__(self, inner, ledger):
        self.inner = inner
        self.uri = "memory://simulated"  # a vacuum records its place
        self.ledger = ledger
        self.contents = Contents(inner.get)
        self.deleted = 0
        self.broken = []
        self.get, self.list, self.filesystem = inner.get, inner.list, inner.filesystem

    near, unproven, forks = True, None, ()

    def put_if_absent(self, key, body):
        created = self.inner.put_if_absent(key, body)
        if created and COMMIT.fullmatch(key):
            with self._watched():
                self.ledger.advance(bytes(body))
                head = self.ledger.head
                for entry in (*head["adds"], *(new for _, new in head["deletes"])):
                    there = all(map(self._has, keys_of(entry)))
                    hold(there, "loss", f"version {self._head()} adds {entry}: no object")
                self.contents.advance(self.ledger.steps[-1], self._head())
        return created

    def delete(self, keys):
        with self._watched():
            for key in keys:
                known = SEGMENT.fullmatch(key) or VECTORS.fullmatch(key)
                hold(known, "delete", f"{key} was deleted: not under data/")
                if self._has(key):
                    hold(self.ledger.dead(key), "delete", f"{key} was deleted, and is not dead")
                    self.deleted += 1
        self.inner.delete(keys)

    @contextmanager
    def _watched(self):
        try:
            yield
        except Violation as found:  # kept: the code under test may catch it as a fault
            self.broken.append(found)
            raise

    def _head(self):
        return len(self.ledger.steps) - 1

    def now_ms(self):
        return None

    def objects(self):
        return {found.key: self.inner.get(found.key) for found in self.inner.list("")}

    def _has(self, key):
        try:
            self.inner.get(key, length=1)
        except errors.KeyNotFound:
            return False
        return True


class World:
    """The state that one plan's actors share."""

    def __init__(self, plan):
        self.plan = plan
        self.scheduler = Scheduler(f"{plan.seed}/{plan.salt}", stay=plan.stay, max_steps=5_000)
        self.store = WatchedStore(MemoryStore(), Ledger())
        self.late = Late(self.store)
        self.record = Record()
        self.struck = Counter()
        self.done = Counter()
        self.tick = 0
        self.mail = []  # tasks of compaction for any worker
        self._tokens = plan.seed * 1000
        self._sessions = 0
        self._told = WaitingClock(self.scheduler, 0) if plan.told else None
        properties = {
            "keyframe_commits": str(plan.keyframe_commits),
            "combine_after": str(plan.combine_after),
        }
        table = create(self.store, seed=self._seed(), properties=properties)
        if plan.segments:
            self._furnish(table, plan.segments)

    def _furnish(self, table, count):
        """Give the table a history: segments, a replaced one, and abandoned uploads."""
        adds = [self.stage(table, CHUNKS[n % 3], self.plan.rows + n) for n in range(count)]
        table.commit(table.transaction("append", adds))
        self.stage(table, CHUNKS[0])
        first = live(table.session.head())[0]
        again = self.stage(table, first.chunk, first.rows)
        table.commit(table.transaction("replace", [drop_of(first), again]))

    def _seed(self):
        self._tokens += 1
        return self._tokens

    def count(self):
        self.tick += 1
        return self.tick

    def open(self, actor, off_ms=0):
        """Return a handle like that of another process, whose commits and answers are recorded."""
        store = HarshStore(
            self.store,
            self.scheduler,
            self.plan.weather,
            late=self.late,
            struck=self.struck,
            clock=self._told,
        )
        clock = WaitingClock(self.scheduler, self._seed(), off_ms)
        table = Table(store, clock)
        table.world, table.change = self, None
        self._sessions += 1
        table.opened_as = f"{actor}.{self._sessions}"
        commit, calls = table.session.commit, {}

        def recorded(transaction):
            call = calls.get(transaction.id)
            if call is None:
                if table.change is not None:
                    self.store.contents.changes[transaction.id] = table.change
                app = transaction.app and (transaction.app.id, transaction.app.seq)
                call = Call(actor, transaction.operation, transaction.id, app, self.count())
                calls[transaction.id] = call
                self.record.calls.append(call)
            call.ended, call.answer = None, "unknown"
            try:
                call.version = commit(transaction)
                call.answer = "acknowledged"
                self.done[transaction.operation] += 1
            except REFUSED:
                call.answer = "failed"
                self.done[f"refused {transaction.operation}"] += 1
                raise
            finally:
                call.ended = self.count()
            return call.version

        table.session.commit = recorded
        return table

    def stage(self, table, chunk, rows=1):
        """Store the object of a new segment, and return its add action.

        Args:
            table: the handle to use.
            chunk: the segment's chunk.
            rows: number of new rows, or the names of existing ones.
        """
        name, epoch = table.clock.random_id(), table.session.head().version
        new = isinstance(rows, int)
        if new:
            rows = [f"{name[:12]}/{n}" for n in range(rows)]
        body, rows = body_of(rows), len(rows)
        checksum = hashlib.sha256(body).hexdigest()
        add = Add(name, chunk, epoch, rows, len(body), checksum, 1)
        if new and int(name, 16) % 2:  # as a small append does
            return msgspec.structs.replace(add, parquet=body)
        put_once(table.store, table.clock, keys.segment_key(epoch, chunk, name), body)
        return add

    def look(self, table, *, entries=True):
        """Refresh a handle and record its snapshot."""
        began = self.count()
        snapshot = table.refresh()
        shown = plain(snapshot) if entries else None
        fresh = not self.plan.weather.accidents & {"stale", "empty"}
        look = Look(table.opened_as, snapshot.version, began, self.count(), fresh, shown)
        self.record.looks.append(look)
        return snapshot

    def fetch(self, table, version, segments):
        """Fetch a version's segments, record which are missing, and return the rows of the rest."""
        missing, rows = [], []
        for segment in segments:
            try:
                body = bytes_of(table.store, segment)
            except errors.KeyNotFound:
                missing.append(segment.id)
            else:
                whole = hashlib.sha256(body).hexdigest() == segment.checksum
                hold(whole, "read", f"segment {segment.id} has other bytes")
                rows += self._left(table, segment, rows_in(body), missing)
        horizon = self.store.ledger.head["horizon"]
        self.record.fetches.append(Fetch(table.opened_as, version, missing, horizon))
        self.done["fetch in vain" if missing else "fetch"] += 1
        return rows

    def _left(self, table, segment, rows, missing):
        """Return the rows of a segment that are not deleted; none if its vector is missing."""
        try:
            return without_deleted(table, segment, rows)
        except (errors.DataLoss, errors.VersionVacuumed):
            missing.append(segment.id)
            return []


def plain(snapshot):
    """Return a snapshot's live entries by id, as JSON values."""
    return {s.id: as_json(s) for s in live(snapshot)}


def as_json(value):
    return msgspec.json.decode(msgspec.json.encode(value))
