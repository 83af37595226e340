"""The screen of the contest: a live table on a terminal, plain lines elsewhere.

On a terminal the tables are rich's, in colour unless NO_COLOR is set; elsewhere they are those of
the program.
"""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eventlog.demo.contest.outcome import ContestResult
from eventlog.demo.contest.standings import Lane, Team, dollars
from eventlog.demo.surroundings import Terminal, activation, is_installed
from eventlog.monitoring.prices import S3_STANDARD
from eventlog.quantities import count_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_COLUMNS = ("rows", "commits", "requests", "dollars")
_WAITS_S = 1.0  # a writer without an answer for so long is shown as waiting
_REFRESH = 8  # a second
_LINE_S = 2.0  # between two lines where there is no terminal
_WIDE = 98  # columns of a terminal that has room for the waits
_FILLED = 80  # columns of prose


class Board:
    """Prints the steps of the contest, or nothing.

    Args:
        terminal: what prints; nothing is printed if None.
    """

    def __init__(self, terminal: Terminal | None) -> None:
        self.terminal = terminal
        self._console: Console | None = None
        if terminal is not None:
            from rich.console import Console  # noqa: PLC0415 - the extra may be missing

            console = Console(highlight=False, markup=False)
            self._console = console if console.is_terminal else None

    def opening(self, writers: int, names: Sequence[str], absent: Mapping[str, str]) -> None:
        """Announce the contest."""
        self._title("Many programs append to one table while it is compacted")
        self._prose(
            f"{count_text(writers, 'program')} append a year of flights from New York to a table "
            "on an S3 server that this one starts: the same months at the same time. One more "
            "compacts the table all the time."
        )
        for name in names[1:]:
            self._prose(f"As many do the same with the library {name}, beside them.")
        for name, why in absent.items():
            self._prose(f"{name} does not take part: {why}. To see it beside: pip install {name}")

    @contextmanager
    def live(self, teams: Sequence[Team]) -> Iterator[Callable[[float], None]]:
        """Yield a function that shows the standings after so many seconds."""
        if self._console is None:
            last_s = 0.0

            def line(at_s: float) -> None:
                nonlocal last_s
                if at_s - last_s >= _LINE_S or all(team.over for team in teams):
                    last_s = at_s
                    self._say(plain_standings(teams, at_s))

            self._say()
            yield line
            return
        from rich.live import Live  # noqa: PLC0415

        console = self._console
        console.print()
        with Live(
            console=console, refresh_per_second=_REFRESH, vertical_overflow="crop"
        ) as display:
            yield lambda at_s: display.update(standings(teams, at_s, console.width))

    def closing(self, result: ContestResult) -> None:
        """Show what came of it, and which commands to try next."""
        self._title("What came of it")
        self._table(["", *(team.title for team in result.teams)], outcome_rows(result.teams))
        for text in remarks(result.teams):
            self._prose(text)
        self._title("Every version can be read")
        appends = result.teams[0].appends
        self._prose(
            f"{count_text(appends, 'append')} in {count_text(result.commits, 'commit')}: writers "
            "that meet combine theirs. Flights and their mean delay in minutes, as they were:"
        )
        origins = sorted({o for answer in result.answers.values() for o in answer})
        self._table(
            ["", *origins],
            [
                (f"version {version}", *(_answer(answer.get(origin)) for origin in origins))
                for version, answer in result.answers.items()
            ],
        )
        self._prose(
            f"A question about January reads {result.read} of the "
            f"{count_text(result.considered, 'segment')} that compaction has left."
        )
        if not result.exact:
            self._prose(f"THE ROWS READ BACK ARE NOT THE {result.given:,} THAT WERE APPENDED")
        if not result.copied:
            self._prose(f"THE COPY IN {result.folder} LACKS ROWS")
        self._next(result)

    def _next(self, result: ContestResult) -> None:
        folder = shlex.quote(os.path.relpath(result.folder))
        self._title(f"The table was copied to {folder}. Look around:")
        if (activate := activation()) is not None:
            self._say(f"  {activate}  # once in this shell")
        for command in commands(folder, result.head):
            self._say(f"  {command}")

    def _say(self, text: str = "") -> None:
        if self.terminal is not None:
            self.terminal.say(text)

    def _prose(self, text: str) -> None:
        """Print a paragraph; lines that are filled already stay as they are."""
        for line in textwrap.wrap(text, _FILLED, subsequent_indent=" " * _indent(text)):
            self._say(line)

    def _title(self, text: str) -> None:
        self._say()
        if self.terminal is not None:
            self.terminal.title(text)

    def _table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        if self._console is not None:
            self._console.print(_grid(columns, rows))
        elif self.terminal is not None:
            self.terminal.table(columns, rows, right=columns[1:])


