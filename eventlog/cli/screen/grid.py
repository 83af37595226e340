"""The lines of a table within a width. No I/O.

Widths are columns of a terminal, of which an ideograph takes two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

GAP = "  "
ELLIPSIS = "…"
_NARROWEST = 12  # of a column whose cells are cut


@dataclass(frozen=True, slots=True)
class Grid:
    """The lines of a table, and the columns that did not fit.

    Attributes:
        header: the line of the names.
        lines: the other ones.
        hidden: the names of the columns that are left out, from the right.
    """

    header: str
    lines: tuple[str, ...]
    hidden: tuple[str, ...] = ()


def lay_out(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    prose: Sequence[str] = (),
    width: int | None = None,
) -> Grid:
    """Return a table as lines of at most `width`.

    A cell that is too wide ends in an ellipsis, a number or a time never does: a table whose
    columns do not fit side by side loses some on the right.

    Args:
        names: of the columns.
        rows: the cells, each of one line.
        right: the columns of numbers, which are right-aligned and never cut.
        whole: further columns that are never cut, such as times.
        prose: the columns of sentences, which go on in further lines, broken between words.
        width: of the terminal; None: as wide as the cells.
    """
    widths = [max(map(cell_len, cells)) for cells in zip(names, *rows, strict=True)]
    count = len(names)
    if width is not None:
        fixed = [name in right or name in whole for name in names]
        least = [
            w if keeps else min(w, max(_NARROWEST, cell_len(name)))
            for w, keeps, name in zip(widths, fixed, names, strict=True)
        ]
        while count > 1 and _total(least[:count]) > width:
            count -= 1
        widths = _narrowed(widths[:count], least[:count], width)
    shown = list(zip(names[:count], widths[:count], strict=True))
    lines = []
    for row in rows:
        cells = [
            _wrapped(cell, w) if name in prose else [shortened(cell, w)]
            for (name, w), cell in zip(shown, row, strict=False)
        ]
        for place in range(max(map(len, cells))):
            part = [cell[place] if place < len(cell) else "" for cell in cells]
            lines.append(_line(shown, part, right))
    header = _line(shown, [shortened(name, w) for name, w in shown], right)
    return Grid(header, tuple(lines), tuple(names[count:]))


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _narrowed(widths: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return widths that fit, by narrowing the widest column first, and none below its least."""
    narrowed = list(widths)
    while _total(narrowed) > width:
        over = [at for at, w in enumerate(narrowed) if w > least[at]]
        if not over:
            return [min(w, width) for w in narrowed]  # a single column, which is too wide itself
        widest = max(over, key=lambda at: narrowed[at])
        others = [narrowed[at] for at in over if narrowed[at] < narrowed[widest]]
        step = narrowed[widest] - max([least[widest], *others])
        narrowed[widest] -= max(1, min(step, _total(narrowed) - width))
    return narrowed


def shortened(text: str, width: int, ellipsis: str = ELLIPSIS) -> str:
    """Return the text, or its beginning and an ellipsis, in at most so many columns."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - len(ellipsis))) + ellipsis


def _wrapped(text: str, width: int) -> list[str]:
    """Return a sentence as lines that are broken between words."""
    return [shortened(line, width) for line in _filled(text.split(" "), width)] or [""]


def _filled(words: Sequence[str], width: int) -> Iterator[str]:
    line = words[0]
    for word in words[1:]:
        longer = f"{line} {word}"
        if cell_len(longer) > width:
            yield line
            line = word
        else:
            line = longer
    yield line


def _line(shown: Sequence[tuple[str, int]], cells: Sequence[str], right: Sequence[str]) -> str:
    parts = []
    for (name, width), cell in zip(shown, cells, strict=True):
        space = " " * (width - cell_len(cell))
        parts.append(space + cell if name in right else cell + space)
    return GAP.join(parts).rstrip()
