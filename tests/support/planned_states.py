"""States of made-up segments, one key frame leaf for each chunk, for tests of what a scan reads."""

from eventlog.format.frames import entry_columns, frame_bytes
from eventlog.model.entries import Layout
from eventlog.model.records import CommitChanges, Header, KeyFrame, Meta, Totals
from eventlog.state import keyframe, scan
from eventlog.state.delta import Delta
from eventlog.state.version import VersionState

VERSION = 7
HASH = "ab" * 32


def leaf_of(entries):
    """The leaf that holds these entries, and the entries."""
    return keyframe._leaf(entries, frame_bytes.to_parquet(entries)), entries


def leaves_of(listed):
    """One leaf for each chunk of the segments."""
    by_chunk = {}
    for segment in listed:
        by_chunk.setdefault(segment.chunk, []).append(segment)
    return [leaf_of(entry_columns.from_segments(found)) for _, found in sorted(by_chunk.items())]


class Planned:
    """A state that consists of these leaves; it notes how many a plan took."""

    def __init__(self, leaves, schema, layout=None):
        self.tables = {leaf.sha256: entries for leaf, entries in leaves}
        listed = [leaf for leaf, _ in leaves]
        names = ("segments", "rows", "bytes")
        self.totals = Totals(*(sum(getattr(leaf, name) for leaf in listed) for name in names))
        self.leaves_read = 0
        common = {"format": "", "min_reader": 1, "features": (), "table": "", "version": VERSION}
        meta = Meta(
            schema=schema,
            layout=layout or Layout(time_column=schema.columns[0].id, granularity="day"),
        )
        root = KeyFrame(
            **common, commit=HASH, time=0, totals=self.totals, state_hash=HASH, state=meta,
            segments=(), leaves=tuple(listed),
        )  # fmt: skip
        header = Header(
            **common, min_writer=1, prev=HASH, time=0, keyframe=VERSION, totals=self.totals,
            state_hash=HASH, changes=CommitChanges("", "", 0, 0, 0, 0, 0),
        )  # fmt: skip
        self.state = VersionState(header, HASH, meta, root, Delta())

    def plan(self, columns=None, where=None, chunks=None):
        """What a scan of the state reads, with the leaves handed in that it asks for."""
        question = scan.question(self.state, columns, where, chunks)
        needed = {leaf.sha256: self.tables[leaf.sha256] for leaf in question.needs(self.state)}
        self.leaves_read = len(needed)
        return question.answer(self.state, needed)
