"""The systems that compact, behind one small protocol: `peers` and what a compaction needs.

Tables are cut by day where the system can: eventlog by its time column, Delta by a partition column
that its files do not hold; Lance knows no such cut and puts files together in the order in which
they came. Every adapter uses its library's documented public names with their defaults.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
from dataclasses import dataclass, field
from typing import Protocol

import peers
import pyarrow as pa
import pyarrow.compute as pc

DAY = "day"


@dataclass
class Pass:
    """What one pass over a whole table came to; nothing of both where there was nothing to do.

    `tries` holds how often each compaction was tried, where that can be told.
    """

    committed: int = 0
    failed: int = 0
    tries: list[int] = field(default_factory=list)
    why: str = ""


class Compactor(Protocol):
    """One table of one system, as `peers.System`, with what compaction needs."""

    def create_by_day(self, schema: pa.Schema) -> None: ...
    def attach(self) -> None: ...
    def append(self, rows: pa.Table) -> None: ...
    def append_files(self, rows: pa.Table, rows_per_file: int) -> None: ...  # many files at once
    def compact(self, memory_bytes: int | None = None, rows_per_file: int | None = None) -> Pass:
        """Look for news and compact everything once; None leaves a setting at its default."""

    def files(self) -> int: ...  # of the newest version
    def rows(self) -> int: ...
    def ids(self) -> pa.ChunkedArray: ...  # the column "id" of the newest version


class Eventlog(peers.Eventlog):
    """The local driver. All three drivers perform the same tasks in the same way."""

    def create_by_day(self, schema):
        self.create(schema)

    def attach(self):
        from tries import TryCounter

        from eventlog import Table
        from eventlog.store.location import open_store

        self.counter = TryCounter(open_store(self.root, self.options))
        self.table = Table.open(self.root, store=self.counter)
        self.table.session.head()

    def append_files(self, rows, rows_per_file):
        self.append(rows)

    def compact(self, memory_bytes=None, rows_per_file=None):
        from eventlog.compaction import Policy, run

        settings = {} if memory_bytes is None else {"memory_bytes": memory_bytes}
        self.counter.forget()
        report = run(self.table, policy=Policy(**settings))
        done = [one for one in report.outcomes if one.status == "done"]
        # What another compactor has claimed or done is left to it.
        other = [
            one for one in report.outcomes if one.status not in ("done", "claimed", "superseded")
        ]
        why = "; ".join(dict.fromkeys(f"{one.status}: {one.error}" for one in other))
        return Pass(len(done), len(other), self.counter.tries("compact"), why[:200])

    def files(self):
        return self.list_files(self.open_head())

    def ids(self):
        from eventlog.readers import scan

        return scan(self.open_head(), columns=["id"]).to_table().column("id")


class Delta(peers.Delta):
    def create_by_day(self, schema):
        from deltalake import DeltaTable

        self.table = DeltaTable.create(
            self.root,
            schema.append(pa.field(DAY, pa.date32())),
            partition_by=[DAY],
            storage_options=self.options,
        )

    def append(self, rows):
        super().append(rows.append_column(DAY, pc.cast(rows.column(peers.TIME), pa.date32())))

    def append_files(self, rows, rows_per_file):
        self.append(rows)

    def compact(self, memory_bytes=None, rows_per_file=None):
        self.table.update_incremental()
        settings = {} if memory_bytes is None else {"max_spill_size": memory_bytes}
        told = self.table.optimize.compact(**settings)
        return Pass(committed=int(told["numFilesRemoved"] > 0))

    def files(self):
        return self.list_files(self.open_head())

    def ids(self):
        return self.open_head().to_pyarrow_table(columns=["id"]).column("id")


class Lance(peers.Lance):
    def create_by_day(self, schema):
        self.create(schema)

    def append_files(self, rows, rows_per_file):
        self.table.insert(rows, max_rows_per_file=rows_per_file, storage_options=self.options)

    def compact(self, memory_bytes=None, rows_per_file=None):
        self.table.checkout_latest()
        settings = {} if rows_per_file is None else {"target_rows_per_fragment": rows_per_file}
        told = self.table.optimize.compact_files(**settings)
        return Pass(committed=int(told.fragments_removed > 0))

    def files(self):
        return self.list_files(self.open_head())

    def ids(self):
        return self.open_head().to_table(columns=["id"]).column("id")


COMPACTORS = {"eventlog": Eventlog, "deltalake": Delta, "pylance": Lance}


def present():
    """Return the systems that are installed, eventlog first."""
    return {name: COMPACTORS[name] for name in peers.present(*COMPACTORS)}
