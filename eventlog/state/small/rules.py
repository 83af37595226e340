"""The rules of the fold that do not need the live segments: small state, windows, single adds.

Each rule returns the new small state, or the reason why a transaction is void (FORMAT.md "The
fold").
"""

from __future__ import annotations

from itertools import pairwise
from math import inf

import msgspec
from msgspec import UnsetType

from eventlog import limits
from eventlog.errors import Corrupt
from eventlog.format import codec, keys
from eventlog.keyed.rule import MAX_BUCKETS, keyed_of, splits_of, successor_problem
from eventlog.model.actions import (
    Ack,
    Add,
    Advance,
    AppRise,
    Assess,
    Attach,
    Break,
    DeleteRows,
    Detach,
    Drop,
    Fence,
    Horizon,
    Merge,
    Release,
    Renew,
    Replace,
    Restore,
    SameSegments,
    SetBuckets,
    SetClock,
    SetCut,
    SetGranularity,
    SetLayout,
    SetOrigin,
    SetPin,
    SetProperties,
    SetSchema,
    Swept,
    TakeClaim,
    Unpin,
    Update,
)
from eventlog.model.columns.evolution import check_successor
from eventlog.model.columns.named_checks import newest_check
from eventlog.model.entries import Segment, Vector, deleted_rows, stored_bitmap
from eventlog.model.properties import setting
from eventlog.model.records import App, AppMark, Meta, Origin, Published, Transaction, origins_of
from eventlog.model.stats import live_stats
from eventlog.state.delta import add_of
from eventlog.state.small import assessment, claims, holds, timing

DAY_MS = 86_400_000
APP_VERSIONS = 1000  # versions for which an app's sequence is kept whatever its time
MAX_APPS = limits.APPS  # the most app ids that are kept
MAX_ORIGINS = limits.ORIGINS  # the most other logs that can be merged into one
MAX_WINDOW = 64  # the most versions that a published transaction may wait


def published_problem(txn: Transaction, meta: Meta, version: int) -> str | None:
    """Return why a published transaction cannot take effect in `version`, if it cannot (F3)."""
    if txn.until is None or version > txn.until:  # against published-after-its-window
        return f"its publication was valid until version {txn.until}"
    if txn.until > version + MAX_WINDOW:
        return f"it was published for more than {MAX_WINDOW} versions"
    if txn.id in meta.published:  # against published-twice
        return f"it already took effect in version {meta.published[txn.id].version}"
    if not can_be_published(txn):  # against published-replace
        return "only appends and replacements can be published"
    return None


def is_append(txn: Transaction) -> bool:
    """Return whether a transaction only adds segments, and advances apps by them."""
    return txn.claim is None and all(isinstance(action, Add | Advance) for action in txn.actions)


def can_be_published(txn: Transaction) -> bool:
    """Return whether other writers may commit it (R11.1): an append or a replacement.

    This includes a replacement that deletes rows: it states how many, and F10 is checked against
    the state that it lands on.
    """
    kinds = {type(action) for action in txn.actions}
    rewrites = any(
        rewriting in kinds and kinds <= {rewriting, Drop, Add, Release}
        for rewriting in (Replace, Merge)
    )
    return is_append(txn) or rewrites


def mark_published(meta: Meta, txn_id: str, mark: Published) -> Meta:
    """Return the small state with a mark that a published transaction took effect."""
    published = {**meta.published, txn_id: mark}
    ordered = {name: published[name] for name in sorted(published)}
    return msgspec.structs.replace(meta, published=ordered)


def forget_published(meta: Meta, version: int) -> Meta:
    """Return the small state without the marks whose window has ended.

    They are no longer needed: the transactions are void after their windows.
    """
    # against published-mark-forgotten-early
    kept = {name: mark for name, mark in meta.published.items() if mark.until >= version}
    if len(kept) == len(meta.published):
        return meta
    return msgspec.structs.replace(meta, published=kept)


