"""What an erasure found and what holds the rest: values, and the decisions about them. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Literal, NamedTuple

from msgspec import Struct

from eventlog.display import command
from eventlog.format.keys import branch_uri, split_branches

FORMATS = ("delta", "iceberg")  # kinds of objects that describe versions to other engines
TEMPORARY_KIND = "temporary"  # the kind of a file that a put into a directory left or is writing
Verdict = Literal["none", "rows", "values", "unknown"]


class SearchedObject(Struct, frozen=True, kw_only=True):
    """An object that was read to look for the rows.

    Attributes:
        key: its key under the root.
        kind: what it is, such as `segment`, `commit`, `stub` or `pack`; `unknown`.
        bytes: its size.
        sha256: of its bytes, as they were read.
        rows: how many sought rows are stored in it.
        tombstones: how many of these are deletes of a keyed table, which have the key alone.
        values: how many values it has, in statistics or dictionaries, that may be those of a sought
            row: bounds of segments that are not there any more, or have such rows.
        names: how many names and other texts of users name a value of the predicate.
        problem: why it could not be decoded; "": it was.
    """

    key: str
    kind: str
    bytes: int
    sha256: str
    rows: int = 0
    tombstones: int = 0
    values: int = 0
    names: int = 0
    problem: str = ""

    @property
    def verdict(self) -> Verdict:
        """What was found: `rows`; only `values`, in statistics or names; `none`; or `unknown`."""
        if self.problem:  # against undecoded-object-counts-as-clean
            return "unknown"
        if self.rows:
            return "rows"
        return "values" if self.values or self.names else "none"


HoldKind = Literal[
    "pin", "tag", "copy", "branch", "publication", "retention", "staging", "live", "tombstone",
    "name", "unknown",
]  # fmt: skip


class HeldBack(Struct, frozen=True, kw_only=True):
    """Why objects that have sought rows, or values of them, are still there.

    Attributes:
        kind: `pin`, `tag`, `copy` or `branch`, with its name; `publication`, with its format: its
            newest version is older than the rewriting; `retention`: of older versions; `staging`:
            uploads that may still be committed; `live`: the newest version has them; `tombstone`:
            a delete that keeps its key for a time; `name`: a text that users gave; `unknown`: they
            cannot be read.
        name: of the pin, tag, copy or branch, or a format; else "".
        until: the time from which the same command ends it, in ms UTC; None: time alone does not.
        objects: their number.
        bytes: their size.
        advice: what to do.
    """

    kind: HoldKind
    name: str
    until: int | None
    objects: int
    bytes: int
    advice: str


class CopyOfTable(Struct, frozen=True, kw_only=True):
    """A copy that is attached to the table: it has objects of its own, which no search here sees.

    Attributes:
        name: by which it is attached.
        owner: who attached it, usually its URI.
        acked: the last version that it has received.
    """

    name: str
    owner: str
    acked: int


class ErasureReport(Struct, frozen=True, kw_only=True):
    """What an erasure did, what it searched, and what is left.

    Attributes:
        table: the root URI.
        where: the predicate as text.
        dry_run: whether it only searched.
        version: the newest version at the end.
        deleted: the version that deleted rows; None: none did.
        rewritten: number of segments that were written again without the rows.
        vacuumed: number of objects that were deleted.
        searched: every object under the root, with its hash and what it has.
        held_by: what holds back what is left.
        copies: the attached copies.
        failures: why segments could not be rewritten.
    """

    table: str
    where: str
    dry_run: bool
    version: int
    deleted: int | None
    rewritten: int
    vacuumed: int
    searched: tuple[SearchedObject, ...]
    held_by: tuple[HeldBack, ...]
    copies: tuple[CopyOfTable, ...] = ()
    failures: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[SearchedObject, ...]:
        """The objects that have rows or values that are sought, or could not be read."""
        return tuple(one for one in self.searched if one.verdict != "none")

    @property
    def none_left(self) -> bool:
        """Whether every object under the root was read, and none has a sought row or value."""
        return not self.left


Hold = tuple[HoldKind, str]  # a kind, and a name or ""


class Holding(Struct, frozen=True, kw_only=True):
    """What is known of what holds objects back.

    Attributes:
        live: ids of the segments that the newest version has.
        reasons: why a vacuum keeps objects, by their keys: as in `VacuumReport.kept`.
        by_reason: the holds of a version by these reasons.
        holds: those that hold the log, too.
        retention: until when the retention holds older versions, in ms UTC.
        staging: until when uploads are held, likewise.
        tombstones: until when deletes keep their keys, at least.
    """

    live: frozenset[str]
    reasons: Mapping[str, str]
    by_reason: Mapping[str, Hold]
    holds: Sequence[Hold]
    retention: int
    staging: int
    tombstones: int


class ObjectLocation(NamedTuple):
    """Where an object lies.

    Attributes:
        branches: names of the branches below which it lies, from the outermost on.
        data: whether it is under `data/`, where vacuums judge each object by itself.
    """

    branches: Sequence[str]
    data: bool


def holds_of(
    one: SearchedObject, place: ObjectLocation, segments: AbstractSet[str], holding: Holding
) -> tuple[Hold, ...]:
    """Return what holds back an object that has sought rows or values, each by kind and name.

    Args:
        one: the object.
        place: where it lies.
        segments: ids of the segments of which it has sought rows.
        holding: what is known.
    """
    if one.kind == TEMPORARY_KIND:
        return (("staging", ""),)
    if one.problem:
        return (("unknown", ""),)
    if place.branches:
        return (("branch", "/".join(place.branches)),)
    if one.names and not one.rows and not one.values:
        return (("name", ""),)
    if not holding.live.isdisjoint(segments):
        return (("tombstone" if one.rows == one.tombstones else "live", ""),)
    if place.data:
        return (_by_vacuum(holding.reasons.get(one.key, "staging"), holding),)
    if one.kind in FORMATS:
        return tuple(holding.holds) or (("publication", one.kind),)
    return tuple(holding.holds) or (("retention", ""),)


def _by_vacuum(reason: str, holding: Holding) -> Hold:
    """Return the hold that a vacuum's reason names."""
    known = holding.by_reason.get(reason)
    if known is not None:
        return known
    return ("retention" if reason == "retention" else "staging"), ""


