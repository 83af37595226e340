"""Actors that run the production code of compaction: `plan`, `perform` and `run`.

Only Parquet is replaced: `rewritten` substitutes `rewriting.rewrite.rewrite`, and makes segments
whose objects list their rows.
"""

import pyarrow as pa
from msgspec import structs
from simulation.contents import rows_in, without_deleted
from simulation.history import Call
from simulation.ledger import hold
from simulation.world import bytes_of, live

from eventlog import compaction, errors
from eventlog.compaction.policy import Policy
from eventlog.format import keys
from eventlog.model.chunks import chunk_of, parse_chunk
from eventlog.rewriting import translation
from eventlog.rewriting.rewrite import Rewritten
from eventlog.rewriting.row_digest import NOTHING
from eventlog.rewriting.runs import enclosing_chunk
from eventlog.staging.encoding import Recipe

SMALL = Policy(
    target_bytes=1024,
    max_task_bytes=4096,
    small_task_bytes=200,
    max_tasks=2,
    max_queue=3,
    backoff_s=1,
    memory_bytes=2**20,
)
CLAIMS_BYTES = (0, 0, 2**40)
CLUMSY_ROWS = 5
MOST_RUNS = 8  # until nothing is left to do
ENDS = {"done", "superseded", "claimed", "failed"}


def rewritten(t, inputs, granularity, sizes, *, sort_by=None, progress=None, pulse=None):
    """Substitute `eventlog.rewriting.rewrite.rewrite`.

    Raises:
        DataLoss: an input is missing.
    """
    pulse()
    parts = {}
    for segment in inputs:
        try:
            rows = without_deleted(t, segment, rows_in(bytes_of(t.store, segment)))
        except errors.KeyNotFound:
            raise errors.DataLoss("an input is missing", key=keys.key_of(segment)) from None
        for chunk, found in spread(segment, granularity, rows):
            parts.setdefault(chunk, []).extend(found)
        pulse()
    adds = []
    for chunk, rows in sorted((chunk, rows) for chunk, rows in parts.items() if rows):
        size = sum(len(row) + 4 for row in rows)
        # As if rows compressed worse than expected: one segment more than planned, each time.
        count = -(-size // sizes.target_bytes) + (len(rows) >= CLUMSY_ROWS)
        step = -(-len(rows) // count)
        adds += [t.world.stage(t, chunk, rows[n : n + step]) for n in range(0, len(rows), step)]
    count, size = sum(add.rows for add in adds), sum(add.bytes for add in adds)
    recipe = Recipe.of(t.session.head())
    layout = structs.replace(recipe.layout, granularity=granularity)
    return Rewritten(tuple(adds), count, size, NOTHING, recipe.schema, layout, ())


def numbered_rows(t, made, inputs):
    """Substitute `eventlog.rewriting.translation._numbered_rows`: the rows as `rewritten` has them.

    Of a coarser input the first ones stand in the first chunk, the others in the last one.
    """
    numbers = {segment.id: n << translation._SHIFT for n, segment in enumerate(made.inputs)}
    for segment in inputs:
        rows = rows_in(t.store.get(keys.key_of(segment)))
        left = without_deleted(t, segment, [*range(len(rows))])
        starts, found = [], []
        for chunk, places in spread(segment, made.layout.granularity, left):
            starts += [parse_chunk(chunk).start * 1000] * len(places)
            found += [numbers[segment.id] | place for place in places]
        columns = [pa.array(starts, pa.timestamp("us", "UTC")), pa.array(found, pa.int64())]
        yield pa.table(columns, [made.layout.time_column, translation._ROW.name])


def spread(segment, granularity, rows):
    """Return which chunk gets which rows of an input; of a coarser one the first or the last."""
    name = enclosing_chunk(segment.chunk, granularity)
    if name is not None:
        return [(name, rows)]
    whole, half = parse_chunk(segment.chunk), (len(rows) + 1) // 2
    ends = [chunk_of(ms, granularity).name for ms in (whole.start, whole.end - 1)]
    return [(ends[0], rows[:half]), (ends[1], rows[half:])]


def policy_of(me):
    """Draw a policy: when tasks take claims, and sometimes a granularity."""
    cut = me.random.choice(("hour", "day", "month")) if me.random.random() < 0.2 else None
    return structs.replace(SMALL, claim_bytes=me.random.choice(CLAIMS_BYTES), granularity=cut)


def compact_all(me):
    """A runner: plans, performs the tasks, and records the analysis."""
    policy = policy_of(me)
    report = compaction.run(me.table, policy=policy)
    for outcome in report.outcomes:
        check_outcome(me.world, outcome, None)
    me.world.done["tasks run"] += len(report.outcomes)
    me.world.done["runs noted"] += report.noted is not None


def deliver(me):
    """Perform a task from the shared queue; finished tasks may be redelivered."""
    mail = me.world.mail
    if not mail or me.random.random() < 0.4:
        found = compaction.plan(me.table, policy_of(me)).tasks
        mail += [task for task in found if not task.after]
    if not mail:
        return
    task = me.random.choice(mail[-4:])
    outcome = compaction.perform(me.table, task, policy_of(me))
    check_outcome(me.world, outcome, task)


def check_outcome(world, outcome, task):
    """Check the reported outcome of a task against the current log."""
    world.done[f"task {outcome.status}"] += 1
    hold(outcome.status in ENDS, "outcome", f"{outcome}")
    if outcome.status == "done":
        world.record.found.append((outcome.task, outcome.version))
    if outcome.status == "superseded" and task is not None:
        there = world.store.ledger.head["live"]
        same = [s for s in task.inputs if there.get(s.id, {}).get("version") == s.version]
        hold(len(same) < len(task.inputs), "outcome", f"{outcome}: all of its inputs are live")


def check_fixed_point(world, table):
    """Check that compaction, running alone, reaches a fixed point (hazard K8).

    Raises:
        Violation: it does not end, or leaves chunks that need compaction by its own rules.
    """
    for claim in sorted(table.claims()):
        table.break_claim(claim)
    before = set(world.store.contents.live)
    for _ in range(MOST_RUNS):
        began = world.count()
        report = compaction.run(table, policy=SMALL)
        ended = world.count()
        world.record.calls += [  # a task that was refused earlier may be done now
            Call("the last", "compact", o.task, None, began, ended, "acknowledged", o.version)
            for o in report.outcomes
        ]
        ends = [outcome.status for outcome in report.outcomes]
        hold(set(ends) <= {"done"}, "fixed point", f"alone at work: {report.outcomes}")
        if not report.planned:
            break
    hold(not report.planned, "fixed point", f"still to do after {MOST_RUNS} runs: {report}")
    hold(before == set(world.store.contents.live), "rows", "compaction changed what rows there are")
    world.done["fixed points"] += 1
    world.done["segments at fixed points"] += len(live(table.session.head()))