def small_change(action: object, meta: Meta, version: int, time_ms: int) -> Meta | str:  # noqa: C901, PLR0912
    """Return the small state after an action of the commit `version`, or why it is void."""
    match action:
        case SetLayout():
            if version > 0:
                return "the layout can only be set when the table is created"
            return msgspec.structs.replace(meta, layout=action.layout)
        case SetGranularity():
            return _set_granularity(action, meta)
        case SetBuckets():
            return _set_buckets(action, meta)
        case SetSchema():
            reason = None
            if meta.schema is not None:
                reason = check_successor(meta.schema, action.schema)
                reason = reason or successor_problem(meta.layout, action.schema, meta.schema)
            if reason:
                return f"the schema was changed meanwhile: {reason}"
            return msgspec.structs.replace(meta, schema=action.schema)
        case SetProperties():
            return _set_properties(action, meta)
        case Fence():
            return holds.raise_fence(action, meta, version)
        case Horizon():
            return holds.raise_horizon(action, meta, version)
        case SetCut():
            return holds.raise_cut(action, meta, version)
        case Swept():
            return holds.note_sweep(action.sweep, meta, version)
        case SetPin():
            return holds.set_pin(action, meta, version, time_ms)
        case Unpin():
            return holds.remove_pin(action, meta)
        case Attach():
            return holds.set_replica(action, meta, version)
        case Ack():
            return holds.note_ack(action, meta, version)
        case Detach():
            return holds.remove_replica(action, meta)
        case Break():
            return holds.break_hold(action, meta)
        case Restore():
            return holds.check_restore(action, meta, version, time_ms)
        case TakeClaim():
            return claims.take(action, meta, version)
        case Renew():
            return claims.renew(action, meta, version)
        case Release():
            return claims.release(action, meta)
        case Assess():
            return assessment.assess(action, meta, version)
        case SetClock():
            return timing.correct_clock(action, meta, version, time_ms)
        case SetOrigin():
            return _set_origin(action, meta, version, time_ms)
        case Advance():
            return _advance(action, meta, version, time_ms)
    return meta


def _advance(action: Advance, meta: Meta, version: int, time_ms: int) -> Meta | str:
    """Return the small state with the app's new sequence, or why the action is void (R10.8)."""
    mark = meta.apps.get(action.app)
    now = None if mark is None else mark.seq
    if now != action.old:  # against advanced-from-elsewhere
        return f"app {action.app!r} is at sequence {now} by now, and not {action.old}"
    if action.old is not None and action.new <= action.old:  # against advanced-backwards
        return f"sequence {action.new} of app {action.app!r} does not come after {action.old}"
    return mark_app(meta, App(action.app, action.new), version, time_ms)


def _set_origin(action: SetOrigin, meta: Meta, version: int, time_ms: int) -> Meta | str:
    """Return the small state with how far another log was merged, or why it is void (R19.1)."""
    known = origins_of(meta)
    before = known.get(action.id)
    if not (keys.is_hash(action.id) and keys.is_hash(action.commit)):
        return "an origin must be named by hashes of commits"
    more = None if isinstance(action.commits, UnsetType) else action.commits
    if more is not None and not (more and all(keys.is_hash(name) for _, name in more)):
        return "the commits carried with an origin must be named by hashes"
    there = None if before is None else before.version
    if there != action.old:  # against carried-twice
        return f"the versions up to {there} of this origin are merged by now, and not {action.old}"
    if action.old is not None and action.version <= action.old:
        return f"version {action.version} of an origin does not come after {action.old}"
    since = [o.token for name, o in known.items() if name != action.id]
    checked = action.checked
    # Transactions that another merge has carried since may be the same, under another name.
    # against carried-by-two-at-once
    if checked is not None and not (checked < version and all(t <= checked for t in since)):
        return "another log was merged meanwhile, which may have brought the same"
    if before is None and len(known) >= MAX_ORIGINS:
        return f"there are already {MAX_ORIGINS} origins, the limit"
    for app, rise in action.apps.items():
        problem = _rise_problem(app, rise, action, meta)
        if problem is not None:
            return problem
        if rise.old is None or rise.new > rise.old:  # against app-lowered-by-a-merge
            meta = mark_app(meta, App(app, rise.new), version, time_ms)
    origins = {**known, action.id: Origin(action.version, action.commit, version)}
    ordered = {name: origins[name] for name in sorted(origins)}
    return msgspec.structs.replace(meta, origins=ordered)


def _rise_problem(app: str, rise: AppRise, action: SetOrigin, meta: Meta) -> str | None:
    """Return why transactions of an app cannot be carried; None if they can."""
    mark = meta.apps.get(app)
    if (None if mark is None else mark.seq) != rise.old:  # against app-done-on-both-sides
        return f"app {app!r} has gone on meanwhile"
    bounds = [n for run in rise.done for n in run]
    apart = all(low[1] < high[0] for low, high in pairwise(rise.done))
    if not bounds or bounds != sorted(bounds) or not apart:
        return f"the runs of sequences of app {app!r} are empty, or not in order"
    if rise.old is None or rise.first > rise.old:
        return None
    # The mark stays as it is, so it does not show whether another merge has carried the same.
    if action.checked is None:  # against app-not-looked-up
        return f"it was not looked whether these transactions of app {app!r} are done already"
    return None


