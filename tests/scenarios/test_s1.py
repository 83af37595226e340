"""S1: versions as sets of segments; ingestion and compaction at once, in any order of completion.

After "A Git Inspired, Minimal Lock Solution to Concurrent Ingestion and Compaction" (Druid).
"""

import random
import threading
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from support.builders import Spy, add, check_snapshot, commit, create, drop_of, fold_all, live
from support.scenario_tables import cut_in, fresh, ids, names, objects, once, other, rows

from eventlog import Table, errors
from eventlog.compaction import vacuum
from eventlog.compaction.execute import perform
from eventlog.compaction.planner.planning import plan
from eventlog.compaction.policy import Policy
from eventlog.format import keys
from eventlog.readers import scan
from eventlog.store.location import open_store
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite

POLICY = Policy(min_gain=0)
CLAIMING = Policy(min_gain=0, claim_bytes=0)
NOW = {"retention": timedelta(0), "staging": timedelta(0), "dry_run": False}
DAY = "2013-01-07"
COMMITS = 600  # of the long log


def big(name, parts=2):
    """Rows of one day that an append with little memory stages as so many segments."""
    each = 4096
    return [rows(*(n / each for n in range(each)), name=f"{name} {part}") for part in range(parts)]


def four_segments(place):
    """A table with S1 to S4 in one chunk, and the task that compacts them."""
    table = fresh(place, inline_bytes="0")
    for hour in range(4):
        append(table, rows(hour))
    (task,) = plan(table, POLICY).tasks
    assert {segment.id for segment in task.inputs} == ids(table)
    assert len(task.inputs) == 4
    return table, task


@pytest.mark.scenario("S1.1")
@pytest.mark.parametrize("first", ["I1", "I2"])
def test_s1_1_two_ingestions_of_one_chunk_in_both_orders(place, first):
    table = fresh(place, segment_bytes="65536", inline_bytes="0")
    one, two = other(table), other(table)
    second = "I2" if first == "I1" else "I1"

    def ingest(writer, data, between=lambda: None):
        append(writer, cut_in(data, between), memory_bytes=2**20)

    # The one that ends second has staged its first segment when the other begins and ends.
    ingest(two, big(second), lambda: ingest(one, big(first)))
    assert table.refresh().version == 2
    assert {segment.chunk for segment in live(table.session.head())} == {DAY}
    each = len(ids(table, 1))
    assert each >= 2
    assert len(ids(table, 2)) == 2 * each
    assert ids(table, 1) < ids(table, 2)
    assert {name[:2] for name in names(table, 1)} == {first}
    assert len(names(table, 2)) == 4 * 4096
    assert objects(table) == {keys.key_of(segment) for segment in live(table.session.head())}


def check_s1_2(table, task, outcome, new=("I3",)):
    """The live set is {S5', new}; nothing was tried twice, and nothing left over."""
    assert (outcome.status, outcome.rows, outcome.segments_out) == ("done", 4, 1)
    head = table.refresh()
    assert names(table) == sorted(["row 0", "row 1", "row 2", "row 3", *(f"{n} 9" for n in new)])
    (compacted,) = [s for s in live(head) if s.version == outcome.version]
    assert compacted.rows == 4
    assert len(live(head)) == 2
    inputs = {keys.key_of(segment) for segment in task.inputs}
    assert objects(table) == inputs | {keys.key_of(segment) for segment in live(head)}
    operations = sorted(entry.operation for entry in table.history(limit=2))
    assert operations == ["append", "compact"]


@pytest.mark.scenario("S1.2")
def test_s1_2_ingestion_commits_while_compaction_runs(place):
    table, task = four_segments(place)
    ingestion = other(table)
    cut = once(lambda: append(ingestion, rows(9, name="I3")))
    outcome = perform(other(table), task, POLICY, progress=cut)
    check_s1_2(table, task, outcome)
    assert outcome.version == 6


