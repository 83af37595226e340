r"""Text of others on a person's terminal, values at a prompt, and commands to paste into a shell.

Names, owners, notes and messages come from logs that anybody may have written. No I/O.
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from eventlog.errors import EventLogError

# Characters that a terminal obeys instead of showing them: control characters, separators of lines,
# marks that reverse the direction of text, and surrogates, which no output can encode.
_OBEYED = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

_WIDTH = 100  # of what a prompt shows, in characters
_CELL = 40
_HTML_CELL = 500
# Of a drawing in a notebook, in pixels.
_SVG_WIDTH, _SVG_HEIGHT, _LEAST_BLOCK, _MOST_COLUMNS = 480, 60, 4, 40
# Colours are those of the notebook, which may be dark or light.
_STYLE = (
    "<style>.eventlog-shown table th, .eventlog-shown table td {text-align: left; font-size: 90%}"
    ".eventlog-shown table .right {text-align: right}</style>"
)


def plain(text: str, *, kept: str = "") -> str:
    r"""Return text as one line without characters that a terminal obeys: `\x1b` for ESC.

    Args:
        text: of anybody.
        kept: characters that stay, such as the ends of the lines of a text with several.
    """
    # against text-that-a-terminal-obeys
    return _OBEYED.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def plain_json(text: str) -> str:
    r"""Return JSON with the same value without those characters; line ends between values stay."""
    return _OBEYED.sub(lambda f: f[0] if f[0] == "\n" else f"\\u{ord(f[0]):04x}", text)


def command(verb: str, *words: str) -> str:
    """Return a command of the program, in backticks, that a shell runs with exactly these words.

    Args:
        verb: of the program.
        words: its arguments and options.
    """
    quoted = (shlex.quote(word) for word in words)  # against command-that-a-shell-expands
    return f"`{' '.join(['eventlog', verb, *quoted])}`"


@dataclass(frozen=True, slots=True)
class Description:
    """What a prompt shows of a value. Its texts may be of anybody.

    Attributes:
        title: what the value is.
        facts: names and texts.
        header: the names of the columns of a table below them.
        rows: the rows of that table.
        right: the numbers of those of its columns that are aligned at the right.
        left_out: a line on rows that the table lacks; empty: it has all.
        stacks: what a notebook draws: columns by name, each with the sizes of its blocks, from the
            bottom up.
    """

    title: str
    facts: Sequence[tuple[str, str]] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    right: frozenset[int] = frozenset()
    left_out: str = ""
    stacks: Sequence[tuple[str, Sequence[int]]] = ()


class Described:
    """A value that a person can read at a prompt, as text and in a notebook."""

    __slots__ = ()

    def _described(self) -> Description:
        """Return what to show. It sends no request and reads no rows."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return description_text(self._shown())

    def _repr_html_(self) -> str:
        return description_html(self._shown())

    def _shown(self) -> Description:
        try:
            return self._described()
        except EventLogError as error:  # a repr does not fail
            return Description(type(self).__name__, [("error", error.message)])


def description_text(shown: Description) -> str:
    """Return a description as lines of at most 100 characters.

    Long texts end with an ellipsis, and columns that do not fit are left out and counted.
    """
    lines = [_cut(plain(shown.title), _WIDTH)]
    names = [plain(name) for name, _ in shown.facts]
    width = max(map(len, names), default=0)
    for name, (_, text) in zip(names, shown.facts, strict=True):
        lines.append(_cut(f"  {name:{width}}  {plain(text)}", _WIDTH))
    if shown.header:
        lines += _table_lines(shown)
    if shown.left_out:
        lines.append(f"  {plain(shown.left_out)}")
    return "\n".join(lines)


def description_html(shown: Description) -> str:
    """Return a description as a small fragment of HTML, without a colour of its own."""
    parts = [f'<div class="eventlog-shown">{_STYLE}<strong>{_safe(shown.title)}</strong>']
    if shown.facts:
        facts = (f"<tr><th>{_safe(n)}</th><td>{_safe(text)}</td></tr>" for n, text in shown.facts)
        parts += ["<table>", *facts, "</table>"]
    if shown.stacks:
        parts.append(_stacks_svg(shown.stacks))
    if shown.header:
        parts += ["<table><thead>", _html_row("th", shown.header, shown.right), "</thead><tbody>"]
        parts += (_html_row("td", row, shown.right) for row in shown.rows)
        parts.append("</tbody></table>")
    if shown.left_out:
        parts.append(f"<div>{_safe(shown.left_out)}</div>")
    return "".join([*parts, "</div>"])


def _stacks_svg(stacks: Sequence[tuple[str, Sequence[int]]]) -> str:
    """Return blocks whose heights grow with the square roots of their sizes. At most 16 kB."""
    shared = -(-len(stacks) // _MOST_COLUMNS)  # columns that are drawn as one
    columns = [
        [sqrt(size) for _, sizes in stacks[at : at + shared] for size in sizes]
        for at in range(0, len(stacks), shared)
    ]
    unit = _SVG_HEIGHT / (max(map(sum, columns)) or 1)
    step = min(_SVG_WIDTH / len(columns), 40)
    wide = max(len(columns) * step, 170)  # room for both names
    path = []
    for at, heights in enumerate(columns):
        low = high = 0.0
        for n, height in enumerate(heights):
            high += height * unit
            # Blocks that are too low to be seen alone are drawn as one.
            if high - low >= _LEAST_BLOCK or n + 1 == len(heights):
                left, tall = at * step, max(high - low - 1, 0.5)
                top = _SVG_HEIGHT - high
                path.append(f"M{left:.0f} {top:.0f}h{step - 1:.1f}v{tall:.1f}h-{step - 1:.1f}z")
                low = high
    first, last = (_safe(stacks[end][0]) for end in (0, -1))
    label = f"Segments by time chunk, {first} to {last}"
    end = f'<text x="{wide:.0f}" y="{_SVG_HEIGHT + 13}" text-anchor="end">{last}</text>'
    return (
        f'<svg width="{_SVG_WIDTH}" height="{_SVG_HEIGHT + 18}" role="img" aria-label="{label}" '
        f'fill="currentColor" font-size="11"><path fill-opacity=".6" d="{"".join(path)}"/>'
        f'<text y="{_SVG_HEIGHT + 13}">{first}</text>{end if len(stacks) > 1 else ""}</svg>'
    )


def _table_lines(shown: Description) -> list[str]:
    cells = [[_cut(plain(text), _CELL) for text in row] for row in [shown.header, *shown.rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    fitting, used = 0, 0
    for width in widths:
        used += 2 + width
        if used > _WIDTH and fitting:
            break
        fitting += 1
    lines = []
    for row in cells:
        texts = (
            text.rjust(widths[n]) if n in shown.right else text.ljust(widths[n])
            for n, text in enumerate(row[:fitting])
        )
        lines.append(("  " + "  ".join(texts)).rstrip())
    if fitting < len(widths):
        lines.append(f"  … {len(widths) - fitting} more of {len(widths)} columns")
    return lines


def _html_row(tag: str, texts: Sequence[str], right: frozenset[int]) -> str:
    cells = (
        f"<{tag}{' class=right' if n in right else ''}>{_safe(text)}</{tag}>"
        for n, text in enumerate(texts)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _safe(text: str) -> str:
    """Return the text of anybody as text of HTML."""
    return html.escape(_cut(plain(text), _HTML_CELL))  # against markup-of-others


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
