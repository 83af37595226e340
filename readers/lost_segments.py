"""Scans of versions that have lost segments: stand-ins for them, and advice.

The segments that a lost one was compacted from may still exist (`eventlog.recovery`).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from eventlog.errors import DataLoss, EventLogError
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Drop
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Segment
from eventlog.recovery import fallback
from eventlog.segments.fragments import Reading
from eventlog.state.scan import ScanPlan
from eventlog.store.parallel import each

logger = logging.getLogger(__name__)


def advise(plan: ScanPlan, reading: Reading, snapshot: Snapshot, error: DataLoss) -> None:
    """Add to the error of a scan how to read the lost rows from elsewhere, if that is possible."""
    named = [s for s in plan.segments() if error.key in keys.keys_of(s)]
    try:
        # The entries of a plan may lack their statistics.
        lost = [*snapshot.live([Drop(s.id, s.chunk, "") for s in named]).values()]
        stand_ins = fallback.find_fallback(Log(reading.store), snapshot, lost)
    except EventLogError:
        return  # the caller needs the error of the loss itself
    if lost and not stand_ins.missing:
        error.message += (
            "; the segments it was compacted from still exist: scan(..., fallback=True) "
            "(`eventlog scan --fallback`) reads its rows from them"
        )


def with_stand_ins(
    plan: ScanPlan, reading: Reading, snapshot: Snapshot
) -> tuple[Reading, list[Segment]]:
    """Return how to read a scan and its segments, with stand-ins for those that are lost.

    Raises:
        DataLoss: a segment is lost, and no segments can stand in for it.
    """
    store, planned = reading.store, plan.in_scan_order()
    intact = each(lambda segment: fallback.is_whole(store, segment), planned)
    lost = [s for s, is_intact in zip(planned, intact, strict=True) if not is_intact]
    if not lost:
        return reading, planned
    stand_ins = fallback.find_fallback(Log(store), snapshot, lost)
    if stand_ins.out:
        logger.warning("version %d of %s: %s", plan.version, store.uri, stand_ins)
    # The stand-ins may have rows that the predicate excludes.
    predicate = plan.predicate
    reading = replace(reading, filter=predicate.to_arrow() if predicate else None)
    left = [segment for segment in planned if segment not in stand_ins.out]
    return reading, sorted([*left, *stand_ins.back], key=_scan_order)


def _scan_order(segment: Segment) -> tuple[int, int, int, int]:
    """See `eventlog.state.scan.SCAN_ORDER`."""
    chunk = parse_chunk(segment.chunk)
    return chunk.start, chunk.end, segment.version, segment.partition
