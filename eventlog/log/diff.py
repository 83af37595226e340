"""The difference between two versions, and what each version of a range dropped.

Two versions are compared by their trees. Key frames share leaves as git trees share subtrees, so
the cost is proportional to the change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UnsetType

from eventlog.display import Described, Description, command
from eventlog.errors import Corrupt, VersionCut, VersionNotFound
from eventlog.format import entry_order, keys
from eventlog.format.codec import sha256
from eventlog.format.frames import entry_columns
from eventlog.log import spills
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Drop
from eventlog.model.entries import Segment, StoredBitmap, stored_bitmap
from eventlog.model.records import Commit, Header, KeyFrame, pieces_in
from eventlog.quantities import count_text, size_text
from eventlog.state.fold import Effect
from eventlog.store.parallel import HEADER_THREADS, each

_COMMITS = 256  # commits between two calls of progress

Progress = Callable[[int, int], None]  # versions done, and their number


@dataclass(frozen=True, slots=True, repr=False)
class Diff(Described):
    """The difference between two versions.

    Attributes:
        added: the segments that are live only in the second version.
        dropped: the segments that are live only in the first version.
        columns: what changed of the columns, in words.
    """

    added: list[Segment]
    dropped: list[Segment]
    columns: tuple[str, ...] = ()

    def _described(self) -> Description:
        facts = [("added", _sums(self.added)), ("dropped", _sums(self.dropped))]
        facts += (("columns", change) for change in self.columns)
        return Description("Difference between two versions", facts)


@dataclass(frozen=True, slots=True)
class Gone:
    """What a version dropped.

    Attributes:
        version: the version.
        segments: the entries of segments that it dropped.
        vectors: the stored bitmaps that its entries no longer name: those of dropped segments,
            and those that longer ones replaced. Other entries may name the same object.
    """

    version: int
    segments: Sequence[Segment] = ()
    vectors: Sequence[StoredBitmap] = ()

    @classmethod
    def by(
        cls, version: int, drops: Sequence[Segment], deletes: Iterable[tuple[Segment, Segment]]
    ) -> Gone:
        """Return what a version dropped.

        Args:
            version: the version.
            drops: the segments that it dropped.
            deletes: the entries, before and after, of segments of which it deleted rows.
        """
        return cls(version, drops, _vectors((*drops, *(before for before, _ in deletes))))

    def objects(self) -> dict[str, int]:
        """Return the objects, by key, with their sizes; of vectors up to the last one's end."""
        # Of one that stands in a commit an object may be there all the same.
        sizes = {
            keys.key_of(s): s.bytes if isinstance(s.inline, UnsetType) else 0 for s in self.segments
        }
        for vector in self.vectors:  # against replaced-vectors-never-collected
            key, end = keys.vectors_key(vector), vector.offset + vector.size
            sizes[key] = max(end, sizes.get(key, 0))
        return sizes

    def ids(self) -> set[str]:
        """Return the ids of the segments, and of the objects of the vectors."""
        return {s.id for s in self.segments} | {v.object for v in self.vectors}


def diff(a: Snapshot, b: Snapshot) -> Diff:
    """Return the segments live in `b` but not in `a`, and in `a` but not in `b`.

    A leaf or stem that both key frames share is read only if a drop refers to one of the segments.

    Raises:
        Corrupt: neither a key frame nor the commits before it give the entries.
    """
    in_a, in_b = _unshared(a, b)
    added, dropped = _minus(in_b, in_a), _minus(in_a, in_b)
    only_b = [d for i, d in b.delta.drops.items() if i not in a.delta.drops]
    only_a = [d for i, d in a.delta.drops.items() if i not in b.delta.drops]
    removed = {s.id: s for s in dropped} | {
        i: s for i, s in a.live(only_b).items() if b.live([_named(s)]).get(i) != s
    }
    new = {s.id: s for s in added} | {
        i: s for i, s in b.live(only_a).items() if a.live([_named(s)]).get(i) != s
    }
    return Diff(_ordered(new.values()), _ordered(removed.values()))


def dropped(
    log: Log,
    after: int,
    until: int,
    progress: Progress = lambda *_: None,
    *,
    linked: range = range(0),
    known: Snapshot | None = None,
) -> Iterator[Gone]:
    """Yield what each version dropped, in order; nothing of versions that dropped nothing.

    Segments that the versions in a gap of a copy dropped count as dropped by the first one above
    it. A copy that has nothing below its first version never had the segments that were dropped
    there.

    Args:
        log: the log.
        after: the version before the first one.
        until: the last version, which the log has.
        progress: called with the versions read and their number.
        linked: versions up to `after` that are read too, only to check that each is the one that
            the next one names.
        known: the snapshot of `after` where the head was read before, above which no gap is.

    Raises:
        Corrupt: a commit's header has another number of drops than the fold, or it is not the one
            that the version above names, or its totals do not follow from those of the version
            below: the dropped segments are not known then.
        VersionNotFound: a version is missing that no gap explains.
    """
    starts = [] if known else log.starts.all()
    gaps = [gap for gap in map(log.starts.absent, starts) if gap]
    above = {gap.stop: gap.start - 1 for gap in gaps if after < gap.stop <= until}
    wanted = (*linked, *range(after + 1, until + 1))
    read = [v for v in wanted if not any(v in gap for gap in gaps)]
    before = (known.header, known.commit_hash) if known else None
    # Whole commits, which the next one names by their hash: a header alone may be of another log.
    for commit, body in each(log.read, read, count=HEADER_THREADS):
        header, version = commit.header, commit.header.version
        if before is not None and not _follows(*before, header):
            raise Corrupt(
                f"version {version} does not follow from version {before[0].version}, so that one "
                "of the two is of another log, or damaged: run "
                f"{command('fsck', log.store.uri)}; nothing more is deleted",
                table=log.store.uri,
                version=version,
            )
        before = header, sha256(body)
        if version <= after:
            continue
        if version % _COMMITS == 0 or version == until:
            progress(version - after, until - after)
        if version not in above:
            if header.changes.drops or header.changes.vectors:
                yield _of_commit(log, commit)
        elif above[version] >= 0:
            below = log.snapshot(above[version])
            gone = diff(below, log.snapshot(version)).dropped  # against drops-in-a-gap-unknown
            yield Gone(version, gone, _vectors(gone))


