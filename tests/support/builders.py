"""Builders shared by the tests of the core: small tables, recording stores, the fold from 0."""

import re
from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from support.folds import advance

from eventlog import Segment, Snapshot, Table
from eventlog.clock import ManualClock
from eventlog.errors import OutcomeUnknown, Unavailable
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns
from eventlog.inline.inline_objects import get_object
from eventlog.log import spills
from eventlog.model import schema
from eventlog.model.actions import Add, PropertyChange
from eventlog.model.entries import ColumnStats
from eventlog.model.records import App, Transaction
from eventlog.readers import scan
from eventlog.state import fold
from eventlog.state.delta import drop_of
from eventlog.store.memory import MemoryStore
from eventlog.store.port import Body, ObjectInfo, ObjectStore
from eventlog.store.testing.faults import Crash

_SEAL = re.compile(rb',"digest":"[0-9a-f]{64}"}$')

__all__ = ["Add", "App", "Crash", "PropertyChange", "drop_of", "schema"]

START_MS = 1_600_000_000_000
DAY_US = 86_400_000_000
HASH = "ab" * 32
TABLE = ManualClock(START_MS, 1).random_id()  # id of the table that `create` makes
SCHEMA = pa.schema(
    [("at", pa.timestamp("us", tz="UTC")), ("name", pa.string()), ("value", pa.float64())]
)


class ApartStore(MemoryStore):
    """A store with a URI that shares no objects with others of that URI: runs can be repeated."""

    def __init__(self, uri: str) -> None:
        super().__init__()
        self._name = uri

    @property
    def uri(self) -> str:
        return self._name


def create(store: ObjectStore | None = None, *, seed: int = 1, **options) -> Table:
    """A new table of `SCHEMA`, which begins with day chunks."""
    store = MemoryStore() if store is None else store
    options = {"time_column": "at", "clock": ManualClock(START_MS, seed), **options}
    given = options.get("properties")
    if given is None or isinstance(given, dict):
        options["properties"] = {"inline_bytes": None, **(given or {})}
    schema = options.pop("schema", SCHEMA)
    return Table.create(store.uri, schema, store=store, **options)


def reopen(store: ObjectStore, seed: int = 1000) -> Table:
    """A handle like that of another process: it has read the newest version, with other ids."""
    table = unread(store, seed)
    table.session.head()
    return table


def unread(store: ObjectStore, seed: int = 1000) -> Table:
    """A handle like that of another process: nothing cached, other random ids."""
    return Table.open(store.uri, store=store, clock=ManualClock(START_MS + 3_600_000, seed))


def events(count: int = 1, *, day: int = 0, first: int = 0, days: int = 1) -> pa.Table:
    """Rows numbered from `first`, over `days` days from day number `day` of 1970 on."""
    numbers = range(first, first + count)
    at = [(day + n % days) * DAY_US + n for n in numbers]
    names = [f"row {n}" for n in numbers]
    return pa.table([at, names, [n / 2 for n in numbers]], schema=SCHEMA)


def add(
    table: Table,
    chunk: str = "2013-01-07",
    *,
    rows: int = 1,
    epoch: int | None = None,
    stats: tuple[ColumnStats, ...] = (),
) -> Add:
    """An add of a segment whose object is never read."""
    staged = table.session.head().version if epoch is None else epoch
    return Add(table.clock.random_id(), chunk, staged, rows, 100 * rows, HASH, 1, stats)


def commit(table: Table, *actions, operation: str = "append", **options) -> int:
    """Commit the actions as one transaction."""
    return table.commit(table.transaction(operation, actions, **options))


def bodies(store: ObjectStore) -> list[bytes]:
    """The bytes of all commits, from version 0 on."""
    found = [(keys.parse_log_key(o.key), o.key) for o in store.list(keys.LOG_PREFIX)]
    commits = sorted((p[0], key) for p, key in found if p is not None and not p[1])
    assert [version for version, _ in commits] == list(range(len(commits)))
    return [store.get(key) for _, key in commits]


