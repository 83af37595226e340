"""One to thirty-two processes appending to one table on a server that delays every request.

Goals: appends a second, requests an append, and how long the slowest wait.
"""

import statistics
from contextlib import ExitStack

import together
from harness import Failed, Server

# Writers, and how many appends a second they make together.
GOALS = {1: 18, 2: 18, 4: 24, 8: 30, 16: 55, 32: 100}
DELAYS_MS = (50, 0, 20, 100)
JUDGED_MS = 50
P99_S, REQUESTS = 0.5, 4.0
ALONE_P99_S, ALONE_REQUESTS = 0.1, 1.2  # with a look for others now and then, and key frames


def run(bench):
    """Measure every delay; the goals are those of 50 ms a request."""
    seconds = bench.size(10, 2)
    crowds = tuple(GOALS) if not bench.quick else (1, 3)
    for delay_ms in DELAYS_MS if not bench.quick else (20,):
        alone = None
        for writers in crowds:
            if bench.left_s < seconds + 15 + writers / 2:
                bench.stopped(f"{delay_ms} ms, {writers} writers", 0, 1)
                continue
            with Server(delay_ms, small=True) as server:
                told = contend(server, writers, seconds)
            alone = alone or told["rate"]
            _emit(bench, delay_ms, writers, told, told["rate"] / alone)


def _emit(bench, delay_ms, writers, told, times):
    judged = delay_ms == JUDGED_MS and writers in GOALS
    p99 = told["p99"]
    longest, most = (ALONE_P99_S, ALONE_REQUESTS) if writers == 1 else (P99_S, REQUESTS)
    met = (
        told["rate"] >= GOALS.get(writers, 0)
        and p99 <= longest
        and told["requests"] <= most
        and not told["lost"]
    )
    bench.emit(
        f"{delay_ms} ms a request, {writers} writers",
        {"eventlog": told["rate"]},
        "appends/s",
        goal=f"≥ {GOALS[writers]}, p99 ≤ {longest} s, ≤ {most:g} requests" if judged else "",
        met=met if judged else None,
        note=f"x{times:.2f}, {told['requests']:.2f} requests, p50 {told['p50'] * 1000:.0f} ms, "
        f"p99 {p99 * 1000:.0f} ms, slowest {told['max'] * 1000:.0f} ms, "
        f"{told['cpu_ms']:.0f} ms CPU, rows lost or doubled: {told['lost']}",
    )


def contend(server, writers, seconds):
    """Let so many processes append for so long; return what they saw."""
    # Imported here: what starts processes needs no table.
    import pyarrow as pa  # noqa: PLC0415

    from eventlog import Table  # noqa: PLC0415
    from eventlog.readers import scan  # noqa: PLC0415

    root = "s3://bench/contended"
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("writer", pa.int64())])
    options = server.storage_options()
    Table.create(root, schema, time_column="at", storage_options=options)
    limits = {"environment": together.environment_of(server), "timeout_s": seconds + 60}
    with ExitStack() as stack:
        running = [
            stack.enter_context(together.started("appender.py", root, seconds, n, **limits))
            for n in range(writers)
        ]
        together.ready(running)
        server.counts()
        together.go(running)
        told = together.answers(running)
        total = server.counts()["total"]
    if None in told:
        raise Failed(f"{told.count(None)} of {writers} writers gave no answer")
    latencies = sorted(s for each in told for s in each["latencies"])
    rows = scan(Table.open(root, storage_options=options), columns=["writer"]).to_table().num_rows
    return {
        "rate": sum(len(each["latencies"]) / each["seconds"] for each in told),
        "requests": total / max(1, len(latencies)),
        "p50": statistics.median(latencies),
        "p99": latencies[int(len(latencies) * 0.99)],
        "max": latencies[-1],
        "cpu_ms": 1000 * sum(each["cpu_s"] for each in told) / max(1, len(latencies)),
        "lost": abs(rows - len(latencies) - writers),  # each has appended once before
    }
