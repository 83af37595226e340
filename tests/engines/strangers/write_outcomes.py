"""What became of a write to a published table, and the table of it. Without I/O."""

import re

# What a refusal by a guard has in its text, whatever the program.
_GUARDS = re.compile(
    r"eventlog[.-]read-?only|v999999999|GC is disabled"
    r"|sorted iceberg table|only supports merge-on-read",  # as DuckDB says
    re.IGNORECASE,
)
REFUSED, OTHERWISE, LEFT = "refused", "not possible", "refused, and left files"
NOTHING, WROTE, GOES_ON = "no change", "wrote, publisher stops", "wrote, publisher goes on"
OVER_HINT = "wrote over the hint, publisher stops"
_KINDS = (REFUSED, LEFT, OTHERWISE, NOTHING, WROTE, OVER_HINT, GOES_ON)


def is_refusal(error):
    """Return whether the text of an error is that of a guard of a publication."""
    return _GUARDS.search(error) is not None


def kind_of_write(error, *, left):
    """Return what became of a write, from its error, or None, and whether it left new objects."""
    if error is None:
        return WROTE if left else NOTHING
    if left:
        return LEFT
    return REFUSED if is_refusal(error) else OTHERWISE


def why_stopped(writes, tried, ended):
    """Return why not all writes were tried, or "".

    Args:
        writes: their names, in order.
        tried: how many were.
        ended: how the process of the program ended, if it ended badly.
    """
    return f"{writes[tried]}: {ended or 'no answer'}" if tried < len(writes) else ""


def table_of_writes(rows):
    """Return the table of programs and their writes.

    Args:
        rows: the name of each program, and by the name of a write its kind, and why it was not
            possible, or "".
    """
    notes = {}

    def cell(found, kind):
        named = []
        for write, (what, why) in found.items():
            if what == kind:
                note = f" [{notes.setdefault(why, len(notes) + 1)}]" if why else ""
                named.append(write + note)
        return ", ".join(named) or "-"

    shown = [k for k in _KINDS if any(what == k for _, f in rows for what, _ in f.values())]
    lines = [f"| program | {' | '.join(shown)} |", "|---" * (len(shown) + 1) + "|"]
    lines += [
        f"| {name} | {' | '.join(cell(found, kind) for kind in shown)} |" for name, found in rows
    ]
    if notes:
        lines += ["", "| | why it was not possible |", "|---|---|"]
        lines += [f"| {n} | {text.replace('|', ' ')} |" for text, n in notes.items()]
    return "\n".join(lines) + "\n"
