"""A log with commits of a copy that parted from it, as after a sync of two roots into one."""

from collections.abc import Mapping, Sequence

from support.builders import reopen, replace_object
from support.forked_histories import copied

from eventlog import Table
from eventlog.format import keys
from eventlog.store.port import ObjectStore


def take_over(
    store: ObjectStore, other: ObjectStore, versions: Sequence[int]
) -> Mapping[str, bytes]:
    """Put the other log's commits of some versions into a log; return those that it had."""
    own = {keys.commit_key(v): store.get(keys.commit_key(v)) for v in versions}
    for key in own:
        replace_object(store, key, other.get(key))
    return own


def aged_by_another_log(table: Table) -> int:
    """Make the commit after the next one that of a copy, ten days older than the own one.

    Returns:
        A time (ms) between the two: of the right log the newest version of it is the one below.
    """
    table.set_properties({"user.note": "both"})
    parted = reopen(copied(table.store))
    parted.clock.advance(table.clock.now_ms() - parted.clock.now_ms() + 1)
    version = parted.set_properties({"user.note": "there"})
    between = table.clock.now_ms() + 86_400_000
    table.clock.advance(10 * 86_400_000)
    for n in range(4):
        table.set_properties({"user.note": str(n)})
    take_over(table.store, parted.store, [version])
    return between