def _follows(before: Header, commit_hash: str, header: Header) -> bool:
    """Return whether a commit names the one below, and has its totals and its changes (R10.6)."""
    if header.version != before.version + 1:
        return True  # a copy has nothing that names the commit below its gap
    old, new, changes = before.totals, header.totals, header.changes
    added_up = (
        new.segments == old.segments + changes.adds - changes.drops
        and new.rows == old.rows + changes.rows
        and new.bytes == old.bytes + changes.bytes
    )
    named = header.prev == commit_hash  # against drops-of-another-log
    return named and added_up  # against drops-that-no-header-counts


def confirmed(log: Log, drops: Mapping[int, Collection[str]]) -> set[str]:
    """Return the ids of the objects whose drops the log confirms, in the given version or before.

    The delta of the version shows it, or its fold; a version that is absent or damaged shows
    nothing (FORMAT.md R12.9). One GET a version; the fold of one that dropped segments added since
    its key frame costs a few more.

    Args:
        log: the log.
        drops: the ids of segments, and of objects of deletion vectors, by the version that is
            claimed to have dropped them.

    Raises:
        Unavailable: the store does not answer.
    """
    versions = sorted(drops)
    return set[str]().union(*each(lambda v: _confirmed_by(log, v, drops[v]), versions))


def _confirmed_by(log: Log, version: int, drops: Collection[str]) -> set[str]:
    wanted, shown = set(drops), set[str]()
    with suppress(Corrupt, VersionCut, VersionNotFound):
        commit, _ = log.read(version)
        delta = spills.delta_of(commit, log.spill)
        shown = wanted & delta.drops.keys()
        if shown != wanted:
            shown |= wanted & _gone_by(log.effect(commit), version).ids()
    return shown


def _gone_by(effect: Effect, version: int) -> Gone:
    return Gone.by(version, effect.drops, effect.deletes)


def _vectors(entries: Iterable[Segment]) -> list[StoredBitmap]:
    found = (stored_bitmap(entry.vector) for entry in entries)
    return [stored for stored in found if stored is not None]


def _of_commit(log: Log, commit: Commit) -> Gone:
    """Return what a commit dropped, according to the fold."""
    effect, changes = log.effect(commit), commit.header.changes
    counts = len(effect.drops), len(effect.deletes)
    if counts != (changes.drops, changes.vectors or 0):
        raise Corrupt(
            "the commit's drops differ from its header: run `eventlog fsck`; nothing more is "
            "deleted",
            table=log.store.uri,
            version=commit.header.version,
        )
    return _gone_by(effect, commit.header.version)


def _unshared(a: Snapshot, b: Snapshot) -> tuple[pa.Table, pa.Table]:
    """Return the entries of two versions, without those in leaves that both key frames have."""
    while True:
        bases = _base(a), _base(b)
        shared = _shared_pieces(a, b, *bases)
        keep = lambda piece: piece.sha256 not in shared  # noqa: B023, E731 - used at once
        found = a.entries(keep=keep), b.entries(keep=keep)
        # Over an older key frame, one side has other leaves than were compared.
        if (_base(a), _base(b)) == bases:  # against shared-with-a-key-frame-of-before
            return found


def _base(snapshot: Snapshot) -> KeyFrame | None:
    return snapshot.log.usable(snapshot.state).base


def _shared_pieces(
    a: Snapshot, b: Snapshot, base_a: KeyFrame | None, base_b: KeyFrame | None
) -> set[str]:
    """Return the sha256 of the stems that both key frames have, and of leaves in their others."""
    named = ({piece.sha256 for piece in pieces_in(base)} for base in (base_a, base_b))
    shared = set.intersection(*named)
    leaves = ({leaf.sha256 for leaf in one.leaves(but=shared)} for one in (a, b))
    return shared | set.intersection(*leaves)


def _minus(left: pa.Table, right: pa.Table) -> list[Segment]:
    known = right.column("hash").combine_chunks()
    return entry_columns.to_segments(left.filter(pc.invert(pc.is_in(left.column("hash"), known))))


def _named(segment: Segment) -> Drop:
    return Drop(segment.id, segment.chunk, "")


def _ordered(unordered: Iterable[Segment]) -> list[Segment]:
    return sorted(unordered, key=lambda s: entry_order.entry_key(s.chunk, s.id))


def _sums(segments: Sequence[Segment]) -> str:
    rows, size = sum(s.live_rows for s in segments), sum(s.bytes for s in segments)
    return f"{count_text(len(segments), 'segment')}, {count_text(rows, 'row')}, {size_text(size)}"
