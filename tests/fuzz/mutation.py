"""Mutations that know the shape of what they change, so that they get past the first check.

JSON is changed as a tree and sealed again, text by its tokens, Parquet by its columns; each also by
its bytes. All that is drawn comes from the `random.Random` that is passed in.
"""

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fuzz import corpus, targets
from msgspec import UNSET
from support import builders

from eventlog import errors
from eventlog.format import codec
from eventlog.model.entries import deleted_rows

MAX_BYTES = 64_000

_WORD = re.compile(r"\w+|\s+|.", re.DOTALL)


class Raw(str):
    """A scalar that is written as it stands, whether JSON has it or not."""

    __slots__ = ()


class Pairs(list):
    """An object as a list of (name, value), in which a name may stand twice."""


_SCALARS: list[Any] = [
    *(Raw(text) for text in (
        "null", "true", "0", "-0", "1", "-1", "1.0", "1e2", "1e400", "-1e400", "NaN", "Infinity",
        "01", "9223372036854775807", "9223372036854775808", "-9223372036854775807",
        "-9223372036854775808", "18446744073709551616", "9" * 400, "253402300799999",
        "253402300800000", "-62135596800001", "999999999999", "1000000000000", '"\\ud800"',
        '"\\udc00x"', '"\\u0041"', '"\\/"', '"\x01"', '"\\u007f"', '"\\u0000"', "[]", "{}", "",
    )),
    "", "x" * 130, "\U0001f600", "\u2028", "0" * 32, "0" * 64, "A" * 64, "../x", "all", "0000",
    "2013-02-30", "2013-01-07", "decimal(10,2)", "eventlog", {"list": "string"},
]  # fmt: skip


def mutate(name: str, body: bytes, rng: random.Random) -> bytes:
    """Return `body`, changed in one to four places as the target `name` takes it."""
    change = _CHANGES[name]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        body = change(name, body, rng)[:MAX_BYTES]
    return body


def flip(body: bytes, rng: random.Random) -> bytes:
    """Return the bytes with a bit flipped, a part cut, doubled, moved or overwritten."""
    if not body:
        return bytes(rng.randbytes(4))
    at, to = sorted((rng.randrange(len(body)), rng.randrange(len(body) + 1)))
    to = min(to, at + rng.choice((1, 4, 64, 4096)))
    kind = rng.randrange(6)
    if kind == 0:
        return body[:at] + bytes([body[at] ^ 1 << rng.randrange(8)]) + body[at + 1 :]
    if kind == 1:
        return body[:at] + body[to:]
    if kind == 2:
        return body[:at] + body[at:to] * rng.choice((2, 2, 50)) + body[to:]
    if kind == 3:
        return body[:at] + rng.randbytes(max(1, to - at)) + body[to:]
    if kind == 4:
        return body[:at]
    return body[:at] + rng.choice((b"\x00", b"\xff", b'"', b"{", b"\xed\xa0\x80")) + body[at:]


def dump(value: Any) -> bytes:
    """Return the canonical JSON of a tree of `Pairs`, lists and scalars, `Raw` as it stands."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts).encode("utf-8", "surrogatepass")


def _write(value: Any, parts: list[str]) -> None:
    if isinstance(value, Raw):
        parts.append(str(value))
    elif isinstance(value, Pairs | dict):
        items = value.items() if isinstance(value, dict) else value
        for number, (name, inner) in enumerate(items):
            parts.append(("," if number else "{") + json.dumps(name, ensure_ascii=False) + ":")
            _write(inner, parts)
        parts.append("}" if len(value) else "{}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            parts.append("," if number else "[")
            _write(inner, parts)
        parts.append("]" if value else "[]")
    else:
        parts.append(json.dumps(value, ensure_ascii=False))


def _json(name: str, body: bytes, rng: random.Random) -> bytes:
    """Change a tree of JSON; seal it again, and make roots add up again, more often than not."""
    if rng.random() < 0.15:
        changed = flip(body, rng)
        return _sealed(name, changed) if rng.random() < 0.5 else changed
    try:
        tree = json.loads(body, object_pairs_hook=Pairs)
        _change_tree(tree, name, rng)
        changed = dump(tree)
    except (ValueError, RecursionError):
        return flip(body, rng)
    if rng.random() < 0.1:
        return changed
    changed = _sealed(name, changed)
    return _refitted(changed) if name == "keyframe" and rng.random() < 0.5 else changed


def _sealed(name: str, body: bytes) -> bytes:
    owner = builders.TABLE if name == "intent" else ""
    return builders.resealed(body, owner) if len(body) < MAX_BYTES else body


def _refitted(body: bytes) -> bytes:
    """Make a root's totals and state hash those of its parts, so that the sum is not the end."""
    try:
        root = codec.decode_keyframe(body, targets.version_in(body))
        parts = (*root.segments, *root.leaves)
        total = codec.meta_hash(root.state) + sum(map(codec.entry_hash, root.segments))
        total += sum(codec.parse_hash(leaf.hash_sum) for leaf in root.leaves)
        count = len(root.segments) + sum(leaf.segments for leaf in root.leaves)
        sums = [sum(getattr(part, field) for part in parts) for field in ("rows", "bytes")]
        gone = sum(deleted_rows(segment.vector) for segment in root.segments)
        gone += sum(leaf.deleted or 0 for leaf in root.leaves)
        totals = type(root.totals)(count, sums[0] - gone, sums[1], gone or UNSET)
        fitted = builders.replaced(root, totals=totals, state_hash=codec.hex_hash(total))
        return codec.encode_keyframe(fitted)
    except (errors.EventLogError, ValueError, OverflowError, TypeError):
        return body


