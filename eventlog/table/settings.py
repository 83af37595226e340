"""Changes of a table's settings: properties, granularity, buckets, clock.

Each change is a commit of its own, and conflicts if another writer changed the same setting.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from eventlog.arguments import mapping, whole
from eventlog.errors import CommitConflict, EventLogError, InvalidInput
from eventlog.keyed.rule import MAX_BUCKETS, keyed_of
from eventlog.model.actions import (
    Action,
    PropertyChange,
    SetBuckets,
    SetClock,
    SetGranularity,
    SetProperties,
)
from eventlog.model.entries import Granularity
from eventlog.model.properties import AUTO, is_merge
from eventlog.model.schema import check_timeless
from eventlog.query.moments import Moment, to_ms
from eventlog.session.session import Session
from eventlog.state.small import timing
from eventlog.store.port import store_time_ms
from eventlog.table.creation import check_wish, property_changes

logger = logging.getLogger(__name__)


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
    wish, head = check_wish(granularity), session.refresh()
    now, following = head.layout.granularity, head.properties.get(AUTO)
    if keyed_of(head.layout) is not None and wish != now:
        other = "GRANULARITY" if wish == "auto" else repr(wish)
        raise InvalidInput(
            f"the granularity of a keyed table is fixed at its creation, here {now!r}: a key is "
            f"unique within its time chunk. Create a table with Table.create(..., key=..., "
            f"granularity={other}), and upsert the rows of this one there",
            table=session.uri,
        )
    if head.layout.time_column is None:
        if wish == "auto":
            raise InvalidInput("a table without a time column has one chunk: it cannot be auto")
        check_timeless(wish)
    actions: list[Action] = []
    if wish != "auto" and wish != now:  # noqa: PLR1714 - mypy narrows this form
        actions.append(SetGranularity(now, wish))
    kept = "1" if wish == "auto" else None
    if following != kept:  # against fixed-granularity-moves
        actions.append(SetProperties((PropertyChange(AUTO, following, kept),)))
    if not actions:
        return head.version
    return session.commit(session.transaction("granularity", actions))


def move_granularity(session: Session, now: Granularity, better: Granularity) -> bool:
    """Change the granularity of a table that follows its data; return whether that was done.

    It is a wish: where another writer has changed or fixed the granularity, or the commit fails,
    the table stays as it is, and whatever the caller does next works with it.

    Args:
        session: the table.
        now: its granularity, as the caller has seen it.
        better: the new one.
    """
    following = session.head().properties.get(AUTO)
    # Void if somebody fixes the granularity meanwhile.
    follows = SetProperties((PropertyChange(AUTO, following, following),))
    # against granularity-moved-though-fixed
    actions: list[Action] = [SetGranularity(now, better), follows]
    try:
        session.commit(session.transaction("granularity", actions))
    except EventLogError as error:
        logger.info("the granularity stays, and does not become %s: %s", better, error)
        return False
    logger.info("the granularity was %s, and is %s from now on", now, better)
    return True


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
