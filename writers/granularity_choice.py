"""The granularity beside appends: the first rows choose it, and one that does not fit is reported.

Imports eventlog only.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from eventlog.log.snapshot import Snapshot
from eventlog.model.actions import Add
from eventlog.model.entries import GRANULARITIES, Granularity
from eventlog.model.properties import setting
from eventlog.session.session import Session
from eventlog.staging.fitting import (
    coarsest_for_first_rows,
    fit_of,
    follows_data,
    granularity_of,
    sizes_of,
)
from eventlog.table.settings import move_granularity

logger = logging.getLogger(__name__)


def choose_granularity(
    session: Session, head: Snapshot, adds: Sequence[Add], coarsest: Granularity | None
) -> None:
    """Cut new rows as the first ones of a table are cut; of later ones, report too many chunks.

    Nothing depends on it: an add of any granularity takes effect (FORMAT.md R14.4), so appends stay
    free of conflicts whatever other writers choose.

    Args:
        session: the table.
        head: the version that the segments were staged for.
        adds: the segments, not committed yet.
        coarsest: the bound that they were staged with; see `Recipe`.
    """
    now = head.layout.granularity
    if coarsest is None:
        _report(session, head, adds)
        return
    better = granularity_of(adds, now)
    if GRANULARITIES.index(better) <= GRANULARITIES.index(now):
        return
    newest = session.refresh()
    # against first-rows-of-an-old-handle
    if newest.layout.granularity == now and coarsest_for_first_rows(newest) is not None:
        move_granularity(session, now, better)


def _report(session: Session, head: Snapshot, adds: Sequence[Add]) -> None:
    """Warn, once a handle, if segments of a table with a fixed granularity lie in too many chunks.

    Compaction cannot join them.
    """
    if follows_data(head) or head.merge_rule is not None or session.warned_of_chunks:
        return
    target = setting(head.properties, "segment_bytes")
    fit = fit_of(sizes_of(adds), head.layout.granularity, target, moves=False)
    if fit is None or not fit.wanted:
        return
    session.warned_of_chunks = True
    logger.warning("%s; %s", fit.sentence, fit.remedy(session.uri))
