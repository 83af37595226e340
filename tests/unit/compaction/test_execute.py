"""Performing a task: one effect however often it comes, whatever happens meanwhile; or none."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import msgspec
import pytest
from support import racers
from support.builders import (
    START_MS,
    Spy,
    accepted_in,
    check_sound,
    commit,
    create,
    events,
    live,
    reopen,
    replaced,
    row_names,
)
from support.compaction_tasks import SMALL, content, policy, rewrite_task, task_of
from support.crashes import ENDS, MortalStore, fresh, names, quick, rows_of, table_with_history

from eventlog import Ms, Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.compaction.execute import Outcome, needs_claim, perform
from eventlog.format import keys
from eventlog.model.actions import Fence
from eventlog.table.leases import RENEW_S, SILENT_S
from eventlog.writers import append, overwrite

CLAIMING = policy(claim_bytes=0)
HOWS = ("before", "lost", "refused")


@pytest.fixture
def table():
    table = create()
    for n in range(4):
        append(table, events(3, first=3 * n))
    return table


def watched(table, happens=lambda: None, prefix=keys.SEGMENTS_PREFIX):
    """Another process's handle and its store; something happens before its first such put."""
    spy = Spy(table.store)

    def meet(key):
        if key.startswith(prefix):
            spy.before_put = lambda _: None
            happens()

    spy.before_put = meet
    return Table.open(spy.uri, store=spy, clock=ManualClock(START_MS + 1000, 77)), spy


def test_a_task_is_done(table):
    before, task = content(table), task_of(table)
    found = perform(table, task, SMALL)
    assert found == Outcome(
        task=task.id,
        status="done",
        version=5,
        passed=0,
        rows=12,
        bytes_in=task.bytes,
        bytes_out=live(table.session.head())[0].bytes,
        segments_in=4,
        made=(live(table.session.head())[0].id,),
    )
    assert found.ok
    assert found.segments_out == 1
    assert content(table).equals(before)
    newest = next(table.history())
    assert (newest.operation, newest.adds, newest.drops, newest.rows) == ("compact", 1, 4, 0)
    check_sound(table.store)


def test_an_outcome_travels_as_json(table):
    found = perform(table, task_of(table), SMALL)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Outcome) == found


@pytest.mark.hazard("I4")
def test_i4_the_second_delivery_reads_no_rows_and_is_done_too(table):
    task = task_of(table)
    first = perform(table, task, SMALL)
    mine, spy = watched(table)
    spy.get = lambda key, **_: pytest.fail(key) if key.startswith("data/") else Spy.get(spy, key)
    again = perform(mine, task, SMALL)
    assert (again.status, again.version, again.rows) == ("done", first.version, 0)
    assert spy.puts == []


@pytest.mark.hazard("I4")
@pytest.mark.parametrize("settings", [SMALL, CLAIMING], ids=["free", "claiming"])
def test_i4_deliveries_at_once_have_one_effect(table, settings):
    before, task = content(table), task_of(table)
    start = Barrier(4)

    def deliver(seed):
        mine = reopen(table.store, seed)
        start.wait()
        return perform(mine, task, settings)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(deliver, range(100, 104)))
    assert {one.status for one in found} == {"done"}
    assert len({one.version for one in found}) == 1
    assert accepted_in(table.store, task.id) == [found[0].version]
    assert content(table).equals(before)
    assert not table.claims()


@pytest.mark.hazard("I4")
@pytest.mark.parametrize("settings", [SMALL, CLAIMING], ids=["free", "claiming"])
def test_i4_a_delivery_in_the_middle_of_another(table, settings):
    task = task_of(table)
    inner = []
    mine, spy = watched(table, lambda: inner.append(perform(reopen(table.store), task, settings)))
    found = perform(mine, task, settings)
    assert inner[0].ok
    assert inner[0].rows == 12
    assert (found.status, found.version, found.rows) == ("done", inner[0].version, 0)
    assert spy.deletes == []
    assert accepted_in(table.store, task.id) == [found.version]


def deliver(number, start, uri, body):
    from eventlog.compaction.tasks import decode_tasks  # noqa: PLC0415 - a child process starts with less

    table = Table.open(uri)
    start.wait(240)
    found = perform(table, decode_tasks(body)[0], SMALL)
    return found.status, found.version


@pytest.mark.verify
@pytest.mark.hazard("I4")
def test_i4_deliveries_to_several_processes(tmp_path):
    from eventlog.compaction.tasks import encode_tasks  # noqa: PLC0415

    table = Table.create(tmp_path, events().schema, time_column="at")
    for n in range(4):
        append(table, events(3, first=3 * n))
    task = task_of(table)
    found = racers.run(deliver, 2, table.uri, encode_tasks([task]))
    assert found[0] == found[1]
    assert found[0][0] == "done"
    assert accepted_in(table.store, task.id) == [found[0][1]]


