"""The processes of `test_changed_rows`: writers, compactors and a vacuum of the same chunks.

Each writer changes rows of its own, which lie in the chunks and
segments of all, so that it knows what must be there: every change that was acknowledged, once.
"""

import random
import time
from collections import Counter
from datetime import timedelta
from unittest import mock

import pyarrow as pa

from eventlog import Table
from eventlog.compaction import Policy, perform, plan, vacuum
from eventlog.session.session import Session
from eventlog.writers import append, delete, merge, overwrite, update

SCHEMA = pa.schema(
    [("at", pa.timestamp("us", "UTC")), ("owner", pa.int64()), ("n", pa.int64()), ("v", pa.int64())]
)
HOUR_US = 3_600_000_000
WRITERS, COMPACTORS = 5, 2
COMMIT = Session.commit
POLICY = Policy(target_bytes=2**16, claim_bytes=2**40, backoff_s=1)


def rows_of(owner, values):
    at = [n % 24 * HOUR_US for n in values]
    return pa.table([at, [owner] * len(at), [*values], [*values.values()]], schema=SCHEMA)


def work(number, start, uri, options, seconds):
    """Do one of the three kinds of work until the time is over; return what it did."""
    table, chance = Table.open(uri, options), random.Random(number)
    start.wait(280)
    end = time.monotonic() + seconds
    if number < WRITERS:
        return change(table, number, chance, end)
    if number < WRITERS + COMPACTORS:
        return compact(table, end)
    counts = Counter()
    while time.monotonic() < end:
        vacuum(table, dry_run=False, retention=timedelta(0), staging=timedelta(seconds=20))
        counts["vacuums"] += 1
        time.sleep(1)
    return counts


def change(table, owner, chance, end):
    """Change rows of one owner; return the values that they must have, and how often it did."""
    held, counts, following = {}, Counter(), 0
    while time.monotonic() < end:
        verb = chance.choice(["append", "append", "delete", "update", "merge", "overwrite"])
        low = chance.randrange(following + 1)
        step = chance.choice([1, 3, 7])
        chosen = [*range(low, following, step)][: chance.choice([3, 40])]
        listed = ", ".join(map(str, chosen or [-1]))
        where = f"owner = {owner} and n in ({listed})"
        if verb == "append":
            new = dict.fromkeys(range(following, following + 50), 0)
            following += 50
            append(table, rows_of(owner, new))
            held |= new
        elif verb == "delete":
            delete(table, where=where)
            held = {n: v for n, v in held.items() if n not in set(chosen)}
        elif verb == "update":
            update(table, {"v": "v + 1"}, where)
            held |= {n: held[n] + 1 for n in chosen if n in held}
        elif verb == "merge":
            merge(table, rows_of(owner, dict.fromkeys(chosen, 1000)), ["owner", "n"],
                  when_matched={"v": "v + source.v"})  # fmt: skip
            held |= {n: held.get(n, 0) + 1000 for n in chosen}
        else:
            new = dict.fromkeys(chosen[::2], 5)
            overwrite(table, rows_of(owner, new), where=where)
            held = {n: v for n, v in held.items() if n not in set(chosen)} | new
        counts[verb] += 1
    return held, counts


def compact(table, end):
    """Compact; return the numbers of tasks by how they ended, and by how often they tried."""
    counts = Counter()
    while time.monotonic() < end:
        table.refresh()
        for task in plan(table, POLICY).tasks[:3]:
            with mock.patch.object(Session, "commit", autospec=True, side_effect=COMMIT) as tried:
                outcome = perform(table, task, POLICY)
            counts[outcome.status] += 1
            if outcome.status == "failed":
                counts[f"failed: {outcome.error}"] += 1
            if outcome.status == "done":
                counts[f"tries: {tried.call_count}"] += 1
        time.sleep(0.05)
    return counts