def commands(folder: str, head: int) -> list[str]:
    """Return commands that explore the table.

    Args:
        folder: of the table, quoted for a shell.
        head: its newest version.
    """
    sql = "SELECT carrier, avg(arr_delay) FROM t GROUP BY 1"
    return [
        f"eventlog log {folder} --limit 10",
        f"eventlog chunks {folder}",
        f"eventlog scan {folder} --where \"dest = 'HNL'\" --version {head // 2} --limit 5",
        *([f'eventlog sql {folder} "{sql}"'] if is_installed("duckdb") else []),
        f"eventlog compact {folder} --explain 2013-02",
        f"eventlog fsck {folder} --checksums",
        *(["eventlog demo --spark  # jobs of Spark; minutes"] if is_installed("pyspark") else []),
    ]


def plain_standings(teams: Sequence[Team], at_s: float) -> str:
    """Return the standings on one line."""
    done = "; ".join(f"{s.format} {s.appends} of {s.batches} appends" for s in teams)
    return f"  {at_s:4.1f} s: {done}"


def outcome_rows(teams: Sequence[Team]) -> list[tuple[str, ...]]:
    """Return the rows of the table of results: a name, and a text for each team."""
    facts: dict[str, Callable[[Team], str]] = {
        "appends acknowledged": lambda s: f"{s.appends} of {s.batches}",
        "all of them after": _last,
        "longest wait of a writer": lambda s: f"{s.longest_s:.1f} s",
        "appends that raised": lambda s: _number(s.raised),
        "rewrites by compaction": lambda s: f"{s.compaction.rewrites:,}",
        "compactions that failed": _failed_compactions,
        "data files at the end": lambda s: f"{s.files:,}",
        "requests": lambda s: f"{s.requests.total:,}",
        "requests an append": lambda s: _share(s.requests.total, s.appends, ".1f"),
        "a million such appends": lambda s: _share(1e6 * dollars(s.requests), s.appends, "$,.0f"),
        "rows acknowledged": lambda s: f"{s.rows:,}",
        "of these lost": lambda s: _number(s.lost),
        "of these there twice": lambda s: _number(s.doubled),
    }
    return [(name, *(text(team) for team in teams)) for name, text in facts.items()]


def remarks(teams: Sequence[Team]) -> list[str]:
    """Return what a reader needs to know to judge the results, in paragraphs."""
    price = (
        f"Dollars are {S3_STANDARD.source}: ${S3_STANDARD.write * 1e6:g} a million PUT and LIST, "
        f"${S3_STANDARD.read * 1e6:.2f} a million GET and HEAD. "
        "Requests are those of writers and compaction, counted by the server. It answers at once "
        "and shares the processors of this machine with all programs: seconds compare the "
        "libraries, and are not those of S3."
    )
    fairness = (
        "Each library had the same rows, cut by month, and its defaults. An append that raised "
        "was sent again; a compaction begins a quarter of a second after the last one ended:"
    )
    texts = [price]
    if len(teams) > 1:
        texts += [
            fairness,
            "  eventlog   append(table, rows, app_id=..., app_seq=...); run(table)",
            '  deltalake  write_deltalake(table, rows, mode="append"); optimize.compact()',
        ]
    for team in teams:
        if late := sum(not lane.done for lane in team.lanes):
            texts.append(f"{team.format} was stopped while {count_text(late, 'writer')} had rows.")
        if team.why:
            texts.append(f"The first error of {team.format}: {team.why}")
    return texts


