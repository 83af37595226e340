"""The counting and the failing store, and reads through their file systems."""

import pickle
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventlog.errors import InvalidInput, KeyNotFound, OutcomeUnknown, Unavailable
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.tally import Counts
from eventlog.store.testing.wrappers import CountingStore, Crash, Fault, FaultyStore, PrefixedStore


class TestCounting:
    def test_requests_and_bytes(self):
        store = CountingStore(MemoryStore())
        store.put_if_absent("a", b"12345")
        store.put_if_absent("a", memoryview(b"678"))
        store.get("a", start=1, length=2)
        with pytest.raises(KeyNotFound):
            store.get("none")
        list(store.list("", limit=4))
        store.delete(f"k{number}" for number in range(1001))
        counted = Counts(get=2, put=2, list=1, delete=2, bytes_read=2, bytes_written=8)
        assert store.counts == counted
        assert store.counts.total == 7
        store.reset()
        assert store.counts == Counts()

    @pytest.mark.parametrize(
        ("objects", "limit", "pages"),
        [(0, None, 1), (1000, None, 1), (1001, None, 2), (2500, None, 3), (2500, 1500, 2)],
    )
    def test_a_listing_counts_its_pages(self, objects, limit, pages):
        store = CountingStore(MemoryStore())
        for number in range(objects):
            store.inner.put_if_absent(f"k{number}", b"")
        list(store.list("", limit=limit))
        assert store.counts.list == pages

    def test_a_listing_that_nobody_reads_costs_nothing(self):
        store = CountingStore(MemoryStore())
        store.list("")
        assert store.counts.total == 0

    def test_measures_nest_and_stand_still(self):
        store = CountingStore(MemoryStore())
        with store.measure() as outer:
            store.put_if_absent("a", b"")
            with store.measure() as inner:
                store.get("a")
                assert inner.get == 1
            store.reset()
            store.get("a")
        store.get("a")
        assert (outer.put, outer.get, inner.put, inner.get) == (1, 2, 0, 1)

    def test_threads_lose_no_count(self):
        store = CountingStore(MemoryStore())
        store.put_if_absent("a", b"x")
        threads = [
            threading.Thread(target=lambda: [store.get("a") for _ in range(500)]) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
        assert (store.counts.get, store.counts.bytes_read) == (4000, 4000)

    def test_reads_of_the_file_system_count(self):
        store = CountingStore(MemoryStore())
        filesystem, root = put_parquet(store)
        with store.measure() as measured:
            pq.read_table(f"{root}/p", filesystem=filesystem)
        assert measured.get >= 1
        assert measured.bytes_read >= len(store.inner.get("p")) // 2

    def test_a_prefixed_part_of_a_counting_store_counts(self):
        counting = CountingStore(MemoryStore())
        filesystem, root = put_parquet(PrefixedStore(counting, "a/b"))
        with counting.measure() as measured:
            pq.read_table(f"{root}/p", filesystem=filesystem)
        assert measured.get >= 1


class TestFaults:
    def test_unavailable_has_no_effect(self):
        store = faulty(Fault("put", "unavailable"))
        with pytest.raises(Unavailable) as caught:
            store.put_if_absent("a", b"x")
        assert not isinstance(caught.value, OutcomeUnknown)
        assert keys(store.inner) == []
        assert store.put_if_absent("a", b"x") is True
        assert (len(store.fired), store.planned) == (1, [])

    def test_lost_response_has_its_effect(self):
        store = faulty(Fault("put", "lost_response"))
        with pytest.raises(OutcomeUnknown):
            store.put_if_absent("a", b"x")
        assert store.inner.get("a") == b"x"

    @pytest.mark.parametrize("effect", ["unavailable", "lost_response"])
    def test_reads_and_deletes_fail_as_unavailable(self, effect):
        store = faulty(*(Fault(verb, effect) for verb in ("get", "list", "delete")))
        store.put_if_absent("a", b"x")
        for call in (
            lambda: store.get("a"),
            lambda: next(store.list("")),
            lambda: store.delete(["a"]),
        ):
            with pytest.raises(Unavailable) as caught:
                call()
            assert not isinstance(caught.value, OutcomeUnknown)
        assert keys(store.inner) == ([] if effect == "lost_response" else ["a"])

    def test_not_applied_unknown(self):
        store = faulty(Fault("put", "not_applied_unknown"))
        with pytest.raises(OutcomeUnknown):
            store.put_if_absent("a", b"x")
        assert keys(store.inner) == []

    def test_delayed_lands_before_the_nth_call_after_it(self):
        store = faulty(Fault("put", "delayed", amount=2))
        with pytest.raises(OutcomeUnknown):
            store.put_if_absent("a", b"late")
        assert store.delayed == ["a"]
        with pytest.raises(KeyNotFound):
            store.get("a")
        assert store.get("a") == b"late"
        assert store.delayed == []

    def test_delayed_lands_on_release_unless_the_slot_was_taken(self):
        store = faulty(
            Fault("put", "delayed", key="a", amount=99), Fault("put", "delayed", key="b")
        )
        for key in ("a", "b"):
            with pytest.raises(OutcomeUnknown):
                store.put_if_absent(key, b"late")
        store.inner.put_if_absent("b", b"other")
        store.release()
        assert store.inner.get("a") == b"late"
        assert store.inner.get("b") == b"other"

    def test_duplicate_answers_with_the_second_outcome(self):
        store = faulty(Fault("put", "duplicate"), Fault("list", "duplicate"))
        assert store.put_if_absent("a", b"x") is False
        assert store.inner.get("a") == b"x"
        assert keys(store) == ["a"]

    @pytest.mark.parametrize(("effect", "left"), [("crash_before", []), ("crash_after", ["a"])])
    def test_crash(self, effect, left):
        store = faulty(Fault("put", effect))
        assert not issubclass(Crash, Exception)
        with pytest.raises(Crash):
            store.put_if_absent("a", b"x")
        assert keys(store.inner) == left

    def test_stale_list_omits_the_newest_of_the_prefix(self):
        store = faulty(Fault("list", "stale_list", amount=2, occurrence=0))
        for key in ("_log/3", "_log/2", "_log/1", "data/x"):
            store.put_if_absent(key, b"")
        assert keys(store, "_log/") == ["_log/3"]
        assert [row.key for row in store.list("_log/", limit=1)] == ["_log/3"]
        assert keys(store.inner, "_log/") == ["_log/1", "_log/2", "_log/3"]

    def test_stale_list_knows_what_others_created_by_a_shared_history(self):
        inner, history = MemoryStore(), []
        other = FaultyStore(inner, history=history)
        store = FaultyStore(inner, [Fault("list", "stale_list")], history)
        other.put_if_absent("a", b"")
        assert keys(store) == []
        assert keys(store) == ["a"]

    def test_strikes_the_nth_call_whose_key_matches(self):
        store = faulty(Fault("get", "unavailable", key="_log/", occurrence=2))
        for key in ("_log/1", "data/1"):
            store.put_if_absent(key, b"")
        store.get("_log/1")
        store.get("data/1")
        with pytest.raises(Unavailable):
            store.get("_log/1")
        store.get("_log/1")

    def test_two_faults_due_at_once_strike_one_after_the_other(self):
        store = faulty(Fault("get", "unavailable"), Fault("get", "crash_before"))
        with pytest.raises(Unavailable):
            store.get("a")
        with pytest.raises(Crash):
            store.get("a")

    def test_each_time(self):
        store = faulty(Fault("get", "unavailable", occurrence=0))
        for _ in range(3):
            with pytest.raises(Unavailable):
                store.get("a")
        assert len(store.fired) == 3

    @pytest.mark.parametrize(
        ("verb", "effect"),
        [("get", "delayed"), ("list", "not_applied_unknown"), ("put", "stale_list")],
    )
    def test_effects_that_a_verb_cannot_have(self, verb, effect):
        with pytest.raises(InvalidInput):
            faulty(Fault(verb, effect))

    def test_pickle_keeps_the_plan(self):
        store = faulty(Fault("get", "unavailable"))
        copy = pickle.loads(pickle.dumps(store))
        with pytest.raises(Unavailable):
            copy.get("a")

    @pytest.mark.parametrize(
        ("effect", "error"), [("unavailable", Unavailable), ("crash_before", Crash)]
    )
    def test_faults_reach_reads_through_pyarrow(self, effect, error):
        store = faulty()
        filesystem, root = put_parquet(store)
        store.inject(Fault("get", effect))
        with pytest.raises(error):
            pq.read_table(f"{root}/p", filesystem=filesystem)
        assert pq.read_table(f"{root}/p", filesystem=filesystem).num_rows == 1000

    def test_faults_strike_in_the_middle_of_a_large_object(self):
        store = faulty()
        store.put_if_absent("large", bytes(2**20))
        filesystem, root = store.filesystem()
        with filesystem.open_input_file(f"{root}/large") as file:
            assert file.size() == 2**20
            store.inject(Fault("get", "unavailable"))
            file.seek(2**19)
            with pytest.raises(Unavailable):
                file.read(100)

    def test_a_large_object_is_readable_behind_a_stale_listing(self):
        store = faulty(Fault("list", "stale_list", occurrence=0))
        store.put_if_absent("large", bytes(2**20))
        filesystem, root = store.filesystem()
        with filesystem.open_input_file(f"{root}/large") as file:
            assert len(file.read()) == 2**20


def test_the_file_system_of_a_store_is_read_only():
    filesystem, root = MemoryStore().filesystem()
    for call in (
        lambda: filesystem.open_output_stream(f"{root}/a"),
        lambda: filesystem.delete_file(f"{root}/a"),
        lambda: filesystem.create_dir(f"{root}/a"),
        lambda: filesystem.move(f"{root}/a", f"{root}/b"),
    ):
        with pytest.raises(NotImplementedError):
            call()


def faulty(*faults):
    return FaultyStore(MemoryStore(), faults)


def keys(store, prefix=""):
    return [row.key for row in store.list(prefix)]


def put_parquet(store):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": range(1000)}), sink)
    store.put_if_absent("p", sink.getvalue())
    return store.filesystem()
