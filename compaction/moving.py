"""Changes the granularity of a table that follows its data, before its compaction.

Imports eventlog and compaction only. `eventlog.staging.fitting` decides which granularity fits.
"""

from __future__ import annotations

from msgspec.structs import replace

from eventlog import Table
from eventlog.compaction.planner.planning import plan, plan_as_cut
from eventlog.compaction.planner.plans import Plan
from eventlog.compaction.policy import Policy
from eventlog.table.settings import move_granularity


def plan_to_perform(t: Table, policy: Policy, now_ms: int) -> Plan:
    """Return the plan to perform; if the table follows its data, its granularity is changed first.

    `Plan.fit` is what was changed then; None if another writer has prevented that.

    Args:
        t: the table.
        policy: the settings, checked.
        now_ms: the time by which back-off is judged, in ms UTC.

    Raises: as `plan`.
    """
    planned = plan(t, policy, now_ms=now_ms)
    fit = planned.fit
    if fit is None:
        return planned
    moved = move_granularity(t.session, fit.now, fit.better)
    # Another writer may have fixed the granularity meanwhile: that one counts.
    as_cut = plan_as_cut(t, policy, now_ms=now_ms)
    return replace(as_cut, fit=fit if moved else None)
