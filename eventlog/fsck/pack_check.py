"""The check of packs: each is compared with the key frame that names it, and with the fold.

A pack that is missing or damaged is no loss: readers go to the commits (FORMAT.md R21.4). One that
the root describes rightly, and that has other rows than the commits, would be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from eventlog.errors import KeyNotFound
from eventlog.format import codec, keys
from eventlog.fsck.findings import Findings
from eventlog.inline import inline_objects, pack_bytes
from eventlog.inline.pack_bytes import Indexed, Packed
from eventlog.log.log import Log
from eventlog.model.entries import Segment
from eventlog.model.records import KeyFrame, Pack, packs_of
from eventlog.store.parallel import read_ahead

_REMOVE = "remove this object by hand, and readers go to the commits"
_MOST = 64 * 2**20  # bytes of packs that are read ahead
_AT_ONCE = 256  # segments whose bytes are held


@dataclass(slots=True)
class PackAudit:
    """The state of the packs.

    Attributes:
        missing: those that key frames name, and that are not there, with the first such version.
        damaged: those with other bytes than their names say.
    """

    missing: dict[Pack, int] = field(default_factory=dict)
    damaged: dict[Pack, int] = field(default_factory=dict)


class PackCheck:
    """Checks the packs of key frames, those of older versions first; each is read once.

    Args:
        log: the log.
        findings: receives the problems.
        rows: whether the rows are compared with those that the commits have.
    """

    def __init__(self, log: Log, findings: Findings, *, rows: bool) -> None:
        self._log, self._findings, self._rows = log, findings, rows
        self.packs = PackAudit()
        self._known: dict[Pack, Sequence[Indexed]] = {}  # of the last root
        self._wrong: set[Pack] = set()  # those that were reported

    def check(self, root: KeyFrame, live: Mapping[str, Segment] | None, pool: Executor) -> None:
        """Compare the packs of a key frame with it.

        Args:
            root: its root.
            live: the live segments at its version, by id; None: they are not known.
            pool: reads them.
        """
        packs, audit = packs_of(root), self.packs
        known = {pack: index for pack, index in self._known.items() if pack in packs}
        new = [p for p in packs if not (p in known or p in audit.missing or p in audit.damaged)]
        for pack, body in read_ahead(pool, new, self._fetch, weigh=lambda p: p.size, most=_MOST):
            opened = self._opened(pack, body, root.version)
            known[pack] = () if opened is None else opened.segments
            if opened is not None and self._rows and live is not None:
                self._compare_rows(pack, opened, live)
        self._known = known
        for pack, index in known.items() if live is not None else ():
            self._compare_entries(pack, index, live or {}, root.version)

    def report_missing(self, horizon: int, keyframes: Sequence[int]) -> None:
        """Report the packs that are missing, except those that a vacuum may delete (R21.6).

        Args:
            horizon: of the newest version.
            keyframes: the versions that have key frames.
        """
        last = max((version for version in keyframes if version <= horizon), default=-1)
        kept = set(packs_of(self._log.key_frames.root(last))) if last >= 0 else set[Pack]()
        for pack in [p for p in self.packs.missing if p.last <= last and p not in kept]:
            del self.packs.missing[pack]
        for pack, version in self.packs.missing.items():
            self._warn(pack, version, "this pack is missing")

    def _fetch(self, pack: Pack) -> tuple[Pack, bytes | None]:
        try:
            key = keys.pack_key(pack.last, pack.sha256)
            return pack, self._log.store.get(key, length=pack.size + 1)
        except KeyNotFound:
            return pack, None

    def _opened(self, pack: Pack, body: bytes | None, version: int) -> Packed | None:
        """Return an opened pack, if it is the one that the root names. Else it is reported."""
        if body is None:
            self.packs.missing[pack] = version
            return None
        if len(body) != pack.size or codec.sha256(body) != pack.sha256:
            self.packs.damaged[pack] = version
            self._warn(pack, version, "the bytes of this pack are not those of its name")
            return None
        opened = pack_bytes.open_pack(body)
        if opened is None:
            self._error(pack, version, "this object is no pack: readers pass over it")
            return None
        index = opened.segments
        least = min((entry.inline for entry in index), default=-1)
        size = sum(entry.bytes for entry in index)
        if (pack.first, pack.segments, pack.bytes) != (least, len(index), size):
            self._error(pack, version, "the key frame describes another index than this pack has")
        return opened

    def _compare_entries(
        self, pack: Pack, index: Sequence[Indexed], live: Mapping[str, Segment], version: int
    ) -> None:
        """Report a pack whose segments are not live at the version of a key frame."""
        if pack in self._wrong:
            return
        for entry in index:
            segment = live.get(entry.id)
            stored = (entry.rows, entry.bytes, entry.inline)
            # against pack-of-dropped-segments
            if segment is None or stored != (segment.rows, segment.bytes, segment.inline):
                problem = (
                    f"this pack has segment {entry.id}, which is not live, or another one, in "
                    f"version {version}, whose key frame names it"
                )
                self._error(pack, version, problem)
                return

    def _compare_rows(self, pack: Pack, opened: Packed, live: Mapping[str, Segment]) -> None:
        """Report a pack with other rows than the commits have."""
        rows = pack_bytes.pack_columns(opened)
        if rows is None:
            return  # readers pass over it
        starts = dict(zip(opened.segments, _starts(opened.segments), strict=True))
        for start in range(0, len(opened.segments), _AT_ONCE):
            some = opened.segments[start : start + _AT_ONCE]
            wanted = [live[entry.id] for entry in some if entry.id in live]
            bodies = inline_objects.fetch_objects(self._log.store, wanted)
            for entry in some:
                segment = live.get(entry.id)
                body = None if segment is None else bodies.get(segment.checksum)
                if body is None:
                    continue  # it is looked for, and reported, by itself
                own = pack_bytes.object_rows(body, entry.rows)
                packed = rows.slice(starts[entry], entry.rows)
                # against pack-rows-not-compared
                if own is None or not pack_bytes.same_rows(own, packed):
                    problem = (
                        f"this pack has other rows of segment {entry.id} than commit "
                        f"{entry.inline}, and scans return them: {_REMOVE}"
                    )
                    self._error(pack, pack.last, problem)
                    return

    def _warn(self, pack: Pack, version: int, problem: str) -> None:
        key = keys.pack_key(pack.last, pack.sha256)
        self._findings.add("warning", f"{problem}; readers go to the commits", key, version)

    def _error(self, pack: Pack, version: int, problem: str) -> None:
        self._wrong.add(pack)
        self._findings.add("error", problem, keys.pack_key(pack.last, pack.sha256), version)


def _starts(index: Sequence[Indexed]) -> Iterator[int]:
    """Yield the place of the first row of each segment."""
    at = 0
    for entry in index:
        yield at
        at += entry.rows
