"""Changes of a table's settings: properties, granularity, buckets, clock.

Each change is a commit of its own, and conflicts if another writer changed the same setting.
"""

from __future__ import annotations

from collections.abc import Mapping

from eventlog.arguments import mapping, whole
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.keyed.rule import MAX_BUCKETS, keyed_of
from eventlog.model.actions import SetBuckets, SetClock, SetGranularity, SetProperties
from eventlog.model.chunks import check_granularity
from eventlog.model.properties import is_merge
from eventlog.model.schema import check_timeless
from eventlog.query.moments import Moment, to_ms
from eventlog.session.session import Session
from eventlog.state.small import timing
from eventlog.store.port import store_time_ms
from eventlog.table.creation import property_changes


def set_properties(session: Session, properties: Mapping[str, str | None]) -> int:
    """See `Table.set_properties`."""
    head, properties = session.refresh(), mapping(properties, "properties")
    fixed = sorted(name for name in properties if is_merge(name))
    if fixed:
        raise InvalidInput(
            f"property {fixed[0]} is part of the merge rule, which is fixed when a table is "
            "created, because it determines the rows of every version"
        )
    changes = property_changes(properties, head.meta.properties, head.stored_schema)
    return session.commit(session.transaction("properties", [SetProperties(changes)]))


def set_granularity(session: Session, granularity: str) -> int:
    """See `Table.set_granularity`."""
    wanted, layout = check_granularity(granularity), session.refresh().layout
    now = layout.granularity
    if wanted == now:
        return session.head().version
    if keyed_of(layout) is not None:
        raise InvalidInput(
            f"the granularity of a keyed table is fixed at its creation, here {now!r}: a key is "
            "unique within its time chunk. Create a table of granularity "
            f"{wanted!r} with Table.create(..., key=..., granularity={wanted!r}), and upsert the "
            "rows of this one there",
            table=session.uri,
        )
    if layout.time_column is None:
        check_timeless(wanted)
    change = SetGranularity(now, wanted)
    return session.commit(session.transaction("granularity", [change]))


def set_buckets(session: Session, buckets: int) -> int:
    """See `Table.set_buckets`."""
    wanted = whole(buckets, "buckets", 1, MAX_BUCKETS)
    head = session.refresh()
    keyed = keyed_of(head.layout)
    _ = head.merge_rule  # there are buckets to double
    if keyed is None:
        raise InvalidInput("buckets are for keyed tables: this one has no key", table=session.uri)
    if wanted == keyed.buckets:
        return session.head().version
    steps = []
    now = keyed.buckets
    while now < wanted:
        steps.append(SetBuckets(now, 2 * now))
        now *= 2
    if now != wanted:
        raise InvalidInput(
            f"buckets can only be doubled, once or several times: from {keyed.buckets}, {wanted} "
            "cannot be reached",
            table=session.uri,
        )
    return session.commit(session.transaction("split", steps))


def set_clock(session: Session, moment: Moment | None = None) -> int:
    """See `Table.set_clock`."""
    head = session.refresh()
    now_ms = store_time_ms(session.store, session.clock)
    new = now_ms if moment is None else to_ms(moment)
    change = SetClock(head.version, head.header.time, new)
    refused = timing.correct_clock(change, head.meta, head.version + 1, new)
    if isinstance(refused, str):  # no reading of the table would change that
        session.verify()
        raise CommitConflict(
            f"{refused}. Nothing was committed", table=session.uri, version=head.version
        )
    return session.commit(session.transaction("clock", [change]))
