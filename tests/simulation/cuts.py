"""Cuts of the log under the scheduler, beside everybody whom they may meet, with accidents.

Writers, an appender's processes, vacuums of the log, compactions, restores, branches, copies and
readers use the public functions, on Parquet. Any of them may be suspended for a week between two
requests, or die at one, and key frames are written beside the commits that follow. `cut_book` has
what every version had. A read shows exactly that, or says that the version is gone.
"""

import gc
import logging
import random
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from io import BytesIO
from unittest import mock

import pyarrow.parquet as pq
from simulation.cut_book import MAIN, BookedStore, CutBook
from simulation.harsh import ALL, FAIR, HarshStore, Late, Weather
from simulation.ledger import hold
from simulation.scheduler import Scheduler, WaitingClock
from support.builders import START_MS, Crash, create, events

from eventlog import Table, compaction, errors, replication
from eventlog.clock import ManualClock
from eventlog.compaction import Policy
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.inline.inline_objects import forget_objects
from eventlog.log import spills
from eventlog.log.log import Log
from eventlog.model.records import cut_of
from eventlog.readers import scan
from eventlog.state import keyframe
from eventlog.store.branching.branch import BranchStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite
from eventlog.writers.appending import Appender

HOUR_MS, HOUR, DAY, WEEK = 3_600_000, 3600, 86_400, 604_800
NOW = timedelta(0)
EVERYTHING = {"retention": NOW, "staging": NOW, "log": True, "log_retention": NOW}
POLICY = Policy(target_bytes=2**20, backoff_s=1, min_gain=0)
BRANCHES, COPIES, SOURCES = ("a", "b"), ("east", "west"), ("s0", "s1")
FIRST_DAY = {"start": "1970-01-01", "end": "1970-01-02"}
ROWS = 2
# What each does is the method of that name.
ROLES = (
    "writer", "writer", "overwriter", "source", "source", "cutter", "cutter", "sweeper",
    "restorer", "pinner", "compactor", "brancher", "brancher", "publisher", "deleter", "follower",
    "follower", "reader", "reader", "keyframer",
)  # fmt: skip
ALWAYS = ("writer", "cutter", "cutter", "reader")
# How often in 1,000 runs it is done at least.
IN_1000 = dict.fromkeys(ROLES, 100) | {
    "crash": 200, "stubs": 2000, "cuts": 300, "units of sources": 500, "slept": 500,
    "reads of a version": 500, "VersionCut": 30, "copied": 50, "publisher": 10, "deleter": 10,
}  # fmt: skip
ENOUGH_TO_TELL = 150
ATTEMPTS = 4
# What a program may meet by no fault of its own.
EXPECTED = (
    errors.Unavailable,
    errors.CommitUnknown,
    errors.CommitConflict,
    errors.ClaimLost,
    errors.VersionVacuumed,  # and cut off
    errors.TableNotFound,  # a branch that was deleted, or a stale listing
    errors.AlreadyExists,  # another has made the branch
)


def rows_of(unit, day=None):
    return events(ROWS, first=unit * ROWS, day=unit % 3 if day is None else day)


def source_unit(app, seq):
    """The number of a unit of work of a source."""
    return 10_000 * (1 + SOURCES.index(app)) + seq


def names_of_units(app, old, new):
    """The rows of the units of a source that follow `old`, up to `new`."""
    first = 0 if old is None else old + 1
    tables = [rows_of(source_unit(app, seq)) for seq in range(first, new + 1)]
    return [name for table in tables for name in table.column("name").to_pylist()]


class SleepyStore(HarshStore):
    """A harsh store whose callers are suspended before a call now and then."""

    sleeps = 0.0

    def _meet(self, verb, key, accidents):
        draw = self._scheduler.random
        if self.sleeps and draw.random() < self.sleeps:
            self.struck["slept"] += 1
            self._scheduler.park(("suspended",), draw.choice((HOUR, DAY, WEEK, WEEK)))
        return super()._meet(verb, key, accidents)


class Clock(WaitingClock):
    """A clock whose work beside the caller is an actor of its own."""

    def beside(self, work, name):
        def job():
            with suppress(Crash):
                work()

        self._scheduler.spawn(job)


class SourceAppender(Appender):
    """An appender that commits in its caller's turn, when it is told to."""

    def _start(self):
        pass

    def turn(self):
        while self._backlog.waiting:
            self._settle(self._backlog.take())


