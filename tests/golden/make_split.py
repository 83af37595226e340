"""Write the golden table `split`: a keyed table whose buckets were split.

    .venv/bin/python tests/golden/make_split.py

Written once a format, as the other tables (`make.py` says why).
"""

import sys
from pathlib import Path
from unittest.mock import patch

from golden import make, make_keyed, make_whole
from golden.make_keyed import items, live, merged, merging_of, stage
from msgspec import UNSET
from msgspec.structs import replace

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.keyed import placement, slices
from eventlog.model.actions import Merge, SetBuckets
from eventlog.model.entries import Slice
from eventlog.model.records import Transaction
from eventlog.state.delta import drop_of
from eventlog.writers import delete, upsert

put, void = make_whole.put, make_whole.void


def voids(t: Table) -> list[Transaction]:
    """Return transactions that may not split buckets, or lie in buckets that are not there."""
    version = t.session.head().version
    fresh = lambda *place: make_whole._add(t, chunk="all", slice=Slice(*place))
    log = lambda first, last, splits: fresh("log", first, last, None, None, 0, None, splits)
    logs = sorted(
        (s for s in live(t) if placement.slice_of(s).kind == "log"), key=lambda s: s.version
    )
    one, total = logs[-1], logs[-1].rows
    good = Merge(version, "all", 0, 5, one.version, one.version, (one.id,), total, 0, 1)
    out = lambda *place: replace(
        fresh("log", *place[:2], one.version, one.version, 1, None, place[2]), rows=total
    )
    cases = [
        ("R15.16", [SetBuckets(3, 6)]),  # there are 6
        ("R15.16", [SetBuckets(6, 6)]),
        ("R15.16", [SetBuckets(6, 18)]),
        ("R15.16", [SetBuckets(6, 3)]),
        ("R15.16", [SetBuckets(6, 12), SetBuckets(6, 12)]),
        ("F11", [log(0, 3, UNSET)]),  # there were 3
        ("F11", [log(0, 6, 1)]),
        ("F11", [log(0, 1, 2)]),  # after a split to come
        ("F11", [replace(good, splits=2, last=11), out(0, 11, 2)]),
        # Its input lies in these buckets only: none of its rows may be forgotten.
        ("F11", [replace(good, rows=total - 1), replace(out(0, 5, 1), rows=total - 1)]),
        ("F11", [replace(good, first=1), out(0, 2, UNSET)]),  # an output that passes its buckets
        ("F11", [replace(good, last=4), replace(good, first=2, last=2, splits=UNSET)]),
    ]
    return [void(t, rule, actions) for rule, actions in cases]


def make_split(clock: ManualClock) -> None:
    """Two splits: writers and a merge of before, halves of a base, spills, leaves, a restore."""
    properties = {"keyframe_commits": "4", "bucket_bytes": "1024", "stats_columns": "at"}
    options = {"key": "id", "buckets": 3, "order_by": "at", "properties": properties}
    t = make.open_at("split", make_keyed.KEYED, clock, **options)
    upsert(t, items(range(12), 10, "first"))
    with patch("eventlog.log.spills.SPILL_BYTES", 900):
        upsert(t, items(range(4, 40), 8, "many"))
    merged(t, "all", (0, 2), (1, 2), each=True)
    upsert(t, items([1, 2, 5, 30], 15, "above"))
    upsert(t, items([5, 6, 7, 8, 50], 16, "next"))
    old = Table.open(t.uri, store=t.store, clock=clock)
    planned = merging_of(old, "all", (1, 2), (4, 5))
    late = old.transaction("upsert", stage(old, items([2, 3, 60], 17, "staged before")))
    t.set_buckets(6)
    put(t, [*voids(t), late])
    merge, adds = planned
    t.commit(t.transaction("compact", [merge, *adds], read_version=old.session.head().version))
    upsert(t, items(range(0, 60, 7), 20, "of six"))
    delete(t, where="name = 'many 9'")
    merged(t, "all", (2, 2), (1, t.session.head().version))
    before = t.session.head().version
    t.set_buckets(12)
    with patch("eventlog.log.spills.SPILL_BYTES", 900):
        upsert(t, items(range(20, 50), 22, "of twelve"))
    merged(t, "all", (0, 4), (1, t.session.head().version), each=True)
    upsert(t, items([1, 2, 3], 30, "shared"))
    merged(t, "all", (5, 11), (1, t.session.head().version))
    t.restore(before)
    upsert(t, items([3, 4, 61], 31, "after the restore"))
    gone = [drop_of(s) for s in slices.ineffective(live(t), 2)]
    if gone:
        t.commit(t.transaction("compact", gone))
    t.write_keyframe()


def main() -> int:
    """Write the table."""
    leaves = {"INLINE_SEGMENTS": 8, "LEAF_TARGET": 5, "LEAF_SMALL": 2, "LEAF_MAX": 20}
    with make.writing("split", **leaves):
        make_split(ManualClock(make.START_MS, seed=2021))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
