"""What two logs did, made by hand: acts and a planner for tests of merges without a store."""

from support.builders import HASH, SCHEMA

from eventlog.merging.log_acts import Act, AppliedStep, KnownCommits
from eventlog.merging.planning.by_state.sides import Side
from eventlog.merging.planning.carried import Divergence, Pair
from eventlog.merging.planning.plan import Planner
from eventlog.model import schema
from eventlog.model.actions import Drop, PropertyChange, Replace, SetProperties
from eventlog.model.entries import Layout, Segment, Slice
from eventlog.model.records import App, AppMark, Meta, Transaction

CHUNK = "2013-01-07"
META = Meta(layout=Layout(time_column=1, granularity="day"), schema=schema.from_arrow(SCHEMA))


def name_of(text):
    """An id of 32 digits that begins with a text, or that is these bytes."""
    name = text if isinstance(text, bytes) else text.encode()
    return name.hex().ljust(32, "0")[:32]


class Log:
    """A log since it and another one parted, made act by act.

    Args:
        name: begins the hashes of its commits.
        meta: the small state to begin with; kept up to date for properties alone.
    """

    def __init__(self, name, meta=META):
        self.name, self.meta, self.steps, self.live = name, meta, [], set()

    def act(self, *actions, adds=(), drops=(), app=None):
        """Commit a transaction with these actions, and with segments by short names."""
        version = len(self.steps) + 1
        commit = f"{self.name}{version}".encode().hex().ljust(64, "0")
        place = Slice("log", 0, 0, version, version, 0)  # without a key nobody looks at it
        gone = tuple(Drop(name_of(i), CHUNK, HASH) for i in drops)
        made = tuple(
            Segment(name_of(i), CHUNK, 0, version, n, 1, 100, 2 * name_of(i), 1, slice=place)
            for n, i in enumerate(adds)
        )
        transaction = Transaction(
            name_of(f"{self.name}{version}"),
            "a test",
            "a test",
            version - 1,
            app=None if app is None else App(*app),
            actions=(*actions, *gone),
        )
        self.live = (self.live - {drop.id for drop in gone}) | {segment.id for segment in made}
        self.steps.append(
            AppliedStep(version, commit, (Act(version, commit, transaction, made, gone),), None)
        )
        return self.steps[-1].acts[0]

    def set(self, name, new):
        """Commit a change of a property."""
        values = dict(self.meta.properties)
        change = PropertyChange(name, values.pop(name, None), new)
        if new is not None:
            values[name] = new
        self.meta = Meta(layout=self.meta.layout, schema=self.meta.schema, properties=values)
        return self.act(SetProperties((change,)))

    def rewrite(self, old, new):
        """Commit a rewrite of segments to others with the same rows."""
        return self.act(Replace(len(self.steps), 0), adds=new, drops=old)


def segment_of(name, *, like=None):
    """A segment from before the logs parted, by a short name, with the object of another one."""
    return Segment(name_of(name), CHUNK, 0, 0, 0, 1, 100, 2 * name_of(like or name), 1)


def side_of(log, base="", *, seen=-1):
    """A log as a union looks at it, which had these segments, of a letter each, when it parted."""
    made = {s.id: s for step in log.steps for act in step.acts for s in act.adds}
    made = {name_of(name): segment_of(name) for name in base} | made
    gone = {drop.id for step in log.steps for act in step.acts for drop in act.drops}
    live = log.live | {name_of(name) for name in base if name_of(name) not in gone}
    head = log.steps[-1].commit if log.steps else ""
    return Side(
        log.name, len(log.steps), head, log.meta,
        [act for step in log.steps for act in step.acts], KnownCommits(log.steps), seen,
        {name: made[name] for name in live}, lambda segment: True,
    )  # fmt: skip


def planner(source, target, *, apps=None):
    """A planner of what the target commits for what the source did since they parted."""
    meta = Meta(
        layout=target.meta.layout,
        schema=target.meta.schema,
        properties=target.meta.properties,
        apps={name: AppMark(seq, 1, 0) for name, seq in (apps or {}).items()},
    )
    return Planner(
        pair_of(source, target), meta, target.live, Divergence((), target.steps, source.steps, -1)
    )


def pair_of(source, target, *, alone=True):
    """The two logs as a planner's input."""
    own = target.steps[0].commit if target.steps else None
    return Pair(
        "memory://source", "memory://target", 0, source.steps[0].commit, own,
        source.meta.schema, source.meta, alone=alone,
    )  # fmt: skip
