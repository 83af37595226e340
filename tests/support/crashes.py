"""Operations that may crash at any call of a store, and the invariants that must hold."""

import logging
import sys
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, lru_cache
from io import BytesIO
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from support.builders import (
    SCHEMA,
    START_MS,
    Crash,
    CrashingStore,
    check_snapshot,
    check_sound,
    commit,
    create,
    drop_of,
    events,
    fold_all,
    live,
)
from support.folds import advance

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, perform, plan, run, vacuum
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.log import spills
from eventlog.model.actions import Assess, ChunkChange, Fence, Replace
from eventlog.model.entries import Analysed, ChunkState
from eventlog.state import fold, keyframe
from eventlog.store import parallel
from eventlog.store.memory import MemoryStore
from eventlog.table.stage_again import commit_staged
from eventlog.writers import append, overwrite
from eventlog.writers.batch import stage

HOUR_MS = 3_600_000
HOWS = ("before", "after", "lost", "refused")
# Errors that mean that a call failed.
ENDS = (Crash, errors.Unavailable, errors.CommitUnknown)
WIDER = SCHEMA.append(pa.field("extra", pa.int64()))
DAY_1 = (86_400_000, 2 * 86_400_000)
# Every task takes a claim.
COMPACTION = Policy(target_bytes=4096, max_task_bytes=16_384, claim_bytes=0, backoff_s=1)
MOST_RUNS = 5
SMALL_LEAVES = {"INLINE_SEGMENTS": 2, "LEAF_TARGET": 3, "LEAF_SMALL": 1}
SMALL_STEMS = SMALL_LEAVES | {"ROOT_LEAVES": 4, "STEM_TARGET": 2, "STEM_SMALL": 1}
BASE = range(4)