class World:
    """A table whose log is cut, its branches and its copies."""

    def __init__(self, seed):
        forget_objects()  # one seed is one run, whatever came before
        chance = self.chance = random.Random(f"cuts {seed}")
        self.scheduler = Scheduler(seed, choose=self.choose, max_steps=50_000)
        self.stay = chance.choice([0.0, 0.5, 0.9])
        accidents = ALL - {"stale", "empty"} if chance.random() < 0.8 else ALL
        self.weather = Weather(chance.choice([0.0, 0.02, 0.05]), frozenset(accidents))
        self.sleeps = chance.choice([0.0, 0.01, 0.03])
        self.struck, self.done = Counter(), Counter()
        self.tokens, self.units = seed * 1000, 1
        self.store = BookedStore("memory://table")
        self.book = CutBook(self.store, names_of_units)
        self.late = {self.store: Late(self.store)}
        self.copies = {name: self.empty(name) for name in COPIES}
        properties = {
            "combine_after": chance.choice(["0", "1"]),
            "keyframe_commits": chance.choice(["1", "2", "5"]),
            "inline_bytes": str(seed % 2 * 16_384),
        }
        clock = ManualClock(START_MS - 40 * HOUR_MS, seed)
        table = create(self.store, seed=seed, clock=clock, properties=properties)
        for number in range(chance.randint(2, 8)):
            clock.advance(HOUR_MS)
            if number % 3 == 2:
                overwrite(table, self.new_rows(0), **FIRST_DAY)
            else:
                append(table, self.new_rows())
        if chance.random() < 0.4:
            table.branch("a")
        self.old = self.open(self.store)

    def choose(self, waiting, last):
        """Wake a suspended actor rarely, and if all are."""
        now, draw = self.scheduler.now, self.scheduler.random
        asleep = [actor for actor in waiting if actor.wake >= now + HOUR / 2]
        awake = [actor for actor in waiting if actor.wake < now + HOUR / 2]
        if asleep and (not awake or draw.random() < 0.01):
            return draw.choice(asleep)
        if last in awake and draw.random() < self.stay:
            return last
        return draw.choice(awake)

    def empty(self, name):
        store = BookedStore(f"memory://{name}")
        self.late[store] = Late(store)
        return store

    def new_rows(self, day=None):
        self.units += 1
        return rows_of(self.units, day)

    def lies(self):
        """How many listings have lacked what is there."""
        return self.struck["stale"] + self.struck["empty"]

    def open(self, store):
        """A handle of another process."""
        self.tokens += 1
        harsh = SleepyStore(
            store, self.scheduler, self.weather, late=self.late[store], struck=self.struck
        )
        harsh.sleeps = self.sleeps
        return Table(harsh, Clock(self.scheduler, self.tokens))

    def acknowledged(self, place, names, version):
        """Check that rows which are acknowledged in a version came in it, or before it."""
        log = self.book.logs[place]
        for name in names:
            entered = log.entered.get(name, [])
            why = f"{name} is acknowledged in {version} of {place!r}, and came in {entered}"
            hold(bool(entered) and entered[0] <= version <= log.last, "acknowledged", why)
        self.done["acknowledged"] += 1