def _places(tree: Any) -> list[tuple[Any, int]]:
    """Every (container, index) of a tree, without recursion: it may be deep."""
    found, open_ = [], [tree]
    while open_:
        container = open_.pop()
        for index, item in enumerate(container):
            found.append((container, index))
            inner = item[1] if isinstance(container, Pairs) else item
            if isinstance(inner, list):
                open_.append(inner)
    return found


def _value(place: tuple[Any, int]) -> Any:
    container, index = place
    return container[index][1] if isinstance(container, Pairs) else container[index]


def _put(place: tuple[Any, int], value: Any) -> None:
    container, index = place
    container[index] = (container[index][0], value) if isinstance(container, Pairs) else value


def _change_tree(tree: Any, name: str, rng: random.Random) -> None:
    places = _places(tree) if isinstance(tree, list) else []
    if not places:
        return
    place = rng.choice(places)
    container, index = place
    kind = rng.randrange(10)
    if kind == 0:
        _put(place, rng.choice(_SCALARS))
    elif kind == 1:
        container.insert(index, container[index])
    elif kind == 2:
        del container[index]
    elif kind == 3:
        rng.shuffle(container)
    elif kind == 4:
        _put(place, _deepened(_value(place), rng))
    elif kind == 5:
        _put(place, _value(rng.choice(places)) if rng.random() < 0.7 else _stranger(name, rng))
    elif kind == 6 and isinstance(container, Pairs):
        other = rng.choice([p for p in places if isinstance(p[0], Pairs)])
        new = rng.choice((other[0][other[1]][0], "extra", "\u00e9", "", "user.x"))
        container[index] = (new, container[index][1])
    elif kind == 7 and isinstance(container, Pairs):
        container.insert(index, ("extra", rng.choice(_SCALARS)))
    else:
        _put(place, _near(_value(place), rng))


def _near(value: Any, rng: random.Random) -> Any:
    """A value that is nearly this one."""
    if isinstance(value, Raw):
        return Raw(value + rng.choice(("0", " ", ".", "")))
    if isinstance(value, bool) or value is None:
        return rng.choice((True, False, None))
    if isinstance(value, int):
        return rng.choice(
            (value + 1, value - 1, -value, value * 2, 2**63 - 1, -(2**63), value << 40)
        )
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        new = rng.choice((chr(rng.randrange(128)), "\u00e9", "\x00", "\ud800", "f", "0", ""))
        return value[:at] + new + value[at + rng.randrange(2) :]
    return rng.choice(_SCALARS)


def _deepened(value: Any, rng: random.Random) -> Any:
    levels = rng.choice((1, 2, 9, 14, 40, 990, 5000))
    opening, closing = rng.choice((("[", "]"), ('{"list":', "}"), ('{"a":', "}")))
    inner = dump(value).decode("utf-8", "surrogatepass") if levels < 100 else "1"
    return Raw(opening * levels + inner + closing * levels)


def _stranger(name: str, rng: random.Random) -> Any:
    """A value from another object of the corpus."""
    other = json.loads(rng.choice(corpus.seeds(name)), object_pairs_hook=Pairs)
    return _value(rng.choice(_places(other)))