class MortalStore(CrashingStore):
    """A store for one program that crashes, also in a delete; afterwards all its calls fail.

    Args:
        inner: the store.
        at: which call, from 1; 0 for none.
        how: as in `CrashingStore`, or `half`: a delete crashes in the middle of its batch, and any
            other call before its effect.
        pause: the call before which `meanwhile` runs once; 0 for none.
        meanwhile: the actions of other programs.
    """

    def __init__(self, inner, at=0, how="before", *, pause=0, meanwhile=lambda: None):
        super().__init__(inner, at, "before" if how == "half" else how)
        self.armed = True
        self.dead = False
        self._half = how == "half"
        self._pause, self._meanwhile = pause, meanwhile

    def delete(self, keys):
        batch = list(keys)
        self.deletes += batch
        if self._half and self.armed and self.calls + 1 == self._at:
            self.inner.delete(batch[: (len(batch) + 1) // 2])
        self._call(lambda: self.inner.delete(batch))

    def _call(self, call, *, put=False):
        if not self.armed:
            return call()
        if self.dead:
            raise Crash("dead already")
        if self.calls + 1 == self._pause:
            self._pause = 0
            self._meanwhile()
        try:
            return super()._call(call, put=put)
        except Crash:
            self.dead = True
            raise


@dataclass(frozen=True)
class Operation:
    """One operation of a program that may be restarted.

    Attributes:
        act: the operation; idempotent once it is done.
        rows: numbers of the rows of the head at the end.
        kept: the rows from before that no crash may lose.
        prepare: sets up the table's history.
        meanwhile: the actions of other programs after this one read the head.
        race: an action of another program, once, just before this one's first commit arrives.
        done: whether the small state is correct at the end.
    """

    act: Callable[[Table], object]
    rows: tuple[int, ...] = tuple(BASE)
    kept: tuple[int, ...] = tuple(BASE)
    prepare: Callable[[MemoryStore], object] = lambda store: None
    meanwhile: Callable[[MemoryStore], object] | None = None
    race: Callable[[MemoryStore], object] | None = None
    done: Callable[[Table], bool] = lambda table: True


def names(numbers):
    return sorted(f"row {n}" for n in numbers)


def fresh(store, seed):
    """A handle like that of another process; a greater seed means later."""
    return Table(store, ManualClock(START_MS + seed * HOUR_MS, seed))


def append_rows(first, app, count=6):
    return lambda t: append(t, events(count, first=first, days=3), app_id=app, app_seq=1)


def replace_day(day):
    """A compaction of one chunk: one transaction replaces all its live segments with one."""

    def act(t):
        head = t.refresh()
        inputs = live(head, day * 86_400_000, (day + 1) * 86_400_000)
        if len(inputs) < 2:
            return head.version
        parts = [pq.read_table(BytesIO(t.store.get(keys.key_of(s)))) for s in inputs]
        adds = stage(t, head, pa.concat_tables(parts).select(SCHEMA.names), 2**29)
        return commit_staged(t.session, t.transaction("replace", [*map(drop_of, inputs), *adds]))

    return act


def held(t):
    """The live claims, by group."""
    return {claim.group: name for name, claim in t.refresh().meta.claims.items()}


def take(t):
    """Claim a day. The same group gets the same claim again."""
    return t.claim("1970-01-02", "1970-01-03", group="job", owner="me")


def renew(t):
    """Renew the claim, once: after a restart the program sees that it is done."""
    lease = take(t)
    if lease.claim.renewed == lease.claim.token:
        lease.renew()


def release(t):
    if "job" in held(t):
        take(t).release()


def break_claim(t):
    if "job" in held(t):
        t.break_claim(held(t)["job"], silent_s=1.5)


def replace_under_claim(t):
    """Claim a day, replace all its segments with one, and release the claim."""
    head = t.refresh()
    inputs = live(head, *DAY_1)
    if len(inputs) < 2:
        release(t)
        return
    lease = take(t)
    parts = [pq.read_table(BytesIO(t.store.get(keys.key_of(s)))) for s in inputs]
    adds = stage(t, head, pa.concat_tables(parts).select(SCHEMA.names), 2**29)
    actions = [Replace(head.version, 0), *map(drop_of, inputs), *adds]
    commit_staged(t.session, t.transaction("compact", actions, claim=lease.token))
    lease.release()


def assess(t):
    """Record a chunk's state, if none was recorded before."""
    head = t.refresh()
    if head.meta.analysed is None:
        state = ChunkState("deferred", head.version - 1, 1)
        changes = (ChunkChange("1970-01-02", state),)
        action = Assess(None, Analysed(head.version, "a" * 64), changes)
        t.commit(t.transaction("assess", [action]))


def claim_now(store):
    take(fresh(store, 63))


def compact(t):
    """Perform the task first planned for the table, as on a redelivery."""
    (task,) = plan(t, COMPACTION, version=3).tasks
    outcome = perform(t, task, COMPACTION)
    if not outcome.ok:
        raise errors.Unavailable(outcome.error)


def compact_all(t):
    """Plan and perform until nothing is left, as a restarted runner does."""
    for _ in range(MOST_RUNS):
        report = run(t, policy=COMPACTION)
        failed = [outcome for outcome in report.outcomes if not outcome.ok]
        if failed:
            raise errors.Unavailable(failed[0].error)
        if not report.planned:
            return
    raise AssertionError(f"never done: {report}")


def sweep(t, *, full=False):
    return vacuum(t, dry_run=False, retention=timedelta(0), staging=timedelta(0), full=full)


def fence_now(store):
    other = fresh(store, 60)
    commit(other, Fence(other.session.head().version + 1))


def rival(store):
    append(fresh(store, 61), events(1, first=200), app_id="rival", app_seq=1)


def gone_already(act):
    """Accept InvalidInput from a call that releases a hold which is already gone."""

    def again(t):
        if "keep" in t.refresh().meta.pins:
            act(t)

    return again


def hold_two(store):
    fresh(store, 62).pin("keep", 2, owner="me")


def lose_frames(store):
    lost = [o.key for o in store.list("") if "keyframe" in o.key or o.key.startswith("_frames/")]
    store.delete(lost)


def add_check(t):
    return t.add_check("named", "name >= 'row '")


def checked(t):
    """Whether the table has the check, and every row was tested against it."""
    head = t.session.head()
    return head.checks == {"named": "name >= 'row '"} and fsck(t, checksums=True).findings == ()


def merged(t):
    """Day 1 has one segment, and there is no claim."""
    return len(live(t.session.head(), *DAY_1)) == 1 and not t.session.head().meta.claims


CLAIMED = {"prepare": claim_now, "done": lambda t: not t.session.head().meta.claims}
PINNED = {"prepare": hold_two, "done": lambda t: not t.session.head().meta.pins}
OPERATIONS = {
    "append": Operation(append_rows(100, "job"), (*BASE, *range(100, 106))),
    "append one": Operation(append_rows(100, "job", 1), (*BASE, 100)),
    "overwrite": Operation(
        lambda t: overwrite(
            t, events(2, first=100), start="1970-01-01", end="1970-01-02", app_id="job", app_seq=1
        ),
        (1, 3, 100, 101),
        (1, 3),
    ),
    "replace": Operation(replace_day(1), done=lambda t: len(live(t.session.head())) == 2),
    "properties": Operation(
        lambda t: t.set_properties({"user.note": "new"}),
        done=lambda t: t.session.head().properties["user.note"] == "new",
    ),
    "columns": Operation(
        lambda t: t.add_columns(WIDER), done=lambda t: t.session.head().schema == WIDER
    ),
    "check": Operation(add_check, done=checked),
    "check beside an append": Operation(
        add_check,
        (*BASE, 200),
        race=lambda store: append_rows(200, "rival", 1)(fresh(store, 150)),
        done=checked,
    ),
    "append beside a check": Operation(
        append_rows(100, "job", 2),
        (*BASE, 100, 101),
        race=lambda store: add_check(fresh(store, 150)),
        done=checked,
    ),
    "key frame": Operation(lambda t: t.write_keyframe()),
    "vacuum": Operation(sweep, done=lambda t: t.session.head().meta.horizon >= 3),
    "pin": Operation(
        lambda t: t.pin("keep", 2, owner="me"),
        done=lambda t: t.session.head().meta.pins["keep"].version == 2,
    ),
    "unpin": Operation(gone_already(lambda t: t.unpin("keep", owner="me")), **PINNED),
    "break pin": Operation(gone_already(lambda t: t.break_pin("keep")), **PINNED),
    "claim": Operation(take, done=lambda t: len(t.session.head().meta.claims) == 1),
    "renew": Operation(
        renew,
        prepare=claim_now,
        done=lambda t: all(c.renewed > c.token for c in t.claims().values()),
    ),
    "release": Operation(release, **CLAIMED),
    "break claim": Operation(break_claim, **CLAIMED),
    "replace under a claim": Operation(replace_under_claim, done=merged),
    "granularity": Operation(
        lambda t: t.set_granularity("hour"),
        done=lambda t: t.session.head().layout.granularity == "hour",
    ),
    "assess": Operation(assess, done=lambda t: len(t.session.head().meta.chunks) == 1),
    "compact": Operation(compact, done=merged),
    "compact all": Operation(
        compact_all, done=lambda t: merged(t) and t.session.head().meta.analysed is not None
    ),
    "restore": Operation(lambda t: t.restore(1), (0, 1), (0, 1)),
    "fenced append": Operation(
        append_rows(100, "job", 2),
        (*BASE, 100, 101),
        meanwhile=fence_now,
        done=lambda t: t.session.head().meta.fence > 0,
    ),
    "published append": Operation(
        append_rows(100, "job", 2), (*BASE, 100, 101, 200), meanwhile=rival, race=rival
    ),
    "repair": Operation(
        lambda t: fsck(t, repair=True),
        prepare=lose_frames,
        done=lambda t: fsck(t).findings == (),
    ),
}


@dataclass(frozen=True)
class Past:
    """A table's history before the operation: its objects, and the folds of its log."""

    objects: dict[str, bytes]
    steps: tuple[tuple[fold.FullState, fold.Effect], ...]

    def store(self):
        """Return a separate store with the table."""
        store = MemoryStore()
        for key, body in self.objects.items():
            store.put_if_absent(key, body)
        return store

    def folded(self, store):
        """Return the folds, from version 0 on, of a log that continues this one."""
        steps, log = list(self.steps), Table(store).session.log
        last = max(p[0] for o in store.list(keys.LOG_PREFIX) if (p := keys.parse_log_key(o.key)))
        for version in range(last + 1):
            commit, body = log.read(version)
            if version < len(self.steps):
                assert codec.sha256(body) == self.steps[version][0].commit_hash
                continue
            whole = spills.unpack(commit, log.spill)
            steps.append(advance(steps[-1][0], whole, codec.sha256(body)))
        return steps

    def check(self, store, seed=400):
        """Check later commits and all segments of every kept version; return a fresh handle."""
        table, steps = fresh(store, seed), self.folded(store)
        assert table.refresh().version == len(steps) - 1
        for state, _ in steps[len(self.steps) - 1 :]:
            check_snapshot(table.snapshot(state.version), state)
        for segment in _kept(steps):
            _names_in(store.get(keys.key_of(segment)), segment.checksum)
        return table

    def named(self, store):
        """Return the keys of all segments that a version ever had."""
        return {keys.key_of(s) for state, _ in self.folded(store) for s in state.segments.values()}

    def dead(self, store):
        """Return the keys that vacuum may delete: of fenced epochs, and in no kept version."""
        steps = self.folded(store)
        fence = steps[-1][0].meta.fence
        kept = {keys.key_of(segment) for segment in _kept(steps)}
        listed = [found.key for found in store.list(keys.SEGMENTS_PREFIX)]
        return {k for k in listed if k not in kept and keys.parse_segment_key(k)[0] < fence}


@cache
def table_with_history(keyframe_commits="64", prepare=OPERATIONS["append"].prepare):
    """Day 0 has one segment that replaced two, day 1 has two; one upload was abandoned."""
    store = MemoryStore()
    properties = {"keyframe_commits": keyframe_commits, "combine_after": "1"}
    table = create(store, properties=properties)
    append(table, events(2, days=2))
    append(table, events(2, days=2, first=2))
    stage(table, table.snapshot(0), events(1, first=90), 2**29)
    replace_day(0)(table)
    prepare(store)
    check_sound(store)
    return Past({found.key: store.get(found.key) for found in store.list("")}, (*fold_all(store),))


def rows_of(table):
    """The names of all rows of the newest version, in order."""
    entries = live(table.refresh())
    return sorted(
        n for s in entries for n in _names_in(table.store.get(keys.key_of(s)), s.checksum)
    )


class InlineExecutor:
    """An executor that runs each task in its caller."""

    def __init__(self, *args, **options):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def map(self, call, *rows):
        return [call(*row) for row in zip(*rows, strict=False)]

    def submit(self, call, *args):
        future = Future()
        try:
            future.set_result(call(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to who asks for the result
            future.set_exception(error)
        return future

    def shutdown(self, **options):
        pass


@contextmanager
def quick():
    """Decode equal bytes once, log nothing, start no threads, so that runs are deterministic."""
    check_leaf = mock.patch.object(keyframe, "check_leaf", lru_cache(512)(keyframe.check_leaf))
    decode = mock.patch.object(codec, "decode_commit", lru_cache(512)(codec.decode_commit))
    sizes = mock.patch.multiple(keyframe, **SMALL_LEAVES)
    logging.disable(logging.CRITICAL)
    parallel.end_idle_threads()  # a reader before may have left some
    try:
        with ExitStack() as stack:
            for name, module in list(sys.modules.items()):
                if name.split(".")[0] == "eventlog" and hasattr(module, "ThreadPoolExecutor"):
                    stack.enter_context(
                        mock.patch.object(module, "ThreadPoolExecutor", InlineExecutor)
                    )
            for patch in (check_leaf, decode, sizes):
                stack.enter_context(patch)
            yield
    finally:
        parallel.end_idle_threads()  # which are none: the next reader wants real ones
        logging.disable(logging.NOTSET)


@lru_cache(1024)
def _names_in(body, checksum):
    assert codec.sha256(body) == checksum
    return pq.read_table(BytesIO(body)).column("name").to_pylist()


def _kept(steps):
    horizon = steps[-1][0].meta.horizon
    states = [state for state, _ in steps if state.version >= horizon]
    return {s.id: s for state in states for s in state.segments.values()}.values()
