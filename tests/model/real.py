"""Translates states and transactions of the model to the package, and compares both folds."""

from __future__ import annotations

from functools import cache
from types import UnionType
from typing import get_args

from model import rules
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from support.builders import HASH

from eventlog.format import codec
from eventlog.model import actions, entries, records
from eventlog.state import fold

DAY_MS = 86_400_000
FIRST_DAY_MS = 1_357_344_000_000  # chunk 0 is 2013-01-05
TIME_MS = 1_600_000_000_000
SCHEMA = entries.Schema(1, (entries.Column(1, "at", "timestamp", nullable=False),))
META = records.Meta(layout=entries.Layout(time_column=1, granularity="day"), schema=SCHEMA)
# The fields of the small state that the model has, and those that other tests cover.
COMPARED = {
    *("layout", "apps", "published", "claims", "pins", "replicas"),
    *("fence", "horizon", "swept", "chunks", "analysed"),
}
NOT_COMPARED = {"schema", "properties", "clock", "origins", "cut"}  # `cut`: `model/cuts.py`
# The package's action: the model's action, and the fields of the package's that it covers. A new
# action or field fails the test until it is added here and to the model.
ACTIONS: dict[type, tuple[type, str]] = {
    actions.Add: (
        rules.Add,
        "id chunk epoch rows bytes checksum schema stats tail slice vector tested parquet inline",
    ),
    actions.DeleteRows: (rules.DeleteRows, "id chunk hash vector"),
    actions.Update: (rules.Update, "rows paired"),
    actions.Drop: (rules.Drop, "id chunk hash"),
    actions.SetLayout: (rules.SetLayout, "layout"),
    actions.Unchanged: (rules.Unchanged, "start end"),
    actions.Fence: (rules.Fence, "epoch"),
    actions.Horizon: (rules.Horizon, "version"),
    actions.Swept: (rules.Swept, "sweep"),
    actions.SetPin: (rules.SetPin, "name version owner"),
    actions.Unpin: (rules.Unpin, "name owner token"),
    actions.TakeClaim: (rules.TakeClaim, "id start end segments kind priority group owner"),
    actions.Renew: (rules.Renew, "id token"),
    actions.Release: (rules.Release, "id token"),
    actions.Break: (rules.Break, "kind name token renewed"),
    actions.Attach: (rules.Attach, "name acked owner"),
    actions.Ack: (rules.Ack, "name token version"),
    actions.Detach: (rules.Detach, "name token"),
    actions.Restore: (rules.Restore, "version apps origin"),
    actions.Replace: (rules.Replace, "version deletes"),
    actions.SetGranularity: (rules.SetGranularity, "old new"),
    actions.Assess: (rules.Assess, "old analysed chunks"),
}
# `slice` is of keyed tables, which `property/test_keyed.py` compares with a model of their rows.
# `apps` and `origin` of a restore are those of units of work that it undoes, and of states that
# merges take over: `unit/table/test_undone_units.py`, `integration/test_ways_out.py`.
# These affect neither segments nor vacuum; `unit/state/test_fold.py` tests them.
OTHER_ACTIONS = {
    *(actions.SetSchema, actions.SetProperties, actions.SameSegments, actions.SetClock),
    actions.SetOrigin,  # `unit/state/test_origins.py`; its effect is that of an app mark
    actions.Advance,  # `unit/state/test_advances.py`; likewise
    actions.SetCut,  # `model/cuts.py`
    # Keyed tables have a model of their own (tests/property/test_keyed.py).
    actions.Merge,
    actions.SetBuckets,
}


def all_actions() -> set[type]:
    """Every action of the package."""
    assert isinstance(actions.Action, UnionType)
    return set(get_args(actions.Action))


def hex_id(number: int) -> str:
    """A segment's, claim's or transaction's id."""
    return f"{number:032x}"


def _chunk(number: int) -> str:
    return f"2013-01-{number + 5:02d}"


def _ms(number: int) -> int:
    return FIRST_DAY_MS + number * DAY_MS


@cache
def segment(entry: rules.Entry) -> entries.Segment:
    """The package's entry of a live segment."""
    return entries.Segment(
        id=hex_id(entry.seg),
        chunk=_chunk(entry.chunk),
        epoch=entry.epoch,
        version=entry.version,
        partition=entry.partition,
        rows=entry.rows,
        bytes=100,
        checksum=HASH,
        schema=1,
        vector=_vector(entry.vector),
    )


def _vector(vector: rules.Vector | None) -> entries.Vector | UnsetType:
    if vector is None:
        return UNSET
    stored = entries.StoredBitmap(vector.epoch, hex_id(vector.object), 4, 42, HASH)
    return entries.Vector(vector.rows, stored=stored)


@cache
def _hash(entry: rules.Entry) -> str:
    return codec.hex_hash(codec.entry_hash(segment(entry)))


def _sweep(sweep: rules.Sweep | None) -> entries.Sweep | None:
    if sweep is None:
        return None
    pending = entries.Spill(HASH, 1, 0, len(sweep.pending)) if sweep.pending else None
    return entries.Sweep(sweep.fence, sweep.horizon, sweep.version, pending)


def _analysed(noted: tuple[int, int] | None) -> entries.Analysed | None:
    if noted is None:
        return None
    version, policy = noted
    return entries.Analysed(version, "no digest" if policy < 0 else f"{policy:064x}")


