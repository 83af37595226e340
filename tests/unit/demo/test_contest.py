"""The parts of the contest: what is counted, who is stopped, what is shown, what it needs."""

import io
import sys
import threading
from dataclasses import replace
from datetime import datetime

import click
import pyarrow as pa
import pytest
from click.testing import CliRunner
from rich.console import Console

from eventlog.cli import terminal
from eventlog.cli.program import build
from eventlog.demo import flights
from eventlog.demo.contest.board import Board, outcome_rows, remarks, standings
from eventlog.demo.contest.contest import compared, run_contest
from eventlog.demo.contest.crew import Post
from eventlog.demo.contest.outcome import ContestPlan, ContestResult
from eventlog.demo.contest.participant import FORMATS, take_part
from eventlog.demo.contest.race import Calls, run_race
from eventlog.demo.contest.standings import COMPACTION, Lane, Team, dollars, summed
from eventlog.errors import AlreadyExists, EventLogError
from eventlog.store.testing.tally import Counts

PLAN = ContestPlan(limit_s=5.0, patience_s=2.0, own_limit_s=50.0)
MANY = Counts(get=1234, put=500, list=200)


def team(name, appends=(0, 0), batches=2):
    lanes = [Lane(f"W{at}", batches, appends=done) for at, done in enumerate(appends)]
    return Team(name, f"{name} 1.0", lanes, Lane("compaction"))


def end(one, *, compaction=True):
    for lane in one.lanes:
        lane.ended = True
    one.compaction.ended = compaction
    return one


# ------------------------------------------------------------------------------ what is counted


def test_reports_are_counted():
    one = team("eventlog")
    first, second = one.lanes
    first.record({"did": "append", "rows": 7}, 1.0)
    first.record({"did": "raise", "why": "Conflict: lost"}, 1.5)
    first.record({"did": "append", "rows": 5}, 3.5)
    first.record({"did": "end"}, 3.6)
    assert (first.appends, first.rows, first.raised, first.longest_s) == (2, 12, 1, 2.5)
    assert (first.done, first.ended, first.stopped, first.why) == (
        True,
        True,
        False,
        "Conflict: lost",
    )
    second.record({"did": "append", "rows": 1}, 1.0)
    second.record({"did": "gone"}, 9.0)
    assert (second.done, second.ended, second.stopped) == (False, True, True)
    assert not one.faultless
    # A wait counts although it ended with no acknowledgement.
    assert (one.appends, one.batches, one.rows, one.raised, one.longest_s) == (3, 4, 13, 1, 8.0)


def test_passes_of_a_compaction_are_counted():
    lane = Lane("compaction")
    lane.record({"did": "pass", "committed": 3, "failed": 1, "why": "conflict: moved"}, 1.0)
    lane.record({"did": "pass", "committed": 1, "failed": 0, "why": ""}, 2.0)
    lane.record({"did": "raise", "why": "late"}, 3.0)
    assert (lane.rewrites, lane.refused, lane.raised, lane.why) == (4, 1, 1, "conflict: moved")


@pytest.mark.parametrize(
    "wrong",
    [{"lost": 1}, {"doubled": 1}, {"unacknowledged": 1}, {"compaction": Lane("c", refused=1)}],
)
def test_a_team_is_faultless_if_nothing_failed_and_all_rows_are_there_once(wrong):
    good = team("eventlog", (2, 2))
    assert good.faultless
    assert not replace(good, **wrong).faultless
    assert not team("eventlog", (2, 1)).faultless


def test_requests_have_a_price():
    assert dollars(Counts(put=1_000_000)) == pytest.approx(5)
    assert dollars(Counts(list=1, post=1)) == pytest.approx(10e-6)
    assert dollars(Counts(get=1_000_000, head=1_000_000)) == pytest.approx(0.8)
    assert dollars(Counts(delete=1_000_000)) == 0
    assert summed([Counts(get=1, bytes_read=5), Counts(get=2)]) == Counts(get=3, bytes_read=5)


