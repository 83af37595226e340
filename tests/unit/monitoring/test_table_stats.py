"""The figures of a table: from its log, its planner and a vacuum that deletes nothing."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from support import builders

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run, vacuum
from eventlog.errors import InvalidInput
from eventlog.log.history import HistoryEntry
from eventlog.monitoring.daily import daily
from eventlog.monitoring.prices import GIB, Prices
from eventlog.replication import follow
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, delete, upsert

PRICES = Prices("a price list", "2013", write=0.01, read=0.001, stored=30.0)
NOW = datetime(2013, 1, 8, tzinfo=UTC)


def entry(version, hours_ago, **changes):
    """A version in a history; an append of one segment with ten rows and 100 bytes by default."""
    time = NOW - timedelta(hours=hours_ago)
    append_ = {"adds": 1, "drops": 0, "rows": 10, "bytes": 100, "transactions": 1}
    return HistoryEntry(version, time, "append", "w", **{**append_, **changes})


def rates(*entries, hours=24):
    span = timedelta(hours=hours)
    return daily(entries, NOW, span=span, keyframe_commits=64, prices=PRICES)


# ----------------------------------------------------------------------------------- rates a day


def test_rates_are_those_of_the_span():
    found = rates(entry(3, 1), entry(2, 11), entry(1, 13), entry(0, 20), hours=12)
    assert (found.hours, found.commits, found.rows, found.bytes) == (12, 4, 40, 400)
    assert found.start_time == NOW - timedelta(hours=12)


def test_a_shorter_history_begins_with_its_oldest_version():
    found = rates(entry(3, 1), entry(2, 2), entry(1, 6))
    assert (found.hours, found.commits, found.start_time) == (6, 8, NOW - timedelta(hours=6))


def test_rates_of_minutes_are_those_of_an_hour():
    found = rates(entry(2, 0.1), entry(1, 0.2), entry(0, 0.5))
    assert (found.hours, found.commits) == (0.5, 48)


@pytest.mark.parametrize("entries", [[], [entry(7, 25)]])
def test_nothing_happened(entries):
    found = rates(*entries)
    assert (found.hours, found.commits, found.puts, found.request_dollars) == (24, 0, 0, 0)


def test_requests_and_their_price():
    rewrite = entry(5, 1, adds=2, drops=9, rows=0, bytes=-500)
    combined = entry(4, 2, adds=3, transactions=3)
    found = rates(rewrite, combined, entry(3, 24))
    # Two commits, five segments, two transactions taken along, and their part of a key frame.
    assert (found.puts, found.gets) == (pytest.approx(9 + 2 / 64, abs=1e-3), 9)
    assert found.request_dollars == pytest.approx(0.01 * found.puts + 0.001 * found.gets)
    assert PRICES.storage(GIB, days=365 / 12) == 30.0


def test_estimated_requests_are_those_that_writers_and_compaction_send():
    store = CountingStore(MemoryStore())
    t = builders.create(store, properties={"keyframe_commits": "10"})
    with store.measure() as sent:
        for n in range(40):
            append(t, builders.events(5, day=n % 4))
        run(t)
    found = t.stats()
    hours = 24  # all of it lies within one hour
    assert round(found.daily.puts / hours) == sent.put
    assert found.daily.gets / hours == 40
    assert sent.get - 40 in range(10)  # the leaves that the planner reads


# ------------------------------------------------------------------------------- size and upkeep


def test_small_segments_and_what_compaction_saves():
    t = builders.create()
    for n in range(6):
        append(t, builders.events(5, day=n % 2))
    before = t.stats()
    assert (before.version, before.segments, before.time_chunks, before.rows) == (6, 6, 2, 30)
    assert before.small_segments == 6
    assert before.small_bytes == before.bytes == t.snapshot().totals.bytes
    gain = before.compaction
    assert (gain.inputs, gain.input_bytes, gain.outputs, gain.saved) == (6, before.bytes, 2, 4)
    run(t)
    after = t.stats()
    assert after.segments == before.segments - gain.saved
    assert (after.compaction.planned, after.compaction.saved) == (0, 0)
    fine = t.stats(Policy(target_bytes=1024, small_ratio=0.1, max_task_bytes=2**20))
    assert (fine.good_bytes, fine.small_segments) == (103, 0)


def test_a_limited_queue_hides_no_task():
    t = builders.create()
    for n in range(8):
        append(t, builders.events(5, day=n % 4))
    one_at_a_time = Policy(max_queue=1, small_task_bytes=0)
    assert t.stats(one_at_a_time).compaction.inputs == 8


def test_deleted_rows_and_what_a_rewrite_frees():
    t = builders.create()
    append(t, builders.events(100))
    delete(t, where="value < 25")
    found = t.stats()
    assert (found.rows, found.deleted_rows) == (50, 50)
    assert found.compaction.freed == found.bytes // 2


def test_logs_above_bases_of_a_keyed_table():
    t = builders.create(key="name", buckets=1)
    for _ in range(3):
        upsert(t, builders.events(4))
    logs = t.stats().by_kind
    assert (logs.base_segments, logs.log_segments) == (0, 3)
    assert logs.log_bytes == t.snapshot().totals.bytes
    run(t)
    merged = t.stats().by_kind
    assert (merged.base_segments, merged.log_segments, merged.log_bytes) == (1, 0, 0)
    assert builders.create().stats().by_kind is None


def test_the_horizon_its_age_and_what_holds_it():
    clock = ManualClock(builders.START_MS, 1)
    t = builders.create(clock=clock)
    for n in range(4):
        append(t, builders.events(5, day=n))
        clock.advance(86_400_000)
    run(t)
    t.pin("audit", 3)
    vacuum(t, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    found = t.stats(vacuum=True)
    assert (found.horizon, found.horizon_time) == (3, t.snapshot(3).timestamp)
    assert (found.read_time - found.horizon_time).days == 2
    assert [(h.kind, h.name, h.version) for h in found.holds] == [("pin", "audit", 3)]
    assert found.retention_hours == 168


def test_what_vacuum_deletes_and_keeps_for_a_pin():
    t = builders.create()
    for _ in range(4):
        append(t, builders.events(5))
    before = t.snapshot().totals.bytes
    run(t)
    t.pin("audit", 4)
    kept = t.stats(vacuum=True).vacuum
    assert (kept.objects, kept.bytes) == (0, 0)
    assert [(k.objects, k.bytes) for k in kept.retained] == [(4, before)]
    assert t.stats().vacuum is None


def test_a_copy_that_lags(tmp_path):
    t = builders.create()
    append(t, builders.events(1))
    follow(t, tmp_path / "copy", name="dr", clock=t.clock)
    assert [(c.name, c.acked, c.behind, c.behind_s) for c in t.stats().copies] == [("dr", 1, 0, 0)]
    for _ in range(3):
        append(t, builders.events(1))
    t.clock.advance(60_000)
    [copy] = t.stats().copies
    assert (copy.acked, copy.behind, round(copy.behind_s)) == (1, 5, 60)
    assert copy.root.endswith("/copy")
    assert [h.kind for h in t.stats().holds] == ["replica"]


def test_nothing_is_written():
    t = builders.create()
    append(t, builders.events(3))
    before = {o.key for o in t.store.list("")}
    t.stats(vacuum=True)
    assert {o.key for o in t.store.list("")} == before


def test_an_empty_table_and_a_branch():
    t = builders.create()
    found = t.stats(vacuum=True)
    assert (found.version, found.segments, found.bytes, found.small_bytes) == (0, 0, 0, 0)
    append(t, builders.events(3))
    assert t.branch("x").stats().rows == 3


@pytest.mark.parametrize(
    "wrong", [{"days": 0}, {"days": float("nan")}, {"days": True}, {"versions": 0}]
)
def test_wrong_arguments(wrong):
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        builders.create().stats(**wrong)


def test_a_prompt_shows_what_the_verb_shows():
    t = builders.create()
    append(t, pa.concat_tables([builders.events(3), builders.events(2, day=1)]))
    t.pin("audit")
    text = repr(t.stats())
    assert text.startswith(f"Stats of {t.uri}\n  version ")
    for part in ("5 rows", "2 segments of 2 chunks", "audit", "S3 Standard", "from version 0 on"):
        assert part in text


def test_a_handle_of_another_process_reads_the_same():
    t = builders.create()
    append(t, builders.events(3))
    store = t.store
    assert Table.open(store.uri, store=store).stats().rows == 3
