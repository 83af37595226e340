"""The demo's proof that compaction and late appends met, without Spark."""

from concurrent.futures import ThreadPoolExecutor, wait

import click
import pytest
from support.builders import create, events, reopen

from eventlog.cli import terminal
from eventlog.compaction import Policy, plan, run
from eventlog.demo.spark import spark_jobs
from eventlog.demo.spark.compaction_part import Ongoing, compact_beside, meetings
from eventlog.demo.spark.result import DemoResult
from eventlog.demo.spark.screen import Screen
from eventlog.demo.spark.status import Status
from eventlog.readers import scan
from eventlog.state.scan import Pruning
from eventlog.store.local import LocalStore
from eventlog.writers import append

BATCHES = 4


@pytest.fixture
def table(tmp_path):
    """Two days, three segments in each."""
    t = create(LocalStore(tmp_path))
    for number in range(3):
        append(t, events(2, days=2, first=2 * number))
    return t


def late(jobs=2):
    """What two late jobs append to the same days: for each, four batches of two rows."""
    return [
        [events(2, days=2, first=100 * job + 2 * number) for number in range(BATCHES)]
        for job in range(1, jobs + 1)
    ]


@pytest.fixture
def by_threads(table, monkeypatch):
    """Late jobs that are threads of this program instead of jobs of Spark."""

    def append_late(_spark, feeds, _uri, *, done):
        def job(number, batches):
            handle = reopen(table.store, seed=1000 + number)
            return sum(append(handle, batch) > 0 for batch in batches)

        pool = ThreadPoolExecutor(len(feeds))
        running = [pool.submit(job, number, batches) for number, batches in enumerate(feeds)]
        pool.shutdown(wait=False)
        return running

    monkeypatch.setattr(spark_jobs, "append_late", append_late)
    return append_late


def commits(t, start):
    return [t.session.log.read(version)[0] for version in range(start, t.refresh().version + 1)]


def result(beside, **upserts):
    status = Status(**{"exact": True, "replayed": True, **upserts})
    return DemoResult("t", exact=True, equal=True, compaction=beside, status=status)


@pytest.mark.timeout(60)
def test_compaction_and_late_appends_meet_in_both_orders(table, by_threads):
    found = compact_beside(None, table, late(), Policy(), lambda: None)
    assert (found.appends, found.failed_appends, found.conflicts) == (2 * BATCHES, 0, 0)
    assert found.arrived >= 1
    assert found.between >= 1
    assert found.compactions >= found.between
    assert (found.before, found.after, found.stable) == (6, 2, True)
    assert len(scan(table).to_table()) == 6 + 2 * BATCHES * 2
    assert result(found).ok


@pytest.mark.timeout(60)
def test_compaction_after_the_jobs_does_not_pass_for_beside(table, by_threads):
    """One that waits for both jobs and then compacts once."""
    start = table.refresh().version + 1
    jobs = by_threads(None, late(), table.uri, done=lambda: None)
    wait(jobs)
    run(table, policy=Policy())
    assert not plan(table, Policy()).tasks
    arrived, between = meetings(commits(table, start))
    assert (arrived, between) == (0, 0)
    assert not result(Ongoing(arrived=arrived, between=between, stable=True)).ok


@pytest.mark.timeout(60)
def test_a_late_job_that_fails_ends_the_demo_all_the_same(table, monkeypatch):
    def append_late(_spark, feeds, _uri, *, done):
        def job(batches):
            next(iter(batches))
            raise OSError("no such bucket")

        pool = ThreadPoolExecutor(len(feeds))
        return [pool.submit(job, batches) for batches in feeds]

    monkeypatch.setattr(spark_jobs, "append_late", append_late)
    found = compact_beside(None, table, late(), Policy(), lambda: None)
    assert (found.appends, found.failed_appends, found.arrived, found.between) == (0, 2, 0, 0)
    assert not result(found).ok


def test_meetings_are_read_in_the_log(table):
    start = table.refresh().version + 1
    early = plan(table, Policy())
    append(table, events(2, days=2, first=50))
    run(table, early.tasks, policy=Policy())  # one append arrived after its plan
    assert meetings(commits(table, start)) == (1, 0)
    append(table, events(2, days=2, first=60))
    assert meetings(commits(table, start)) == (1, 1)
    run(table, policy=Policy())  # planned after all of them, and nothing follows
    assert meetings(commits(table, start)) == (1, 1)


@pytest.mark.parametrize(
    "wrong",
    [{"arrived": 0}, {"between": 0}, {"conflicts": 1}, {"failed_appends": 1}, {"stable": False}],
)
def test_the_demo_is_no_success_unless_all_of_it_holds(wrong):
    good = {"arrived": 1, "between": 1, "stable": True}
    assert result(Ongoing(**good)).ok
    assert not result(Ongoing(**good | wrong)).ok


@pytest.mark.parametrize(
    "wrong", [{"exact": False}, {"replayed": False}, {"conflicts": 1}, {"failed_upserts": 1}]
)
def test_nor_unless_the_upserts_do(wrong):
    good = Ongoing(arrived=1, between=1, stable=True)
    assert not result(good, **wrong).ok


@pytest.mark.parametrize(("color", "start", "end"), [(True, "\x1b[1m", "\x1b[0m"), (False, "", "")])
def test_titles_are_bold_on_a_terminal_and_text_elsewhere(color, start, end, capsys):
    with click.Context(click.Command("demo"), color=color):
        Screen(terminal).one_day("dest = '\x1b[2J'", 1, Pruning(2, 1, 0, 0, 1))
    out, _ = capsys.readouterr()
    assert out.splitlines()[1] == f"{start}One day of the year{end}"
    assert "where dest = '\\x1b[2J'" in out
