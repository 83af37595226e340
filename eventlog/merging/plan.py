"""What a merge commits on the target for what the source did. No I/O.

The source's commits are looked at in order, and for each that has something new there is a
`Carried`: one transaction of the target. What the target has done already is left out: what the
source has from it, units of work of an app that both have done, and rewrites of what it does not
have live, since they change no rows (FORMAT.md R19.5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from eventlog.merging import history
from eventlog.merging.columns import joined, properties_to_set, translated
from eventlog.merging.history import Act, Step
from eventlog.merging.rows import Differs, Rows
from eventlog.model.records import (
    Action,
    AppRise,
    Meta,
    Replace,
    Schema,
    Segment,
    SetBuckets,
    SetGranularity,
    SetOrigin,
    SetProperties,
    SetSchema,
    origins_of,
)
from eventlog.state.keyed.rule import keyed_of


class Conflict(Exception):
    """What the source did cannot be carried; has the reason.

    Attributes:
        version: the source's version.
        ours: the target's version that stands against it, where it is one.
    """

    def __init__(self, reason: str, version: int, ours: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.version = version
        self.ours = ours


class PastNeeded(Exception):
    """The decision needs what both did since they parted."""


@dataclass(frozen=True, slots=True)
class Past:
    """What both logs did since they parted, as far as the source's is carried.

    Attributes:
        source: the source's commits.
        target: the target's.
    """

    source: Sequence[Step]
    target: Sequence[Step]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two logs that have parted.

    Attributes:
        source: root URI of the source.
        target: that of the target.
        common: the last version that they share.
        origin: the name of what the source did since.
        own: the name of what the target did since; None if it did nothing.
        schema: the source's newest schema.
        origins: what the source has of other logs at the version from which on it is carried.
        marks: what the source says of other logs there and in what is carried, and at its head.
    """

    source: str
    target: str
    common: int
    origin: str
    own: str | None
    schema: Schema
    origins: Mapping[str, int] = field(default_factory=dict)
    marks: frozenset[history.Mark] = frozenset()


@dataclass(frozen=True, slots=True)
class Carried:
    """One transaction of the target.

    Attributes:
        version: the source's version up to which it carries.
        commit: the hash of that version's commit.
        adds: segments of the source, with the target's schema.
        drops: ids of segments of the target, and their chunks.
        changes: changes of the small state, in order.
        origins: those of third logs.
        apps: what becomes of the sequences of apps.
        deletes: for a rewrite, the number of rows that it deletes; None: it is none.
        operations: the source's.
        transactions: number of transactions that it carries, by however many logs they came.
        copies: for adds that are no segments of the source: where their objects lie, as (whether
            that is at the target, key), the first that is there.
        seen: for drops of a keyed table, the target's version that the source had seen; None: the
            newest.
        still: chunks to which nothing may be added meanwhile.
    """

    version: int
    commit: str
    adds: tuple[Segment, ...] = ()
    drops: tuple[tuple[str, str], ...] = ()
    changes: tuple[Action, ...] = ()
    origins: tuple[SetOrigin, ...] = ()
    apps: Mapping[str, AppRise] = field(default_factory=dict)
    deletes: int | None = None
    operations: tuple[str, ...] = ()
    transactions: int = 0
    copies: Mapping[str, tuple[tuple[bool, str], ...]] = field(default_factory=dict)
    seen: int | None = None
    still: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        """Whether the target would be the same without it."""
        return not (self.adds or self.drops or self.changes or self.origins or self.apps)

    def then(self, later: Carried) -> Carried:
        """Return the one transaction that has the effect of both."""
        seen = [version for version in (self.seen, later.seen) if version is not None]
        dropped = {i for i, _ in later.drops}
        added = {s.id for s in self.adds}
        back = {s.id for s in later.adds} & {i for i, _ in self.drops}
        apps = dict(self.apps)
        for app, rise in later.apps.items():
            known = apps.get(app, rise)
            apps[app] = AppRise(known.old, history.union(known.done, rise.done))
        return Carried(
            later.version,
            later.commit,
            (
                *(s for s in self.adds if s.id not in dropped),
                *(s for s in later.adds if s.id not in back),
            ),
            (
                *(d for d in self.drops if d[0] not in back),
                *(d for d in later.drops if d[0] not in added),
            ),
            (*self.changes, *later.changes),
            (*self.origins, *later.origins),
            dict(sorted(apps.items(), key=lambda item: item[0].encode())),
            operations=(*self.operations, *later.operations),
            transactions=self.transactions + later.transactions,
            copies={**self.copies, **later.copies},
            seen=min(seen, default=None),
            still=self.still | later.still,
        )


