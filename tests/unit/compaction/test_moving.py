"""Compaction changes the granularity of a table that follows its data, and of no other."""

import json

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support.builders import check_sound, create, events, live, reopen, row_names

from eventlog.cli.program import build
from eventlog.compaction import Policy, moving, plan, run
from eventlog.compaction.planner.assessing import record
from eventlog.compaction.planner.planning import better_fit
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

DAYS = 40


def written(store=None, **options):
    """A table of a row a day, each appended for itself: what the first rows choose is `day`."""
    table = create(store, **options)
    append(table, events(1))
    append(table, events(DAYS - 1, days=DAYS - 1, day=1, first=1))
    return table


def granularity(table):
    return table.refresh().layout.granularity


def chunks(table):
    return sorted({segment.chunk for segment in live(table.refresh())})


def test_small_chunks_become_coarser_and_then_stay():
    table = written()
    assert granularity(table) == "day"
    report = run(table)
    assert (report.fit.now, report.fit.better, report.count("done")) == ("day", "month", 1)
    assert (granularity(table), chunks(table)) == ("month", ["1970-01", "1970-02"])
    again = run(table)
    assert (again.planned, again.fit) == (0, None)
    append(table, events(1, day=DAYS, first=DAYS))
    assert chunks(table) == ["1970-01", "1970-02"]
    assert {*row_names(table)} == {f"row {n}" for n in range(DAYS + 1)}
    check_sound(table.store)


def test_a_plan_has_the_tasks_of_the_better_granularity_and_changes_nothing():
    table = written()
    version = table.session.head().version
    planned = plan(table)
    assert (planned.granularity, planned.fit.wanted, planned.fit.chunks) == ("month", 2, DAYS)
    assert table.refresh().version == version
    table.set_granularity("month")
    later = plan(table)
    assert later.fit is None
    assert [task.inputs for task in later.tasks] == [task.inputs for task in planned.tasks]
    assert plan(table, version=version).tasks == planned.tasks


def test_notes_are_about_the_granularity_that_the_table_has():
    table = written()
    record(table, Policy())
    assert granularity(table) == "day"
    assert plan(table).fit is not None
    assert run(table).count("done") == 1


def test_a_granularity_that_was_given_stays_and_another_is_named():
    table = written(granularity="day")
    assert plan(table).fit is None
    assert run(table).planned == 0
    found = better_fit(table.refresh(), Policy())
    assert (found.better, found.moves, granularity(table)) == ("month", False, "day")
    assert better_fit(table.refresh(), Policy(granularity="month")) is None
    assert better_fit(written(key="name", granularity="day").refresh(), Policy()) is None


def test_a_granularity_for_one_compaction_moves_nothing():
    table = written()
    assert run(table, policy=Policy(granularity="year")).count("done") == 1
    assert (granularity(table), chunks(table)) == ("day", ["1970"])


def test_large_chunks_become_finer_for_new_rows():
    small = {"segment_bytes": "1024", "auto_granularity": "1"}
    table = create(granularity="year", properties=small)
    append(table, events(30_000))
    assert table.session.head().totals.bytes > 64 * 1024
    report = run(table)
    assert (report.fit.now, report.fit.better, report.fit.wanted) == ("year", "month", 0)
    assert (granularity(table), chunks(table)) == ("month", ["1970"])
    append(table, events(1, day=40, first=30_000))
    assert run(table).fit is None
    assert chunks(table) == ["1970", "1970-02"]
    check_sound(table.store)


def test_somebody_fixes_it_between_the_plan_and_the_run(monkeypatch):
    table = written()
    real = moving.move_granularity

    def overtaken(session, now, better):
        reopen(table.store).set_granularity("day")
        return real(session, now, better)

    monkeypatch.setattr(moving, "move_granularity", overtaken)
    report = run(table)
    assert (report.planned, report.fit, granularity(table)) == (0, None, "day")


def test_few_or_large_segments_need_no_look_at_them(monkeypatch):
    few = create(MemoryStore())
    append(few, events(30, days=30))
    monkeypatch.setattr(type(few.session.head()), "entries", None)
    assert better_fit(few.session.head(), Policy()) is None


@pytest.fixture
def cli():
    def called(*arguments):
        answer = CliRunner().invoke(build(), [*arguments])
        assert answer.exit_code == 0
        return answer

    return called


REASON = "40 time chunks of granularity day hold "


def test_the_program_says_what_compaction_changes(tmp_path, cli):
    table = written(LocalStore(str(tmp_path / "t")))
    before = "--run changes the granularity from day to month first\n"
    for verb in ("compact", "chunks"):
        *_, said = cli(verb, table.uri).stderr.splitlines(keepends=True)
        assert said.startswith(REASON)
        assert said.endswith(before)
    planned = json.loads(cli("compact", table.uri, "--json").stdout)
    assert (planned["fit"]["better"], planned["granularity"]) == ("month", "month")
    assert "time chunks by day (auto)" in " ".join(cli("show", table.uri).stdout.split())
    said = cli("compact", table.uri, "--run").stderr
    assert said.endswith("the granularity was day, and is month now\n")
    assert "granularity" not in cli("compact", table.uri).stderr


def test_the_program_names_the_remedy_of_a_fixed_granularity(tmp_path, cli):
    table = written(LocalStore(str(tmp_path / "t")), granularity="day")
    remedy = f"`eventlog compact {table.uri} --granularity month --run` joins them"
    for arguments in (["compact"], ["chunks"], ["compact", "--run"]):
        said = cli(*arguments, table.uri).stderr
        assert REASON in said
        assert remedy in said
    cli("compact", table.uri, "--granularity", "month", "--run")
    table.set_granularity("month")
    assert REASON not in cli("compact", table.uri).stderr


def test_days_of_dates_are_not_divided():
    schema = pa.schema([("at", pa.date32()), ("n", pa.int64())])
    table = create(schema=schema, properties={"segment_bytes": "1024"})
    append(table, pa.table({"at": pa.array([0] * 80_000, pa.int32()).cast(pa.date32()),
                            "n": pa.array(range(80_000), pa.int64())}))  # fmt: skip
    assert table.session.head().totals.bytes > 64 * 1024
    assert run(table).fit is None
    assert granularity(table) == "day"


def test_the_verb_fixes_the_granularity_and_lets_it_follow(tmp_path, cli):
    table = create(LocalStore(str(tmp_path / "t")))
    said = lambda name: cli("granularity", table.uri, name).output
    assert "time chunks by day, which stays" in said("day")
    assert "nothing to do: time chunks are by day" in said("day")
    assert "time chunks by day, until another granularity fits better" in said("auto")
    assert "nothing to do: time chunks are by auto" in said("auto")
    assert "time chunks by month, before by day" in said("month")