def _set_granularity(action: SetGranularity, meta: Meta) -> Meta | str:
    if meta.layout is not None and keyed_of(meta.layout) is not None:
        return "the granularity of a keyed table never changes: a key is unique in its chunk"
    now = meta.layout.granularity if meta.layout else None
    if meta.layout is None or now != action.old:  # against granularity-changed-unseen
        return f"the granularity was changed meanwhile: it is {now!r}"
    if isinstance(meta.layout.time_column, UnsetType):  # against granularity-without-times
        return "the table has no time column: all of its rows are in the chunk all"
    layout = msgspec.structs.replace(meta.layout, granularity=action.new)
    return msgspec.structs.replace(meta, layout=layout)


def _set_buckets(action: SetBuckets, meta: Meta) -> Meta | str:
    keyed = None if meta.layout is None else keyed_of(meta.layout)
    if meta.layout is None or keyed is None:
        return "the table has no key, and so no buckets"
    if keyed.buckets != action.old:  # against buckets-split-unseen
        return f"the buckets were split meanwhile: there are {keyed.buckets}"
    splits = splits_of(keyed)
    if not keyed.buckets or keyed.buckets % 2**splits:
        return f"{keyed.buckets} buckets cannot have been split {splits} times"
    if action.new != 2 * action.old or action.new > MAX_BUCKETS:  # against buckets-not-doubled
        return f"the buckets can be doubled, up to {MAX_BUCKETS}: {action.new} is something else"
    doubled = msgspec.structs.replace(keyed, buckets=action.new, splits=splits + 1)
    layout = msgspec.structs.replace(meta.layout, keyed=doubled)
    return msgspec.structs.replace(meta, layout=layout)


def _set_properties(action: SetProperties, meta: Meta) -> Meta | str:
    properties = dict(meta.properties)
    for change in action.changes:
        now = properties.pop(change.name, None)
        if now != change.old:  # against property-changed-unseen
            return f"property {change.name!r} was changed meanwhile: it is {now!r}"
        if change.new is not None:
            properties[change.name] = change.new
    ordered = {name: properties[name] for name in sorted(properties, key=str.encode)}
    return msgspec.structs.replace(meta, properties=ordered)


def may_exchange(txn: Transaction) -> bool:
    """Return whether a transaction may drop a segment and add it with another vector (R20.6)."""
    # against vector-exchanged-by-anybody
    return any(isinstance(action, Restore | SetOrigin) for action in txn.actions)


def add_problem(
    add: Add,
    meta: Meta,
    version: int,
    *,
    restored: bool,
    before: Segment | None = None,
    again: bool = False,
) -> str | None:
    """Return why an add cannot take effect in `version`, if it cannot (F6).

    A restored segment may have an epoch below the fence: it was live at a version that is not below
    the horizon, so no vacuum may delete it. So may one that the transaction drops and adds with
    another vector, since its object is live.

    Args:
        add: the add.
        meta: the small state.
        version: the version of the commit.
        restored: whether the transaction restores a version.
        before: the live entry of the segment, if the transaction drops it and may add it again.
        again: whether the segment may have been live in an earlier version.
    """
    if before is not None:
        # Its rows may have been tested again; columns that were dropped have no statistics.
        stats = () if meta.schema is None else live_stats(before.stats, meta.schema)
        exchanged = {"vector": add.vector, "tested": add.tested}
        same = msgspec.structs.replace(add_of(before), **exchanged, stats=stats) == add
        if not same or add.vector == before.vector:  # against exchanged-for-another-object
            return f"segment {add.id} is live, and only its vector can be exchanged"
    # against add-below-the-fence
    if add.epoch < meta.fence and not restored and before is None:
        return f"segment {add.id} was staged at epoch {add.epoch}, below the fence {meta.fence}"
    if add.epoch >= version:  # against epoch-in-the-future
        return f"segment {add.id} was staged at epoch {add.epoch}, a version not yet in the log"
    if meta.schema is None or max(add.schema, add.checked) > meta.schema.id:
        return (
            f"segment {add.id} was written or tested with schema "
            f"{max(add.schema, add.checked)}, which the table does not have"
        )
    timeless = meta.layout is not None and isinstance(meta.layout.time_column, UnsetType)
    if timeless and add.chunk != "all":  # against chunk-without-times
        return f"segment {add.id} lies in chunk {add.chunk}, and the table has no time column"
    try:
        keys.segment_key(add.epoch, add.chunk, add.id)
        keys.check_object(add)
    except Corrupt as error:
        return error.message
    problem = _inline_problem(add, version, again=again or before is not None)
    if problem or isinstance(add.vector, UnsetType):
        return problem
    if meta.layout is None or keyed_of(meta.layout) is not None:
        return f"segment {add.id} of a keyed table has a deletion vector"
    return vector_problem(add.vector, meta, version, restored=restored)


