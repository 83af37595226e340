"""What became of each question, and the matrix of it. Without I/O."""

import re
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

BEGIN, END = "<!-- Engines: made by `make test-engines` -->\n", "<!-- end -->"
# No engine says these where it refuses: they are mistakes of ours, or a package that is missing.
NOT_REFUSALS = {
    "AttributeError", "ImportError", "KeyError", "MemoryError", "ModuleNotFoundError", "NameError",
    "UnboundLocalError",
}  # fmt: skip
MANY = 10_000  # rows from which on they are compared as columns
EQUAL, REFUSED, WRONG, OTHER = "equal", "refused", "wrong", "other"


@dataclass(frozen=True)
class Outcome:
    """What became of a question, and why if it is not equal.

    Refused: with the error's class and first line. Wrong: by an error that is known of the engine.
    Other: none of these.
    """

    kind: str
    text: str = ""


def problems_of(cells, ended):
    """Return what is wrong with the outcomes of a way, as lines; the end of its process is one.

    Args:
        cells: outcomes before and after a compaction, by table.
        ended: the text of the outcomes of questions that its process did not answer.
    """
    wrong = [
        (table, outcome.text)
        for table, sides in cells.items() for side in sides for outcome in side
        if outcome.kind == OTHER
    ]  # fmt: skip
    lines = [f"{table}: {text}" for table, text in wrong if text != ended]
    unanswered = len(wrong) - len(lines)
    return lines + ([f"{unanswered} questions without an answer: {ended}"] if unanswered else [])


def outcome_of_error(name, text, folder):
    """Return what an error means; `folder` is left out of its text."""
    lines = [line.strip() for line in text.replace(str(folder), "").splitlines() if line.strip()]
    first = re.sub(r"[0-9a-f]{16,}", "…", lines[0] if lines else "")
    first = first if len(first) <= 160 else first[:159] + "…"
    if name in NOT_REFUSALS:
        return Outcome(OTHER, f"{name}: {first}")
    return Outcome(REFUSED, f"`{name}`: {first}")


def outcome_of_rows(found, wanted, *, nan_is_null=False):
    """Return whether an answer has the rows, columns and values that it should have."""
    if sorted(found.column_names) != sorted(wanted.column_names):
        return Outcome(OTHER, f"columns {found.column_names}, not {wanted.column_names}")
    if found.num_rows != wanted.num_rows:
        return Outcome(OTHER, f"{found.num_rows} rows, not {wanted.num_rows}")
    try:
        found = found.select(wanted.column_names).cast(wanted.schema)
    except (pa.ArrowException, ValueError) as error:
        return Outcome(OTHER, f"types that do not fit: {error}")
    if nan_is_null:
        found, wanted = _without_nan(found), _without_nan(wanted)
    if found.num_rows >= MANY:
        by = wanted.column_names[0]
        same = found.sort_by(by).equals(wanted.sort_by(by))
    else:
        same = _rows(found) == _rows(wanted)
    return Outcome(EQUAL) if same else Outcome(OTHER, _difference(found, wanted))


def _rows(table):
    return sorted(map(repr, table.to_pylist()))


def _difference(found, wanted):
    more, less = Counter(_rows(found.slice(0, MANY))), Counter(_rows(wanted.slice(0, MANY)))
    return f"row {next(iter(more - less), None)}, not {next(iter(less - more), None)}"


def _without_nan(table):
    columns = [
        pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def cell(before, after, number_of):
    """Return the text of a cell from the outcomes before a compaction and after it.

    `number_of` gives the number of the note for the text of a refusal.
    """
    if _kinds(before) == _kinds(after) or not after:
        return _counted([*before, *after], number_of)
    return f"before: {_counted(before, number_of)}; after: {_counted(after, number_of)}"


def _kinds(outcomes):
    return {(outcome.kind, outcome.text) for outcome in outcomes}


def _counted(outcomes, number_of):
    parts = []
    kinds = Counter(outcome.kind for outcome in outcomes)
    for kind in (EQUAL, REFUSED, WRONG, OTHER):
        if not kinds[kind]:
            continue
        text = f"{kind} {kinds[kind]}"
        if kind in {WRONG, OTHER}:
            text = f"**{text}**"
        if kind in {REFUSED, WRONG}:
            told = sorted({number_of(o.text) for o in outcomes if o.kind == kind})
            text += f" [{', '.join(map(str, told))}]"
        parts.append(text)
    return ", ".join(parts) or "-"


def put_between(page, text, begin=BEGIN):
    """Return a page with a table between its markers.

    Raises:
        ValueError: it has none.
    """
    before, found, rest = page.partition(begin)
    _, end, after = rest.partition(END)
    if not found or not end:
        raise ValueError(f"the page has no place for the table: {begin}{END}")
    return f"{before}{begin}\n{text}\n{end}{after}"