def fold_all(store: ObjectStore) -> list[tuple[fold.FullState, fold.Effect]]:
    """The state at every version and what its commit did, from the transactions alone."""
    log = Table(store).session.log
    steps: list[tuple[fold.FullState, fold.Effect]] = []
    state = None
    for version, body in enumerate(bodies(store)):
        stored = spills.unpack(codec.decode_commit(body, version), log.spill)
        state, effect = advance(state, stored, codec.sha256(body))
        steps.append((state, effect))
    return steps


def accepted_in(store: ObjectStore, transaction_id: str) -> list[int]:
    """The versions in which the transaction took effect: must be at most one."""
    return [s.version for s, effect in fold_all(store) if transaction_id in effect.accepted]


def live(snapshot: Snapshot, start: int | None = None, end: int | None = None) -> list[Segment]:
    """The live segments of a snapshot, ordered by id."""
    return sorted(entry_columns.to_segments(snapshot.entries(start, end)), key=lambda s: s.id)


def check_sound(store: ObjectStore) -> Table:
    """Check every version through a fresh handle against the fold from version 0."""
    table = reopen(store)
    steps = fold_all(store)
    for state, _ in steps:
        check_snapshot(table.snapshot(state.version), state)
    assert table.session.head().version == len(steps) - 1
    return table


def view_of(table: Table, *transactions: Transaction) -> fold.FoldView:
    """What judging the transactions on the table's head takes."""
    return table.session.log.load_view(table.session.head(), transactions)[1]


def check_snapshot(snapshot: Snapshot, state: fold.FullState) -> None:
    """Check that a snapshot is the folded state, entry by entry."""
    assert snapshot.version == state.version
    assert snapshot.commit_hash == state.commit_hash
    assert snapshot.meta == state.meta
    assert snapshot.totals == state.header.totals
    assert live(snapshot) == sorted(state.segments.values(), key=lambda s: s.id)


def read_rows(table: Table) -> pa.Table:
    """All rows of the newest version, read directly from the segment objects."""
    parts = []
    for segment in live(table.refresh()):
        body = get_object(table.store, segment)
        assert codec.sha256(body) == segment.checksum
        parts.append(pq.read_table(BytesIO(body)).select(SCHEMA.names))
    return pa.concat_tables(parts).sort_by("at") if parts else SCHEMA.empty_table()


def row_names(table: Table) -> list[str]:
    """The column `name` of all rows, ordered by time."""
    return read_rows(table).column("name").to_pylist()


def sorted_names(table: Table, version: int | None = None) -> list[str]:
    """The column `name` of all rows of a version, sorted."""
    return sorted(scan(table, version=version).to_table().column("name").to_pylist())


def replaced(value: Any, **changes: Any) -> Any:
    """A frozen struct with other field values."""
    return msgspec.structs.replace(value, **changes)


def replace_object(store: MemoryStore, key: str, body: bytes) -> None:
    """Overwrite an object, which no client of the port can do."""
    store.delete([key])
    assert store.put_if_absent(key, body)


