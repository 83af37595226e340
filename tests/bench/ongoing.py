"""Four processes append to ten days without a pause while a fifth compacts them all the time."""

from collections import Counter
from contextlib import ExitStack

import compactors
import numpy as np
import together
from harness import Failed, Server, short
from ids import DAYS, SCHEMA, block, misplaced

APPENDERS = 4
FIRST = 9  # the writer of the rows that are there before
DELAY_MS = 30


def run(bench):
    seconds = bench.size(60, 5)
    patience_s = seconds / 2  # for what is under way when the time is over
    told, notes = {}, []
    with Server() as server:
        for name in compactors.present():
            if bench.left_s < seconds + 10:
                bench.stopped(f"{name}: appends beside compaction", 0, 1)
                continue
            try:
                told[name] = _beside(server, name, seconds, min(patience_s, bench.left_s - seconds))
            except Exception as error:
                bench.emit(
                    f"appends beside compaction: {name}", {name: "failed"}, note=short(error)
                )
                continue
            notes += [f"{name}: {why}" for why in told[name]["why"]]
    _rows(bench, told, seconds, notes)
    _delayed(bench, bench.size(30, 3))


def _beside(server, name, seconds, patience_s):
    options = server.storage_options()
    root = f"s3://bench/ongoing/{name}"
    table = compactors.COMPACTORS[name](root, options)
    table.create_by_day(SCHEMA)
    # What a first append does once is not what is measured.
    for number in range(DAYS):
        table.append(block(FIRST, number))
    limits = {
        "environment": together.environment_of(server),
        "timeout_s": seconds + patience_s + 15,  # with the start of the process
    }
    with ExitStack() as stack:
        running = [
            stack.enter_context(together.started("ingest.py", name, root, seconds, i, **limits))
            for i in range(APPENDERS)
        ]
        running.append(
            stack.enter_context(together.started("compact_on.py", name, root, seconds, **limits))
        )
        together.ready(running)
        together.go(running)
        *appended, compacted = together.answers(running)
        ended = running[-1].returncode == 0
    if None in appended:
        raise Failed(f"{appended.count(None)} of {APPENDERS} appenders gave no answer")
    return _checked(table, appended, compacted, ended)


def _checked(table, appended, compacted, ended):
    compacted = compacted or {"committed": 0, "failed": 0, "idle": 0, "tries": [], "longest_s": 0}
    why = [one["why"] for one in appended] + [compacted.get("why")]
    if not ended:
        compacted["failed"] += 1
        why.append("its last compaction did not end and was stopped")
    tried = {i: (one["tried"], one["failed"]) for i, one in enumerate(appended)}
    tried[FIRST] = (DAYS, [])
    found = np.asarray(table.ids().to_numpy())
    lost, doubled = misplaced(found, tried)
    acknowledged = sum(one["tried"] - len(one["failed"]) for one in appended)
    return {
        **compacted,
        "rate": acknowledged / max(one["seconds"] for one in appended),
        "appends": acknowledged,
        "each": [one["tried"] - len(one["failed"]) for one in appended],
        "raised": sum(len(one["failed"]) for one in appended),
        "files": table.files(),
        "lost": lost,
        "doubled": doubled,
        "why": [text for text in why if text],
    }


def _rows(bench, told, seconds, notes):
    def emit(work, key, unit="", **more):
        bench.emit(work, {name: one[key] for name, one in told.items()}, unit, **more)

    own = told.get("eventlog", {})
    emit(
        f"{APPENDERS} processes append to {DAYS} days beside a compaction without end, S3",
        "rate",
        "appends/s",
        note=f"acknowledged, in {seconds} s; all processes and the server share this machine",
    )
    emit("… appends that raised", "raised", "appends", goal="0", met=own.get("raised") == 0)
    emit(
        "… compactions committed",
        "committed",
        "tasks or calls",
        note="passes that found nothing to do: "
        + ", ".join(f"{name} {one['idle']}" for name, one in told.items())
        + "; longest pass: "
        + ", ".join(f"{name} {one['longest_s']:.1f} s" for name, one in told.items()),
    )
    emit(
        "… compactions that failed",
        "failed",
        "tasks or calls",
        goal="0",
        met=own.get("failed") == 0,
        note="; ".join(dict.fromkeys(notes))[:400],
    )
    emit_tries(bench, "… landed at the first or second try", own.get("tries", []))
    emit("… files at the end", "files", "files", note="appends: " + _appends(told))
    gone = {name: one["lost"] + one["doubled"] for name, one in told.items()}
    met = gone.get("eventlog") == 0
    bench.emit("… rows lost, or there too often", gone, "rows", goal="0", met=met)


def _delayed(bench, seconds):
    """With a network between: who wins a slot has a head start of several requests."""
    work = f"appends beside compaction, {DELAY_MS} ms a request"
    if bench.left_s < seconds + 20:
        bench.stopped(work, 0, 1)
        return
    with Server(DELAY_MS) as server:
        try:
            own = _beside(server, "eventlog", seconds, min(30, bench.left_s - seconds))
        except Exception as error:
            bench.emit(work, {"eventlog": "failed"}, note=short(error))
            return
    bench.emit(
        work,
        {"eventlog": own["rate"]},
        "appends/s",
        note=f"in {seconds} s; of each process: {', '.join(map(str, own['each']))}; "
        f"{own['committed']} compactions committed, {own['failed']} failed",
    )
    emit_tries(bench, f"… landed at the first or second try, {DELAY_MS} ms a request", own["tries"])


def emit_tries(bench, work, tries):
    """Emit how many compactions of eventlog landed soon, given how often each was tried."""
    soon = sum(1 for one in tries if one <= 2)
    spread = ", ".join(f"{n}: {times}" for n, times in sorted(Counter(tries).items()))
    bench.emit(
        work,
        {"eventlog": f"{soon} of {len(tries)}"},
        goal="every one",
        met=bool(tries) and soon == len(tries),
        note=f"tries of a compaction, and of how many: {spread}; a try is a slot that it was sent "
        "to, or a window that it was published for",
    )


def _appends(told):
    return ", ".join(f"{name} {one['appends']:,}" for name, one in told.items())
