"""Tasks of compaction made by hand, for tests of the code that performs them."""

from support.builders import live

from eventlog.compaction.policy import Policy
from eventlog.compaction.tasks import Task, task_id
from eventlog.model.chunks import parse_chunk
from eventlog.readers import scan
from eventlog.rewriting.rewrite import rewrite

MIB = 2**20
SMALL = Policy(target_bytes=MIB, max_task_bytes=64 * MIB, small_task_bytes=0, memory_bytes=64 * MIB)


def task_of(table, inputs=None, granularity=None, reason="by hand"):
    """A task for these live segments of the head, or for all of them."""
    head = table.refresh()
    inputs = live(head) if inputs is None else inputs
    inputs = sorted(inputs, key=lambda s: (parse_chunk(s.chunk), s.version, s.partition))
    cut = granularity or head.layout.granularity
    chunks = tuple(c.name for c in sorted({parse_chunk(s.chunk) for s in inputs}))
    named = [(segment.id, segment.version) for segment in inputs]
    return Task(
        task_id(table.id, cut, named), head.version, cut, chunks, tuple(inputs), 0.5, reason
    )


def rewrite_task(table, task, settings=SMALL, **options):
    """Rewrite the inputs of a task, within the sizes of a policy."""
    sort_by = settings.sort_by
    inputs, granularity = task.inputs, task.granularity
    return rewrite(table, inputs, granularity, settings.sizes, sort_by=sort_by, **options)


def policy(**settings):
    """The policy of small tests with other settings."""
    base = {name: getattr(SMALL, name) for name in SMALL.__struct_fields__}
    base |= settings
    base["max_task_bytes"] = max(base["max_task_bytes"], 4 * base["target_bytes"])
    return Policy(**base).check()


def content(table, by="at"):
    """All rows of the head, in an order independent of the segments."""
    return scan(table).to_table().sort_by([(by, "ascending"), ("name", "ascending")])