class Actor:
    """Programs of one role, one after another."""

    def __init__(self, world, number, role):
        self.world, self.role = world, role
        self.chance = random.Random(f"{world.tokens} {number}")
        self.tables, self.kept = {}, []

    def __call__(self):
        for _ in range(2):
            self.unit = None
            for _ in range(ATTEMPTS):
                try:
                    getattr(self, self.role)()
                except Crash:
                    self.world.done["crash"] += 1
                    self.tables.clear()
                    self.kept.clear()
                except EXPECTED as error:
                    self.world.done[f"{self.role}: {type(error).__name__}"] += 1
                    self.world.done[type(error).__name__] += 1
                except (errors.Corrupt, errors.InvalidInput, errors.VersionNotFound) as error:
                    self.misled(error)
                else:
                    self.world.done[self.role] += 1
                    break

    def misled(self, error):
        """Accept what a listing does that lacks what is there: an error, and no more."""
        if not self.world.lies():
            raise error
        self.world.done["misled by a listing"] += 1

    def table(self, store=None):
        store = store or self.world.store
        if store not in self.tables or self.chance.random() < 0.2:
            self.tables[store] = self.world.open(store)
        return self.tables[store]

    def branch(self, name):
        """A handle to a branch, and the place of its log."""
        parent = self.table()
        store = BranchStore(parent.store, name)
        place = f"{name}/{store.forks[0].id}"
        branch = Table(store, parent.clock)
        branch.session.head()
        return branch, place

    def unit_of(self):
        """A unit of work, the same one after an error."""
        if self.unit is None:
            self.world.units += 1
            self.unit = self.world.units
        return self.unit

    def hand_in(self, table, place):
        unit = self.unit_of()
        rows = rows_of(unit)
        version = append(table, rows, app_id=f"unit {unit}", app_seq=1)
        self.world.acknowledged(place, rows.column("name").to_pylist(), version)

    # --------------------------------------------------------------------------------- the roles

    def writer(self):
        self.hand_in(self.table(), MAIN)

    def overwriter(self):
        overwrite(self.table(), self.world.new_rows(0), **FIRST_DAY)

    def source(self):
        """A process that goes on with a source, perhaps beside the one before it."""
        app = self.chance.choice(SOURCES)
        appender = SourceAppender(self.table(), app_id=app, retry_s=5)
        last = appender.committed()
        first = 0 if last is None else last + 1
        sent = []
        for seq in range(first, first + self.chance.randint(1, 4)):
            rows = rows_of(source_unit(app, seq))
            sent.append((seq, appender.append(rows, app_seq=seq)))
            if self.chance.random() < 0.5:
                appender.turn()
        appender.turn()
        for seq, future in sent:
            if future.exception() is not None:
                raise future.exception()
            self.world.acknowledged(MAIN, names_of_units(app, seq - 1, seq), future.result())

    def ages(self):
        hours = {"retention": (0, 0, 3), "staging": (0, 0, 5)}
        return {name: timedelta(hours=self.chance.choice(some)) for name, some in hours.items()}

    def cutter(self):
        kept = timedelta(hours=self.chance.choice((0, 0, 4, 30)))
        full = self.chance.random() < 0.2
        compaction.vacuum(
            self.table(), dry_run=False, log=True, log_retention=kept, full=full, **self.ages()
        )

    def sweeper(self):
        compaction.vacuum(self.table(), dry_run=False, **self.ages())

    def restorer(self):
        head = self.table().refresh()
        self.table().restore(self.chance.randint(head.meta.horizon, head.version))

    def pinner(self):
        table = self.table()
        head = table.refresh()
        mine = sorted(name for name, pin in head.meta.pins.items() if pin.owner == "pinner")
        if mine:
            table.unpin(mine[0], owner="pinner")
        else:
            version = self.chance.randint(head.meta.horizon, head.version)
            table.pin(f"p{self.chance.randrange(3)}", version, owner="pinner")

    def compactor(self):
        compaction.run(self.table(), policy=POLICY)

    def brancher(self):
        """Writes to a branch, and makes it first where there is none."""
        name = self.chance.choice(BRANCHES)
        try:
            branch, place = self.branch(name)
        except errors.TableNotFound:
            self.make(name)
            branch, place = self.branch(name)
        self.hand_in(branch, place)

    def make(self, name):
        try:
            self.table().branch(name)
        except errors.InvalidInput as refused:  # a program that deleted it has died
            if "has commits and no `_fork.json`" not in refused.message:
                raise
            self.table().delete_branch(name)
            self.table().branch(name)

    def publisher(self):
        branch, _ = self.branch(self.chance.choice(BRANCHES))
        self.table().merge(branch)

    def deleter(self):
        self.table().delete_branch(self.chance.choice(BRANCHES))

    def follower(self):
        name = self.chance.choice(COPIES)
        start = self.chance.choice(("oldest", "keyframe"))
        named = name if self.chance.random() < 0.3 else None
        source, target = self.table(), self.table(self.world.copies[name])
        replication.follow(source, target, name=named, start=start, clock=source.clock)
        self.world.done["copied"] += 1

    def keyframer(self):
        self.table().write_keyframe()

    def reader(self):
        """Reads with an old handle, or a new one, versions that it knows or has opened."""
        table = self.table()
        head = table.session.head() if self.chance.random() < 0.5 else table.refresh()
        if self.kept and self.chance.random() < 0.7:
            snapshot = self.kept.pop()
            self.world.done["late entries"] += 1
            check_entries(self.world.book, snapshot)
        low = max(0, head.version - self.chance.choice((2, 5, 20)))
        version = self.chance.randint(low, head.version)
        try:
            snapshot = table.session.log.snapshot(version)
            self.kept.append(snapshot)
            check_entries(self.world.book, snapshot)
            check_read(self.world.book, table, version)
        except errors.VersionVacuumed as error:
            self.world.done["gone for a reader"] += 1
            check_gone(self.world.book, version, error)
            raise
        self.world.done["reads of a version"] += 1
        shown = [entry.version for entry in table.history(limit=3)]
        hold(shown[0] >= head.version, "history", f"{shown} after {head.version}")