@pytest.mark.scenario("S1.2")
def test_s1_2_compaction_commits_while_ingestion_runs(place):
    table, task = four_segments(place)
    compactor, outcomes = other(table), []
    append(
        table,
        cut_in([rows(9, name="I3")], lambda: outcomes.append(perform(compactor, task, POLICY))),
    )
    check_s1_2(table, task, *outcomes)
    assert outcomes[0].version == 5


@pytest.mark.scenario("S1.2")
def test_s1_2_ingestion_takes_the_very_slot_that_compaction_was_about_to(place):
    """The commit is lost and made again; the rows are not."""
    table, task = four_segments(place)
    ingestion = other(table)
    spy = Spy(table.store)
    cut = once(lambda: append(ingestion, rows(9, name="I3")))
    spy.before_put = lambda key: cut() if key.startswith(keys.LOG_PREFIX) else None
    outcome = perform(Table.open(place, store=spy), task, POLICY)
    check_s1_2(table, task, outcome)
    assert (outcome.version, outcome.passed) == (6, 1)
    staged = [key for key, _ in spy.puts if key.startswith(keys.SEGMENTS_PREFIX)]
    assert len(staged) == 1


@pytest.mark.scenario("S1.2")
@pytest.mark.spark
@pytest.mark.parametrize("first", ["ingestion", "compaction"])
def test_s1_2_the_ingestion_is_a_spark_job(spark, place, tmp_path, first):
    table, task = four_segments(place)
    started, go = tmp_path / "started", tmp_path / "go"
    job = threading.Thread(target=lambda: _spark_ingest(spark, place, started, go))

    def whole_job():
        go.touch()
        job.start()
        job.join()

    if first == "ingestion":
        outcome = perform(other(table), task, POLICY, progress=once(whole_job))
    else:
        job.start()
        _wait_for(started)
        outcome = perform(other(table), task, POLICY)
        go.touch()
        job.join()
    check_s1_2(table, task, outcome)
    assert outcome.version == (6 if first == "ingestion" else 5)


def _spark_ingest(spark, place, started, go):
    """Append a row; its task says that it runs, and waits until it may go on."""

    def wait(batches):
        Path(started).touch()
        _wait_for(Path(go))
        yield from batches

    schema = "at timestamp, name string, value double"
    frame = spark.createDataFrame(rows(9, name="I3").to_pandas(), schema)
    waiting = frame.coalesce(1).mapInArrow(wait, schema)
    waiting.write.format("eventlog").mode("append").option("timeColumn", "at").save(place)


def _wait_for(path):
    waited = threading.Event()
    for _ in range(2400):
        if path.exists():
            return
        waited.wait(0.1)
    raise AssertionError(f"{path} never came")


@pytest.mark.scenario("S1.3")
def test_s1_3_a_second_compaction_of_a_claimed_chunk_is_refused_at_once(place):
    table, task = four_segments(place)
    before = objects(table)
    with other(table).claim("2013-01-07", "2013-01-08", owner="compactor one") as lease:
        version = table.refresh().version
        outcome = perform(other(table), task, CLAIMING)
        assert outcome.status == "claimed"
        assert "compactor one" in outcome.error
        assert lease.id in outcome.error
        with pytest.raises(errors.CommitConflict, match="compactor one"):
            other(table).claim("2013-01-07T05:00Z", "2013-01-07T06:00Z")
        # Nothing was read, staged or committed for it; the next day is free, ingestion too.
        assert (objects(table), table.refresh().version) == (before, version)
        other(table).claim("2013-01-08", "2013-01-09").release()
        append(table, rows(9))
    assert perform(other(table), task, CLAIMING).status == "done"


@pytest.mark.scenario("S1.4")
def test_s1_4_a_replacement_with_no_rows_leaves_an_empty_chunk(place):
    table = fresh(place)
    append(table, rows(1, 2))
    append(table, rows(3, 30))
    version = overwrite(table, rows(), start="2013-01-07", end="2013-01-08")
    head = table.refresh()
    assert [found.chunk.name for found in head.chunks()] == ["2013-01-08"]
    assert names(table) == ["row 30"]
    assert names(table, version - 1) == ["row 1", "row 2", "row 3", "row 30"]
    assert names(table, 1) == ["row 1", "row 2"]
    # No tombstone: the version added nothing.
    change = table.diff(version - 1, version)
    assert (change.added, len(change.dropped)) == ([], 2)


