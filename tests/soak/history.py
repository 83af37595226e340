"""The history checker: do the journals of a soak run and the log of its table agree?

Pure: values in, violations out. It folds the log by a model of its own (`soak.model`), which shares
nothing with the fold of the package but the commits that it reads.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from soak.model import Model, Unit, units_of

from eventlog.model.records import Transaction

_SHOWN = 5
_ERROR_TEXT = 600


@dataclass(frozen=True)
class History:
    """What a run left.

    Attributes:
        journals: the lines of each worker's journal.
        log: the transactions of each version, with no spill left.
        void: (version, transaction) of those that the package's fold refused.
        rows: (day, number) of every row of the newest version, as read from its segments.
    """

    journals: dict[str, list[dict]]
    log: list[tuple[Transaction, ...]]
    void: frozenset[tuple[int, str]]
    rows: list[tuple[int, int]]


def violations(history: History) -> list[str]:
    """Return what breaks a promise, one line each; none for a sound history."""
    units = units_of(history.journals)
    model = Model(units)
    model.fold(history.log)
    found = [
        f"{name}: {' '.join((line.get('error') or line['why']).split())[-_ERROR_TEXT:]}"
        for name, lines in history.journals.items()
        for line in lines
        if "error" in line or line.get("outcome") == "error"
    ]
    if model.void != history.void:
        differ = sorted(model.void ^ history.void)[:_SHOWN]
        found.append(f"the fold and the model judge these transactions differently: {differ}")
    found += model.problems
    found += _counts(units, model.landed)
    marks = _acknowledgements(units)
    found += _commit_order(units, model.landed, marks)
    found += _reads(history.journals, model, marks)
    found += _last_rows(model, history.rows)
    return found


def _counts(units: dict[str, Unit], landed: dict[str, list[int]]) -> Iterator[str]:
    """Acknowledged: once, where it was told. Failed for sure: never. Unclear: at most once."""
    for unit in units.values():
        versions = landed.get(unit.name, [])
        if len(versions) > 1:
            yield f"{unit.name} landed {len(versions)} times: versions {versions}"
        if unit.acked and not versions:
            yield f"{unit.name} was acknowledged as version {unit.acked[0][0]}, and is lost"
        if versions and unit.acked and any(v != versions[0] for v, _ in unit.acked):
            yield f"{unit.name} was acknowledged as {unit.acked}, and landed in {versions}"
        if versions and unit.failed == unit.attempts:
            yield f"{unit.name} failed for sure, and landed in {versions}"


def _acknowledgements(units: dict[str, Unit]) -> list[tuple[int, int]]:
    """Return (time, the highest version that was acknowledged by then), in order of time."""
    marks, highest = [], -1
    for end, version in sorted((end, version) for u in units.values() for version, end in u.acked):
        highest = max(highest, version)
        marks.append((end, highest))
    return marks


def _known_at(times: list[int], marks: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield (index, highest version acknowledged before that time) for each of the times."""
    at, highest = 0, -1
    for index in sorted(range(len(times)), key=times.__getitem__):
        while at < len(marks) and marks[at][0] < times[index]:
            highest = marks[at][1]
            at += 1
        yield index, highest


def _commit_order(
    units: dict[str, Unit], landed: dict[str, list[int]], marks: list[tuple[int, int]]
) -> Iterator[str]:
    """What began after another was acknowledged lies above it."""
    there = [unit for unit in units.values() if unit.name in landed]
    for index, highest in _known_at([unit.begin for unit in there], marks):
        version = landed[there[index].name][0]
        if version <= highest:
            yield (
                f"{there[index].name} landed in version {version}, and began after version"
                f" {highest} was acknowledged"
            )


def _reads(
    journals: dict[str, list[dict]], model: Model, marks: list[tuple[int, int]]
) -> Iterator[str]:
    """Each read equals its version; none is behind what was known, or what the reader saw."""
    for name, lines in journals.items():
        reads = [line for line in lines if "read" in line]
        for line in reads:
            version, sums = line["version"], model.sums
            if line["read"] == "vacuumed":
                if version >= model.marks.horizon:
                    yield f"{name} was told that version {version} is vacuumed, and it is not"
            elif version >= len(sums):
                yield f"{name} read version {version}, which the log does not have"
            elif (line["rows"], line["digest"]) != sums[version]:
                yield (
                    f"{name} read {line['rows']} rows of version {version}, which has"
                    f" {sums[version][0]}, or others"
                )
        heads = [line for line in reads if line["read"] == "head"]
        for index, highest in _known_at([line["begin"] for line in heads], marks):
            if heads[index]["version"] < highest:
                told = heads[index]["version"]
                yield f"{name} saw {told} as the newest version after {highest} was acknowledged"
        for before, after in pairwise(heads):
            if after["version"] < before["version"]:
                yield f"{name} went back from version {before['version']} to {after['version']}"


def _last_rows(model: Model, rows: list[tuple[int, int]]) -> Iterator[str]:
    wanted, there = Counter(model.rows()), Counter(rows)
    for what, differ in (("lacks", wanted - there), ("has too many of", there - wanted)):
        if differ:
            shown = sorted(differ)[:_SHOWN]
            yield f"the newest version {what} {differ.total()} rows (day, number): {shown} …"
