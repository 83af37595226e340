"""The verbs of compaction: compact (plan, explain, run) and chunks.

Needs the extra `cli`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from eventlog import Table
from eventlog.arguments import parse_names
from eventlog.cli import terminal
from eventlog.cli.place import (
    Place,
    VersionType,
    common,
    driver_option,
    only_with_run,
    start_driver,
)
from eventlog.cli.screen.paging import listing
from eventlog.compaction.planner.candidates import expected_outputs
from eventlog.compaction.planner.planning import (
    better_fit,
    examine,
    explain,
    explain_slices,
    plan,
)
from eventlog.compaction.planner.plans import (
    ChunkReport,
    ExaminedChunks,
    ExaminedSlices,
    Plan,
    SliceReport,
)
from eventlog.compaction.planner.scoring import ChunkVerdict
from eventlog.compaction.planner.slice_planning import SliceVerdict
from eventlog.compaction.policy import MIB, ORDERS, Policy
from eventlog.compaction.tasks import Task
from eventlog.errors import CommitConflict, InvalidInput
from eventlog.keyed.rule import keyed_of
from eventlog.model.entries import GRANULARITIES, ChunkState
from eventlog.quantities import count_text, size_text
from eventlog.session.tags import VersionOrName
from eventlog.staging.fitting import Fit
from eventlog.store.parallel import DriverName

if TYPE_CHECKING:
    from eventlog.compaction.runner import RunReport

_Function = TypeVar("_Function", bound=Callable[..., Any])
_SHOWN_CHUNKS = 3  # of a task; further chunks are only counted
_SHOWN_CLAIMS = 3  # of other writers that blocked tasks

at_version = click.option(
    "--at", "--version", "version", type=VersionType(), metavar="VERSION",
    help="Plan as of this version; default: the newest.",
)  # fmt: skip


def policy_options(function: _Function) -> _Function:
    """Add the options of a `Policy` to a verb, which receives it as `policy`."""

    def called(  # noqa: PLR0913 - one parameter per option
        place: Place,
        *,
        target_mb: float | None,
        granularity: str | None,
        sort_by: str | None,
        deleted_ratio: float | None,
        order: str | None,
        max_task_mb: float | None,
        max_tasks: int | None,
        memory_mb: float | None,
        **rest: Any,
    ) -> Any:
        given = {
            "target_bytes": _bytes(target_mb),
            "granularity": granularity,
            "sort_by": tuple(parse_names(sort_by, "--sort-by")) if sort_by else None,
            "deleted_ratio": deleted_ratio,
            "order": order,
            "max_task_bytes": _bytes(max_task_mb),
            "max_tasks": max_tasks,
            "memory_bytes": _bytes(memory_mb),
        }
        chosen: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
        if target_mb is not None and max_task_mb is None:
            # A larger target alone implies larger tasks instead of an error.
            least = 4 * chosen["target_bytes"]
            chosen["max_task_bytes"] = max(Policy().max_task_bytes, least)
        return function(place, policy=Policy(**chosen).check(), **rest)

    called.__name__, called.__doc__ = function.__name__, function.__doc__
    called.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
    wrapped: Any = called
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[no-any-return]


_MB = click.FloatRange(min=0, min_open=True, max=2**40)
_OPTIONS = (
    click.option("--target-mb", type=_MB, help="Largest size of a segment, MiB (128)."),
    click.option(
        "--granularity",
        type=click.Choice(GRANULARITIES),
        help="Recut segments of other granularities.",
    ),
    click.option("--sort-by", metavar="A,B", help="Columns to sort by; default: the table's."),
    click.option(
        "--deleted-ratio",
        type=click.FloatRange(0, 1),
        help="Rewrite segments with a larger share of deleted rows (0.2).",
    ),
    click.option("--order", type=click.Choice(ORDERS), help="Which tasks run first (priority)."),
    click.option("--max-task-mb", type=_MB, help="Largest size of a task, MiB (2048)."),
    click.option(
        "--max-tasks",
        type=click.IntRange(min=1),
        help="Tasks running at once (4; with Spark, its parallelism).",
    ),
    click.option("--memory-mb", type=_MB, help="Memory per run, with Spark per task, MiB (512)."),
)


@click.command()
@common
@policy_options
@at_version
@only_with_run
@click.option(
    "--explain", "chunk", metavar="CHUNK", help="Explain why this chunk is, or is not, compacted."
)
@driver_option("Where --run runs: in this process, or on Spark's executors.")
@listing
def compact(
    place: Place,
    *,
    policy: Policy,
    version: VersionOrName | None,
    run: bool,
    chunk: str | None,
    driver: DriverName,
) -> int:
    """Show which segments are worth rewriting; --run rewrites them.

    The plan has their order, and the reasons. It never blocks readers or writers, and they never
    block it. Exit code of --run: 1 if a task failed; 3 if no task was done because of claims of
    other writers, or because others had done the work; else 0.
    """
    if run and (chunk is not None or version is not None):
        raise InvalidInput("--run compacts the newest version; leave out --at and --explain")
    table = place.open()
    if chunk is not None and keyed_of(table.snapshot(version).layout) is not None:
        _show_slice_verdicts(explain_slices(table, chunk, policy, version=version), place)
        return 0
    if chunk is not None:
        _show_verdict(explain(table, chunk, policy, version=version), place)
        return 0
    if run:
        return _run(table, policy, driver, place)
    now_ms = None if version is not None else table.clock.now_ms()
    current_plan = plan(table, policy, version=version, now_ms=now_ms)
    if place.as_json:
        terminal.json_document(_plan_json(table, current_plan))
    else:
        _show_plan(current_plan)
        _note_fit(better_fit(table.snapshot(current_plan.version), policy), table.uri)
    return 0


@click.command()
@common
@policy_options
@at_version
@listing
def chunks(place: Place, *, policy: Policy, version: VersionOrName | None) -> None:
    """List the time chunks as compaction sees them.

    These are their segments by size, and its verdict on each. For a keyed table, show the slices:
    which segments count in which buckets. `eventlog ls --chunks` shows only the totals, also at
    older times or for a condition.
    """
    table = place.open()
    report = examine(table, policy, version=version)
    if isinstance(report, SliceReport):
        _show_slices(report, place)
    else:
        _show_chunks(report, policy, place)
        if not place.as_json:
            _note_fit(report.fit, table.uri)


def _show_chunks(report: ChunkReport, policy: Policy, place: Place) -> None:
    bounds = report.bounds
    if place.as_json:
        by_size = (
            [
                {"below": bound, "segments": count}
                for bound, count in zip([*bounds, None], chunk.counts, strict=True)
            ]
            for chunk in report.chunks
        )
        terminal.json_list(
            {**_verdict_json(chunk.verdict), "sizes": sizes}
            for chunk, sizes in zip(report.chunks, by_size, strict=True)
        )
        return
    deleted = ["deleted"] if any(chunk.verdict.deleted for chunk in report.chunks) else []
    names = [f"<{size_text(bound)}" for bound in bounds[:-1]]
    names += ["good", f">{size_text(policy.target_bytes)}"]
    terminal.table(
        ("chunk", "act", "rule", "segments", "rows", *deleted, "bytes", *names, "priority",
         "noted"),
        (
            (
                v.chunk,
                v.act,
                v.rule,
                terminal.with_thousands(v.segments),
                terminal.with_thousands(v.rows),
                *(terminal.with_thousands(v.deleted) for _ in deleted),
                size_text(v.bytes),
                *(terminal.with_thousands(n) if n else "" for n in counts),
                f"{v.priority:.3f}" if v.act == "compact" else "",
                v.state.state if v.state else "",
            )
            for v, counts in ((chunk.verdict, chunk.counts) for chunk in report.chunks)
        ),
        right=("segments", "rows", *deleted, "bytes", *names, "priority"),
    )  # fmt: skip
    unstable = sum(chunk.verdict.act == "compact" for chunk in report.chunks)
    total = count_text(len(report.chunks), "chunk")
    terminal.note(f"{total} at version {report.version}; {unstable:,} to compact")


VERBS = (compact, chunks)


def _show_slices(report: SliceReport, place: Place) -> None:
    """List neighbouring buckets in which the same segments count."""
    if place.as_json:
        terminal.json_list(map(_verdict_json, report.slices))
        return
    terminal.table(
        ("chunk", "buckets", "act", "rule", "bases", "late", "logs", "base bytes", "log bytes",
         "newest", "priority"),
        (
            (
                v.chunk,
                _bucket_text(v.first, v.last),
                v.act,
                v.rule,
                *(terminal.with_thousands(count) for count in (v.bases, v.late, v.logs)),
                *(size_text(size) for size in (v.base_bytes, v.log_bytes)),
                v.newest,
                f"{v.priority:.3f}" if v.act == "merge" else "",
            )
            for v in report.slices
        ),
        right=("bases", "late", "logs", "base bytes", "log bytes", "newest", "priority"),
    )  # fmt: skip
    due = sum(v.act == "merge" for v in report.slices)
    terminal.note(
        f"{count_text(len(report.slices), 'run')} of slices at version {report.version}; {due:,} "
        "to merge. A run is neighbouring buckets in which the same segments count; of a shared "
        "segment each has its share of the bytes"
    )
    if report.wanted_buckets is not None:
        terminal.note(
            "buckets are large, and a merge rewrites whole ones: "
            f"`eventlog split TABLE {report.wanted_buckets}` makes them smaller, and rewrites "
            "nothing by itself"
        )
    if report.ineffective:
        size = size_text(sum(segment.bytes for segment in report.ineffective))
        terminal.note(
            f"{count_text(len(report.ineffective), 'segment')} of {size} taken in everywhere: the "
            "next merge of the chunk drops them"
        )


def _show_slice_verdicts(found: Sequence[SliceVerdict], place: Place) -> None:
    if place.as_json:
        terminal.json_list(map(_verdict_json, found))
        return
    if not found:
        terminal.say("the chunk has no segments: `eventlog chunks` lists those that have")
    for number, v in enumerate(found):
        if number:
            terminal.say()
        terminal.facts(
            [
                ("buckets", f"{_bucket_text(v.first, v.last)} of chunk {v.chunk}"),
                ("act", v.act),
                ("rule", v.rule),
                ("priority", f"{v.priority:.6f}" if v.act == "merge" else None),
                ("segments", f"{v.bases:,} base, {v.late:,} late, {v.logs:,} log"),
                ("bytes", f"{size_text(v.base_bytes)} of base, {size_text(v.log_bytes)} above it"),
                ("merge", f"{v.inputs:,} of the segments" if v.inputs else None),
                ("last change", f"version {v.newest}"),
                ("why", v.sentence),
            ]
        )


def _bucket_text(first: int, last: int) -> str:
    return str(first) if first == last else f"{first} to {last}"


def _bytes(mib: float | None) -> int | None:
    if mib is not None and math.isnan(mib):
        raise InvalidInput("a size is a number of MiB, not nan")
    return None if mib is None else max(1, round(mib * MIB))


def _run(table: Table, policy: Policy, driver: DriverName, place: Place) -> int:
    from eventlog.compaction.runner import run  # noqa: PLC0415 - a plan needs no reader of Parquet

    start_driver(driver)
    with terminal.progress() as advance:
        report = run(table, driver=driver, policy=policy, progress=advance)
    failed = report.count("failed")
    if place.as_json:
        terminal.json_document(
            {
                "table": table.uri,
                "planned": report.planned,
                "failed": failed,
                "noted": report.noted,
                "shed": [task.id for task in report.shed],
                "outcomes": msgspec.to_builtins(report.outcomes),
                "fit": msgspec.to_builtins(report.fit),
            }
        )
    else:
        _show_run(report)
        _note_fit(report.fit or better_fit(table.snapshot(), policy), table.uri, run=True)
    return _exit_code(report)


def _note_fit(fit: Fit | None, uri: str, *, run: bool = False) -> None:
    """Note that another granularity fits better, and what is done about it, or was, or can be."""
    if fit is None:
        return
    if not fit.moves:
        ends = fit.remedy(uri)
    elif run:
        ends = f"the granularity was {fit.now}, and is {fit.better} now"
    else:
        ends = f"--run changes the granularity from {fit.now} to {fit.better} first"
    terminal.note(f"{fit.sentence}; {ends}")


def _exit_code(report: RunReport) -> int:
    """Return the exit code of a run: 3 if other writers prevented all of it."""
    if report.count("failed"):
        return 1
    return CommitConflict.exit_code if report.outcomes and not report.count("done") else 0


def _show_run(report: RunReport) -> None:
    if not report.planned:
        noted = "" if report.noted is None else f"; noted in version {report.noted}"
        terminal.say(f"nothing to compact{noted}")
        return
    terminal.table(
        ("task", "status", "version", "rows", "segments", "bytes", "seconds", "error"),
        (
            (
                o.task[:8],
                o.status,
                o.version,
                terminal.with_thousands(o.rows),
                f"{o.segments_in:,} -> {o.segments_out:,}",
                f"{size_text(o.bytes_in)} -> {size_text(o.bytes_out)}",
                f"{o.seconds:.1f}",
                o.error,
            )
            for o in report.outcomes
        ),
        right=("version", "rows", "segments", "bytes", "seconds"),
        prose=("error",),
    )
    claimed = [o.error for o in report.outcomes if o.status == "claimed" and o.error]
    for error in list(dict.fromkeys(claimed))[:_SHOWN_CLAIMS]:
        terminal.note(f"not done: {error}; `eventlog claims` lists the claims")
    parts = [f"{report.count('done'):,} of {count_text(report.planned, 'task')} done"]
    others = ("superseded", "claimed", "failed", "out of time")
    parts += [f"{report.count(name):,} {name}" for name in others if report.count(name)]
    if report.shed:
        parts.append(f"{len(report.shed):,} left for another run")
    terminal.note(", ".join(parts))


def _show_plan(plan: Plan) -> None:
    if plan.tasks:
        terminal.table(
            ("task", "chunks", "segments", "bytes", "priority", "color", "reason"),
            (
                (
                    task.id[:8],
                    _place_text(task),
                    _segments_text(task, plan.policy),
                    size_text(task.bytes),
                    f"{task.priority:.3f}",
                    task.color,
                    task.reason,
                )
                for task in plan.tasks
            ),
            right=("segments", "bytes", "priority"),
            prose=("reason",),
        )
    for skipped in plan.skipped:
        until = f" until {terminal.time_text(skipped.until)}" if skipped.until else ""
        terminal.say(f"skipped: chunk {skipped.chunk}, {skipped.why}{until}")
    terminal.note(_summary(plan))


def _summary(plan: Plan) -> str:
    tasks = count_text(len(plan.tasks), "task")
    size = size_text(sum(task.bytes for task in plan.tasks))
    ends = f"{tasks} of {size}; --run performs them" if plan.tasks else "no tasks"
    return f"version {plan.version}: {_examined_text(plan.examined)}; {ends}"


def _examined_text(examined: ExaminedChunks | ExaminedSlices) -> str:
    if isinstance(examined, ExaminedSlices):
        runs = count_text(len(examined.verdicts), "run")
        return f"{runs} of slices in {count_text(examined.chunks, 'chunk')} examined"
    chunks = count_text(len(examined.verdicts), "chunk")
    text = f"{chunks} in {count_text(examined.spans, 'span')} examined"
    if examined.since is not None:
        text += f" (changed since version {examined.since}, or noted then)"
    return f"{text}, {examined.empty:,} empty between them"


def _place_text(task: Task) -> str:
    at = task.buckets
    if at is None:
        return _chunk_names(task.chunks)
    return f"{task.chunks[0]}, buckets {_bucket_text(at.first, at.last)}"


def _segments_text(task: Task, policy: Policy) -> str:
    if task.buckets is not None:  # what comes out depends on the keys
        return f"{len(task.inputs):,}"
    least, exact = expected_outputs(task, policy)
    return f"{len(task.inputs):,} -> {least:,}{'' if exact else '+'}"


def _chunk_names(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN_CHUNKS
    return ", ".join(names[:_SHOWN_CHUNKS]) + (f" and {more:,} more" if more > 0 else "")


def _show_verdict(verdict: ChunkVerdict, place: Place) -> None:
    if place.as_json:
        terminal.json_document(_verdict_json(verdict))
        return
    v, binds = verdict, _bindings(verdict)
    terminal.facts(
        [
            ("chunk", v.chunk),
            ("act", v.act),
            ("rule", v.rule),
            ("priority", f"{v.priority:.6f}" if v.act == "compact" else None),
            ("segments", _segment_counts(v)),
            ("rows", terminal.with_thousands(v.rows)),
            ("deleted", count_text(v.deleted, "row") if v.deleted else None),
            ("bytes", f"{size_text(v.bytes)}, the largest {size_text(v.largest)}"),
            ("granularity", f"{v.foreign:,} of another" if v.foreign else None),
            ("overlaps", binds or None),
            ("rewrite", _rewrite_text(v)),
            ("last change", f"version {v.newest}" if v.newest >= 0 else None),
            ("noted", _state_text(v.state)),
            ("why", v.sentence),
        ]
    )


def _segment_counts(v: ChunkVerdict) -> str:
    counts = [(v.small, "small"), (v.good, "good"), (v.large, "large")]
    if v.sparse:
        counts.append((v.sparse, "with many deleted rows"))
    return f"{v.segments:,}: " + ", ".join(f"{count:,} {kind}" for count, kind in counts)


def _rewrite_text(v: ChunkVerdict) -> str | None:
    if v.act != "compact":
        return None
    return (
        f"{count_text(v.inputs, 'segment')}, {size_text(v.input_bytes)}, into {v.outputs:,}; "
        f"saves queries {v.saved:,}"
    )


def _bindings(v: ChunkVerdict) -> str:
    sides: Iterable[tuple[str, bool]] = (("the chunk before", v.earlier), ("after", v.later))
    return " and ".join(name for name, bound in sides if bound)


def _state_text(state: ChunkState | None) -> str:
    if state is None:
        return "nothing"
    segments = count_text(state.segments, "segment")
    text = f"{state.state} with {segments}, the newest of version {state.version}"
    if state.failures:
        until = terminal.time_text(state.until)
        text += f"; failed {count_text(state.failures, 'time')} in a row, rests until {until}"
    return text


def _verdict_json(verdict: ChunkVerdict | SliceVerdict) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(verdict)
    if values.get("state"):
        values["state"]["until"] = _until(values["state"]["until"])
    return values


def _until(time_ms: int) -> str | None:
    return terminal.iso(time_ms) if time_ms else None


def _plan_json(table: Table, plan: Plan) -> dict[str, Any]:
    return {
        "table": table.uri,
        "version": plan.version,
        "time": terminal.iso(plan.time),
        "granularity": plan.granularity,
        "since": plan.since,
        "spans_examined": plan.spans,
        "empty": plan.empty,
        "policy": msgspec.to_builtins(plan.policy),
        "tasks": [
            {
                "id": task.id,
                "chunks": task.chunks,
                "granularity": task.granularity,
                "segments": len(task.inputs),
                "rows": task.rows,
                "bytes": task.bytes,
                "priority": task.priority,
                "color": task.color,
                "after": task.after,
                "reason": task.reason,
                "segment_ids": [segment.id for segment in task.inputs],
                "slice": msgspec.to_builtins(task.buckets),
            }
            for task in plan.tasks
        ],
        "chunks_skipped": [
            {"chunk": s.chunk, "why": s.why, "until": _until(s.until)} for s in plan.skipped
        ],
        "fit": msgspec.to_builtins(plan.fit),
    }