def rows_of(*numbers):
    """Flights that differ in their numbers alone."""
    cells = {"time_hour": 0, "carrier": "UA", "origin": "EWR", "sched_dep_time": 5}
    rows = [{**cells, "flight": number} for number in numbers]
    fields = [flights.SCHEMA.field(name) for name in flights.KEY]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


@pytest.mark.parametrize(
    ("stored", "acknowledged", "found"),
    [
        ((1, 2, 3), (1, 2, 3), (0, 0, 0)),
        ((1, 3), (1, 2, 3), (1, 0, 0)),
        ((1, 2, 2, 2), (1, 2), (0, 2, 0)),
        ((1, 2, 3), (1,), (0, 0, 2)),
        ((2, 2), (1, 3), (2, 1, 1)),
    ],
)
def test_rows_read_back_are_compared_with_those_acknowledged(stored, acknowledged, found):
    assert compared(rows_of(*stored), rows_of(*acknowledged)) == found


def test_flights_are_cut_by_month_in_order():
    times = [datetime(2014, 1, 1, 4), datetime(2013, 2, 1), datetime(2013, 1, 31, 23)]
    times += [datetime(2013, 1, 1, 10)]
    source = pa.table({"time_hour": pa.array(times, pa.timestamp("us", "UTC"))})
    parts = [part["time_hour"].cast(pa.timestamp("us")) for part in flights.by_month(source)]
    assert [part.to_pylist() for part in parts] == [times[2:], times[1:2], times[:1]]


# ------------------------------------------------------------------------------ who is stopped


def test_a_compaction_is_stopped_when_its_writers_have_ended():
    own, other = end(team("eventlog"), compaction=False), team("deltalake")
    calls = Calls()
    calls.decide([own, other], 1.0, PLAN)
    assert (calls.stop, calls.end) == ([Post("eventlog", COMPACTION)], [])
    calls.decide([own, other], 99.0, PLAN)  # told once, and never ended
    assert (calls.stop, calls.end) == ([], [])


def test_the_other_team_is_stopped_at_the_limit_and_ended_after_it():
    own, other = end(team("eventlog")), team("deltalake")
    other.lanes[0].ended = True
    left = [Post("deltalake", COMPACTION), Post("deltalake", 2)]
    calls = Calls()
    calls.decide([own, other], 4.9, PLAN)
    assert calls.stop == []
    calls.decide([own, other], 5.0, PLAN)
    assert (calls.stop, calls.end) == (left, [])
    calls.decide([own, other], 7.0, PLAN)
    assert (calls.stop, calls.end) == ([], [])
    calls.decide([own, other], 7.1, PLAN)
    assert (calls.stop, calls.end) == ([], left)


def test_nobody_is_stopped_while_eventlog_is_at_work():
    calls = Calls()
    calls.decide([team("eventlog"), team("deltalake")], 40.0, PLAN)
    assert (calls.stop, calls.end) == ([], [])


class FakeCrew:
    """Reports from a list, at one a second of a clock that it moves."""

    def __init__(self, *reports):
        self.reports, self.now, self.stopped = list(reports), 0.0, []

    def elapsed_s(self):
        return self.now

    def go(self):
        pass

    def next_report(self, timeout_s):
        self.now += 1
        return self.reports.pop(0) if self.reports else None

    def stop(self, posts):
        for post in posts:
            self.stopped.append(post)
            self.reports.append((post, {"did": "end"}))

    def end(self, post):
        self.reports.append((post, {"did": "gone"}))

    def last_words(self, post):
        return "killed"


def raced(crew, *teams):
    sent = run_race(crew, teams, PLAN, clock=crew, requests=lambda _: MANY, show=lambda _: None)
    return sent, teams