def check_gone(book, version, error):
    meta = book.logs[MAIN].meta
    most = cut_of(meta) if isinstance(error, errors.VersionCut) else meta.horizon
    hold(version < most, "gone", f"version {version} is kept, and a reader met {error!r}")


def check_entries(book, snapshot):
    """Check the entries of a snapshot of the table."""
    found = snapshot.entries().column("id").to_pylist()
    wanted = book.logs[MAIN].states[snapshot.version].segments
    hold({i.hex() for i in found} == set(wanted), "read", f"entries of {snapshot.version}")


def check_read(book, table, version, place=MAIN):
    """Check the rows of a version, as a scan shows them."""
    found = sorted(scan(table, version=version).to_table().column("name").to_pylist())
    wanted = book.rows(place, version)
    hold(found == wanted, "read", f"{table.uri} at {version} shows {found}, not {wanted}")


# ------------------------------------------------------------------------------------- the end


def check(world):
    """Check all that there is, with fresh handles and no accidents; then once more after a cut."""
    if world.book.broken:
        raise world.book.broken[0]
    check_table(world)
    check_branches(world)
    for name, store in world.copies.items():
        check_copy(world, name, store)
    table = fresh(world, world.store)
    for pin in sorted(table.refresh().meta.pins):
        table.break_pin(pin)
    compaction.vacuum(table, dry_run=False, full=True, **EVERYTHING)
    check_table(world)
    check_branches(world)
    check_left(world)
    world.done["stubs"] += len(world.book.logs[MAIN].stubs)
    world.done["cuts"] += cut_of(world.book.logs[MAIN].meta) > 0
    world.done["units of sources"] += world.book.advances
    world.done["slept"] += world.struck["slept"]


def check_left(world):
    """Check that a vacuum of everything has left nothing below the cut that nobody names again."""
    log = world.book.logs[MAIN]
    if cut_of(log.meta) == 0:
        return
    whole = log.meta.cut.whole
    left = [keys.parse_log_key(row.key) for row in world.store.list(keys.LOG_PREFIX)]
    frames = sorted(version for version, framed in left if framed)
    hold(frames[0] >= whole, "left", f"key frames {frames} below {whole}")
    live = {(bytes.fromhex(i), one.version) for i, one in log.states[whole].segments.items()}
    for row in world.store.list(keys.FRAMES_PREFIX):
        if not row.key.endswith(".parquet"):
            continue
        table = pq.read_table(BytesIO(world.store.get(row.key)))
        if "version" not in table.column_names or "drop" in table.column_names:
            continue
        for one in zip(*(table.column(n).to_pylist() for n in ("id", "version")), strict=True):
            hold(one[1] > whole or one in live, "left", f"{row.key} has {one}, dead at {whole}")
    world.done["nothing left"] += 1


def fresh(world, store):
    world.tokens += 1
    forget_objects()
    at = world.book.logs[MAIN].states[-1].header.time
    return Table(store, ManualClock(at + HOUR_MS, world.tokens))


def check_table(world):
    book, table = world.book, fresh(world, world.store)
    log = book.logs[MAIN]
    hold(table.refresh().version == log.last, "head", f"{table.refresh().version}, not {log.last}")
    check_slots(world, world.store)
    check_versions(world, table)
    audit = fsck(table)
    found = [f for f in audit.findings if f.severity == "error" and "no pin protects" not in str(f)]
    hold(not found, "fsck", f"{found}")
    check_old_handle(world)


def check_slots(world, store):
    """Check that each commit there is the one that was committed, or its stub."""
    log = world.book.logs[MAIN]
    versions = []
    for row in store.list(keys.LOG_PREFIX):
        version, framed = keys.parse_log_key(row.key)
        if framed:
            continue
        versions.append(version)
        body = store.get(row.key)
        if codec.is_stub(body):
            world.book.check_stub(version, body)
        else:
            hold(body == log.bodies[version], "slot", f"the commit of version {version}")
    if store is world.store:
        hold(sorted(versions) == [*range(log.last + 1)], "slot", f"versions {versions}")