class Planner:
    """Decides what of the source's commits is carried, in their order.

    It knows what the target will be after what it has decided before.

    Args:
        pair: the two logs.
        meta: the target's small state.
        live: those of the segments in question that the target has live.
        past: what both did since they parted; None if nothing so far needs it.

    Attributes:
        skipped: of how many transactions of a version the target has everything.
        declined: how many rewrites of a version it does without, since the rows are the same.
    """

    def __init__(self, pair: Pair, meta: Meta, live: Collection[str], past: Past | None) -> None:
        self.skipped: dict[int, int] = {}
        self.declined: dict[int, int] = {}
        self._pair, self._meta, self._live = pair, meta, set(live)
        self._past = past
        self._left: Step | None = None  # of which the target has everything, and no record
        self._unit: Act | None = None  # the target's own, where it did the same
        self._rows: Rows | None = None
        self._units = history.Units(())  # what the target has
        self._touched: set[str] = set()  # segments that it has added or dropped since they parted
        self._had: dict[str, list[tuple[str | None, int]]] | None = None
        if past is not None:
            self._rows = Rows(pair.own, pair.origin, past.source, past.target)
            acts = [act for step in past.target for act in step.acts]
            self._units = history.Units(acts)
            self._had = _values([act for act in acts if pair.origin not in act.origins])
            self._touched.update(s.id for a in acts for s in a.adds)
            self._touched.update(d.id for a in acts for d in a.drops)
        self._origins = {name: mark.version for name, mark in origins_of(meta).items()}
        self._agreed = history.agreed(*_marks(pair, meta, past))
        self._had_before = dict(self._origins)
        self._merged_others = bool(self._origins.keys() - {pair.origin})
        self._known_up_to = dict(self._origins)  # with what needs no record of its own
        self._theirs = dict(pair.origins)
        self._seqs = {name: mark.seq for name, mark in meta.apps.items()}

    def carry(self, step: Step) -> Carried | None:
        """Return what is to be committed for a commit of the source; None if nothing is.

        Raises:
            Conflict: it cannot be carried.
            PastNeeded: give what both did since they parted.
        """
        carried = Carried(step.version, step.commit)
        for act in step.acts:
            if self._is_new(act):
                part = self._act(act)
            else:
                self._count(self.skipped, act, self._does_anything(act))
                part = self._known(act)
                if self._does_anything(act) and self._theirs.keys() - {self._pair.own}:
                    self._left = step
            if part is not None:
                carried = carried.then(part)
                if len(step.acts) == 1:
                    carried = replace(carried, deletes=part.deletes)
            if self._rows is not None:
                self._rows.at_source(act)
        if carried.is_empty:
            return None
        self._left = None
        return replace(carried, version=step.version, commit=step.commit)

    def left(self) -> Carried | None:
        """Return a record of what the target has of the last commits; None if it needs none.

        Where there are third logs it is compared with what they have of the source.
        """
        return None if self._left is None else Carried(self._left.version, self._left.commit)

    def rest(self) -> Carried | None:
        """Return what has to be committed with the last of them; None if nothing has."""
        return None

    def _known(self, act: Act) -> Carried | None:  # noqa: ARG002 - of keyed tables
        """Return what is to be committed where the target has what a transaction did."""
        return None

    @staticmethod
    def _count(counts: dict[int, int], act: Act, number: int) -> None:
        counts[act.version] = counts.get(act.version, 0) + number

    @staticmethod
    def _does_anything(act: Act) -> bool:
        kinds = (SetSchema, SetProperties, SetGranularity, SetBuckets)
        changes = any(isinstance(action, kinds) for action in act.transaction.actions)
        return bool(act.adds or act.drops or changes)

    def _is_new(self, act: Act) -> bool:
        """Return whether the target does not have what a transaction did."""
        self._unit = None
        before = {name: self._theirs.get(name) for name in act.origins}
        self._theirs.update((name, origin.version) for name, origin in act.origins.items())
        if before and (self._came_already(act, before) or not self._does_anything(act)):
            for name, origin in act.origins.items():
                if self._known_up_to.get(name) == before[name] and name != self._pair.own:
                    self._known_up_to[name] = origin.version
            return False
        return not self._is_done(act)

    def _came_already(self, act: Act, before: Mapping[str, int | None]) -> bool:
        """Return whether the target has what a transaction carried from other logs.

        Args:
            act: the transaction.
            before: what the source had of them before it.
        """
        direct, *others = act.origins
        if self._has(act, direct):
            return True
        # One transaction that came by several logs is in all of them.
        one = act.count == 1
        parts = others if others and one else list(act.origins)
        missing = [name for name in parts if not self._has(act, name)]
        # against rest-of-several-logs-left-out
        if not missing or (one and len(missing) < len(parts)):
            return True
        if not self._does_anything(act):  # a record
            return False
        if len(missing) < len(parts):
            raise Conflict(
                "it carries transactions of several logs at once, and the target has those of some "
                f"of them, but not of others (origin {missing[0][:16]}…): merge the log from which "
                f"it was carried (origin {direct[:16]}…) into the target first",
                act.version,
            )
        for name in parts:
            known = self._known_up_to.get(name)
            if known != before[name]:
                raise Conflict(
                    f"both have merged parts of a third log (origin {name[:16]}…), the target up "
                    f"to its version {known}, the source from {before[name]} to "
                    f"{act.origins[name].version} at once: merge that log into the target first",
                    act.version,
                )
        return self._came_by_another_name(act, parts)

    def _came_by_another_name(self, act: Act, parts: Sequence[str]) -> bool:
        """Return whether the target has what none of the origins says.

        Where several logs were forked from each other one commit has several origins.
        """
        new = any(name not in self._known_up_to for name in parts)
        apart = [name for name in parts if self._may_be_apart(name)]
        if apart or (new and self._merged_others):  # against carried-under-another-name
            if self._past is None:
                raise PastNeeded
            if self._is_there(act):
                return True
        if apart:
            raise self._uncertain(act, apart[0])
        return False

    def _may_be_apart(self, name: str) -> bool:
        """Return whether what the target has of an origin may not be what the source has of it."""
        had = self._had_before.get(name, -1)
        return had > self._agreed.get(name, -1) and self._known_up_to.get(name) == had

    def _has(self, act: Act, name: str) -> bool:
        """Return whether the target has what a transaction carried of a log."""
        if name == self._pair.own:  # against own-rows-carried-back
            return True
        if act.origins[name].version <= self._agreed.get(name, -1):
            return True  # against third-log-carried-twice
        known = self._known_up_to.get(name)
        if known is None or known < act.origins[name].version:
            return False
        return self._is_same(act, name)

    def _is_same(self, act: Act, name: str) -> bool:
        """Return True where the target has this version from the log that the source merged.

        A log and a fork of it have one origin, so that both have a version does not say it.
        """
        if act.rewrites or not self._does_anything(act):  # the rows are the same without it
            return True
        if self._is_there(act):
            return True
        if act.unit is not None and self._units.shared(act) is not None:
            return True
        # against fork-of-a-third-log-taken-for-it
        raise self._uncertain(act, name)

    def _is_there(self, act: Act) -> bool:
        """Return whether the target has the segments of a transaction, whoever carried them."""
        if self._past is None or self._rows is None:
            raise PastNeeded
        ids = [s.id for s in act.adds] or [d.id for d in act.drops]
        # What the source adds once more, as a restore does, tells nothing.
        return bool(ids) and self._touched.issuperset(ids) and self._rows.is_first(ids)

    @staticmethod
    def _uncertain(act: Act, name: str) -> Conflict:
        return Conflict(
            f"the target has merged versions of a third log (origin {name[:16]}…), and it is not "
            "certain that this is one of them: it may be of another log that shares the first ones "
            "with it. Merge that third log into the source as far as into the target, and then "
            "this one again; where there are two such logs, merge the one into the other, and "
            "that one into the target",
            act.version,
        )

    def _is_done(self, act: Act) -> bool:
        """Return whether the target has done a unit of work itself."""
        # against first-of-several-units-not-looked-up
        if all(self._seqs.get(app, -1) < done[0][0] for app, done in act.units.items()):
            return False
        if self._past is None or self._rows is None:
            raise PastNeeded
        done = self._units.shared(act)
        if done is None:  # against unit-of-work-done-on-both-sides
            return False
        if act.unit is None:
            raise Conflict(
                "it carries several transactions of a third log at once, and the target has done "
                "one of them itself: merge that log into the target first",
                act.version,
                done.version,
            )
        if done.unit is not None:  # else it is not known which of the rows are the same
            self._rows.same_unit(act, done)
            self._unit = done
        return True

    def _act(self, act: Act) -> Carried | None:
        """Return what is to be committed for one transaction, and note it."""
        if act.resets:  # against units-forgotten-elsewhere-skipped
            raise Conflict(
                "it restores a version and lets units of work be loaded again, which no merge can "
                "carry: let one of the two tables follow the other (`eventlog replicate`)",
                act.version,
            )
        if act.restores and (ours := self._own_write()) is not None:
            # What it brings back or drops the target may have rewritten with rows of its own.
            raise Conflict(
                "it restores a version, and the target has taken writes of its own",
                act.version,
                ours.version,
            )
        changes = self._changes(act)
        if act.rewrites and not self._applies(act):  # against rewrite-of-what-is-not-there
            self._count(self.declined, act, 1)
            if self._rows is not None:
                self._rows.relate([*(d.id for d in act.drops), *(s.id for s in act.adds)])
            adds: tuple[Segment, ...] = ()
            drops: tuple[tuple[str, str], ...] = ()
            exact = False
        else:
            drops, exact = self._drops(act)
            adds = tuple(s for s in act.adds if s.id not in self._live)
            self._live.difference_update(i for i, _ in drops)
            self._live.update(s.id for s in adds)
        if not (adds or drops or changes):
            return None
        schema = self._meta.schema
        assert schema is not None  # noqa: S101 - every table has one
        replaces = [a for a in act.transaction.actions if isinstance(a, Replace)]
        whole = exact and not changes and len(adds) == len(act.adds)
        return Carried(
            act.version,
            "",
            tuple(translated(s, self._pair.schema, schema) for s in adds),
            drops,
            tuple(changes),
            self._third(act),
            self._rises(act),
            replaces[0].deletes if replaces and whole else None,
            (act.transaction.operation,),
            act.count,
        )

    def _own_write(self) -> Act | None:
        """Return what the target did itself to its segments, the first of it."""
        if self._pair.own is None:
            return None
        if self._past is None:
            raise PastNeeded
        acts = (act for step in self._past.target for act in step.acts)
        own = (act for act in acts if self._pair.origin not in act.origins)
        return next((act for act in own if act.adds or act.drops), None)

    def _applies(self, act: Act) -> bool:
        return all(drop.id in self._live for drop in act.drops)

    def _drops(self, act: Act) -> tuple[tuple[tuple[str, str], ...], bool]:
        """Return what the target drops, and whether these are the source's own drops."""
        here = [(d.id, d.chunk) for d in act.drops if d.id in self._live]
        missing = [d.id for d in act.drops if d.id not in self._live]
        if not missing:
            return tuple(here), True
        if self._rows is None:
            raise PastNeeded
        try:
            more = self._rows.counterpart(act, missing, self._live)
        except Differs as differs:
            raise Conflict(
                f"it drops {len(act.drops):,} segments, and the target {differs.reason}",
                act.version,
                differs.version,
            ) from None
        return (*here, *((i, self._rows.chunks[i]) for i in dict.fromkeys(more))), False

    def _third(self, act: Act) -> tuple[SetOrigin, ...]:
        """Return the origins of third logs whose transactions the source has carried."""
        found = []
        for name, origin in act.origins.items():
            old = self._origins.get(name)
            found.append(SetOrigin(name, old, origin.version, origin.commit))
            self._origins[name] = self._known_up_to[name] = origin.version
        return tuple(found)

    def _rises(self, act: Act) -> dict[str, AppRise]:
        """Return what becomes of the sequences of the apps whose work is carried."""
        rises = {}
        for app, done in act.units.items():
            old, last = self._seqs.get(app), done[-1][1]
            rises[app] = AppRise(old, done)
            self._seqs[app] = last if old is None else max(old, last)
        return dict(sorted(rises.items(), key=lambda item: item[0].encode()))

    def _changes(self, act: Act) -> list[Action]:
        """Return the changes of the small state that the target makes, and note them."""
        found: list[Action] = []
        for action in act.transaction.actions:
            made: Action | None = None
            if isinstance(action, SetSchema):
                made = self._schema(action, act.version)
            elif isinstance(action, SetProperties):
                made = self._properties(action, act.version)
            elif isinstance(action, SetGranularity):
                made = self._granularity(action, act.version)
            elif isinstance(action, SetBuckets):
                made = self._buckets(action)
            if made is not None:
                found.append(made)
        return found

    def _buckets(self, action: SetBuckets) -> SetBuckets | None:
        layout = self._meta.layout
        keyed = None if layout is None else keyed_of(layout)
        if layout is None or keyed is None or keyed.buckets >= action.new:
            return None  # the target has split them, too
        keyed = msgspec.structs.replace(keyed, buckets=action.new)
        self._meta = msgspec.structs.replace(
            self._meta, layout=msgspec.structs.replace(layout, keyed=keyed)
        )
        return action

    def _schema(self, action: SetSchema, version: int) -> SetSchema | None:
        assert self._meta.schema is not None  # noqa: S101 - every table has one
        schema = joined(action.schema, self._meta.schema)
        if isinstance(schema, str):
            raise Conflict(f"it has {schema}", version)
        if schema is self._meta.schema:
            return None
        self._meta = msgspec.structs.replace(self._meta, schema=schema)
        return SetSchema(schema)

    def _properties(self, action: SetProperties, version: int) -> SetProperties | None:
        made = properties_to_set(action.changes, self._meta.properties, self._had)
        if made is None:
            raise PastNeeded
        if not isinstance(made, list):
            had = (self._had or {}).get(made.name)
            raise Conflict(
                f"it sets property {made.name!r} to {made.new!r}, and the target has set it to "
                f"{self._meta.properties.get(made.name)!r}",
                version,
                had[-1][1] if had else None,
            )
        if not made:
            return None
        values = dict(self._meta.properties)
        for change in made:
            values.pop(change.name, None)
            if change.new is not None:
                values[change.name] = change.new
        self._meta = msgspec.structs.replace(self._meta, properties=values)
        return SetProperties(tuple(made))

    def _granularity(self, action: SetGranularity, version: int) -> SetGranularity | None:
        layout = self._meta.layout
        if layout is None or layout.granularity == action.new:
            return None
        if layout.granularity != action.old:
            if self._had is None:
                raise PastNeeded
            had = self._had.get(_GRANULARITY, [])
            if any(value == action.new for value, _ in had):
                return None
            raise Conflict(
                f"it sets the granularity to {action.new!r}, and the target has set it to "
                f"{layout.granularity!r}",
                version,
                had[-1][1] if had else None,
            )
        layout = msgspec.structs.replace(layout, granularity=action.new)
        self._meta = msgspec.structs.replace(self._meta, layout=layout)
        return action


def _marks(pair: Pair, meta: Meta, past: Past | None) -> tuple[set[history.Mark], ...]:
    """Return what the source says of other logs, and what the target says."""
    theirs, ours = set(pair.marks), {(n, o.version, o.commit) for n, o in origins_of(meta).items()}
    if past is not None:
        theirs.update(history.marks(act for step in past.source for act in step.acts))
        ours.update(history.marks(act for step in past.target for act in step.acts))
    return theirs, ours


_GRANULARITY = "\0granularity"  # no property is called so


def _values(acts: Sequence[Act]) -> dict[str, list[tuple[str | None, int]]]:
    """Return what properties, and the granularity, were set to, with the versions."""
    found: dict[str, list[tuple[str | None, int]]] = {}
    for act in acts:
        for action in act.transaction.actions:
            if isinstance(action, SetProperties):
                for change in action.changes:
                    found.setdefault(change.name, []).append((change.new, act.version))
            elif isinstance(action, SetGranularity):
                found.setdefault(_GRANULARITY, []).append((action.new, act.version))
    return found
