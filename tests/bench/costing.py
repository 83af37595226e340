"""The dollars of docs/cost.md: from counted requests, prices and what happens in a month. Pure."""

import re
from pathlib import Path
from typing import NamedTuple

from engines.outcomes import put_between

from eventlog.monitoring.prices import DAYS_A_MONTH, S3_STANDARD

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"
_NONE = "\N{EN DASH}"
SYSTEMS = ("eventlog", "deltalake", "pyiceberg")
COUNTS = "<!-- Counts: made by `make bench-costs` -->\n"
MONTHS = "<!-- Months: follow from the counts -->\n"
OPERATIONS = (
    "append of 100 rows",
    "… by ten writers in turn",
    "… in turn, after a refresh",
    "append of 64 MB",
    "query of a day, by a new program",
    "upsert of 100 keys",
    "compaction, each small file",
)
_APPEND, _IN_TURN, _FRESH, _LARGE, _QUERY, _UPSERT, _COMPACTION = OPERATIONS


class Requests(NamedTuple):
    """Requests of one operation: those billed as PUT, and those billed as GET."""

    writes: float
    reads: float


class Month(NamedTuple):
    """What happens in a month: the number of each operation."""

    name: str
    operations: dict[str, float]


def _monthly(name, **a_day):
    by_name = {
        "appends": _APPEND,
        "in_turn": _IN_TURN,
        "fresh": _FRESH,
        "large": _LARGE,
        "queries": _QUERY,
        "upserts": _UPSERT,
        "files_compacted": _COMPACTION,
    }
    return Month(name, {by_name[key]: number * DAYS_A_MONTH for key, number in a_day.items()})


_DAY_S = 86_400
PATTERNS = (
    _monthly(
        "a batch an hour, compacted; 10 queries a day", appends=24, files_compacted=24, queries=10
    ),
    _monthly(
        "an append a second by ten writers, compacted; 100 queries a day",
        in_turn=_DAY_S,
        files_compacted=_DAY_S,
        queries=100,
    ),
    _monthly(
        "the same, each append after a refresh",
        fresh=_DAY_S,
        files_compacted=_DAY_S,
        queries=100,
    ),
    _monthly(
        "an upsert a minute, compacted; 100 queries a day",
        upserts=1440,
        files_compacted=1440,
        queries=100,
    ),
    _monthly(
        "a batch an hour, compacted; 10,000 queries a day",
        appends=24,
        files_compacted=24,
        queries=10_000,
    ),
    Month("a backfill of 1 TiB, once", {_LARGE: 2**40 / (64 * 2**20)}),
)


def dollars(requests):
    """Return the price of requests."""
    return S3_STANDARD.requests(requests.writes, requests.reads)


def month_dollars(month, found):
    """Return the dollars of a month, or None if the system lacks one of the operations."""
    total = 0.0
    for operation, number in month.operations.items():
        if found[operation] is None:
            return None
        total += number * dollars(found[operation])
    return total


def amount(value):
    """Return dollars as text, with two digits that count."""
    if value is None:
        return _NONE
    if value >= 100:
        return f"${value:,.0f}"
    return f"${value:.2f}"


def counts_table(found):
    """Return the table of counted requests, and of the dollars of a million of them."""
    head = "| requests: writes + reads; a million of them | " + " | ".join(SYSTEMS) + " |"
    lines = [head, "|---" * (len(SYSTEMS) + 1) + "|"]
    for operation in OPERATIONS:
        cells = [_count(found[name][operation]) for name in SYSTEMS]
        lines.append(f"| {operation} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _count(requests):
    if requests is None:
        return _NONE
    return f"{requests.writes:g} + {requests.reads:g}; {amount(1e6 * dollars(requests))}"


def months_table(found):
    """Return the table of months."""
    lines = ["| a month of | " + " | ".join(SYSTEMS) + " |", "|---" * (len(SYSTEMS) + 1) + "|"]
    for month in PATTERNS:
        cells = [amount(month_dollars(month, found[name])) for name in SYSTEMS]
        lines.append(f"| {month.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def written(page, found):
    """Return the page with both tables of these counts."""
    return put_between(put_between(page, counts_table(found), COUNTS), months_table(found), MONTHS)


def counts_of(page):
    """Return the counts that stand in the page's table, by system and operation."""
    found = {name: {} for name in SYSTEMS}
    rows = page.partition(COUNTS)[2].splitlines()
    for operation in OPERATIONS:
        row = next(line for line in rows if line.startswith(f"| {operation} |"))
        for name, cell in zip(SYSTEMS, row.strip("| ").split(" | ")[1:], strict=True):
            match = re.match(r"([\d.]+) \+ ([\d.]+);", cell)
            found[name][operation] = Requests(*map(float, match.groups())) if match else None
    return found