@pytest.mark.scenario("S1.5")
def test_s1_5_a_query_keeps_its_version_while_others_are_published(place):
    table = fresh(place, inline_bytes="0")
    append(table, rows(0, 1))
    append(table, rows(2, 25, 49))
    query = scan(table, version=2)
    wanted = ["row 0", "row 1", "row 2", "row 25", "row 49"]
    table.pin("query", 2)
    batches = query.to_batches()
    seen = next(batches).column("name").to_pylist()
    for task in plan(table, POLICY).tasks:
        assert perform(other(table), task, POLICY).status == "done"
    overwrite(table, rows(26, name="new"), start="2013-01-08", end="2013-01-09")
    append(table, rows(50))
    vacuum(other(table), **NOW)
    for batch in batches:
        seen += batch.column("name").to_pylist()
    assert sorted(seen) == wanted
    assert sorted(query.to_table().column("name").to_pylist()) == wanted
    assert names(table) == ["new 26", "row 0", "row 1", "row 2", "row 49", "row 50"]
    with pytest.raises(errors.VersionVacuumed):
        names(other(table), 1)
    table.unpin("query")
    vacuum(other(table), **NOW)
    with pytest.raises(errors.VersionVacuumed):
        names(other(table), 2)
    with pytest.raises(errors.VersionVacuumed):
        query.to_table()
    assert objects(table) == {keys.key_of(segment) for segment in live(table.refresh())}


@pytest.fixture(scope="module")
def long_log():
    """A log of hundreds of commits, of adds and drops whose objects nobody reads.

    Returns:
        The store in memory, and the state at every version, folded from version 0.
    """
    store = MemoryStore()
    table = create(store)
    chosen = random.Random(7)
    for n in range(COMMITS):
        new = add(table, f"2013-{1 + n % 12:02d}-{1 + n % 28:02d}")
        if n % 10 == 9:
            there = table.session.head().segments(chunks=new.chunk)
            commit(table, *map(drop_of, chosen.sample(there, len(there) // 2)), new)
        else:
            commit(table, new)
    return store, [state for state, _ in fold_all(store)]


@pytest.fixture
def long_place(long_log, place):
    """The log copied to the place, for keys are relative: the copy is the table.

    Not through the store: a PUT to the test's S3 server takes 5 ms, and there are many.
    """
    store, _ = long_log
    put = put_into_server if place.startswith("s3:") else put_into_folder
    for found in store.list(""):
        put(place, found.key, store.get(found.key))
    return open_store(place)


def put_into_server(place, key, body):
    """Give the S3 server of this process an object."""
    bucket, _, root = place.removeprefix("s3://").partition("/")
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, f"{root}/{key}", body)


def put_into_folder(place, key, body):
    """Write a file."""
    path = Path(urlsplit(place).path) / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


@pytest.mark.scenario("S1.6")
def test_s1_6_any_version_resolves_from_the_nearest_key_frame(long_log, long_place):
    _, states = long_log
    store, last = long_place, COMMITS
    framed = {parsed[0] for row in store.list(keys.LOG_PREFIX)
              if (parsed := keys.parse_log_key(row.key)) and parsed[1]}  # fmt: skip
    assert len(framed) >= last // 64
    versions = {0, 1, 62, 63, 64, 65, last // 2, last - 1, last}
    versions |= set(random.Random(1).sample(range(last), 20))
    for version in sorted(versions):
        counting = CountingStore(store)
        table = Table(counting)
        with counting.measure() as counts:
            found = table.snapshot(version)
        assert (counts.list, counts.get <= 2) == (0, True)
        before = [frame for frame in framed if frame < version]
        assert found.header.keyframe == (max(before) if before else None)
        check_snapshot(found, states[version])
    counting = CountingStore(store)
    with counting.measure() as counts:
        assert Table(counting).session.head().version == last
    assert (counts.list, counts.total <= 3) == (1, True)