def _noted(version: int | None) -> entries.ChunkState | None:
    return None if version is None else entries.ChunkState("unstable", version, 1, 0, 0)


def to_state(state: rules.State) -> fold.FullState:
    """The package's state."""
    meta = records.Meta(
        layout=entries.Layout(time_column=1, granularity=state.granularity),
        schema=META.schema,
        apps={n: records.AppMark(seq, v, TIME_MS) for n, seq, v in sorted(state.apps)},
        published={hex_id(i): records.Published(v, u) for i, v, u in sorted(state.published)},
        claims={hex_id(c.id): _claim(c) for c in sorted(state.claims)},
        pins={
            p.name: records.Pin(p.version, p.owner, p.token, TIME_MS) for p in sorted(state.pins)
        },
        replicas={r.name: records.Replica(*r[1:]) for r in sorted(state.replicas)},
        fence=state.fence,
        horizon=state.horizon,
        swept=_sweep(state.swept),
        chunks={_chunk(n): _noted(version) for n, version in sorted(state.chunks)},
        analysed=_analysed(state.analysed),
    )
    header = records.Header(
        "eventlog",
        1,
        1,
        (),
        "a" * 32,
        state.version,
        HASH,
        TIME_MS,
        None,
        records.Totals(),
        HASH,
        records.CommitChanges("append", "w", 1, 0, 0, 0, 0),
    )
    return fold.FullState(header, HASH, meta, {hex_id(e.seg): segment(e) for e in state.live})


def _claim(claim: rules.Claim) -> records.Claim:
    return records.Claim(
        start=_ms(claim.start),
        end=_ms(claim.end),
        segments=tuple(map(hex_id, claim.segments)),
        kind=claim.kind,
        priority=claim.priority,
        group=claim.group,
        owner="owner",
        token=claim.token,
        renewed=claim.renewed,
    )


@cache
def to_transaction(txn: rules.Txn) -> records.Transaction:
    """The package's transaction."""
    return records.Transaction(
        id=hex_id(txn.id),
        operation="test",
        writer="test",
        read_version=txn.read,
        until=txn.until,
        app=records.App(*txn.app) if txn.app else None,
        claim=records.Token(hex_id(txn.claim[0]), txn.claim[1]) if txn.claim else None,
        actions=tuple(map(to_action, txn.actions)),
    )


def to_action(action: object) -> actions.Action:
    """The package's action."""
    match action:
        case rules.Add(seg, chunk, epoch, rows, vector):
            made = actions.Add(hex_id(seg), _chunk(chunk), epoch, rows, 100, HASH, 1)
            return replace(made, vector=_vector(vector))
        case rules.DeleteRows(entry, vector):
            named = (hex_id(entry.seg), _chunk(entry.chunk), _hash(entry))
            return actions.DeleteRows(*named, _vector(vector))
        case rules.Drop(entry):
            return actions.Drop(hex_id(entry.seg), _chunk(entry.chunk), _hash(entry))
        case rules.SetLayout():
            return actions.SetLayout(entries.Layout(time_column=1, granularity="day"))
        case rules.Unchanged(start, end):
            return actions.Unchanged(_ms(start), _ms(end))
        case rules.Swept(sweep):
            return actions.Swept(_sweep(sweep))
        case rules.Assess(old, analysed, chunks):
            changes = tuple(actions.ChunkChange(_chunk(n), _noted(v)) for n, v in chunks)
            return actions.Assess(_analysed(old), _analysed(analysed), changes)
        case rules.TakeClaim(claim_id, start, end, segments, kind, priority, group):
            ids = tuple(map(hex_id, segments))
            return actions.TakeClaim(
                hex_id(claim_id), _ms(start), _ms(end), ids, kind, priority, group, "owner"
            )
        case rules.Renew(claim_id, token) | rules.Release(claim_id, token):
            return getattr(actions, type(action).__name__)(hex_id(claim_id), token)
        case rules.Break(kind, name, token, renewed):
            name = hex_id(name) if isinstance(name, int) else name
            return actions.Break(kind, name, token, renewed)
    return getattr(actions, type(action).__name__)(**vars(action))


def outcome(state: fold.FullState, transactions: list[records.Transaction]) -> tuple:
    """The result of the package's fold: (which are void, the state after, comparable)."""
    effect = fold.judge(transactions, state, TIME_MS + 1)
    live = dict(state.segments)
    fold.apply(effect, live)
    # The second of two transactions with one id is void though the first one was accepted.
    accepted = list(effect.accepted)
    void = []
    for transaction in transactions:
        void.append(transaction.id not in accepted)
        if not void[-1]:
            accepted.remove(transaction.id)
    return tuple(void), _comparable(effect.meta), frozenset(live.values())


def expected(ruling: rules.Rules, state: rules.State, txns: tuple[rules.Txn, ...]) -> tuple:
    """The result of the model's rules, in the same form."""
    after, verdicts = ruling.fold(state, txns)
    there = to_state(after)
    live = frozenset(there.segments.values())
    return tuple(map(bool, verdicts)), _comparable(there.meta), live


def _comparable(meta: records.Meta) -> tuple:
    """The small state as plain values, without the times of clocks."""
    apps = {name: (mark.seq, mark.version) for name, mark in meta.apps.items()}
    pins = {name: (pin.version, pin.owner, pin.token) for name, pin in meta.pins.items()}
    rest = [getattr(meta, name) for name in sorted(COMPARED - {"apps", "pins"})]
    return (apps, pins, *rest)