class Spy:
    """A store that records every put and delete, and calls back before a put."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.puts: list[tuple[str, bytes]] = []
        self.deletes: list[str] = []
        self.before_put: Callable[[str], None] = lambda key: None

    @property
    def uri(self) -> str:
        return self.inner.uri

    near = False

    @property
    def unproven(self) -> str | None:
        return self.inner.unproven

    @property
    def forks(self):
        return self.inner.forks

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return self.inner.get(key, start=start, length=length)

    def put_if_absent(self, key: str, body: Body) -> bool:
        self.puts.append((key, bytes(body)))
        self.before_put(key)
        return self.inner.put_if_absent(key, body)

    def put_hint(self, key: str, body: bytes) -> None:
        self.puts.append((key, body))
        self.before_put(key)
        self.inner.put_hint(key, body)

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        self.puts.append((key, body))
        self.before_put(key)
        return self.inner.replace(key, old, body)

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, after=after, limit=limit)

    def delete(self, keys: Iterable[str]) -> None:
        batch = [*keys]
        self.deletes.extend(batch)
        self.inner.delete(batch)

    def filesystem(self):
        return self.inner.filesystem()

    def now_ms(self) -> int | None:
        return self.inner.now_ms()


class LateStore(Spy):
    """A store that holds commits back and lets them arrive late.

    While `stuck`, no commit gets an answer, and the first one for the newest slot is held back;
    `land_in(n)` lets it reach the store just before the n-th call from now. While `down`, commits
    are refused definitely.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self.stuck = False
        self.down = False
        self.held: tuple[str, bytes] | None = None
        self._countdown = 0

    def land_in(self, calls: int) -> None:
        self._countdown = calls

    def land(self) -> bool:
        """Let the held commit arrive now. Return whether it got its slot."""
        assert self.held is not None
        (key, body), self.held = self.held, None
        return self.inner.put_if_absent(key, body)

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        self._tick()
        return super().get(key, start=start, length=length)

    def put_if_absent(self, key: str, body: Body) -> bool:
        self._tick()
        if key.startswith(keys.LOG_PREFIX):
            if self.down:
                raise Unavailable("the store refuses everything")
            if self.stuck:
                self.puts.append((key, bytes(body)))
                if self.held is None or self.held[0] != key:
                    self.held = (key, bytes(body))
                raise OutcomeUnknown("no answer")
        return super().put_if_absent(key, body)

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        self._tick()
        return super().list(prefix, after=after, limit=limit)

    def _tick(self) -> None:
        self._countdown -= 1
        if self._countdown == 0 and self.held is not None:
            self.land()


class CrashingStore(Spy):
    """A store whose `at`-th call, of any verb, crashes the caller or loses its answer.

    Args:
        inner: the store.
        at: which call, from 1.
        how: `before`: the caller dies before the effect; `after`: after it; `lost`: the effect is
            there, the answer is not; `refused`: no effect, and an error.
    """

    def __init__(self, inner: ObjectStore, at: int, how: str) -> None:
        super().__init__(inner)
        self.calls = 0
        self._at, self._how = at, how

    def get(self, key: str, *, start: int = 0, length: int | None = None) -> bytes:
        return self._call(lambda: super(CrashingStore, self).get(key, start=start, length=length))

    def put_if_absent(self, key: str, body: Body) -> bool:
        return self._call(lambda: super(CrashingStore, self).put_if_absent(key, body), put=True)

    def put_hint(self, key: str, body: bytes) -> None:
        self._call(lambda: super(CrashingStore, self).put_hint(key, body), put=True)

    def replace(self, key: str, old: bytes, body: bytes) -> bool:
        return self._call(lambda: super(CrashingStore, self).replace(key, old, body))

    def list(
        self, prefix: str, *, after: str = "", limit: int | None = None
    ) -> Iterator[ObjectInfo]:
        rows = self._call(lambda: [*super(CrashingStore, self).list(prefix, after=after)])
        return iter(rows[:limit])

    def _call(self, call: Callable[[], Any], *, put: bool = False) -> Any:
        self.calls += 1
        if self.calls != self._at:
            return call()
        if self._how == "before":
            raise Crash("before")
        if self._how == "refused":
            raise Unavailable("injected")
        call()
        if self._how == "after":
            raise Crash("after")
        raise OutcomeUnknown("injected") if put else Unavailable("injected")


def resealed(body: bytes, owner: str = "") -> bytes:
    """Return a changed JSON object with its digests, if any, recomputed.

    Args:
        body: a commit, a key frame root or an intent.
        owner: for an intent: the id of its table.
    """
    whole = _SEAL.sub(b"}", body)
    head, boundary, rest = whole.partition(b',"state":')
    if head.startswith(b'{"header":') and _SEAL.search(head):
        head = b'{"header":' + _seal(_SEAL.sub(b"}", head.removeprefix(b'{"header":')))
        whole = head + boundary + rest
    return _seal(whole, owner) if _SEAL.search(body) else body


def _seal(text: bytes, owner: str = "") -> bytes:
    digest = codec.sha256(owner.encode() + text)
    return text[:-1] + b',"digest":"' + digest.encode() + b'"}'
