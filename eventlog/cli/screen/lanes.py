"""The lines of a history with branches: a lane for each, as git draws them. No I/O."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

_Name = TypeVar("_Name", bound=Hashable)

# What the strokes are on a terminal that has ASCII alone.
_PLAIN = str.maketrans("│─├┤┼┴╯╮╭", "|-||++'..")


@dataclass(frozen=True, slots=True)
class LaneLine(Generic[_Name]):
    """One line of the drawing.

    Attributes:
        strokes: the drawing, each character with the number of the lane that it belongs to.
        node: the node that stands on the line; None: it only joins lanes.
    """

    strokes: tuple[tuple[str, int], ...]
    node: _Name | None = None

    @property
    def text(self) -> str:
        """The drawing as text."""
        return "".join(stroke for stroke, _ in self.strokes)

    def plain(self) -> LaneLine[_Name]:
        """Return the same line in ASCII."""
        strokes = tuple((stroke.translate(_PLAIN), lane) for stroke, lane in self.strokes)
        return LaneLine(strokes, self.node)


def lane_lines(
    nodes: Iterable[tuple[_Name, Sequence[_Name]]], first: _Name | None = None
) -> Iterator[LaneLine[_Name]]:
    """Yield the lines of a graph.

    A lane goes from a node to its first parent. Where lanes of several children meet, they join the
    leftmost one; another parent has a lane that begins at the child, or joins its lane. The lane of
    a parent that is not among the nodes goes on below the last line.

    Args:
        nodes: the nodes, each before its parents, with the names of these.
        first: the node that begins the leftmost lane; None: the first one of all.
    """
    drawing = _Drawing(first)
    for name, parents in nodes:
        yield from drawing.node(name, parents)


class _Drawing(Generic[_Name]):
    """The lanes below the last line: the node that each goes to; None: it is free."""

    def __init__(self, first: _Name | None) -> None:
        self._lanes: list[_Name | None] = [] if first is None else [first]
        self._waits = first is not None  # the leftmost lane has not begun

    def node(self, name: _Name, parents: Sequence[_Name]) -> Iterator[LaneLine[_Name]]:
        """Yield the lines of the next node."""
        mine = [place for place, goal in enumerate(self._lanes) if goal == name]
        at = mine[0] if mine else self._free(name)
        self._waits = self._waits and at != 0
        if len(mine) > 1:
            for place in mine[1:]:
                self._lanes[place] = None
            yield self._joined(at, mine[1:])
        yield LaneLine(self._strokes({at: "*"}), name)
        self._lanes[at] = parents[0] if parents else None
        for parent in parents[1:]:
            there = [p for p, goal in enumerate(self._lanes) if goal == parent and p != at]
            if self._lanes[at] != parent:
                to = there[0] if there else self._free(parent)
                yield self._parted(at, to, begins=not there)
        while self._lanes and self._lanes[-1] is None:
            self._lanes.pop()

    def _free(self, goal: _Name) -> int:
        """Return the place of a lane that begins here."""
        if None in self._lanes:
            place = self._lanes.index(None)
            self._lanes[place] = goal
        else:
            place = len(self._lanes)
            self._lanes.append(goal)
        return place

    def _joined(self, at: int, ending: Sequence[int]) -> LaneLine[_Name]:
        """Return the line on which lanes end at a lane at the left of them."""
        marks = dict.fromkeys(ending, "┴") | {at: "├", ending[-1]: "╯"}
        return LaneLine(self._strokes(marks, (at, ending[-1])))

    def _parted(self, at: int, to: int, *, begins: bool) -> LaneLine[_Name]:
        """Return the line on which a node is joined to the lane of another parent."""
        if to > at:
            marks = {at: "├", to: "╮" if begins else "┤"}
        else:
            marks = {at: "┤", to: "╭" if begins else "├"}
        return LaneLine(self._strokes(marks, (min(at, to), max(at, to))))

    def _strokes(
        self, marks: dict[int, str], across: tuple[int, int] = (0, 0)
    ) -> tuple[tuple[str, int], ...]:
        """Return the strokes of a line.

        Args:
            marks: the characters of lanes that have one of their own.
            across: the lanes from the first to the second are joined.
        """
        start, end = across
        last = max((place for place, goal in enumerate(self._lanes) if goal is not None), default=0)
        strokes: list[tuple[str, int]] = []
        for place in range(max(last, *marks) + 1):
            goes = place < len(self._lanes) and self._lanes[place] is not None
            goes = goes and not (place == 0 and self._waits)
            between = start < place < end
            stroke = ("┼" if goes else "─") if between else "│" if goes else " "
            strokes.append((marks.get(place, stroke), place if not between or goes else end))
            strokes.append(("─", end) if start <= place < end else (" ", place))
        return tuple(strokes)