def test_a_race_ends_with_its_last_participant():
    post = Post("eventlog", 1)
    crew = FakeCrew((post, {"did": "append", "rows": 3}), (post, {"did": "end"}))
    seconds, (own,) = raced(crew, team("eventlog", appends=(0,), batches=1))
    assert (seconds, own.rows, own.seconds, own.over) == (3.0, 3, 1.0, True)
    assert crew.stopped == [Post("eventlog", COMPACTION)]
    assert own.requests.total == 2 * MANY.total


def test_a_participant_that_breaks_off_is_an_error_of_eventlog_and_a_result_of_another():
    gone, ended = {"did": "gone"}, {"did": "end"}
    with pytest.raises(EventLogError, match="participant 1 of eventlog broke off: killed"):
        raced(FakeCrew((Post("eventlog", 1), gone)), team("eventlog"))
    crew = FakeCrew((Post("eventlog", 1), ended), (Post("deltalake", 1), gone))
    _, (_, other) = raced(crew, team("eventlog", (2,)), team("deltalake", (0,)))
    assert other.lanes[0].stopped


def test_a_race_without_an_end_is_an_error():
    with pytest.raises(EventLogError, match="did not end within 50 s"):
        raced(FakeCrew(), team("eventlog"))


# ------------------------------------------------------------------------------ a participant


class FakeTable:
    """Raises at its first append of each batch, and at its first pass of a compaction."""

    def __init__(self):
        self.appended, self.tried, self.opened, self.passes = [], set(), 0, 0

    def open(self):
        self.opened += 1

    def append(self, rows, writer, number):
        if number not in self.tried:
            self.tried.add(number)
            raise OSError("lost\x1b the race")
        self.appended.append((writer, number, rows.num_rows))

    def compact(self):
        self.passes += 1
        if self.passes == 1:
            raise OSError("overtaken")
        return 2, 0, ""


def feed(folder, *sizes):
    path = folder / "feed.arrow"
    with pa.ipc.new_file(path, pa.schema([("x", pa.int64())])) as file:
        for size in sizes:
            file.write_batch(pa.record_batch({"x": list(range(size))}))
    return {"uri": "", "options": {}, "file": str(path), "name": "W"}


def test_a_writer_sends_a_batch_again_that_raised(tmp_path):
    table = FakeTable()
    reports = list(take_part(table, feed(tmp_path, 3, 4), threading.Event()))
    assert table.appended == [("W", 1, 3), ("W", 2, 4)]
    assert [r["did"] for r in reports] == ["raise", "append", "raise", "append", "end"]
    assert table.opened == 2
    assert reports[0]["why"] == "OSError: lost\x1b the race"


def test_a_writer_that_is_stopped_starts_no_other_append(tmp_path):
    table, stop = FakeTable(), threading.Event()
    reports = take_part(table, feed(tmp_path, 3, 4), stop)
    assert [next(reports)["did"], next(reports)["did"]] == ["raise", "append"]
    stop.set()
    assert [r["did"] for r in reports] == ["end"]
    assert table.appended == [("W", 1, 3)]


def test_a_compaction_makes_a_last_pass_when_it_is_stopped():
    table, stop = FakeTable(), threading.Event()
    reports = take_part(table, {"uri": "", "options": {}, "file": "", "name": ""}, stop)
    assert next(reports)["did"] == "raise"
    stop.set()
    assert [(r["did"], r.get("committed")) for r in reports] == [("pass", 2), ("end", None)]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_both_libraries_append_compact_and_read_the_same_rows(name, s3, bucket):
    key = f"{name}-{bucket}"  # of a client whose requests are counted apart
    rows = [
        {f.name: "" if f.type == pa.string() else at for f in flights.SCHEMA} for at in range(9)
    ]
    batch = pa.Table.from_pylist(rows, schema=flights.SCHEMA)
    table = FORMATS[name]()
    table.locate(f"s3://{bucket}/{name}", s3.storage_options(key))
    table.create(flights.SCHEMA)
    table.open()
    table.append(batch.slice(0, 4), "W", 1)
    table.append(batch.slice(4), "W", 2)
    assert table.files() == 2
    assert table.compact() == (1, 0, "")
    assert table.files() == 1
    assert compared(table.rows(flights.KEY), batch) == (0, 0, 0)
    counted = s3.requests_by(key)
    assert counted.put >= 6
    assert s3.requests_by("nobody") == Counts()


