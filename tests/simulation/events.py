"""The events that simulated runs must contain to be meaningful, and how often."""

# Operations of actors, and how often each must be done in 1,000 runs.
OPERATIONS_IN_1000 = 40
OPERATIONS = (
    "append",
    "unit",
    "replace",
    "drop",
    "overwrite",
    "slow_end",
    "set_property",
    "keyframe",
    "take_claim",
    "under_claim",
    "renew",
    "release",
    "break_any",
    "pin",
    "unpin",
    "follow",
    "look",
    "open_version",
    "fetch",
    "pinned_read",
    "restore",
    "fence",
    "horizon",
    "vacuum",
    "dry_vacuum",
    "compact",
    "hold",
    "renew_held",
    "work_held",
    "forsake",
    "challenge",
    "break_silent",
    "regranulate",
    "assess",
    "compact_all",
    "deliver",
)
# Faults of store calls, and how often each must occur in 1,000 runs.
ACCIDENTS = {
    "refused": 500,
    "conflict": 50,
    "outage": 50,
    "lost": 50,
    "never": 50,
    "delayed": 50,
    "twice": 50,
    "stale": 50,
    "empty": 50,
    "halfway": 3,
    "crash halfway": 3,
    "crash before": 200,
    "crash after": 50,
    "crash delayed": 20,
    "clock": 100,
}
# Outcomes of transactions and tasks, and how often each must occur in 1,000 runs.
FIGURES = {
    "commits": 5000,
    "transactions": 5000,
    "commits of several transactions": 25,
    "crash": 500,
    "looks": 300,
    "fetch": 200,
    "objects deleted by vacuum": 300,
    "handed in again": 20,
    "found": 30,
    "refused slow": 15,
    "refused compact": 100,
    "refused mistake": 10,
    "rows rewritten": 1500,
    "task done": 60,
    "task superseded": 15,
    "task failed": 15,
    "fixed points": 60,
    # Actions of accepted transactions: an operation without an error may have been a no-op.
    "did drop": 300,
    "did unchanged": 30,
    "did same_segments": 15,
    "did restore": 15,
    "did claim": 100,
    "did renew": 20,
    "did release": 20,
    "did break": 30,
    "did pin": 100,
    "did unpin": 20,
    "did attach": 20,
    "did ack": 20,
    "did detach": 3,
    "did fence": 200,
    "did horizon": 200,
    "did swept": 100,
    "did set_properties": 50,
    "did replace": 500,
    "did set_granularity": 60,
    "did assess": 200,
}


def counted(sums):
    """Yield (event, how often it happened, how often at least in 1,000 runs)."""
    for operation in OPERATIONS:
        yield f"op {operation}", sums.done[f"op {operation}"], OPERATIONS_IN_1000
    for accident, least in ACCIDENTS.items():
        yield accident, sums.struck[accident], least
    for figure, least in FIGURES.items():
        yield figure, sums.done[figure], least


def missing(sums):
    """The events that never happened."""
    return [event for event, times, _ in counted(sums) if not times]


def rare(sums):
    """The events that happened less often than required; in few runs this may be chance."""
    share = sums.seeds / 1000
    return [event for event, times, least in counted(sums) if times < least * share]