def test_what_another_task_replaced_is_superseded(table):
    task = task_of(table)
    other = task_of(table, live(table.session.head())[:2])
    assert perform(table, other, SMALL).status == "done"
    found = perform(table, task, SMALL)
    assert (found.status, found.ok, found.version) == ("superseded", True, None)
    assert "no longer live" in found.error


def test_what_another_task_replaces_meanwhile_is_superseded(table):
    task = task_of(table)
    other = task_of(table, live(table.session.head())[:2])
    mine, spy = watched(table, lambda: perform(reopen(table.store), other, SMALL))
    assert perform(mine, task, SMALL).status == "superseded"
    assert spy.deletes == []
    assert row_names(table) == [f"row {n}" for n in range(12)]


def test_what_was_overwritten_and_vacuumed_is_superseded(table):
    task = task_of(table)
    overwrite(table, events(1, first=50), start="1970-01-01", end="1970-01-02")
    table.clock.advance(40 * 3_600_000)
    append(table, events(1, first=60))
    vacuum(table, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    assert perform(table, task, SMALL).status == "superseded"


def test_what_is_vacuumed_while_it_is_read_is_superseded(table):
    task = task_of(table)

    def end():
        other = reopen(table.store)
        overwrite(other, events(1, first=50), start="1970-01-01", end="1970-01-02")
        other.clock.advance(40 * 3_600_000)
        append(other, events(1, first=60))
        vacuum(other, dry_run=False, retention=timedelta(0), staging=timedelta(0))

    mine, spy = watched(table)
    before = spy.get

    def get(key, **options):
        if key.startswith("data/"):
            spy.get = before
            end()
        return before(key, **options)

    spy.get = get
    found = perform(mine, task, SMALL)
    assert found.status == "superseded"
    assert spy.puts == []


def test_no_inputs_are_nothing_to_do(table):
    assert perform(table, replaced(task_of(table), inputs=()), SMALL).status == "superseded"
    assert table.refresh().version == 4


@pytest.mark.hazard("K7")
def test_what_arrives_meanwhile_stays_beside(table):
    mine, _ = watched(table, lambda: append(table, events(2, first=100)))
    found = perform(mine, task_of(table), SMALL)
    assert (found.status, found.version, found.passed) == ("done", 6, 0)
    assert len(live(table.refresh())) == 2
    assert row_names(table) == [f"row {n}" for n in (*range(12), 100, 101)]


@pytest.mark.hazard("K7")
def test_k7_an_append_that_wins_the_slot_is_no_conflict(table):
    other = reopen(table.store)
    mine, spy = watched(table, lambda: append(other, events(2, first=100)), keys.LOG_PREFIX)
    found = perform(mine, task_of(table), SMALL)
    assert (found.status, found.version, found.passed) == ("done", 6, 1)
    assert len([key for key, _ in spy.puts if key.startswith("data/")]) == 1  # rows once
    assert len(live(table.refresh())) == 2


def test_a_fence_that_passes_by_is_no_failure(table):
    def fence():
        other = reopen(table.store)
        commit(other, Fence(other.session.head().version + 1))

    mine, spy = watched(table, fence)
    assert perform(mine, task_of(table), SMALL).status == "done"
    assert row_names(check_sound(table.store)) == [f"row {n}" for n in range(12)]
    assert spy.deletes == []


def test_rows_that_came_back_can_be_compacted_again(table):
    before = task_of(table, live(table.session.head())[:1])
    first = perform(table, before, SMALL)
    table.restore(4)
    assert perform(table, before, SMALL).version == first.version  # it was done, then undone
    task = task_of(table, [s for s in live(table.refresh()) if s.id == before.inputs[0].id])
    found = perform(table, task, SMALL)
    assert (found.status, found.version) == ("done", first.version + 2)
    # Of one id, the log would hold two transactions, and who asks for one would find either.
    assert accepted_in(table.store, before.id) == [first.version]
    assert accepted_in(table.store, task.id) == [found.version]


def test_which_tasks_take_a_claim(table):
    task = task_of(table)
    assert not needs_claim(task, policy(claim_bytes=task.bytes + 1))
    assert needs_claim(task, policy(claim_bytes=task.bytes))
    assert needs_claim(task_of(table, granularity="month"), SMALL)


def test_a_claim_is_taken_and_given_up_with_the_commit(table):
    seen = []
    mine, _ = watched(table, lambda: seen.append(reopen(table.store).claims()))
    task = task_of(table)
    found = perform(mine, task, CLAIMING)
    (claim,) = seen[0].values()
    assert (claim.start, claim.end, claim.kind) == (0, 86_400_000, "exclusive")
    assert claim.segments == tuple(sorted(segment.id for segment in task.inputs))
    assert claim.group == task.id
    assert (found.version, found.passed) == (6, 0)
    assert not table.claims()
    assert [entry.operation for entry in table.history(limit=2)] == ["compact", "claim"]


def test_a_claimed_chunk_is_left_alone(table):
    with table.claim(Ms(0), Ms(86_400_000), owner="somebody"):
        mine, spy = watched(table)
        found = perform(mine, task_of(table), CLAIMING)
        assert (found.status, found.ok) == ("claimed", False)
        assert "somebody" in found.error
        assert spy.puts == []
    assert perform(table, task_of(table), CLAIMING).status == "done"


def test_an_orphaned_claim_of_the_same_task_is_taken_over(table):
    task = task_of(table)
    reopen(table.store).claim(segments=task.inputs, group=task.id, owner="who died")
    assert perform(table, task, CLAIMING).status == "done"
    assert not table.claims()


def test_who_takes_over_from_the_dead_shows_that_it_is_alive(table):
    task = task_of(table)
    reopen(table.store).claim(segments=task.inputs, group=task.id, owner="who died")
    seen = []
    mine, _ = watched(table, lambda: seen.extend(reopen(table.store).claims().values()))
    assert perform(mine, task, CLAIMING).status == "done"
    assert [claim.renewed > claim.token for claim in seen] == [True]


def test_a_dead_holders_claim_on_what_is_another_task_by_now_is_broken(table):
    """Its chunk has changed since, so that nobody ever asks for its group again."""
    reopen(table.store).claim(segments=live(table.session.head()), group="gone", owner="who died")
    append(table, events(1, first=50))
    before, task = content(table), task_of(table)
    mine, spy = watched(table)
    assert perform(mine, task, CLAIMING).status == "claimed"
    mine.clock.advance((SILENT_S - 1) * 1000)
    assert perform(mine, task, CLAIMING).status == "claimed"
    assert spy.puts == []
    mine.clock.advance(1000)
    assert perform(mine, task, CLAIMING).status == "done"
    assert content(table).equals(before)
    assert not table.claims()


def test_a_holder_that_works_for_long_is_not_taken_for_dead(table):
    """It renews as it works, though what stands in its way is asked for all the time."""
    other = reopen(table.store)
    rival = task_of(table, live(table.session.head())[:2])

    def progress(*_):
        for clock in (table.clock, other.clock):
            clock.advance((SILENT_S - 1) * 1000)
        assert perform(other, rival, CLAIMING).status == "claimed"

    assert perform(table, task_of(table), CLAIMING, progress=progress).status == "done"


@pytest.mark.hazard("I4")
@pytest.mark.parametrize("status", ["failed", "out of time"])
def test_i4_a_second_delivery_that_ends_early_leaves_the_first_its_claim(table, status):
    task, found = task_of(table), []

    def second():
        mine = reopen(table.store)

        def ends(*_):
            if status == "failed":
                raise OSError(28, "No space left on device")
            mine.clock.advance(6000)

        found.append(perform(mine, task, CLAIMING, deadline_s=5, progress=ends))
        assert len(table.claims()) == 1

    mine, _ = watched(table, second)
    outcome = perform(mine, task, CLAIMING)
    assert [one.status for one in found] == [status]
    assert outcome.status == "done"
    assert not table.claims()


@pytest.mark.hazard("K2")
def test_k2_a_revoked_claim_ends_it_and_nothing_shows(table):
    revoker = reopen(table.store)
    mine, spy = watched(
        table, lambda: revoker.claim(Ms(0), Ms(86_400_000), priority=9, owner="urgent")
    )
    found = perform(mine, task_of(table), CLAIMING)
    assert found.status == "failed"
    assert "ClaimLost" in found.error
    assert table.refresh().version == 6  # two claims
    assert len(live(table.session.head())) == 4
    assert [claim.owner for claim in table.claims().values()] == ["urgent"]
    assert spy.deletes == []


def test_a_claim_is_renewed_about_every_minute(table):
    task = task_of(table)

    def progress(*_):
        table.clock.advance(RENEW_S * 1000)

    found = perform(table, task, CLAIMING, progress=progress)
    operations = [entry.operation for entry in table.history()]
    assert found.status == "done"
    assert "renew" in operations
    assert found.seconds >= RENEW_S


def test_a_revocation_is_noticed_before_the_work_ends(table):
    revoker = reopen(table.store)

    def progress(*_):
        table.clock.advance(RENEW_S * 1000)
        if len(table.claims()) == 1:
            revoker.claim(Ms(0), Ms(86_400_000), priority=9)

    found = perform(table, task_of(table), CLAIMING, progress=progress)
    assert "ClaimLost" in found.error
    assert [entry.operation for entry in table.history(limit=2)] == ["claim", "claim"]


@pytest.mark.parametrize("settings", [SMALL, CLAIMING], ids=["free", "claiming"])
def test_at_the_deadline_it_stops(table, settings):
    before = live(table.session.head())
    found = perform(
        table,
        task_of(table),
        settings,
        deadline_s=5,
        progress=lambda *_: table.clock.advance(6000),
    )
    assert (found.status, found.ok, found.seconds) == ("out of time", False, 6)
    assert live(table.refresh()) == before
    assert not table.claims()
    assert perform(table, task_of(table), settings, deadline_s=5).status == "done"


def test_a_lost_input_fails_its_task_only():
    table = create()
    for day in range(2):
        for n in range(2):
            append(table, events(2, day=day, first=10 * day + 2 * n))
    by_day = {}
    for segment in live(table.session.head()):
        by_day.setdefault(segment.chunk, []).append(segment)
    tasks = [task_of(table, inputs) for inputs in by_day.values()]
    table.store.delete([keys.key_of(tasks[0].inputs[0])])
    found = [perform(reopen(table.store), task, SMALL) for task in tasks]
    assert [one.status for one in found] == ["failed", "done"]
    assert "DataLoss" in found[0].error
    assert keys.key_of(tasks[0].inputs[0]) in found[0].error


def test_a_full_disk_fails_the_task(table, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eventlog.rewriting.rewrite.sort_on_disk", full)
    found = perform(table, task_of(table), policy(sort_by=("value",)))
    assert found.status == "failed"
    assert "No space left" in found.error
    assert table.refresh().version == 4


@pytest.mark.parametrize("kind", [MemoryError, KeyError, RuntimeError])
@pytest.mark.parametrize("settings", [SMALL, CLAIMING], ids=["free", "claiming"])
def test_whatever_one_task_meets_is_its_outcome(table, kind, settings, caplog):
    def progress(*_):
        raise kind("of a kind that nobody foresaw")

    found = perform(table, task_of(table), settings, progress=progress)
    assert found.status == "failed"
    assert found.error.startswith(f"{kind.__name__}: ")
    assert "nobody foresaw" in found.error
    assert [r.exc_info[0] for r in caplog.records if r.exc_info] == [kind]
    assert len(live(table.refresh())) == 4
    assert not table.claims()


def test_a_store_that_does_not_answer_fails_the_task(table):
    mine, spy = watched(table)

    def down(key):
        raise errors.Unavailable("the store is down")

    spy.before_put = down
    found = perform(mine, task_of(table), SMALL)
    assert found.status == "failed"
    assert "the store is down" in found.error


@pytest.mark.hazard("K6")
def test_k6_a_replacement_with_other_rows_is_void(table):
    from eventlog.compaction.execute import replacement  # noqa: PLC0415

    task = task_of(table)
    made = rewrite_task(table, task, SMALL)
    short = replaced(task, inputs=task.inputs[1:])
    with pytest.raises(errors.CommitConflict, match="rows"):
        table.commit(replacement(table, short, made, None))
    assert table.refresh().version == 4


@pytest.fixture(scope="module")
def in_turn():
    with quick():
        yield


@pytest.mark.sample(2)
@pytest.mark.usefixtures("in_turn")
@pytest.mark.parametrize(
    ("keyframe_commits", "settings", "how"),
    [
        pytest.param(
            every,
            settings,
            how,
            id=f"{every}-{'claiming' if settings is CLAIMING else 'free'}-{how}",
            marks=[pytest.mark.long] * ((settings is CLAIMING) != (every == "1")),
        )
        for every in ("64", "1")
        for settings in (SMALL, CLAIMING)
        for how in HOWS
    ],
)
def test_every_store_call_may_be_the_last(keyframe_commits, settings, how):
    past = table_with_history(keyframe_commits)
    day = [s for s in live(fresh(past.store(), 50).session.head()) if s.chunk == "1970-01-02"]
    assert len(day) == 2
    for at in range(1, 60):
        store = past.store()
        task = task_of(fresh(store, 60), day)
        mortal = MortalStore(store, at, how)
        try:
            found = perform(fresh(mortal, 100), task, settings)
            assert found.status in ("done", "failed")
        except ENDS:
            found = None
        assert mortal.deletes == []
        after = past.check(store)
        assert rows_of(after) == names(range(4))
        if found is not None and found.status == "done":
            assert len(live(after.session.head())) == 2
        again = perform(fresh(store, 200), task, settings)
        assert again.status == "done"
        assert accepted_in(store, task.id) == [again.version]
        ended = past.check(store, 300)
        assert rows_of(ended) == names(range(4))
        assert len(live(ended.session.head())) == 2
        if mortal.calls < at:
            break
    assert mortal.calls < at
    assert at > 6