def check_versions(world, table):
    """Check what each version shows, or which error it raises."""
    log = world.book.logs[MAIN]
    cut, horizon = cut_of(log.meta), log.meta.horizon
    some = {cut - 1, cut, cut + 1, horizon, (horizon + log.last) // 2, log.last - 1, log.last}
    for version in sorted(some & {*range(log.last + 1)}):
        try:
            check_entries(world.book, Log(world.store).snapshot(version))
        except errors.VersionCut as error:
            check_gone(world.book, version, error)
        else:
            hold(version >= cut or version not in log.stubs, "cut", f"{version} is below {cut}")
    for version in {cut, horizon, log.last}:
        if version >= horizon:
            check_read(world.book, table, version)
        else:
            try:
                check_read(world.book, table, version)
            except errors.VersionVacuumed as error:
                check_gone(world.book, version, error)
    shown = [entry.version for entry in table.history()]
    hold(shown == [*range(log.last, -1, -1)], "history", f"{shown}")


def check_old_handle(world):
    """Check that a handle from before all cuts goes on."""
    old = world.old
    old.store.weather, old.store.sleeps = FAIR, 0.0
    version = old.refresh().version
    hold(version == world.book.logs[MAIN].last, "old handle", f"it finds version {version}")


def check_branches(world):
    table = fresh(world, world.store)
    for branch in table.branches():
        if branch.head is None or branch.pin_only:
            continue
        store = BranchStore(world.store, branch.name)
        handle = Table(store, table.clock)
        place = f"{branch.name}/{store.forks[0].id}"
        log = world.book.logs[place]
        head = handle.refresh()
        hold(head.version == log.last, "branch", f"{place} ends at {head.version}, not {log.last}")
        check_read(world.book, handle, head.version, place)
        audit = fsck(handle)
        hold(audit.ok, "fsck", f"branch {place}: {audit.findings}")
        world.done["branches read"] += 1


def check_copy(world, name, store):
    """Check that what a copy has is the table's, and that it can go on, or be made again."""
    world.late[store].land_all(world.scheduler.random)
    source = fresh(world, world.store)
    if not [*store.list(keys.LOG_PREFIX, limit=1)]:
        return
    check_slots(world, store)
    try:
        replication.follow(source, fresh(world, store), clock=source.clock)
    except (errors.VersionNotReplicated, errors.CommitConflict, errors.VersionVacuumed) as error:
        world.done[f"a copy cannot go on: {type(error).__name__}"] += 1
        store = MemoryStore()
        replication.follow(source, fresh(world, store), clock=source.clock)
    check_slots(world, store)
    copy, log = fresh(world, store), world.book.logs[MAIN]
    hold(copy.refresh().version == log.last, "copy", f"{name} ends at {copy.refresh().version}")
    for version in {log.meta.horizon, (log.meta.horizon + log.last) // 2, log.last}:
        try:
            check_read(world.book, copy, version)
        except errors.VersionNotReplicated:
            hold(version < log.last, "copy", f"{name} lacks its newest version")
    if [f for f in fsck(copy).findings if "--backfill` copies them again" in f.message]:
        # Two followers at once, one of which slept, leave a gap that no start explains.
        replication.backfill(source, copy, clock=source.clock)
        world.done["gaps of copies filled"] += 1
    found = [f for f in fsck(fresh(world, store)).findings if f.severity == "error"]
    hold(not found, "fsck", f"copy {name}: {found}")
    world.done["copies checked"] += 1


@contextmanager
def scaled(seed):
    """Give some small tables leaves, stems and spills; nothing is logged."""
    sizes = {"INLINE_SEGMENTS": 2, "LEAF_TARGET": 2, "LEAF_SMALL": 1, "LEAF_MAX": 4}
    sizes |= {"ROOT_LEAVES": 3, "STEM_TARGET": 2, "STEM_SMALL": 1}
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with ExitStack() as stack:
            if seed % 4 < 3:
                stack.enter_context(mock.patch.multiple(keyframe, **sizes))
            if seed % 5 == 0:
                stack.enter_context(mock.patch.object(spills, "SPILL_BYTES", 900))
            yield
    finally:
        logging.disable(disabled)


def play(seed):
    """Run and check the world of a seed."""
    with scaled(seed):
        world = World(seed)
        roles = [*world.chance.sample(ROLES, 2), *ALWAYS]
        try:
            world.scheduler.run(*(Actor(world, n, role) for n, role in enumerate(roles)))
            world.late[world.store].land_all(world.scheduler.random)
        finally:
            if world.book.broken:
                raise world.book.broken[0]
        check(world)
    if seed % 16 == 0:
        gc.collect()
    return world


def rare(done, runs):
    """What was done too rarely in so many runs."""
    if runs < ENOUGH_TO_TELL:
        return {}
    return {name: done[name] for name, least in IN_1000.items() if done[name] * 1000 < least * runs}
