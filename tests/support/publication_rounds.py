"""Publications under way beside all that changes a table, and what has to be true in the end.

`change` does what a table's writers do: appends, deletes of rows, compactions, restores, vacuums.
`MetStore` is a store at one of whose calls something else happens.
"""

import json
import random
from collections.abc import Callable
from datetime import timedelta

from support.builders import Spy, events, live
from support.deleting import delete_rows, deleted_positions

from eventlog import Table
from eventlog.compaction import Policy, run, vacuum
from eventlog.fsck.check import fsck
from eventlog.publishing import publish, unpublish
from eventlog.writers import append

FORMATS = ("delta", "iceberg")
PREFIXES = {"delta": "_delta_log/", "iceberg": "metadata/"}
HINT = "_delta_log/_last_checkpoint"


class MetStore(Spy):
    """A store that calls something back before its `at`-th call, once."""

    def __init__(self, inner, at: int, meet: Callable[[], None]) -> None:
        super().__init__(inner)
        self.calls, self._at, self._meet = 0, at, meet

    def _tick(self) -> None:
        self.calls += 1
        if self.calls == self._at:
            self._meet()

    def get(self, key, *, start=0, length=None):
        self._tick()
        return super().get(key, start=start, length=length)

    def put_if_absent(self, key, body):
        self._tick()
        return super().put_if_absent(key, body)

    def put_hint(self, key, body):
        self._tick()
        super().put_hint(key, body)

    def list(self, prefix, *, after="", limit=None):
        self._tick()
        return super().list(prefix, after=after, limit=limit)


def change(t: Table, draw: random.Random, number: int, retention: timedelta) -> str:
    """Commit something, most often an append or a delete of rows; return what it was."""
    kinds = ["append", "delete", "compact", "vacuum", "restore", "pin"]
    (kind,) = draw.choices(kinds, [10, 6, 2, 1, 1, 1])
    head = t.refresh()
    segments = live(head)
    if kind == "delete" and segments:
        segment = draw.choice(segments)
        left = sorted({*range(segment.rows)} - {*deleted_positions(t, segment)})
        if len(left) > 1:
            delete_rows(t, {segment.id: draw.sample(left, len(left) // 2)})
            return kind
    if kind == "compact":
        run(t, policy=Policy(min_gain=0.01))
    elif kind == "vacuum":
        vacuum(t, dry_run=False, retention=retention, staging=retention)
    elif kind == "restore" and head.version > max(3, head.meta.horizon):
        t.restore(max(head.meta.horizon, head.version - draw.randrange(1, 4)))
    elif kind == "pin":
        held = [*head.meta.pins]
        t.unpin(held[0]) if held else t.pin("held", head.version)
    else:
        kind = "append"
        rows = events(draw.randrange(2, 9), day=draw.randrange(3), first=1000 * number, days=2)
        append(t, rows)
    return kind


def check_publication(t: Table, format_name: str) -> tuple[int, int]:
    """Check that what lies there is what a fresh publication puts; return its versions.

    Objects that a publisher put which was killed, and which nothing names, may lie there, too.
    """
    publish(t, format_name)
    report = fsck(t)
    assert report.ok, report.findings
    prefix = PREFIXES[format_name]
    found = {row.key: t.store.get(row.key) for row in t.store.list(prefix)}
    unpublish(t, format_name, dry_run=False)
    done = publish(t, format_name)
    fresh = {row.key: t.store.get(row.key) for row in t.store.list(prefix)}
    # A publication that begins above the horizon has a checkpoint there.
    own = {HINT, f"_delta_log/{done.first:020d}.checkpoint.parquet"}
    if t.session.head().merge_rule is not None:  # and its commit has no files
        own.add(f"_delta_log/{done.first:020d}.json")
    assert fresh.keys() - found.keys() <= own
    assert [k for k in fresh if k in found and k not in own and fresh[k] != found[k]] == []
    if HINT in found:
        named = json.loads(found[HINT])["version"]
        assert f"_delta_log/{named:020d}.checkpoint.parquet" in found
    return done.first, done.last