def _inline_problem(add: Add, version: int, *, again: bool) -> str | None:
    """Return why the bytes of an add, or the commit that has them, are not what it needs (F6).

    Args:
        add: the add.
        version: the version of the commit.
        again: whether the segment was live before, so that an earlier commit may have its bytes.
    """
    body, stands = add.parquet, add.inline
    if not isinstance(stands, UnsetType):
        # against bytes-in-any-commit
        if not again or not isinstance(body, UnsetType) or stands >= version:
            return f"segment {add.id} names a commit that cannot have its bytes"
        return None
    if isinstance(body, UnsetType):
        return None
    # against other-bytes-inlined
    if len(body) != add.bytes or codec.sha256(body) != add.checksum or add.tail is not None:
        return f"the bytes of segment {add.id} in the commit are not those of its entry"
    return None


def tested_problem(txn: Transaction, added: list[Add], before: Meta, meta: Meta) -> str | None:
    """Return why rows may break a check of the table, if they may (R7.13).

    A rewrite has rows that are live, so they have been tested.

    Args:
        txn: the transaction.
        added: its adds.
        before: the small state before the transaction.
        meta: the small state after it.
    """
    newest = newest_check(meta.schema)
    if not newest:
        return None
    known = 0 if before.schema is None else before.schema.id
    compares = any(isinstance(action, SameSegments) for action in txn.actions)
    # against check-of-rows-never-seen
    if before.schema is not None and newest > known and not compares:
        return "it adds a check, and does not name the segments whose rows were tested"
    rewrites = any(isinstance(action, Replace | Merge) for action in txn.actions)
    late = next((add for add in added if add.checked < newest), None)
    if late is not None and not rewrites:  # against rows-of-before-a-check-added
        return (
            f"segment {late.id} was tested by schema {late.checked}, and schema {newest} added a "
            "check that its rows may break"
        )
    return None


def replace_problem(txn: Transaction, drops: list[Segment], added: list[Add]) -> str | None:
    """Return why a replacement is void, if it is (F10).

    Hazards K6 and K7: a rewrite that loses or duplicates rows, or whose inputs are newer than its
    plan, has no effect.
    """
    replaces = [action for action in txn.actions if isinstance(action, Replace)]
    if not replaces:
        return None
    planned = replaces[0]
    if len(replaces) > 1 or not drops:  # against replaces-nothing, two-plans
        return "a replacement must drop a segment and have exactly one `replace` action"
    if any(isinstance(a, DeleteRows) for a in txn.actions):  # against rewrite-that-deletes-rows
        return "a replacement cannot delete rows of segments that it does not drop"
    if planned.version > txn.read_version:  # against plan-later-than-read
        return (
            f"it was planned at version {planned.version}, after the version that it read "
            f"({txn.read_version})"
        )
    late = next((s for s in drops if s.version > planned.version), None)
    if late is not None:  # against inputs-later-than-the-plan
        return f"segment {late.id} of version {late.version} is newer than the plan"
    before, after = sum(s.live_rows for s in drops), sum(a.live_rows for a in added)
    # against rows-not-counted, rows-lost-are-fine, deletes-not-counted
    if before != after + planned.deletes:
        return (
            f"{before} rows would become {after} with {planned.deletes} deleted: the rewrite lost "
            "or duplicated rows"
        )
    return None


def update_problem(
    txn: Transaction,
    drops: list[Segment],
    changed: list[tuple[Segment, Segment]],
    added: list[Add],
) -> str | None:
    """Return why an update is void, if it is (R20.5).

    Args:
        txn: the transaction.
        drops: the segments that it drops.
        changed: the entries, before and after, of segments of which it deletes rows.
        added: its adds.
    """
    updates = [action for action in txn.actions if isinstance(action, Update)]
    if not updates:
        return None
    if len(updates) > 1 or any(isinstance(a, Replace | Merge | Restore) for a in txn.actions):
        return "an update must have exactly one `update` action, and no `replace` or `merge`"
    deleted = sum(s.live_rows for s in drops)
    deleted += sum(before.live_rows - after.live_rows for before, after in changed)
    new = sum(add.live_rows for add in added)
    rows = updates[0].rows
    if not 0 < rows <= min(deleted, new):  # against updated-rows-not-counted
        return f"{rows} rows cannot be updated by {deleted} deleted and {new} new ones"
    if updates[0].paired and not rows == deleted == new:  # against pairs-of-other-rows
        return f"{rows} updated rows cannot be paired with {deleted} deleted and {new} new ones"
    return None


