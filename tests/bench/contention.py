"""One and eight processes appending to one table on the S3 server, in its own process."""

from contextlib import ExitStack

import peers
import together
from harness import Failed, Server, short

WRITERS = 8


def run(bench):
    seconds = bench.size(8, 2)
    writers = bench.size(WRITERS, 3)
    told = {"rate": {}, "requests": {}, "lost": {}, "failed": {}}
    notes = []
    with Server() as server:
        for name in peers.present():
            for number in (1, writers):
                if bench.left_s < seconds * 2 + 10:
                    bench.stopped(f"{name}, {number} writers", 0, 1)
                    continue
                try:
                    found = _race(server, name, number, seconds)
                except Exception as error:
                    bench.emit(f"{number} writers: {name}", {name: "failed"}, note=short(error))
                    continue
                for key, values in told.items():
                    values.setdefault(number, {})[name] = found[key]
                if found["why"]:
                    notes.append(f"{name}: {found['why']}")
    _rows(bench, writers, told)
    bench.emit(
        f"{writers} processes: appends that raised",
        failed := told["failed"].get(writers, {}),
        "appends",
        goal="0",
        met=failed.get("eventlog") == 0,
        note="; ".join(dict.fromkeys(notes))[:400],
    )


def _rows(bench, writers, told):
    one, all_of_them = told["rate"].get(1, {}), told["rate"].get(writers, {})
    bench.emit("1 process appending, S3", one, "commits/s")
    own = (one.get("eventlog"), all_of_them.get("eventlog"))
    bench.emit(
        f"{writers} processes appending to one table, S3",
        all_of_them,
        "commits/s",
        goal="more than 1 makes",
        met=None not in own and own[1] > own[0],
        note="acknowledged appends; clients and server share this machine's processors",
    )
    ratio = {name: all_of_them[name] / one[name] for name in one if all_of_them.get(name)}
    bench.emit(f"{writers} processes against 1", {n: f"x{r:.2f}" for n, r in ratio.items()})
    bench.emit("1 process: requests each", told["requests"].get(1, {}), "requests")
    own = told["requests"].get(writers, {}).get("eventlog")
    bench.emit(
        f"{writers} processes: requests each",
        told["requests"].get(writers, {}),
        "requests",
        goal="≤ 6",
        met=own is not None and own <= 6,
        note="all requests by acknowledged appends",
    )
    gone = told["lost"].get(writers, {})
    bench.emit(
        f"{writers} processes: rows acknowledged but missing, or there twice",
        gone,
        "rows",
        goal="0",
        met=gone.get("eventlog") == 0,
    )


def _race(server, name, number, seconds):
    options = server.storage_options()
    root = f"s3://bench/race-{number}/{name}"
    table = peers.SYSTEMS[name](root, options)
    table.create(peers.SMALL)
    # One append first: what a first append does once is not what is measured.
    table.append(peers.small_rows())
    # An append under way may take long: a peer that retries for minutes is ended here.
    limits = {"environment": together.environment_of(server), "timeout_s": seconds + 25}
    with ExitStack() as stack:
        running = [
            stack.enter_context(
                together.started("contender.py", name, root, seconds, 1000 * i, **limits)
            )
            for i in range(number)
        ]
        together.ready(running)
        server.counts()
        together.go(running)
        told = together.answers(running)
        total = server.counts()["total"]
    if None in told:
        raise Failed(f"{told.count(None)} of {number} writers gave no answer")
    acknowledged = sum(one["acknowledged"] for one in told)
    wanted = 100 * (acknowledged + 1)
    return {
        "rate": acknowledged / max(one["seconds"] for one in told),
        "requests": total / max(acknowledged, 1),
        "lost": abs(table.rows() - wanted),
        "failed": sum(one["failed"] for one in told),
        "why": next((one["why"] for one in told if one["why"]), ""),
    }
