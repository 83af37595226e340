"""A join of two streams by a keyed table: each fills its columns of a row, however late it is.

The queries are stopped and killed, their batches come again, and a compaction runs beside them.
"""

import json
import os
import random
import signal
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pytest
from spark.join_job import SIDES, start
from spark.programs import result

from eventlog import Table, compaction, readers
from eventlog.fsck.check import fsck

pytestmark = pytest.mark.data_source

JOB = Path(__file__).with_name("join_job.py")
TIMEOUT_S = 240
DAY = datetime(2013, 1, 7, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("flight", pa.string()),
        ("day", pa.timestamp("us", "UTC")),
        ("gate", pa.string()),
        ("gate_seen", pa.int64()),
        ("delay", pa.int64()),
        ("delay_seen", pa.int64()),
    ]
)
POLICY = compaction.Policy(target_bytes=2**20, backoff_s=1)


class Feeds:
    """The files of two sides, and what their rows come to: of each the one that was seen last."""

    def __init__(self, path, seed):
        self.places = path / "files", path / "checkpoints"
        self.last = {}
        self._chance = random.Random(seed)
        self._waiting = {side: [] for side in SIDES}
        self._seen = self._count = 0
        for side in SIDES:
            (self.places[0] / side).mkdir(parents=True)

    def happen(self, count, *, flights):
        """Let so many things be seen, in this order, which no file will have them in."""
        for _ in range(count):
            side, flight = self._chance.choice(SIDES), f"UA{self._chance.randrange(flights)}"
            self._seen += 1
            value = f"C{self._seen}" if side == "gate" else self._seen % 90
            self.last.setdefault(flight, {})[side] = (value, self._seen)
            row = {
                "flight": flight,
                "day": DAY.isoformat(),
                side: value,
                f"{side}_seen": self._seen,
            }
            # Some rows come at once, others after many newer ones.
            self._waiting[side].append((self._seen + self._chance.choice([0, 3, 40, 400]), row))

    def arrive(self, files):
        """Add files of each side, with rows whose time has come; the last ones with all of them."""
        for number in range(files):
            for side in SIDES:
                waiting = self._waiting[side]
                now = [pair for pair in waiting if number == files - 1 or pair[0] <= self._seen]
                now = now if number == files - 1 else now[: len(now) // 2 + 1]
                self._waiting[side] = [pair for pair in waiting if pair not in now]
                rows = [row for _, row in now]
                self._chance.shuffle(rows)
                self._add(side, rows)

    def _add(self, side, rows):
        if not rows:  # a batch without any commits nothing
            return
        file = self.places[0] / side / f"{self._count:05}.json"
        hidden = file.with_name(f".{file.name}")  # Spark does not list it until it is whole
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(hidden, (self._count + 1, self._count + 1))  # Spark reads the oldest file first
        hidden.rename(file)
        self._count += 1

    def wanted(self):
        """The rows that the table must have, by flight."""
        nothing = None, None
        return {
            flight: (*of.get("gate", nothing), *of.get("delay", nothing))
            for flight, of in self.last.items()
        }


def made(uri):
    return Table.create(
        uri,
        SCHEMA,
        time_column="day",
        key="flight",
        buckets=4,
        properties={
            "merge": "partial",
            "merge.group.gate_seen": "gate",
            "merge.group.delay_seen": "delay",
        },
    )


def rows_of(table):
    names = ("gate", "gate_seen", "delay", "delay_seen")
    found = readers.scan(table).to_table().to_pylist()
    assert len(found) == len({row["flight"] for row in found})
    assert {row["day"] for row in found} == {DAY}
    return {row["flight"]: tuple(row[name] for name in names) for row in found}


@contextmanager
def compacting(uri, pause_s):
    """Compact the table again and again; yields the outcomes, which are complete at the end."""
    outcomes, stop = [], Event()

    def work():
        table = Table.open(uri)
        more = True
        while more:  # once more after the last batch
            more = not stop.wait(pause_s)
            outcomes.extend(compaction.run(table, policy=POLICY).outcomes)

    thread = Thread(target=work)
    thread.start()
    try:
        yield outcomes
    finally:
        stop.set()
        thread.join()


def ended(queries):
    for query in queries:
        query.awaitTermination()


def batches_of(table):
    """The query and number of every batch in the log; one version may have those of both."""
    commits = (
        table.session.log.read(version)[0] for version in range(table.session.head().version + 1)
    )
    transactions = (t for commit in commits for t in commit.transactions)
    return {(t.app.id, t.app.seq) for t in transactions if t.app is not None}


def check(table, feeds, outcomes):
    """The table holds what was seen last, every batch was committed once, and some were merged."""
    assert rows_of(table) == feeds.wanted()
    marks = {name: mark.seq for name, mark in table.refresh().meta.apps.items()}
    assert batches_of(table) == {(n, seq) for n, last in marks.items() for seq in range(last + 1)}
    assert outcomes
    assert all(outcome.ok for outcome in outcomes)
    assert fsck(table).findings == ()


@pytest.mark.scenario("S4.6")
@pytest.mark.hazard("I2", "I3")
@pytest.mark.parametrize(
    "root_uri", [pytest.param("local", marks=pytest.mark.long), "s3"], indirect=True
)
def test_s4_6_two_streams_join_in_a_table_over_stops_and_replays(spark, root_uri, dying, tmp_path):
    table, feeds = made(root_uri), Feeds(tmp_path, 1)
    feeds.happen(60, flights=7)
    feeds.arrive(2)
    # Of the gates the committer dies after a commit, so that the batch comes again.
    gates = start(spark, root_uri, "gate", feeds.places, dying, dies="after", batch=0)
    delays = start(spark, root_uri, "delay", feeds.places)
    with pytest.raises(Exception, match="Python worker exited unexpectedly"):
        ended([gates])
    delays.stop()
    with compacting(root_uri, 0.05) as outcomes:
        ended([start(spark, root_uri, side, feeds.places) for side in SIDES])
    check(table, feeds, outcomes)


@pytest.mark.scenario("S4.6")
@pytest.mark.hazard("I2", "I3")
@pytest.mark.long  # a JVM for each death; the test above lets the committer die
@pytest.mark.timeout(900)
def test_s4_6_two_streams_join_in_a_table_over_kills(root_uri, tmp_path):
    table, feeds, chance = made(root_uri), Feeds(tmp_path, 2), random.Random(3)
    with compacting(root_uri, 0.5) as outcomes:
        for number, when in enumerate(("after", "after", "before", "after")):
            feeds.happen(chance.randrange(50, 200), flights=20)
            feeds.arrive(3)
            side = SIDES[number % 2]
            # Files that were noted before a death and not read may be one batch with later ones.
            batch = next_batch(feeds.places[1] / side) + chance.randrange(2)
            arguments = root_uri, *feeds.places, side, when, batch
            code, errors = result(JOB, *arguments, timeout=TIMEOUT_S)
            assert code == -signal.SIGKILL, errors
            if number % 2:  # once in a while both go on to the end of what there is
                arguments = root_uri, *feeds.places, side, "run", 0
                code, errors = result(JOB, *arguments, timeout=TIMEOUT_S)
                assert code == 0, errors
                assert rows_of(table) == feeds.wanted()
    check(table, feeds, outcomes)


def next_batch(checkpoint):
    """The number of the batch that a query commits next."""
    noted = (checkpoint / "commits").glob("[0-9]*")
    return max((int(note.name) for note in noted), default=-1) + 1