# ------------------------------------------------------------------------------ what is shown


def full_teams():
    teams = [team("eventlog", (13, 12) * 3, 13), team("deltalake", (3, 4) * 3, 13)]
    for one in teams:
        for _, lane in one.numbered:
            lane.requests, lane.rows = MANY, 58_665
    teams[1].lanes[0].record({"did": "raise", "why": "CommitFailedError: \x1b[2J"}, 1.0)
    return teams


def drawn(width, **settings):
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, markup=False, **settings)
    console.print(standings(full_teams(), 4.2, width))
    return file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_table_fits_a_terminal(width):
    lines = drawn(width, no_color=True, color_system=None).splitlines()
    assert max(map(len, lines)) <= width
    assert len(lines) <= 23
    whole = "\n".join(lines)
    for part in ("13 of 13", "58,665", "$0.0040", "deltalake 1.0", "1 raised", "compaction"):
        assert part in whole
    assert ("waits" in whole) == (width == 120)


def test_colours_are_those_of_the_terminal(monkeypatch):
    assert "\x1b[31m" in drawn(80, color_system="standard")  # an append raised
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in drawn(80, color_system="standard")


def test_results_name_what_each_team_did():
    rows = {name: cells for name, *cells in outcome_rows(full_teams())}
    assert rows["appends acknowledged"] == ["75 of 78", "21 of 78"]
    assert rows["appends that raised"] == ["none", "1"]
    assert rows["a million such appends"] == ["$373", "$1,331"]
    said = " ".join(remarks(full_teams()))
    assert "deltalake was stopped while 6 writers had rows" in said
    assert "CommitFailedError" in said
    assert "deltalake" not in " ".join(remarks(full_teams()[:1]))


def test_without_a_terminal_lines_are_plain(capsys):
    with click.Context(click.Command("demo"), color=False):
        board = Board(terminal)
        teams = full_teams()
        board.opening(6, ["eventlog"], {"deltalake": "it is not installed"})
        with board.live(teams) as show:
            show(0.5)
            show(2.5)
        board.closing(ContestResult("flights", teams, head=9, answers={1: {"EWR": (5, 1.25)}}))
    out, _ = capsys.readouterr()
    assert "pip install deltalake" in " ".join(out.split())
    assert "   2.5 s: eventlog 75 of 78 appends; deltalake 21 of 78 appends\n" in out
    assert "0.5 s:" not in out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80
    assert "eventlog fsck flights --checksums\n" in out
    assert "THE ROWS READ BACK ARE NOT" in out


# ------------------------------------------------------------------------------ what it needs


@pytest.mark.parametrize(
    ("arguments", "needed", "extra"),
    [((), "moto", "demo"), (("--spark",), "pyspark", "demo,spark")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    arguments, needed, extra, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, needed, None)
    answer = CliRunner().invoke(build(), ["demo", *arguments])
    assert answer.exit_code == 1
    assert needed in answer.stderr
    assert f"pip install 'eventlog-tables[{extra}]'" in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_fails_leaves_no_folder(tmp_path, monkeypatch):
    def no_flights(every):
        raise EventLogError(f"no flights of every {every} days")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flights, "load", no_flights)
    (tmp_path / "eventlog-demo").mkdir()
    with pytest.raises(EventLogError, match="no flights of every 7 days"):
        run_contest(ContestPlan(writers=1, every=7, beside=()))
    assert [path.name for path in tmp_path.iterdir()] == ["eventlog-demo"]


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "rows.csv").touch()
    with pytest.raises(AlreadyExists, match="is not empty: name another folder"):
        run_contest(ContestPlan(folder=str(tmp_path)))