def standings(teams: Sequence[Team], at_s: float, width: int) -> RenderableType:
    """Return the live table.

    Args:
        teams: the standings.
        at_s: seconds since the beginning.
        width: columns of the terminal; one with fewer than 80 shows the first columns.
    """
    from rich.console import Group  # noqa: PLC0415 - the extra may be missing
    from rich.table import Table as Grid  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    beside = Grid.grid(padding=(0, 3))
    tables = [
        _team(team, at_s, first=at == 0, wide=width >= _WIDE) for at, team in enumerate(teams)
    ]
    for _ in tables:
        beside.add_column(no_wrap=True)
    beside.add_row(*tables)
    price = Text(f"dollars by {S3_STANDARD.source}", "dim")
    return Group(beside, price, Text(), *(_bar(team, at_s) for team in teams))


def _team(team: Team, at_s: float, *, first: bool, wide: bool) -> Any:
    from rich.table import Table as Grid  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Grid(
        title=Text(team.title, "bold"),
        title_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="dim",
        show_footer=True,
        footer_style="bold",
    )
    total = (f"{team.rows:,}", f"{team.appends} of {team.batches}", *_cost(team.requests))
    if first:
        grid.add_column("writer", footer="all", no_wrap=True, min_width=10)
    for name, footer in zip(_COLUMNS, total, strict=True):
        grid.add_column(name, footer=footer, justify="right", no_wrap=True, min_width=7)
    if wide:
        grid.add_column("waits", justify="right", no_wrap=True, min_width=6)
    for lane in [*team.lanes, team.compaction]:
        cells = [*_cells(lane), *([_waits(lane, at_s)] if wide else [])]
        style = _style(lane, at_s)
        names = [Text(_short(lane.name))] if first else []
        grid.add_row(*names, *(Text(cell, style) for cell in cells))
    return grid


def _bar(team: Team, at_s: float) -> Any:
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Table as Grid  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    line = Grid.grid(padding=(0, 1))
    line.add_column(width=10)
    line.add_column(width=30)
    line.add_column(no_wrap=True)
    seconds = team.seconds if team.written else at_s
    raised = f", {team.raised} raised" if team.raised else ""
    line.add_row(
        team.format,
        ProgressBar(total=team.batches, completed=team.appends),
        Text(
            f"{seconds:4.1f} s{raised}, longest wait {team.longest_s:.1f} s",
            "green" if team.written else "",
        ),
    )
    return line


def _cells(lane: Lane) -> tuple[str, ...]:
    commits = f"{lane.appends} of {lane.batches}" if lane.batches else f"{lane.rewrites}"
    rows = f"{lane.rows:,}" if lane.batches else ""
    return (rows, commits, *_cost(lane.requests))


def _cost(requests: Any) -> tuple[str, str]:
    return f"{requests.total:,}", f"${dollars(requests):.4f}"


def _style(lane: Lane, at_s: float) -> str:
    if lane.raised or lane.refused:
        return "red"
    if lane.ended:
        return "green" if not lane.stopped else "red"
    return "yellow" if lane.batches and at_s - lane.acknowledged_s > _WAITS_S else ""


def _waits(lane: Lane, at_s: float) -> str:
    if not lane.batches or lane.ended:
        return ""
    return f"{at_s - lane.acknowledged_s:.1f} s"


def _short(name: str) -> str:
    first, *others = name.split("+")
    return f"{first} +{len(others)}" if others else first


def _last(team: Team) -> str:
    stopped = max(lane.since_s for lane in team.lanes)
    return f"{team.seconds:.1f} s" if team.written else f"not within {stopped:.1f} s"


def _failed_compactions(team: Team) -> str:
    failed = _number(team.compaction.raised + team.compaction.refused)
    return f"{failed}, one stopped" if team.compaction.stopped else failed


def _number(count: int) -> str:
    return f"{count:,}" if count else "none"


def _share(total: float, count: int, form: str) -> str:
    """Return the share of each of `count`; a form that begins with $ is that of dollars."""
    unit = "$" if form.startswith("$") else ""
    return f"{unit}{total / count:{form.removeprefix('$')}}" if count else "-"


def _answer(found: tuple[int, float] | None) -> str:
    return "" if found is None else f"{found[0]:,}  {found[1]:+.2f}"


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich.table import Table as Grid  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    grid = Grid(box=None, header_style="bold", pad_edge=False, padding=(0, 3, 0, 0))
    for at, name in enumerate(columns):
        grid.add_column(Text(name), justify="right" if at else "left", no_wrap=True)
    for first, *cells in rows:
        grid.add_row(Text(first), *(Text(cell) for cell in cells))
    return grid
