"""The workers of a soak run, each a process that may be killed at any moment and started again.

`python -m soak.work PLACE NAME`: PLACE is a JSON file that says where the table and the journals
are, NAME is one of `roster()`. A worker ends when its standard input does.

A new kind of worker is a class with `turn()`, and a line in `roster()`. What it commits is told to
its journal (`Writer.attempt`), and is known to the checker (`soak.history`).
"""

import json
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

from soak import journal, keyed
from soak.journal import DAY_MS, now_ns, rows_of
from soak.workers import FIRST_DAY, Worker, Writer

from eventlog import Ms, Table
from eventlog.compaction import vacuum
from eventlog.errors import CommitUnknown, InvalidInput, Unavailable, VersionVacuumed
from eventlog.readers import scan
from eventlog.table.stage_again import commit_staged
from eventlog.writers import append, overwrite
from eventlog.writers.batch import make_app, stage

OWN_DAY = 0
KEPT_DAYS = 3
ROWS = 12
BIG_ROWS, BIG_PAD = 30, 40_000  # a segment too large to be read in one request
MEMORY_BYTES = 64 * 2**20
RETENTION = timedelta(seconds=5)
STAGING = timedelta(seconds=2)
LAST_S = 20  # for the unit under way when told to stop


class Appender(Writer):
    """Appends under an app id; whatever is unclear is done again under the same sequence."""

    app = True

    def form(self, number: int) -> dict:
        day, big = self.today(), self.random.random() < 0.03
        parts = [self.part(number, day, BIG_ROWS if big else ROWS)]
        if self.random.random() < 0.3:
            parts.append(self.part(number, day - 1, ROWS, 500))
        return self.unit("append", number, parts, big=big, app=self.name if self.app else None)

    def commit(self, unit: dict) -> int:
        rows = rows_of(unit["parts"], BIG_PAD if unit["big"] else 0)
        app = {"app_id": unit["app"], "app_seq": unit["number"]} if unit["app"] else {}
        return append(self.table, rows, memory_bytes=MEMORY_BYTES, **app)


class BareAppender(Appender):
    """Appends without an app id: asks after what is unclear, and never sends it again."""

    app = False

    def unknown(self, error: CommitUnknown) -> dict:
        try:
            version = self.table.find_transaction(
                error.transaction, start=error.version, until=error.until
            )
        except (CommitUnknown, Unavailable):
            version = None
        if version is not None:
            return {"outcome": "acked", "version": version, "why": "found"}
        return super().unknown(error)

    def _start(self, unit: dict) -> None:
        super()._start(unit)
        self.pending = None


class SlowAppender(Appender):
    """Waits between staging and committing; a fence may have passed it by then."""

    def commit(self, unit: dict) -> int:
        app = make_app(unit["app"], unit["number"])
        head = self.table.session.head()
        adds = stage(self.table, head, rows_of(unit["parts"]), MEMORY_BYTES)
        self.stop.wait(self.random.uniform(0.5, 4))
        intent = self.table.transaction("append", adds, read_version=head.version, app=app)
        return commit_staged(self.table.session, intent)


class Overwriter(Writer):
    """Replaces its own day, or the one that is being appended to; empties the old days."""

    def form(self, number: int) -> dict:
        today, kind = self.today(), self.random.random()
        serializable = self.random.random() < 0.3
        days, parts = [OWN_DAY, OWN_DAY + 1], [self.part(number, OWN_DAY, ROWS)]
        if kind < 0.3:
            days, parts = [today, today + 1], [self.part(number, today, ROWS)]
        elif kind < 0.6 and today - KEPT_DAYS > FIRST_DAY:
            # Day 9 takes the rows of the day before the first.
            days, parts, serializable = [FIRST_DAY - 1, today - KEPT_DAYS], [], False
        isolation = "serializable" if serializable else "carry"
        return self.unit("overwrite", number, parts, days=days, isolation=isolation, app=self.name)

    def commit(self, unit: dict) -> int:
        start, end = (Ms(day * DAY_MS) for day in unit["days"])
        return overwrite(
            self.table,
            rows_of(unit["parts"]),
            start=start,
            end=end,
            isolation=unit["isolation"],
            app_id=unit["app"],
            app_seq=unit["number"],
            memory_bytes=MEMORY_BYTES,
        )


