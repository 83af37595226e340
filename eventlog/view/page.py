"""The page of a picture: the model as compact JSON columns, beside the files of `page_files/`.

Numbers that rise are stored as differences, and texts that stand often once, so that a history of
10,000 commits and 100,000 segments takes a few MB. The names in a log may be of anybody: the page
has them as data, and its scripts show them as text only.
"""

from __future__ import annotations

import base64
import html
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from importlib import resources
from itertools import pairwise
from typing import Any

from eventlog.display import plain
from eventlog.model.chunks import MIN_MS, parse_chunk
from eventlog.model.entries import Segment
from eventlog.quantities import count_text
from eventlog.state.small.timing import effective_time
from eventlog.view.picture import Block, BranchHead, Picture, PictureLane, time_bounds
from eventlog.view.stacks import bucket_count, bucket_ranges

_SCRIPTS = ("history.js", "blocks.js", "lanes.js", "tables.js", "controls.js")
_LIVE = "live.js"
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page_of(picture: Picture, *, live: bool = False) -> str:
    """Return the page of a picture: HTML that needs no other file and no network.

    Args:
        picture: the picture.
        live: whether the page asks the program that serves it for new versions (`serving`).
    """
    summary = (
        f"{picture.name}: versions {picture.first} to {picture.last}, "
        f"{count_text(len(picture.blocks), 'segment')}"
    )
    parts = {
        "title": html.escape(plain(picture.name)),
        "summary": html.escape(plain(summary)),
        "style": _file("page.css"),
        "history": history_json(picture),
        "script": "\n".join(map(_file, (*_SCRIPTS, _LIVE) if live else _SCRIPTS)),
        "begin": "follow(start());" if live else "start();",
        "connect": "; connect-src 'self'" if live else "",
    }
    # In one pass: a name that looks like a place is not one.
    return _PLACE.sub(lambda found: parts[found[1]], _file("page.html"))


def history_json(picture: Picture) -> str:
    """Return a picture as JSON for `page_files/history.js`, without any `<`."""
    text = json.dumps(_columns(picture), ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")  # against script-that-a-name-ends


def _file(name: str) -> str:
    return (resources.files("eventlog.view") / "page_files" / name).read_text(encoding="utf-8")


def _columns(picture: Picture) -> dict[str, Any]:
    clock = picture.meta.clock
    numbered = enumerate(picture.times, picture.first)
    times = [effective_time(clock, v, time_ms) for v, time_ms in numbered]
    heads = {head.name: head for head in picture.heads}
    branches = {head.origin: head.name for head in picture.heads if head.origin}
    return {
        "table": plain(picture.name),
        "first": picture.first,
        "fork": picture.fork,
        "times": _differences(times),
        "transactions": _transactions(picture),
        "blocks": _blocks(picture),
        "lanes": [
            [*_lane(lane), _head(picture, times, heads[lane.name])]
            if lane.kind == "branch" and lane.end is None and lane.name in heads
            else [*_lane(lane), None]
            for lane in picture.lanes
        ],
        "horizons": picture.horizons,
        "merges": [(m.version, m.last, plain(branches.get(m.origin, ""))) for m in picture.merges],
    }


def _transactions(picture: Picture) -> dict[str, Any]:
    listed = picture.transactions
    return {
        "version": _differences([t.version for t in listed]),
        "operation": _indexed(t.operation for t in listed),
        "writer": _indexed(t.writer for t in listed),
        "app": _indexed(t.app for t in listed),
        "rewrite": [int(t.rewrite) for t in listed],
    }


def _blocks(picture: Picture) -> dict[str, Any]:
    blocks = picture.blocks
    entries = [block.entry for block in blocks]
    chunks = {name: parse_chunk(name) for name in dict.fromkeys(e.chunk for e in entries)}
    ordered = sorted(chunks, key=lambda name: chunks[name])
    number = {name: at for at, name in enumerate(ordered)}
    return {
        "id": base64.b64encode(b"".join(bytes.fromhex(e.id) for e in entries)).decode(),
        "chunks": ordered,
        "chunk": [number[e.chunk] for e in entries],
        "version": _differences([e.version for e in entries]),
        "made": _differences([block.made for block in blocks]),
        "life": [0 if b.ended is None else b.ended - b.made for b in blocks],
        "rows": [e.rows for e in entries],
        "bytes": [e.bytes for e in entries],
        "masks": [(at, version, rows) for at, b in enumerate(blocks) for version, rows in b.masks],
        **_bounds(picture, blocks),
        **_slices(picture),
    }


def _slices(picture: Picture) -> dict[str, Any]:
    """Return where the blocks of a keyed table lie in its slices; nothing of other tables."""
    ranges = bucket_ranges(picture)
    if not ranges:
        return {}
    return {
        "buckets": bucket_count(picture),
        "kind": _indexed(one.kind for one in ranges),
        "bucket": [one.first for one in ranges],
        "wide": [one.last - one.first + 1 for one in ranges],
        "low": _differences([one.low for one in ranges]),
        "high": [one.high - one.low for one in ranges],
        "level": [one.level for one in ranges],
    }


def _bounds(picture: Picture, blocks: Sequence[Block]) -> dict[str, Any]:
    """Return the least event time of each block, in s since its chunk begins, and the span in s."""
    found = [time_bounds(picture.meta, block.entry) for block in blocks]
    least: list[int | None] = []
    span: list[int | None] = []
    for block, bounds in zip(blocks, found, strict=True):
        if bounds is None or not isinstance(bounds.min, int) or not isinstance(bounds.max, int):
            least.append(None)
            span.append(None)
            continue
        least.append(bounds.min // 1_000_000 - _start_s(block.entry))
        span.append(bounds.max // 1_000_000 - bounds.min // 1_000_000)
    return {"least": least, "span": span} if any(s is not None for s in span) else {}


def _start_s(entry: Segment) -> int:
    """Return when the chunk of a segment begins, in s since 1970; 0 of `all`."""
    start = parse_chunk(entry.chunk).start
    return 0 if start == MIN_MS else start // 1000


def _lane(lane: PictureLane) -> list[Any]:
    texts = [plain(text) for text in (lane.name, lane.owner, lane.text)]
    return [lane.kind, *texts, lane.begin, lane.end, lane.held]


def _head(picture: Picture, times: Sequence[int], head: BranchHead) -> list[int]:
    """Return the fork, the newest version of a branch, its time, and which version was then new."""
    then = picture.first + max(0, bisect_right(times, head.time_ms) - 1)
    return [head.fork, head.version, head.time_ms, then]


def _differences(numbers: Sequence[int]) -> list[int]:
    """Return the first number, and then what each one has more than the one before it."""
    return [*numbers[:1], *(after - before for before, after in pairwise(numbers))]


def _indexed(texts: Iterable[str]) -> dict[str, Any]:
    """Return texts as the different ones, and for each its index among them."""
    found: dict[str, int] = {}
    at = [found.setdefault(plain(text), len(found)) for text in texts]
    return {"texts": list(found), "at": at if len(found) > 1 else []}
