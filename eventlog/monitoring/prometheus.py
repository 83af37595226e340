r"""The figures of a table in Prometheus' text format, for a collector of text files. Pure.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/, "Text-based format": a comment
HELP and a comment TYPE before the samples of a name, `\`, `"` and the end of a line escaped in the
values of labels, and a line end after the last sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eventlog.display import plain
from eventlog.monitoring.table_stats import TableStats

_HOUR_S = 3600


@dataclass(frozen=True, slots=True)
class Gauge:
    """One metric, whose values belong to the labels that come with them.

    Attributes:
        name: without the prefix `eventlog_`.
        text: what it says, in one line.
        samples: labels beside `table`, and the value.
    """

    name: str
    text: str
    samples: Sequence[tuple[Mapping[str, str], float]]


def exposition(stats: TableStats) -> str:
    """Return the figures as metrics `eventlog_…`, each with the label `table`: the root URI."""
    return "".join(_lines(gauge, stats.table) for gauge in gauges(stats))


def gauges(stats: TableStats) -> Iterator[Gauge]:
    """Yield the metrics of a table; those of keyed tables, copies and vacuum if there are any."""
    for name, value, text in (*_of_size(stats), *_of_upkeep(stats), *_of_days(stats)):
        yield Gauge(name, text, [({}, value)])
    day = stats.daily
    yield Gauge(
        "requests_per_day",
        "Requests of writers and compaction a day, estimated from the log.",
        [({"kind": "put"}, day.puts), ({"kind": "get"}, day.gets)],
    )
    if stats.holds:
        yield Gauge(
            "held_version",
            "Oldest version that a pin, a tag, a branch or a copy keeps from vacuum.",
            [({"kind": h.kind, "name": h.name}, h.version) for h in stats.holds],
        )
    if stats.copies:
        yield Gauge(
            "copy_behind_versions",
            "Versions that an attached copy lacks.",
            [({"name": copy.name}, copy.behind) for copy in stats.copies],
        )
        yield Gauge(
            "copy_behind_seconds",
            "Age of the oldest version that an attached copy lacks; 0 if it lacks none.",
            [({"name": copy.name}, copy.behind_s) for copy in stats.copies],
        )
    if stats.vacuum is not None and stats.vacuum.retained:
        yield Gauge(
            "retained_bytes",
            "Bytes that the newest version does not need and vacuum would keep, by reason.",
            [({"reason": kept.reason}, kept.bytes) for kept in stats.vacuum.retained],
        )


_Value = tuple[str, float, str]


def _of_size(stats: TableStats) -> list[_Value]:
    values: list[_Value] = [
        ("version", stats.version, "Newest version."),
        ("commit_timestamp_seconds", stats.time.timestamp(), "Time of the newest commit."),
        ("stats_timestamp_seconds", stats.read_time.timestamp(), "Time of these figures."),
        ("chunks", stats.time_chunks, "Time chunks with live segments."),
        ("segments", stats.segments, "Live segments."),
        ("rows", stats.rows, "Rows of the live segments, without deleted ones."),
        ("bytes", stats.bytes, "Bytes of the live segments."),
        ("deleted_rows", stats.deleted_rows, "Rows that are deleted and still stored."),
        ("small_segments", stats.small_segments, "Live segments below the good size."),
        ("small_bytes", stats.small_bytes, "Bytes of the live segments below the good size."),
    ]
    if stats.by_kind is not None:
        values += [
            ("base_segments", stats.by_kind.base_segments, "Bases of a keyed table."),
            ("base_bytes", stats.by_kind.base_bytes, "Bytes of the bases of a keyed table."),
            ("log_segments", stats.by_kind.log_segments, "Logs above the bases."),
            ("log_bytes", stats.by_kind.log_bytes, "Bytes of the logs above the bases."),
        ]
    return values


def _of_upkeep(stats: TableStats) -> list[_Value]:
    gain = stats.compaction
    values: list[_Value] = [
        ("compaction_tasks", gain.planned, "Tasks that compaction would perform."),
        ("compaction_input_segments", gain.inputs, "Segments that they would rewrite."),
        ("compaction_input_bytes", gain.input_bytes, "Bytes that they would rewrite."),
        ("compaction_saved_segments", gain.saved, "Segments fewer after them, at most."),
        ("compaction_freed_bytes", gain.freed, "Bytes of deleted rows that they would free."),
        ("compaction_skipped_chunks", gain.skipped, "Chunks that rest after a failed task."),
        ("horizon_version", stats.horizon, "Oldest version that can be read."),
        (
            "horizon_timestamp_seconds",
            stats.horizon_time.timestamp(),
            "Time of the oldest version that can be read.",
        ),
        (
            "retention_seconds",
            stats.retention_hours * _HOUR_S,
            "Time for which vacuum keeps versions readable.",
        ),
    ]
    if stats.vacuum is not None:
        values += [
            ("vacuum_objects", stats.vacuum.objects, "Objects that a vacuum would delete."),
            ("vacuum_bytes", stats.vacuum.bytes, "Bytes that a vacuum would delete."),
        ]
    return values


def _of_days(stats: TableStats) -> list[_Value]:
    day = stats.daily
    return [
        ("commits_per_day", day.commits, "Commits a day, by the newest versions."),
        ("transactions_per_day", day.transactions, "Transactions a day in these commits."),
        ("segments_added_per_day", day.segments_added, "Segments added a day."),
        ("segments_dropped_per_day", day.segments_dropped, "Segments dropped a day."),
        ("rows_per_day", day.rows, "Rows by which the table grows a day."),
        ("bytes_per_day", day.bytes, "Bytes by which its live segments grow a day."),
        ("request_dollars_per_day", day.request_dollars, "List price of these requests a day."),
        ("storage_dollars_per_day", stats.storage_dollars, "List price of the live bytes a day."),
    ]


def _lines(gauge: Gauge, table: str) -> str:
    name = f"eventlog_{gauge.name}"
    lines = [f"# HELP {name} {gauge.text}", f"# TYPE {name} gauge"]
    for labels, value in gauge.samples:
        shown = ",".join(f'{key}="{_escaped(v)}"' for key, v in {"table": table, **labels}.items())
        lines.append(f"{name}{{{shown}}} {value!r}")
    return "\n".join([*lines, ""])


def _escaped(value: str) -> str:
    """Return the value of a label; what a terminal would obey, line ends too, as its number."""
    # against text-of-a-log-in-an-exposition
    return plain(value).replace("\\", r"\\").replace('"', r"\"")