class Maintainer(Writer):
    """Changes a property; writes key frames that are not due."""

    def form(self, number: int) -> dict:
        token = f"{self.name}:{number}"
        return self.unit("property", number, [], token=token)

    def commit(self, unit: dict) -> int:
        return self.table.set_properties({journal.TOKEN: unit["token"]})

    def turn(self) -> None:
        super().turn()
        if self.random.random() < 0.4:
            self.journal.note(keyframe=self.table.write_keyframe())
        self.stop.wait(self.random.uniform(0.2, 1))

    def _start(self, unit: dict) -> None:
        super()._start(unit)
        self.pending = None  # a second try would be another transaction


class Reader(Worker):
    """Reads whole versions, the newest through an old and a new handle, and versions of before."""

    def turn(self) -> None:
        begin, kind, table = now_ns(), "head", self.table
        if self.random.random() < 0.25:
            table = self.open()
        head = table.refresh()
        version = head.version
        if self.random.random() < 0.4:
            lowest = 0 if self.random.random() < 0.2 else head.meta.horizon
            kind, version = "old", self.random.randint(lowest, version)
        try:
            self.read(kind, begin, table, version)
        except VersionVacuumed:
            self.journal.note(read="vacuumed", begin=begin, end=now_ns(), version=version)
        self.stop.wait(self.random.uniform(0, 0.5))

    def read(self, kind: str, begin: int, table: Table, version: int) -> None:
        """Read a version, and tell the journal what was there."""
        rows = journal.rows_in(scan(table, columns=["at", "n"], version=version).to_table())
        told = table.snapshot(version).totals.rows
        if told != len(rows):
            self.journal.note(error=f"version {version} has {told} rows, a scan {len(rows)}")
        digest = journal.add_hashes(*(journal.row_hash(*row) for row in rows))
        self.journal.note(
            read=kind, begin=begin, end=now_ns(), version=version, rows=len(rows), digest=digest
        )


class Pinner(Reader):
    """Pins a version; until it is unpinned it must stay readable, also after a kill."""

    def turn(self) -> None:
        pin = self.table.refresh().meta.pins.get(self.name)
        if pin is None:
            version = self.table.pin(self.name)
            self.journal.note(pin=version, begin=now_ns())
            self.stop.wait(self.random.uniform(2, 2 * RETENTION.total_seconds()))
            return
        self.read("pinned", now_ns(), self.table, pin.version)
        try:
            self.table.unpin(self.name)
        except InvalidInput as error:
            # An unpin whose answer was lost came through, since this one looked.
            self.journal.note(later=str(error))


class Vacuumer(Worker):
    """Deletes what no version within the retention needs."""

    def turn(self) -> None:
        done = vacuum(
            self.table,
            dry_run=False,
            retention=RETENTION,
            staging=STAGING,
            full=self.random.random() < 0.1,
        )
        gone = {name: sums.objects for name, sums in done.gone.items()}
        self.journal.note(vacuum=gone, horizon=done.horizon, fence=done.fence)
        self.stop.wait(self.random.uniform(0.5, 2))


def roster() -> dict[str, type[Worker]]:
    """Name -> kind of every worker of a run, in order of the numbers of their rows."""
    return {
        "append-1": Appender,
        "append-2": Appender,
        "append-3": BareAppender,
        "slow-1": SlowAppender,
        "overwrite-1": Overwriter,
        "maintain-1": Maintainer,
        "read-1": Reader,
        "vacuum-1": Vacuumer,
        "pin-1": Pinner,
        **keyed.roster(),
    }


def _watch_input(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()
    time.sleep(LAST_S)
    os._exit(3)


def main() -> None:
    place, name = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2]
    kinds = roster()
    worker = kinds[name](place, name, list(kinds).index(name))
    threading.Thread(target=_watch_input, args=(worker.stop,), daemon=True).start()
    worker.run()


if __name__ == "__main__":
    main()