def held_back(
    table: str, found: Iterable[tuple[SearchedObject, Sequence[Hold]]], holding: Holding
) -> tuple[HeldBack, ...]:
    """Return what holds back what is left, each once, the holds without an end first.

    Args:
        table: the root URI.
        found: the objects that have something, each with what holds it.
        holding: what is known.
    """
    sums: dict[Hold, tuple[int, int]] = {}
    for one, of_it in found:
        for hold in of_it:
            objects, size = sums.get(hold, (0, 0))
            sums[hold] = objects + 1, size + one.bytes
    until = {
        "retention": holding.retention,
        "staging": holding.staging,
        "tombstone": holding.tombstones,
    }
    rows = (
        HeldBack(
            kind=kind,
            name=name,
            until=until.get(kind),
            objects=objects,
            bytes=size,
            advice=_advice(table, kind, name),
        )
        for (kind, name), (objects, size) in sums.items()
    )
    return tuple(sorted(rows, key=lambda row: (row.until is not None, row.kind, row.name)))


def _advice(table: str, kind: HoldKind, name: str) -> str:
    ending: dict[HoldKind, str] = {
        "pin": command("unpin", table, name),
        "tag": command("untag", table, name),
        "publication": command("publish", name, table),
    }
    if kind == "branch":
        return f"{_end_of_branch(table, name)}, then run this again"
    if kind in ending:
        return f"{ending[kind]}, then run this again"
    if kind == "copy":
        return f"let it follow, or {command('replicas', table, '--detach', name)}"
    return _BY_KIND[kind]


def _end_of_branch(table: str, name: str) -> str:
    """Return the command that deletes a branch: below the table, or the searched one itself.

    Args:
        table: the root URI, which may be that of a branch.
        name: the name of the branch, after those of the branches above it below that root.
    """
    root, own = split_branches(table)
    above, names = own, tuple(name.split("/"))
    if own[-1:] == names:  # against branch-deleted-from-the-wrong-root
        above = own[:-1]
    *between, name = names
    for one in (*above, *between):
        root = branch_uri(root, one)
    return command("branch", root, name, "--delete")


_BY_KIND: dict[HoldKind, str] = {
    "retention": "run this again then, or with --retention-hours 0 if nobody reads older versions",
    "staging": "run this again then, or with --retention-hours 0",
    "live": "the newest version has them: run this again with --run",
    "tombstone": "run this again then: a merge of slices forgets it after tombstone_hours, twice",
    "name": "give other names to tags, pins, app ids or properties; a cut log ends the others",
    "unknown": "see what it is: no program of this format reads it, and none deletes it",
}