def delete_problem(
    action: DeleteRows, entry: Segment | None, meta: Meta, version: int
) -> str | None:
    """Return why rows of a segment cannot be deleted in `version`, if they cannot (R20.3).

    Args:
        action: the action.
        entry: the live entry of its segment; None: it is not live, or changed in this commit.
        meta: the small state.
        version: the version of the commit.
    """
    vector = action.vector
    # against rows-deleted-from-another-entry
    if entry is None or (entry.chunk, codec.hex_hash(codec.entry_hash(entry))) != (
        action.chunk,
        action.hash,
    ):
        return (
            f"segment {action.id} of chunk {action.chunk} is no longer live, or other rows of it "
            "were deleted"
        )
    if meta.layout is None or keyed_of(meta.layout) is not None:  # against vector-in-a-keyed-table
        return "rows of a keyed table are deleted by their keys, not by their positions"
    if not deleted_rows(entry.vector) < vector.rows < entry.rows:  # against vector-shrinks
        return (
            f"the vector of segment {action.id} deletes {vector.rows} of {entry.rows} rows, and "
            f"{deleted_rows(entry.vector)} are deleted already"
        )
    return vector_problem(vector, meta, version, restored=False)


def vector_problem(vector: Vector, meta: Meta, version: int, *, restored: bool) -> str | None:
    """Return why an entry cannot have a vector from `version` on, if it cannot (R20.2).

    A restored vector may have an epoch below the fence, as a restored segment.
    """
    stored = stored_bitmap(vector)
    # against vector-below-the-fence
    if stored is not None and stored.epoch < meta.fence and not restored:
        return (
            f"vectors {stored.object} were staged at epoch {stored.epoch}, below the fence "
            f"{meta.fence}"
        )
    if stored is not None and stored.epoch >= version:
        return (
            f"vectors {stored.object} were staged at epoch {stored.epoch}, a version not yet in "
            "the log"
        )
    try:
        keys.check_vector(vector)
    except Corrupt as error:
        return error.message
    return None


def stats_problem(added: list[Add], meta: Meta) -> str | None:
    """Return which statistics do not fit their column, if any; a column's bounds must compare."""
    columns = meta.schema.columns if meta.schema else ()
    text = {column.id: column.type == "string" for column in columns}
    for add in added:
        last = -1
        for stat in add.stats:
            if stat.column <= last or stat.column not in text:
                return (
                    f"segment {add.id} has statistics of column {stat.column} out of order, or "
                    "without such a column"
                )
            last = stat.column
            bounds = (stat.min, stat.max)
            if any(b is not None and isinstance(b, str) != text[last] for b in bounds):
                return f"segment {add.id} has bounds of the wrong type for column {last}"
    return None


def done(meta: Meta, app: App | None) -> AppMark | None:
    """Return the mark that shows that a unit of work is already committed, if it is."""
    mark = None if app is None else meta.apps.get(app.id)
    return mark if mark is not None and app is not None and mark.seq >= app.seq else None


def mark_app(meta: Meta, app: App, version: int, time_ms: int) -> Meta:
    """Return the small state with the app's sequence.

    A new app id removes ids that are past the retention, and the oldest ones beyond `MAX_APPS`.
    Time alone never removes an id committed in the last `APP_VERSIONS` versions, and the retention
    must have passed twice, up to the mark of another id and again after it: one wrong clock makes
    one step in the times of commits (FORMAT.md R10.7, hazard W13).
    """
    apps = {**meta.apps, app.id: AppMark(app.seq, version, time_ms)}
    if app.id not in meta.apps:
        retention = setting(meta.properties, "app_retention_days") * DAY_MS
        times = {n: timing.effective_time(meta.clock, m.version, m.time) for n, m in apps.items()}
        past = [at for at in times.values() if at < time_ms - retention]
        # against mark-forgotten-by-one-step-of-time
        oldest = max(past) - retention if past else -inf
        recent = version - APP_VERSIONS
        kept = [
            name for name, mark in apps.items() if times[name] >= oldest or mark.version > recent
        ]
        kept = sorted(kept, key=lambda n: (apps[n].version, n.encode()))[-MAX_APPS:]
        apps = {name: apps[name] for name in sorted(kept, key=str.encode)}
    return msgspec.structs.replace(meta, apps=apps)
