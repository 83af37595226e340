"""A still of a history: some versions side by side, as SVG, which needs no browser. No I/O.

Its colours are those of the page on white, for a report. All versions have one scale.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from eventlog.display import plain
from eventlog.errors import InvalidInput
from eventlog.quantities import count_text, size_text
from eventlog.state.small.timing import effective_time, shown_time
from eventlog.view.picture import Picture
from eventlog.view.stacks import BlockState, Stacked, Stacks, bucket_count

MOST_VERSIONS = 24
_ACROSS = 3  # versions in a row
_WIDTH, _HEIGHT = 330.0, 190.0  # of the blocks of one version, in pixels
_GAP, _MARGIN, _TITLE, _AXIS = 24.0, 20.0, 44.0, 18.0
_LEAST = 1.0  # pixels: lower blocks are drawn together with their neighbours
_LEAST_COLUMN, _WIDEST_COLUMN = 4.0, 80.0
# Fonts of the machine that draws it, by name: a converter may not know the generic family.
_FONTS = "system-ui, 'Segoe UI', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
_AGES = ("#084c86", "#215f97", "#3b75a8", "#548aba", "#6da0cb", "#86b6dd")  # newest to oldest
_COLORS: Mapping[BlockState, str] = {
    "masked": "#007a5e",
    "overshadowed": "#7b4fa0",
    "dropped": "#b4470a",
}
_LINES: Mapping[BlockState, str] = {
    "masked": "M3 0V6",
    "overshadowed": "M-1 7L7 -1M-1 1L1 -1M5 7L7 5",
    "dropped": "M0 0L6 6M0 6L6 0",
}
_TEXTS: Mapping[BlockState, str] = {
    "visible": "visible, older to newer",
    "masked": "masked: rows deleted",
    "overshadowed": "overshadowed: rewritten, kept",
    "dropped": "dropped, kept",
}
_DESCRIPTION = (
    "Segments by time chunk at some versions: what readers see stands above the line, what they no "
    "longer see below it."
)
_KINDS = {"log": "M0 2H4", "late": "M1 1H2M3 3H4"}  # of a keyed table's blocks: lined, dotted


def chosen_versions(picture: Picture, count: int) -> list[int]:
    """Return versions at equal distances, from the first one with segments to the last.

    Args:
        picture: the picture.
        count: how many at most.

    Raises:
        InvalidInput: the number is below 1, or above `MOST_VERSIONS`.
    """
    if not 1 <= count <= MOST_VERSIONS:
        raise InvalidInput(f"a still shows 1 to {MOST_VERSIONS} versions, not {count}")
    made = (0 if b.made < 0 else picture.transactions[b.made].version for b in picture.blocks)
    first = max(picture.first, min(made, default=picture.first))
    steps = min(count, picture.last - first + 1) - 1
    if not steps:
        return [picture.last]
    return [first + round(n * (picture.last - first) / steps) for n in range(steps + 1)]


def still_of(picture: Picture, versions: Sequence[int]) -> str:
    """Return the still of some versions as SVG, row by row. Names in it are text.

    Args:
        picture: the picture.
        versions: which ones, all within the picture.

    Raises:
        InvalidInput: the picture has no such version.
        Corrupt: a segment of a keyed table has no place in buckets.
    """
    if outside := [v for v in versions if not picture.first <= v <= picture.last]:
        raise InvalidInput(
            f"version {outside[0]} is not in the picture, which has {picture.first} to "
            f"{picture.last}"
        )
    stacks = Stacks(picture, int(_WIDTH / _LEAST_COLUMN))
    shown = {version: stacks.at(version) for version in versions}
    across = min(_ACROSS, max(1, len(versions)))
    rows = -(-len(versions) // across)
    panel = _TITLE + _HEIGHT + _AXIS + _GAP
    width = 2 * _MARGIN + across * _WIDTH + (across - 1) * _GAP
    top = 52.0
    legend, lines = _legend(picture, width)
    parts = [_frame(width, top + rows * panel + lines * 22 + 6), _definitions(picture)]
    title = f"{plain(picture.name)}: versions {picture.first} to {picture.last}"
    parts.append(_text(_MARGIN, 34, title, size=19, weight="bold"))
    scale = _Scale(shown.values())
    for at, version in enumerate(versions):
        x, y = _MARGIN + at % across * (_WIDTH + _GAP), top + at // across * panel
        parts += [
            f'<g transform="translate({x:g} {y + _TITLE:g})">',
            *_titles(picture, stacks, version),
        ]
        parts += [*_blocks(picture, stacks, version, shown[version], scale), *_axis(stacks), "</g>"]
    bottom = top + rows * panel
    parts += [f'<g transform="translate({_MARGIN:g} {bottom:g})">', *legend, "</g></svg>"]
    return "\n".join(parts) + "\n"


class _Scale:
    """One scale for all versions, so that the same height is the same size.

    Attributes:
        unit: pixels for a square root of a byte.
        line: where the line is, in pixels from the top of the blocks.
    """

    def __init__(self, versions: Iterable[Sequence[Stacked]]) -> None:
        highest = {True: 0.0, False: 0.0}
        for shown in versions:
            for one in shown:
                highest[one.above] = max(highest[one.above], one.high)
        above, below = highest[True], highest[False]
        share = min(0.85, max(0.3, above / (above + below))) if below else 1.0
        self.line = _HEIGHT * share
        limits = [(self.line, above), (_HEIGHT - self.line - 2, below)]
        self.unit = min([room / most for room, most in limits if most] or [1.0])


def _blocks(
    picture: Picture, stacks: Stacks, version: int, shown: Sequence[Stacked], scale: _Scale
) -> Iterable[str]:
    """Yield one path for all blocks of a look, those that line others last; and the line."""
    paths: dict[str, list[str]] = defaultdict(list)
    for one in _joined(shown, scale):
        rect = _rectangle(one, stacks, scale)
        paths[_look(picture, version, one)].append(rect)
        kind = stacks.kind(one.block)
        if kind in _KINDS and one.state == "visible":
            paths[kind].append(rect)
    order = sorted(paths, key=lambda look: look in _KINDS)
    yield from (f'<path class="{look}" d="{"".join(paths[look])}"/>' for look in order)
    yield f'<path class="line" d="M0 {scale.line + 0.5:.1f}H{_WIDTH:g}"/>'


def _joined(shown: Sequence[Stacked], scale: _Scale) -> Iterable[Stacked]:
    """Yield the rectangles, with neighbours that are too low to be seen alone as one."""
    waiting: dict[tuple[int, float, float, bool], Stacked] = {}
    for one in shown:
        place = (one.column, one.left, one.right, one.above)
        before = waiting.pop(place, None)
        joined = one if before is None else one._replace(low=before.low)
        if (joined.high - joined.low) * scale.unit < _LEAST:
            waiting[place] = joined
        else:
            yield joined
    yield from waiting.values()


def _rectangle(one: Stacked, stacks: Stacks, scale: _Scale) -> str:
    """Return a closed path."""
    step = _step(stacks)
    room = step - (1.5 if step > 8 else 0.5)
    x = one.column * step + one.left * room
    wide = max((one.right - one.left) * room - (0.5 if one.right < 1 else 0), 0.5)
    tall = (one.high - one.low) * scale.unit
    y = scale.line - one.high * scale.unit if one.above else scale.line + 2 + one.low * scale.unit
    tall = max(tall - (0.7 if tall > 3 else 0), 0.5)
    return f"M{x:.1f} {y:.1f}h{wide:.1f}v{tall:.1f}h-{wide:.1f}z"


def _step(stacks: Stacks) -> float:
    """Return the width of a column in pixels."""
    return min(_WIDTH / max(1, stacks.columns), _WIDEST_COLUMN)


def _look(picture: Picture, version: int, one: Stacked) -> str:
    if one.state != "visible":
        return one.state
    added = max(picture.blocks[one.block].entry.version, picture.first)
    age = max(0, version - added) * len(_AGES) // (version - picture.first + 1)
    return f"age{age}"


def _titles(picture: Picture, stacks: Stacks, version: int) -> Iterable[str]:
    time_ms = effective_time(picture.meta.clock, version, picture.times[version - picture.first])
    yield _text(0, -27, f"Version {version}", size=15, weight="bold")
    yield _text(_WIDTH, -27, shown_time(time_ms), size=12, quiet=True, anchor="end")
    live = [
        block
        for n, block in enumerate(picture.blocks)
        if stacks.state_at(n, version) in ("visible", "masked")
    ]
    rows = sum(b.entry.rows - b.masked_rows(version) for b in live)
    size = size_text(sum(b.entry.bytes for b in live))
    stored = "stored rows" if bucket_count(picture) else "rows"
    sums = f"{count_text(len(live), 'segment')}, {rows:,} {stored}, {size}"
    yield _text(0, -10, sums, size=12, quiet=True)


def _axis(stacks: Stacks) -> Iterable[str]:
    step = _step(stacks)
    every = -(-90 // int(step))
    for column in range(0, stacks.columns, every):
        if column and column * step + 70 > _WIDTH:
            break
        yield _text(column * step, _HEIGHT + 14, stacks.first_chunk(column), size=11, quiet=True)


def _legend(picture: Picture, width: float) -> tuple[list[str], int]:
    """Return the legend, and the number of its lines."""
    samples: list[tuple[str, Sequence[str]]] = [
        (_TEXTS["visible"], [f"age{n}" for n in reversed(range(len(_AGES)))]),
        *((_TEXTS[state], [state]) for state in _LINES),
    ]
    if bucket_count(picture):
        samples += [("log", ["age0", "log"]), ("late", ["age0", "late"]), ("base", ["age0"])]
    parts, x, y = list[str](), 0.0, 0
    for text, looks in samples:
        wide = 44 + 7.2 * len(text)
        if x and x + wide > width - 2 * _MARGIN:
            x, y = 0.0, y + 1
        for n, look in enumerate(looks):
            is_row = looks[0].startswith("age") and len(looks) == len(_AGES)
            left, each = (n * 4.0, 4.0) if is_row else (0.0, 24.0)
            parts.append(
                f'<path class="{look}" d="M{x + left:g} {22 * y}h{each:g}v13h-{each:g}z"/>'
            )
        parts.append(_text(x + 30, 22 * y + 11, text, size=12))
        x += wide
    return parts, y + 1


def _frame(width: float, height: float) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" role="img" font-family="{_FONTS}">'
    )


def _definitions(picture: Picture) -> str:
    parts = [
        f"<title>{html.escape(plain(f'History of {picture.name}'))}</title>",
        f"<desc>{_DESCRIPTION}</desc>",
        "<defs>",
    ]
    for state, lines in _LINES.items():
        ground, lined = ("#ffffff", _COLORS[state])
        if state == "masked":
            ground, lined = lined, ground
        parts.append(
            f'<pattern id="{state}" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<rect width="6" height="6" fill="{ground}"/>'
            f'<path d="{lines}" stroke="{lined}" stroke-width="1.3"/></pattern>'
        )
    for kind, lines in _KINDS.items():
        parts.append(
            f'<pattern id="{kind}" width="4" height="4" patternUnits="userSpaceOnUse">'
            f'<path d="{lines}" stroke="#ffffff" stroke-width="1"/></pattern>'
        )
    ages = "".join(f".age{n}{{fill:{color}}}" for n, color in enumerate(_AGES))
    states = "".join(
        f".{state}{{fill:url(#{state});stroke:{_COLORS[state]};stroke-width:.6}}"
        for state in _LINES
    )
    kinds = "".join(f".{kind}{{fill:url(#{kind})}}" for kind in _KINDS)
    style = (
        f"text{{fill:#16202a}}.quiet{{fill:#4c5966}}.line{{stroke:#16202a}}{ages}{states}{kinds}"
    )
    return "".join(
        [
            *parts,
            "</defs><style>",
            style,
            "</style>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
        ]
    )


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: int,
    weight: str = "",
    anchor: str = "",
    quiet: bool = False,
) -> str:
    more = f' font-weight="{weight}"' if weight else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    more += ' class="quiet"' if quiet else ""
    escaped = html.escape(plain(text))  # against markup-in-a-still
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}"{more}>{escaped}</text>'
