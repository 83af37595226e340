"""Programs of the contest: each appends its rows, or compacts the table until it is stopped.

    python participant.py eventlog|deltalake IN:OUT…

Imports the library, and then becomes as many programs as there are pairs of file descriptors: a
fork is cheaper than an import. Each reads a line of JSON (`Assignment`) from IN, opens the table,
writes `{"did": "ready"}` to OUT, and begins at the next line. It writes a line of JSON about
everything that it did (`ParticipantReport`). One more line, or the end of IN, stops it after what
is under way.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypedDict

import pyarrow as pa

TIME_COLUMN = "time_hour"
PARTITION = "month"  # of the Delta table, which has no time chunks
_PAUSE_S = 0.25  # between two passes of a compaction
_MESSAGE_CHARACTERS = 300


class Assignment(TypedDict):
    """What a participant is started for.

    Attributes:
        uri: of the table, which exists.
        options: storage options as those of eventlog.
        file: an Arrow file whose batches are appended one by one; empty for a compaction.
        name: of the writer.
    """

    uri: str
    options: dict[str, str]
    file: str
    name: str


class ParticipantReport(TypedDict, total=False):
    """What a participant did.

    Attributes:
        did: `ready`; `append`: a batch was acknowledged; `raise`: an append or a pass of the
            compaction raised; `pass`: a pass of the compaction ended; `end`: nothing is left to
            do; `gone` (reported by `crew`): the program ended in the middle of something.
        pid: of the program that is ready.
        rows: of the batch.
        committed: number of rewrites that the pass committed.
        failed: number of rewrites that it did not.
        why: the error.
    """

    did: str
    pid: int
    rows: int
    committed: int
    failed: int
    why: str


class Format(Protocol):
    """One table in one format, by the documented functions of its library with their defaults.

    The constructor imports the library, and does nothing else.
    """

    def locate(self, uri: str, options: Mapping[str, str]) -> None:
        """Set where the table is, and the storage options, named as those of eventlog."""

    def create(self, schema: pa.Schema) -> None:
        """Create the table, cut by month, and open it."""

    def open(self) -> None:
        """Open the newest version."""

    def append(self, rows: pa.Table, writer: str, number: int) -> None:
        """Append rows of one month: the batch of this number, from 1, of a writer."""

    def compact(self) -> tuple[int, int, str]:
        """Compact once; return how many rewrites were committed, how many failed, and why."""

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """Read some columns of all rows of the newest version."""

    def files(self) -> int:
        """Return the number of data files of the newest version."""


class EventlogFormat:
    """A table of eventlog."""

    def __init__(self) -> None:
        from eventlog import Table  # noqa: PLC0415
        from eventlog.compaction import run  # noqa: PLC0415
        from eventlog.readers import scan  # noqa: PLC0415
        from eventlog.writers import append  # noqa: PLC0415

        self._table_type, self._append, self._run, self._scan = Table, append, run, scan
        self._uri = ""
        self._options: Mapping[str, str] = {}
        self._table: Any = None

    def locate(self, uri: str, options: Mapping[str, str]) -> None:
        """See `Format.locate`."""
        self._uri, self._options = uri, options

    def create(self, schema: pa.Schema) -> None:
        """See `Format.create`."""
        self._table = self._table_type.create(
            self._uri,
            schema,
            time_column=TIME_COLUMN,
            granularity="month",
            storage_options=self._options,
        )

    def open(self) -> None:
        """See `Format.open`."""
        self._table = self._table_type.open(self._uri, self._options)

    def append(self, rows: pa.Table, writer: str, number: int) -> None:
        """See `Format.append`."""
        self._append(self._table, rows, app_id=writer, app_seq=number)

    def compact(self) -> tuple[int, int, str]:
        """See `Format.compact`."""
        outcomes = self._run(self._table).outcomes
        failed = [each for each in outcomes if each.status != "done"]
        why = "; ".join(dict.fromkeys(f"{each.status}: {each.error}" for each in failed))
        return len(outcomes) - len(failed), len(failed), why

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """See `Format.rows`."""
        return self._scan(self._table, list(columns)).to_table()

    def files(self) -> int:
        """See `Format.files`."""
        return int(self._table.refresh().totals.segments)


class DeltaFormat:
    """A table of the library deltalake."""

    def __init__(self) -> None:
        import deltalake  # noqa: PLC0415

        self._library: Any = deltalake
        self._uri = ""
        self._options: dict[str, str] = {}
        self._table: Any = None

    def locate(self, uri: str, options: Mapping[str, str]) -> None:
        """See `Format.locate`."""
        self._uri = uri
        self._options = {
            "AWS_ENDPOINT_URL": options["endpoint_url"],
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": options["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": options["secret_access_key"],
            "AWS_REGION": options["region"],
        }

    def create(self, schema: pa.Schema) -> None:
        """See `Format.create`."""
        self._table = self._library.DeltaTable.create(
            self._uri,
            schema.append(pa.field(PARTITION, pa.string())),
            partition_by=[PARTITION],
            storage_options=self._options,
        )

    def open(self) -> None:
        """See `Format.open`."""
        self._table = self._library.DeltaTable(self._uri, storage_options=self._options)

    def append(self, rows: pa.Table, writer: str, number: int) -> None:
        """See `Format.append`."""
        del writer, number
        month = f"{rows.column(TIME_COLUMN)[0].as_py():%Y-%m}"
        rows = rows.append_column(PARTITION, pa.repeat(month, len(rows)))
        self._library.write_deltalake(self._table, rows, mode="append")

    def compact(self) -> tuple[int, int, str]:
        """See `Format.compact`."""
        self._table.update_incremental()
        metrics = self._table.optimize.compact()
        return int(metrics["numFilesRemoved"] > 0), 0, ""

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """See `Format.rows`."""
        self.open()
        return self._table.to_pyarrow_table(columns=list(columns))

    def files(self) -> int:
        """See `Format.files`."""
        self.open()
        return len(self._table.file_uris())


FORMATS: dict[str, Callable[[], Format]] = {
    "eventlog": EventlogFormat,
    "deltalake": DeltaFormat,
}


def take_part(
    table: Format, assignment: Assignment, stop: threading.Event
) -> Iterator[ParticipantReport]:
    """Do what a participant is started for, and yield a report about each thing done."""
    if assignment["file"]:
        yield from _append_all(table, assignment, stop)
    else:
        yield from _compact_until(table, stop)
    yield {"did": "end"}


def _append_all(
    table: Format, assignment: Assignment, stop: threading.Event
) -> Iterator[ParticipantReport]:
    """Append batch by batch; one whose append raised is sent again, as a job would do."""
    with pa.memory_map(assignment["file"]) as file:
        reader = pa.ipc.open_file(file)
        batches = [reader.get_batch(at) for at in range(reader.num_record_batches)]
        for number, batch in enumerate(batches, 1):
            rows = pa.Table.from_batches([batch])
            acknowledged = False
            while not acknowledged and not stop.is_set():
                try:
                    table.append(rows, assignment["name"], number)
                except Exception as error:  # noqa: BLE001 - whatever the library raises
                    yield _raised(error)
                    table.open()
                else:
                    acknowledged = True
                    yield {"did": "append", "rows": len(rows)}


def _compact_until(table: Format, stop: threading.Event) -> Iterator[ParticipantReport]:
    """Compact again and again, and once more after the stop, when the writers have ended."""
    last = False
    while not last:
        last = stop.wait(_PAUSE_S)
        try:
            committed, failed, why = table.compact()
        except Exception as error:  # noqa: BLE001 - whatever the library raises
            yield _raised(error)
            table.open()
        else:
            yield {"did": "pass", "committed": committed, "failed": failed, "why": why}


def _raised(error: Exception) -> ParticipantReport:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return {"did": "raise", "why": text[:_MESSAGE_CHARACTERS]}


def main(arguments: list[str]) -> None:
    """Take part with the format that is named first, once for each pair of descriptors."""
    table = FORMATS[arguments[0]]()
    pairs = [tuple(map(int, pair.split(":"))) for pair in arguments[1:]]
    if len(pairs) == 1:
        _serve(table, *pairs[0])
        return
    for mine in pairs:
        if os.fork() == 0:
            # Whoever waits for the end of a pipe must not wait for another program's copy of it.
            for others in pairs:
                if others != mine:
                    _close(others)
            _serve(table, *mine)
            return
    for pair in pairs:
        _close(pair)
    for _ in pairs:
        os.wait()


def _serve(table: Format, source: int, target: int) -> None:
    with open(source) as commands, open(target, "w", buffering=1) as reports:

        def say(report: ParticipantReport) -> None:
            reports.write(json.dumps(report) + "\n")

        line = commands.readline()
        if not line:
            return
        assignment: Assignment = json.loads(line)
        table.locate(assignment["uri"], assignment["options"])
        table.open()
        say({"did": "ready", "pid": os.getpid()})
        if not commands.readline():
            return
        stop = threading.Event()

        def await_stop() -> None:
            commands.readline()
            stop.set()

        threading.Thread(target=await_stop, daemon=True).start()
        for report in take_part(table, assignment, stop):
            say(report)
        sys.stderr.flush()
        os._exit(0)  # the thread reads from a descriptor that nobody closes


def _close(pair: Sequence[int]) -> None:
    for descriptor in pair:
        os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1:])