def _words(name: str, body: bytes, rng: random.Random) -> bytes:
    """Change a text by its words."""
    if rng.random() < 0.15:
        return flip(body, rng)
    if body and rng.random() < 0.3:
        at = rng.randrange(len(body))
        return body[:at] + bytes([rng.choice(body + b"0a")]) + body[at + 1 :]
    words = _WORD.findall(body.decode("utf-8", "surrogateescape")) or [""]
    at = rng.randrange(len(words))
    to = min(len(words), at + rng.choice((1, 1, 3, 8)))
    kind = rng.randrange(6)
    if kind == 0:
        words[at:to] = [rng.choice(corpus.TOKENS[name].split(" "))]
    elif kind == 1:
        words.insert(at, " " + rng.choice(corpus.TOKENS[name].split(" ")) + " ")
    elif kind == 2:
        words[at:to] = []
    elif kind == 3:
        words[at:to] = words[at:to] * rng.choice((2, 2, 3, 3, 40, 40, 400, 3000))
    elif kind == 4:
        other = rng.choice(corpus.seeds(name)).decode("utf-8", "surrogateescape")
        words[at:to] = rng.sample(_WORD.findall(other), 1)
    else:
        opening, closing = rng.choice(
            (("(", ")"), ("list<", ">"), ("NOT ", ""), ("-", ""), ("(", ""))
        )
        levels = rng.choice((1, 2, 9, 33, 500, 4000))
        words[at:to] = [opening * levels, *words[at:to], closing * levels]
    return "".join(words).encode("utf-8", "surrogateescape")


def _parquet(name: str, body: bytes, rng: random.Random) -> bytes:
    """Change a frame object by its columns, and now and then by its bytes."""
    if rng.random() < 0.3:
        return flip(body, rng)
    try:
        table = pq.read_table(pa.BufferReader(body))
        changed = _change_columns(table, rng)
        sink = pa.BufferOutputStream()
        pq.write_table(changed, sink, compression=rng.choice(("zstd", "none", "snappy")))
        return bytes(sink.getvalue())
    except (pa.ArrowException, OSError, ValueError, NotImplementedError):
        return flip(body, rng)


def _change_columns(table: pa.Table, rng: random.Random) -> pa.Table:
    at = rng.randrange(max(1, table.num_columns))
    name = table.column_names[at]
    kind = rng.randrange(7)
    if kind == 0:
        return table.drop_columns([name])
    if kind == 1:
        return table.select(rng.sample(table.column_names, table.num_columns))
    if kind == 2:
        new = rng.choice(("min_7", "drop", "nulls_01", "max_", "rows", "surprise", "nulls_1"))
        return table.append_column(new, table.column(at))
    if kind == 3:
        return table.rename_columns(
            [
                rng.choice(table.column_names) if n == at else c
                for n, c in enumerate(table.column_names)
            ]
        )
    if kind == 4:
        rows = [rng.randrange(max(1, table.num_rows)) for _ in range(rng.choice((0, 1, 5, 50)))]
        return table.take([row for row in rows if row < table.num_rows])
    return table.set_column(at, name, _column(table.column(at), rng))


def _column(column: pa.ChunkedArray, rng: random.Random) -> pa.Array:
    """A column with other values, or of another type."""
    count = len(column)
    numbers = (0, 1, -1, 2**63 - 1, -(2**63), 253_402_300_800_000, 1_357_516_800_000, None)
    makers: Sequence[Callable[[], pa.Array]] = (
        lambda: pa.nulls(count, column.type),
        lambda: pa.array([rng.choice(numbers) for _ in range(count)], pa.int64()),
        lambda: pa.array(
            [rng.choice((b"\xff\xfe", b"", b"a", None)) for _ in range(count)], pa.binary()
        ),
        lambda: pa.array([b"\xed\xa0\x80"] * count, pa.binary()).view(pa.string()),
        lambda: pa.array([rng.choice(("", "b", None)) for _ in range(count)], pa.string()),
        lambda: pa.array([[1]] * count, pa.list_(pa.int64())),
        lambda: pa.array([rng.choice((True, False, None)) for _ in range(count)], pa.bool_()),
        lambda: pa.array([1.5] * count, pa.float64()),
        lambda: column.take(pa.array([rng.randrange(count) for _ in range(count)], pa.int64())),
    )
    return rng.choice(makers)()


_CHANGES: dict[str, Callable[[str, bytes, random.Random], bytes]] = {
    "commit": _json,
    "keyframe": _json,
    "intent": _json,
    "fork": _json,
    "opened": _json,
    "keys": _words,
    "predicate": _words,
    "schema_text": _words,
    "leaf": _parquet,
    "vector": lambda _name, body, rng: flip(body, rng),
}
