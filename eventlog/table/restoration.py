"""Restore: the transaction that makes the segments of an earlier version live again. Also drops.

`added_by` finds the segments of one load, which is undone by dropping them.

`planned` returns the plan of a restore, and `RestorePlan.commit` commits it. Nothing is copied:
segments above the horizon cannot have been vacuumed, so they are added again under their own ids
(FORMAT.md R12.3).
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from eventlog.errors import CommitConflict, InvalidInput
from eventlog.keyed.rule import keyed_of
from eventlog.log.diff import diff
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Action, Add, AppReset, DeleteRows, Drop, Restore, SameSegments
from eventlog.model.columns.named_checks import newest_check, untested
from eventlog.model.entries import Schema, Segment
from eventlog.model.records import Commit, Transaction, last_unit_of
from eventlog.model.stats import live_stats
from eventlog.quantities import count_text
from eventlog.segments.checked_rows import stored_rows_tested
from eventlog.session.session import Session
from eventlog.state.delta import add_of, drop_of
from eventlog.state.fold import Effect, segment_of
from eventlog.state.small.holds import check_kept
from eventlog.store.branching.roots import held_from

_SHOWN = 20  # apps that a message names

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UndoneUnits:
    """Units of work of an app that a restore undoes: they still count as done.

    Attributes:
        app_id: the app.
        kept: the last sequence that the restored version has; None if it has none.
        last: the last sequence that is done. Those after `kept` up to this one are undone.
    """

    app_id: str
    kept: int | None
    last: int


def undone(head: Snapshot, target: Snapshot) -> tuple[UndoneUnits, ...]:
    """Return the units of work that restoring `target` undoes, by app id."""
    had, units = target.meta.apps, []
    for app_id, mark in head.meta.apps.items():
        kept = had[app_id].seq if app_id in had else None
        if mark.version > target.version and (kept is None or kept < mark.seq):
            units.append(UndoneUnits(app_id, kept, mark.seq))
    return tuple(units)


def restoration(
    head: Snapshot,
    target: Snapshot,
    table: str = "",
    held: int = 0,
    *,
    forget_units: bool = False,
) -> list[Action]:
    """Return the actions that make exactly the target's segments live; [] if they already are.

    Any add or drop committed after `head` makes the transaction a conflict, so that no row appears
    or disappears unnoticed.

    Args:
        head: the newest version.
        target: the version to bring back.
        table: the root URI, for the error.
        held: see `check_kept`.
        forget_units: let the units of work that are undone be loaded again.

    Raises:
        VersionVacuumed: the target is below the horizon, or below `held`.
        InvalidInput: a segment is live now in another place of a keyed table.
    """
    # A branch brings back only versions that its parent keeps for it.
    check_kept(head.meta, head.version, target.version, table, held=held)
    change = diff(head, target)
    # A segment that was dropped and restored has two entries, of different versions. It stays as it
    # is, unless other rows of it are deleted.
    now = {s.id: s for s in change.dropped}
    back = {s.id for s in change.added if s.id in now and s.vector == now[s.id].vector}
    for segment in change.added:
        # Merges give no id a second place (MERGING.md R19.10), and rows would count elsewhere.
        if segment.id in now and segment.slice != now[segment.id].slice:
            raise InvalidInput(
                f"segment {segment.id} is live in another place than in version {target.version}, "
                "and no restore moves segments: restore a version without it first",
                table=table,
                version=target.version,
            )
    drops: list[Action] = [drop_of(s) for s in change.dropped if s.id not in back]
    # against statistics-of-dropped-columns-restored
    adds: list[Action] = [
        _of_columns(_as_live(add_of(s), now.get(s.id)), head.stored_schema)
        for s in change.added
        if s.id not in back
    ]
    resets = _resets(head, target, forget_units=forget_units)
    # Marks that are only stamped with the restore's version need no commit of their own.
    moved = {app_id for app_id, reset in resets.items() if reset.new != reset.old}
    if not drops and not adds and not moved:
        return []
    restore = Restore(target.version, resets or UNSET)
    return [SameSegments(head.hash_sum()), restore, *drops, *adds]


def _as_live(add: Add, live: Segment | None) -> Add:
    """Return the add of a segment that is live, perhaps by another key or with another schema."""
    if live is None:
        return add
    return msgspec.structs.replace(add_of(live), vector=add.vector)


def _of_columns(add: Add, schema: Schema) -> Add:
    """Return an add with the statistics of columns that the table has now.

    Its rows are known to meet the table's checks: see `check_restored`.
    """
    tested = schema.id if add.schema < newest_check(schema) else UNSET
    return msgspec.structs.replace(add, stats=live_stats(add.stats, schema), tested=tested)


def check_restored(
    session: Session, head: Snapshot, target: Snapshot, actions: Sequence[Action]
) -> None:
    """Check that rows which a restore brings back meet checks that the version did not have.

    In a keyed table a restore also brings back rows that later ones hide.

    Raises:
        DataLoss: a segment to bring back is missing or damaged.
        InvalidInput: a row breaks a check.
    """
    checks = untested(head.stored_schema, target.stored_schema)
    if not (checks and actions):
        return
    adds = [action for action in actions if isinstance(action, Add)]
    segments = [segment_of(add, head.version, 0) for add in adds]
    keyed = keyed_of(head.layout) is not None
    if keyed:  # against hidden-rows-restored-untested
        segments = target.segments()
    tested = stored_rows_tested(
        session.store, segments, head.stored_schema, checks, version=target.version, keyed=keyed
    )
    uri = shlex.quote(session.uri)
    # against restored-rows-never-tested
    tested.refuse(
        f"version {target.version} did not have the check, and nothing was restored: drop the "
        f"check first, `eventlog columns {uri} uncheck {shlex.quote(checks[0].name)}`"
    )


def _resets(head: Snapshot, target: Snapshot, *, forget_units: bool) -> dict[str, AppReset]:
    """Return the changes of the sequences of apps: R12.3.

    The marks of units that are undone are forgotten, or get the version of the restore, so that a
    writer that finds one there recognises the restore. Those that the target has and the head has
    not are restored with their rows, or they could be loaded twice.
    """
    resets = {
        units.app_id: AppReset(units.last, units.kept if forget_units else units.last)
        for units in undone(head, target)
    }
    for app_id, mark in target.meta.apps.items():
        now = head.meta.apps.get(app_id)
        if now is None or now.seq < mark.seq:  # against unit-restored-without-its-mark
            resets[app_id] = AppReset(None if now is None else now.seq, mark.seq)
    return {name: resets[name] for name in sorted(resets, key=str.encode)}


def warn_undone(units: Sequence[UndoneUnits], version: int) -> None:
    """Warn that units of work still count as done though a restore has undone them."""
    if units:
        logger.warning(
            "restoring version %d undid units of work that still count as done, and are skipped "
            "when they are loaded again: %s. `Table.restore(%d, forget_units=True)`, or `eventlog "
            "restore URI %d --forget-units`, lets them be loaded again",
            version,
            units_text(units),
            version,
            version,
        )


def units_text(units: Sequence[UndoneUnits]) -> str:
    """Return units of work as text for people."""
    named = (
        f"{u.app_id!r} up to {u.last}" + ("" if u.kept is None else f", after {u.kept}")
        for u in units[:_SHOWN]
    )
    more = len(units) - _SHOWN
    return "; ".join(named) + (f"; and those of {more} more apps" if more > 0 else "")


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """A restore that is not committed yet.

    Attributes:
        head: the version that it is based on.
        target: the version to bring back.
        actions: what it commits; none if the target's segments are the live ones.
        undone: the units of work that it undoes.
        session: commits it.
    """

    head: Snapshot
    target: Snapshot
    actions: Sequence[Action]
    undone: tuple[UndoneUnits, ...]
    session: Session = field(repr=False)

    def commit(self) -> int:
        """Commit the restore and return the committed version; that of `head` without actions.

        Rows committed after `head` are a conflict.

        Raises: see `Table.restore`.
        """
        head, version = self.head.version, self.target.version
        if not self.actions:
            return head
        self.session.log.check_uploaded(self.actions, version)
        info = {"restored": str(version)}
        done = self.session.transaction("restore", self.actions, read_version=head, info=info)
        return self.session.commit(done)


def planned(
    session: Session, head: Snapshot, target: Snapshot, *, forget_units: bool = False
) -> RestorePlan:
    """Return the plan of restoring `target`; see `restoration`.

    Raises:
        Corrupt: the target is not the one that the version after it names.
        InvalidInput: see `restoration` and `check_restored`.
        VersionVacuumed: the target is below the horizon.
    """
    session.log.check_linked(head, target)  # against restored-from-another-log
    oldest = held_from(session.store.forks)
    actions = restoration(head, target, session.uri, oldest, forget_units=forget_units)
    check_restored(session, head, target, actions)
    return RestorePlan(head, target, actions, undone(head, target), session)


def added_by(session: Session, head: Snapshot, version: int) -> list[Segment]:
    """Return the live segments that a version added.

    Raises: see `Table.added_by`.
    """
    commit, _ = session.log.read_below(version)
    effect = session.log.effect(commit)
    live = {segment.id: segment for segment in head.segments()}
    found = [live[segment.id] for segment in effect.adds if segment.id in live]
    if keyed_of(head.layout) is not None:  # against load-of-keyed-rows-dropped
        problem: str | None = (
            "in a keyed table rows of later versions are merged with those of this one: delete its "
            f"keys, or restore version {version - 1} and upsert the later rows again"
        )
    else:
        problem = _inseparable(commit, effect, found)
    if problem is not None:
        raise InvalidInput(problem, table=session.uri, version=version)
    return found


def _inseparable(commit: Commit, effect: Effect, found: Sequence[Segment]) -> str | None:
    """Return why the rows that a commit added cannot be dropped alone; None if they can.

    Args:
        commit: the commit.
        effect: its effect.
        found: those of the segments that it added which are live.
    """
    version, count = commit.header.version, len(effect.adds)
    instead = f"restore version {version - 1} and load again what came later"
    changing = [
        t for t in effect.taken if any(isinstance(a, Add | Drop | DeleteRows) for a in t.actions)
    ]
    if not count:
        return f"version {version} added no segment: `eventlog log` shows what each version added"
    if len(changing) > 1:  # against load-dropped-with-its-neighbours
        listed = "; ".join(map(_load_text, changing[:_SHOWN]))
        return (
            f"{len(changing):,} writers shared the commit of version {version}: drop the segments "
            f"of the wrong load by their ids. {listed}"
        )
    if effect.drops or effect.deletes:  # against replaced-rows-lost-with-their-successors
        return (
            f"version {version} ({changing[0].operation}) also took rows away, and to drop the new "
            f"ones would not bring these back: {instead}"
        )
    if len(found) < count:  # against rewritten-rows-taken-for-dropped
        left = f"; those that are: {_ids_text(found)}" if found else ""
        return (
            f"version {version} added {count_text(count, 'segment')}, and {count - len(found):,} "
            "of them are not live any more: a compaction rewrote their rows, or all of these were "
            "deleted. Delete the rows by their values (`eventlog blame` with --where shows which "
            f"version wrote a row); or {instead}. If no compaction did, drop by their ids the "
            f"segments that are live{left}"
        )
    return None


def _load_text(load: Transaction) -> str:
    unit = last_unit_of(load)
    app = "" if unit is None else f" as {unit.id!r} {unit.seq}"
    added = [action for action in load.actions if isinstance(action, Add)]
    return f"{load.operation} by {load.writer}{app}: {_ids_text(added)}"


def _ids_text(named: Sequence[Add | Segment]) -> str:
    more = len(named) - _SHOWN
    shown = " ".join(each.id for each in named[:_SHOWN])
    return (shown or "none") + (f" and {more:,} more" if more > 0 else "")


def commit_drops(session: Session, drops: Sequence[Drop], reason: str) -> int:
    """Commit the drops of lost segments, and return the committed version.

    Raises: see `Table.drop_segments`.
    """
    try:
        return session.commit(session.transaction("drop", drops, info={"reason": reason}))
    except CommitConflict:
        head = session.head()
        if keyed_of(head.layout) is None or len(head.live(drops)) < len(drops):
            raise
        chunks = ", ".join(sorted({drop.chunk for drop in drops}))
        raise InvalidInput(
            "in a keyed table the segments of a chunk are merged with each other: without one of "
            "them, the others would show rows that it replaces or deletes. Put its object back; or "
            "restore the newest complete version, and upsert again the rows that were committed "
            f"since; or, if the rows are lost, drop all segments of chunk {chunks}",
            table=session.uri,
            version=head.version,
        ) from None
