"""Whether what is planned for single transactions may be committed. No I/O.

If it may not, the two logs are united by their states.
"""

from __future__ import annotations

from collections.abc import Sequence

from eventlog.merging.planning.by_state.app_marks import Recounts
from eventlog.merging.planning.by_state.chunk_states import overlapping_chunks
from eventlog.merging.planning.by_state.expected_rows import ExpectedRows
from eventlog.merging.planning.by_state.same_states import SameStates, by_chunk
from eventlog.merging.planning.by_state.sides import Side, differences
from eventlog.merging.planning.carried import Carried, MergeConflict


def objection(
    source: Side, target: Side, planned: Sequence[Carried], *, alone: bool, keyed: bool
) -> MergeConflict | None:
    """Return why the planned transactions must not be committed; None if they may be.

    Args:
        source: the log to merge from.
        target: the log to merge into.
        planned: the transactions that the target would get.
        alone: whether the target has merged no other log than the source. Then what the two logs
            did decides about rows that both have.
        keyed: whether the table is keyed.
    """
    regions = overlapping_chunks([*source.acts, *target.acts])
    changes = any(carried.adds or carried.drops for carried in planned)
    # against copies-that-agree-changed-one-by-one
    if changes and not alone and all(map(SameStates(source, target).are_in, regions)):
        return MergeConflict("both logs have the same rows", source.version)
    found = differences(source, target)
    conflict = Recounts(*found).conflict(regions)
    if conflict is not None:  # against carried-one-by-one-beside-a-recount
        return conflict
    expected = ExpectedRows(*found, once=not keyed)
    live = dict(target.live)
    for carried in planned:
        for name, _ in carried.drops:
            live.pop(name, None)
        live.update((segment.id, segment) for segment in carried.adds)
    after = by_chunk(live.values())
    # against rows-planned-that-must-not-be-there
    if any(expected.differ([s for c in x for s in after.get(c, ())], x) for x in regions):
        return MergeConflict(
            "one by one, its transactions would bring back rows that one of the two logs removed, "
            "or leave out rows that it has",
            source.version,
        )
    return None
