"""Six processes append, delete and update rows of one day while two others compact it."""

from contextlib import ExitStack

import change_on
import peers
import together
from harness import Failed, Server, short
from ongoing import emit_tries

CHANGERS, COMPACTORS = 6, 2


def run(bench):
    seconds = bench.size(60, 5)
    patience_s = seconds / 2  # for what is under way when the time is over
    told, notes = {}, []
    with Server() as server:
        for name in peers.present(*change_on.CHANGERS):
            if bench.left_s < seconds + 15:
                bench.stopped(f"{name}: changes beside compaction", 0, 1)
                continue
            try:
                told[name] = _beside(server, name, seconds, min(patience_s, bench.left_s - seconds))
            except Exception as error:
                work = f"changes beside compaction: {name}"
                bench.emit(work, {name: "failed"}, note=short(error))
                continue
            notes += [f"{name}: {why}" for why in told[name]["why"]]
    _rows(bench, told, seconds, notes)


def _beside(server, name, seconds, patience_s):
    root = f"s3://bench/changed/{name}"
    table = change_on.CHANGERS[name](root, server.storage_options())
    table.create_by_day(change_on.SCHEMA)
    table.attach()
    table.append(change_on.rows_of(-1, [0]))  # what a first append does once is not measured
    limits = {
        "environment": together.environment_of(server),
        "timeout_s": seconds + patience_s + 15,  # with the start of the process
    }
    with ExitStack() as stack:
        running = [
            stack.enter_context(together.started("change_on.py", name, root, seconds, i, **limits))
            for i in range(CHANGERS)
        ] + [
            stack.enter_context(together.started("compact_on.py", name, root, seconds, **limits))
            for _ in range(COMPACTORS)
        ]
        together.ready(running)
        together.go(running)
        answers = together.answers(running)
    changed, compacted = answers[:CHANGERS], [one for one in answers[CHANGERS:] if one]
    if None in changed:
        raise Failed(f"{changed.count(None)} of {CHANGERS} changers gave no answer")
    return _told(table, changed, compacted)


def _told(table, changed, compacted):
    found = {}
    for row in table.values().to_pylist():
        found.setdefault((row["owner"], row["n"]), []).append(row["v"])
    wanted = {(i, int(n)): [v] for i, one in enumerate(changed) for n, v in one["held"].items()}
    unsure = {(i, n) for i, one in enumerate(changed) for n in one["unsure"]} | {(-1, 0)}
    keys = (found.keys() | wanted.keys()) - unsure
    acknowledged = sum(sum(one["counts"].values()) for one in changed)
    return {
        "rate": acknowledged / max(one["seconds"] for one in changed),
        "raised": sum(sum(one["raised"].values()) for one in changed),
        "of": acknowledged + sum(sum(one["raised"].values()) for one in changed),
        "committed": sum(one["committed"] for one in compacted),
        "failed": sum(one["failed"] for one in compacted),
        "tries": [n for one in compacted for n in one["tries"]],
        "wrong": sum(found.get(key) != wanted.get(key) for key in keys),
        "unsure": len(unsure) - 1,
        "why": [one["why"] for one in (*changed, *compacted) if one["why"]],
    }


def _rows(bench, told, seconds, notes):
    def emit(work, key, unit="", **more):
        bench.emit(work, {name: one[key] for name, one in told.items()}, unit, **more)

    own = told.get("eventlog", {})
    emit(
        f"{CHANGERS} processes append, delete and update rows of one day while {COMPACTORS} "
        "compact it, S3",
        "rate",
        "changes/s",
        note=f"acknowledged, in {seconds} s; all processes and the server share this machine",
    )
    raised = ", ".join(f"{name} {one['raised']} of {one['of']}" for name, one in told.items())
    emit("… changes that raised", "raised", "changes", goal="0", met=own.get("raised") == 0,
         note="; ".join([raised, *dict.fromkeys(notes)])[:600])  # fmt: skip
    emit("… compactions committed", "committed", "tasks or calls")
    emit("… compactions that failed", "failed", "tasks or calls",
         goal="0", met=own.get("failed") == 0)  # fmt: skip
    emit_tries(bench, "… compactions landed at the first or second try", own.get("tries", []))
    left = ", ".join(f"{name} {one['unsure']}" for name, one in told.items())
    emit(
        "… rows that are not what was acknowledged",
        "wrong",
        "rows",
        goal="0",
        met=own.get("wrong") == 0,
        note=f"rows of changes that raised are left out: {left}",
    )
