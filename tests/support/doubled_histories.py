"""Random histories of keyed copies in which the same units of work are done at several of them.

Copies, in a line or a ring, upsert, delete, compact, do units of work that others did, too, and are
merged now and then. In the end all are merged in both directions until nothing is left. Then all
have the same rows, and of each key none that its writer, or a unit of work at one of the copies,
had replaced: the model knows what each copy had when it wrote.
"""

import itertools
import random
from collections import Counter
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
from support.builders import START_MS
from support.forked_histories import Side, copied, played, rare

from eventlog import Table, compaction, errors
from eventlog.clock import ManualClock
from eventlog.readers import scan
from eventlog.replication import merge
from eventlog.store.memory import MemoryStore
from eventlog.writers import overwrite, upsert

KEYS = 3
ROUNDS = 12
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64(), nullable=False),
        pa.field("v", pa.int64()),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)
AT = datetime(2026, 1, 1, tzinfo=UTC)
CHOICES = {"write": 4, "unit": 4, "replace": 0.6, "merge": 3, "compact": 1}
LEAST = {"became one": 0.7, "units done twice": 0.3}


class DoubledHistory:
    """Copies that do the same units of work.

    Args:
        seed: of all that is drawn.
    """

    def __init__(self, seed):
        chance = self.chance = random.Random(seed)
        self.rule = chance.choice(["last", "last", "last", "partial", "first"])
        if seed % 6 == 5:
            self.rule = "aggregate"
        store = MemoryStore()
        Table.create(
            store.uri,
            SCHEMA,
            store=store,
            clock=ManualClock(START_MS, seed + 1),
            time_column="at",
            granularity="all",
            key=("k",),
            buckets=chance.choice([1, 1, 3]),
            properties={
                **({"merge.v": "sum"} if self.rule == "aggregate" else {}),  # the last `at` counts
                "merge": self.rule,
                "tombstone_hours": "876000",
                "keyframe_commits": chance.choice(["1", "3", "64"]),
            },
        )
        self.counts = Counter()
        self.rows = {}  # by event: of each key the value, or None
        self.had = {}  # by event: those that its copies had when they wrote it
        self.units = []
        self.whole = set()  # events that overwrite the table
        self.sides = [Side(0, store)]
        self.knows = [set()]
        self.write(0)
        for number in range(1, chance.choice([2, 2, 3])):
            self.sides.append(Side(number, copied(store)))
            self.knows.append(set(self.knows[0]))
        ends = range(len(self.sides))
        self.ways = [*itertools.pairwise(ends)]
        if len(self.sides) > 2 and chance.random() < 0.4:
            self.ways.append((ends[-1], 0))

    def draw(self, *, whole=False):
        value = len(self.rows) + 1
        summed = self.rule == "aggregate"
        keys = self.chance.sample(range(KEYS), self.chance.choice([1, 1, 2]))
        rows = {k: None if self.chance.random() < 0.2 else value for k in keys}
        if summed:  # each event has a bit
            rows = dict.fromkeys(keys, 1 << value)
        elif whole:
            rows = {k: value if k in keys else None for k in range(KEYS)}
            self.whole.add(f"event{value}")
        name = f"event{value}"
        self.rows[name], self.had[name] = rows, set()
        return name

    def put(self, number, name, **unit):
        rows = [
            {"k": k, "v": v, "at": AT, "_op": "u" if v else "d"} for k, v in self.rows[name].items()
        ]
        given = pa.Table.from_pylist(rows, SCHEMA.append(pa.field("_op", pa.string())))
        handle = self.sides[number].handle()
        if name in self.whole:
            kept = given.filter(pc.equal(given["_op"], "u")).select(SCHEMA.names)
            overwrite(handle, kept, **unit)
        else:
            upsert(handle, given, **unit)
        self.had[name] |= self.knows[number]
        self.knows[number].add(name)

    def write(self, number):
        self.put(number, self.draw())

    def replace(self, number):
        self.put(number, self.draw(whole=True))

    def unit(self, number):
        known = [name for name in self.units if name not in self.knows[number]]
        if known and self.chance.random() < 0.75:
            name = self.chance.choice(known)
            self.counts["units done twice"] += 1
        else:
            name = self.draw(whole=self.chance.random() < 0.1)
            self.units.append(name)
        self.put(number, name, app_id=name, app_seq=1)

    def compact(self, number):
        policy = compaction.Policy(target_bytes=4096, max_task_bytes=2**14, backoff_s=1)
        compaction.run(self.sides[number].handle(), policy=policy)

    def merge(self, _):
        one, two = self.chance.sample(self.chance.choice(self.ways), 2)
        self.merged(one, two)

    def merged(self, source, target, take=None):
        """Merge, and return the number of commits; None if nobody has chosen."""
        handles = [self.sides[n].handle() for n in (source, target)]
        try:
            done = merge(*handles, take=take)
        except errors.CommitConflict:
            assert take is None, "a choice leads on"
            self.counts["conflict"] += 1
            return None
        self.knows[target] |= self.knows[source]
        return done.commits

    def make_one(self):
        choose = chosen = False
        for _ in range(ROUNDS):
            done = refused = 0
            for source, target in (w for one, two in self.ways for w in ((one, two), (two, one))):
                commits = self.merged(source, target)
                if commits is None and choose:
                    commits = self.merged(source, target, self.chance.choice(["source", "target"]))
                    chosen, commits = True, 1
                refused += commits is None
                done += commits or 0
            if not (done or refused):
                break
            choose |= not done
        assert not done, "merging again still commits something"
        assert not refused
        self.counts["chosen" if chosen else "became one"] += 1
        return not chosen

    def shown(self, side):
        rows = scan(side.handle(), ["k", "v"]).to_table().to_pylist()
        return {row["k"]: row["v"] for row in rows}

    def right(self, key):
        """The values that no other one of the key has replaced.

        What overwrites the table has not seen stays, also where it has seen the unit of work above;
        and so does what a copy did after such an overwrite that another one did last.
        """
        events = [name for name, rows in self.rows.items() if key in rows]
        if self.rule == "aggregate":
            return {sum(self.rows[name][key] for name in events) or None}

        def replaced(name, other):
            if name not in self.had[other] or other in self.had[name]:
                return False
            gone = [w for w in self.whole if other in self.had[w]]
            return not any(name not in self.had[w] or w in self.had[name] for w in gone)

        newest = [n for n in events if not any(replaced(n, other) for other in events)]
        return {self.rows[name][key] for name in newest} or {None}

    def play(self, steps):
        """Play, make all one, and once more from there on."""
        whole = self.played(self.chance.randrange(4, steps), CHOICES)
        if whole and self.rule != "aggregate":
            self.played(self.chance.randrange(1, 5), {**CHOICES, "replace": 4})
        self.counts["histories"] += 1

    def played(self, steps, choices):
        """Return whether nobody had to choose."""
        for _ in range(steps):
            name = self.chance.choices([*choices], [*choices.values()])[0]
            getattr(self, name)(self.chance.randrange(len(self.sides)))
        whole = self.make_one()
        first, *others = [self.shown(side) for side in self.sides]
        assert all(other == first for other in others)
        for key in range(KEYS) if whole and self.rule != "first" else ():
            assert first.get(key) in self.right(key), (key, first)
        return whole


def play_doubled(seed):
    """Play a history and return it."""
    return played(DoubledHistory, seed)


def rare_doubled(counts):
    """What happened too rarely in so many histories."""
    return rare(counts, LEAST)
