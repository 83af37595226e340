"""Copies and publications whose long work executors do: as one process does it by itself."""

import pickle
from functools import partial

import pyarrow as pa
import pytest
from support.builders import START_MS, create, reopen, replace_object
from support.copies import check_prefix, everything, objects
from support.in_process_spark import InProcessSpark
from support.keyed_publications import FORMATS, objects_under, published_versions

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.errors import Corrupt, DataLoss, InvalidInput
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.publishing import publish, unpublish
from eventlog.publishing.following import StandingPublisher
from eventlog.readers.spark import executors as spark_executors
from eventlog.replication import pipeline
from eventlog.replication.backfill import Filler
from eventlog.replication.follow import Follower
from eventlog.replication.pipeline import CopyResult, Pipeline
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.store.parallel import executors_of
from eventlog.writers import delete, upsert

KEYED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)


def readings(count):
    """Rows of the keys below a number, on two days."""
    days = [n % 2 * 86_400_000_000 for n in range(count)]
    return pa.table([[*range(count)], days], schema=KEYED)


class Shipped:
    """Executors that get what can be pickled, in shares of three, and count what they did."""

    def __init__(self):
        self.items = self.calls = 0

    def __call__(self, work, items, weigh):
        self.calls += 1
        self.items += len(items)
        assert all(weigh(item) > 0 for item in items)
        answers = []
        for at in range(0, len(items), 3):
            shipped, share = pickle.loads(pickle.dumps((work, items[at : at + 3])))
            answers += pickle.loads(pickle.dumps([*shipped(share)]))
        return answers


@pytest.fixture(scope="module")
def source():
    """A table that no test changes."""
    return everything()


def follower(table, store, **options):
    return Follower(reopen(table.store), store, ManualClock(START_MS, 7), **options)


def damaged(table):
    """The same table elsewhere, whose newest segment has other bytes; and the segment's version."""
    store = MemoryStore()
    for row in table.store.list(""):
        store.put_if_absent(row.key, table.store.get(row.key))
    segment = max(table.refresh().segments(), key=lambda one: one.version)
    key = keys.key_of(segment)
    replace_object(store, key, store.get(key)[:-1] + b"x")
    return Table(store), segment.version


@pytest.mark.parametrize("batch", [1, 5, 2048])
def test_a_copy_by_executors_has_the_same_objects(source, monkeypatch, batch):
    monkeypatch.setattr(pipeline, "_BATCH", batch)
    here, there, executors = MemoryStore(), MemoryStore(), Shipped()
    alone = follower(source, here).step()
    shared = follower(source, there, executors=executors).step()
    assert objects(there) == objects(here) == objects(source.store)
    wanted = (alone.versions, alone.objects, alone.bytes, alone.start)
    assert (shared.versions, shared.objects, shared.bytes, shared.start) == wanted
    segments = [row.key for row in there.list(keys.SEGMENTS_PREFIX)]
    assert executors.items >= len(segments) > 10
    assert follower(source, there, executors=executors).step().objects == 0


def test_a_backfill_by_executors_fills_the_same(source):
    copies = []
    for executors in (None, Shipped()):
        store = MemoryStore()
        follower(source, store, start="keyframe").step()
        lacking = Log(store).starts.all()
        assert lacking
        copying = Pipeline(source.store, store, ManualClock(START_MS, 7), executors=executors)
        filler = Filler(reopen(source.store).session, store, copying, lambda *_: None)
        assert filler.fill_all(lacking, (), 0) > 0
        copies.append(objects(store))
    assert executors.items
    assert copies[0] == copies[1] == objects(source.store)


def test_versions_below_a_damaged_segment_are_copied(source):
    heads = []
    for executors in (None, Shipped()):
        table, version = damaged(source)
        store = MemoryStore()
        with pytest.raises(DataLoss) as error:
            follower(table, store, executors=executors).step()
        assert error.value.version == version
        heads.append(check_prefix(source.store, store))
        assert heads[-1] == version - 1
        # As soon as it is mended, it goes on.
        follower(source, store, executors=executors).step()
        assert objects(store) == objects(source.store)
    assert heads[0] == heads[1] > 2


def test_steps_before_an_error_are_taken():
    def steps():
        yield lambda: 1
        yield lambda: 2
        raise Corrupt("the log is damaged above")

    copying = Pipeline(MemoryStore(), MemoryStore(), ManualClock(), executors=Shipped())
    taken = copying.copied(steps())
    assert [next(taken), next(taken)] == [1, 2]
    with pytest.raises(Corrupt, match="damaged above"):
        next(taken)


def test_what_executors_store_in_a_folder_of_their_own_is_no_copy(source, tmp_path):
    def elsewhere(_work, items, _weigh):
        return [CopyResult(item.bytes) for item in items]

    store = LocalStore(str(tmp_path))
    with pytest.raises(InvalidInput, match="that all machines share"):
        follower(source, store, executors=elsewhere).step()
    with pytest.raises(errors.TableNotFound):
        Log(store).head()


@pytest.mark.sample(1, verify=3)
@pytest.mark.parametrize("form", FORMATS)
def test_what_is_published_is_the_same(form):
    t = create(schema=KEYED, time_column="at", key="id", buckets=2, granularity="day")
    upsert(t, readings(8))
    upsert(t, readings(4))
    delete(t, where="id = 3")
    upsert(t, readings(2))
    name, options = form.split()[0], FORMATS[form]
    publish(t, name, **options)
    alone = objects_under(t, name)
    unpublish(t, name, dry_run=False)
    assert not objects_under(t, name)
    executors = Shipped()
    publisher = StandingPublisher(reopen(t.store).session, name, executors=executors, **options)
    for version in (1, 4):  # one that begins, and one that goes on
        publisher.step(last=version)
    assert published_versions(t, name) == [0, 1, 2, 3, 4]
    assert objects_under(t, name) == alone
    assert executors.items >= 4


class Busy(MemoryStore):
    """A store that does not answer at first."""

    answers = 0

    def get(self, key, *, start=0, length=None):
        Busy.answers += 1
        if Busy.answers <= 2:
            raise errors.Unavailable("try later")
        return super().get(key, start=start, length=length)


def read_keys(store, share):
    """A task's work: the objects under some keys."""
    return [store.get(key) for key in share]


def test_errors_of_tasks_are_those_of_the_work(monkeypatch):
    monkeypatch.setattr(spark_executors, "SHARE_BYTES", 1)
    on = spark_executors.SessionExecutors(InProcessSpark())
    store = Busy("memory://busy")
    for key in "abc":
        store.put_if_absent(key, key.encode())
    assert on(partial(read_keys, store), ["c", "a", "b"], len) == [b"c", b"a", b"b"]
    assert Busy.answers == 5  # the first task was begun three times
    with pytest.raises(errors.KeyNotFound):
        on(partial(read_keys, store), ["a", "d"], len)
    assert on(partial(read_keys, store), [], len) == []


def test_there_are_two_drivers():
    assert executors_of("local") is None
    with pytest.raises(InvalidInput, match="driver must be one of local, spark, not 'dask'"):
        executors_of("dask")
