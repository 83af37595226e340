"""What the mutations start from: real objects of small tables, and texts that people write."""

import functools
from pathlib import Path

import pyarrow as pa
from fuzz import targets
from pyroaring import BitMap64
from support import builders
from support.builders import add, create

from eventlog.format import codec, keys
from eventlog.format.frames import frame_bytes, spill_columns
from eventlog.model.actions import Drop, Fence
from eventlog.model.entries import ColumnStats
from eventlog.state import keyframe
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

_GOLDEN = Path(__file__).parent.parent / "golden" / "tables"
_MAX_BYTES = 16_000  # larger seeds cost more executions than they find

PREDICATES = [
    "at >= '2013-01-07' AND at < '2013-01-08'",
    "at BETWEEN TIMESTAMP '1970-01-01 00:00:00' AND DATE '1970-01-02'",
    "n = 0 OR n > 9223372036854775807 OR n < -1e400",
    "n IN (1, 2, NULL, -9223372036854775808) AND NOT s IN ('a', '')",
    "f <> 0.5 AND f <= 1e300 OR f IS NULL",
    "s LIKE 'a%' OR s LIKE 'a!%b' ESCAPE '!' OR s NOT LIKE '_%'",
    "`s` = 'pppppppppppppppppppppppppppppppppppppppp' AND \"flag\"",
    "NOT (flag OR d = DATE '1970-01-01') IS TRUE",
    "n + 1 > n * 2 - 3 / 0 AND -n <> 5 % 2",
    "at > CAST('2013-01-07' AS TIMESTAMP) AND flag = (n > 0)",
    "d IS DISTINCT FROM '2013-01-07' -- a comment",
    "TRUE AND (NULL IS NULL) /* another */ AND 'a' < s",
    "at = '0001-01-01' OR at > '9999-12-31T23:59:59.999999Z' OR at = '1970-01-01T00:00:00+14:00'",
    "s = '\u00e9\U0001f600\u2028' OR s >= 'it''s'",
]

SCHEMAS = [
    "time:timestamp, id:int64 not null, tags:list<string>",
    "at : TIMESTAMP_NTZ NOT NULL, price:decimal(20,4), d:date",
    "m:map<string, list<int8>>, s:struct<x:int64, name:struct<y:bool, z:binary>>",
    "a:int16, b:int32, f:float32, g:float64, größe:string, 列:decimal(38,38)",
    "x:list<list<list<map<string,struct<a:int8>>>>>",
]

# What a text is changed by, split at spaces.
TOKENS = {
    "predicate": (
        "( ) ((( ))) [ ] , ; ' \" ` -- /* */ = <> < <= > >= + - * / % || AND OR NOT IN IS NULL "
        "TRUE FALSE LIKE ESCAPE BETWEEN CASE WHEN THEN ELSE END CAST( AS DATE "
        "date_trunc('day', substr( concat( coalesce( TIMESTAMP INTERVAL "
        "SELECT FROM EXISTS at d n f s flag row nothing 'a%' '' '2013-01-07' '9999-12-31' 1e400 "
        "-0 NaN 9223372036854775808 0x10 1.5 99999999999999999999999999 BIGINT DOUBLE "
        "VARCHAR :: ? @x {y}"
    ),
    "schema_text": (
        ": , < > << >> ( ) list< map< struct< string int64 decimal( decimal(38,38) decimal(0,0) "
        "timestamp date not null NOT NULL a b A \t \n \u00e9 '"
    ),
    "keys": (
        "_log/ _frames/ _intents/ data/ _probe/ .json .keyframe .parquet / .. . % \\ \n all 2013 "
        "2013-01 2013-02-30 2013-01-07T24 0000 9999-12-31T23 000000000000 999999999999 "
        "1000000000000 \u0660\u0660 " + "0123456789abcdef" * 2 + " " + "0123456789ABCDEF" * 2
    ),
}


@functools.cache
def seeds(name: str) -> tuple[bytes, ...]:
    """The corpus of a target: distinct, in a fixed order, each accepted by it."""
    found = _MAKERS[name]()
    return tuple(dict.fromkeys(body for body in found if len(body) <= _MAX_BYTES))


@functools.cache
def _objects() -> dict[str, dict[str, bytes]]:
    stores = {path.name: LocalStore(path) for path in sorted(_GOLDEN.iterdir())}
    stores |= {"tiny": targets.tiny_store(), "rich": rich_store(), "leaves": leaf_store()}
    return {
        name: {o.key: store.get(o.key) for o in store.list("")} for name, store in stores.items()
    }


def rich_store() -> MemoryStore:
    """One of every action, and an intent."""
    store = MemoryStore()
    table = create(store, properties={"user.\u00e9\u0001": '\U0001f600\\"\x7f'})
    append(table, builders.events(6, days=3), app_id="a/b \u00e9", app_seq=2**53)
    table.add_columns(builders.SCHEMA.append(pa.field("extra", pa.list_(pa.int8()))))
    overwrite(table, builders.events(1), start="1970-01-01", end="1970-01-02",
              isolation="serializable", missing="null")  # fmt: skip
    table.set_properties({"keyframe_commits": "2"})
    builders.commit(table, Fence(2), operation="fence")
    append(table, builders.events(1, day=9))
    stats = (ColumnStats(1, -5, 2**63 - 1, 0), ColumnStats(2, "a", None, 1))
    one = table.transaction("append", [add(table, stats=stats)], info={"note": "x"})
    published = builders.replaced(one, until=table.session.head().version + 8)
    body = codec.encode_transaction(published, table.id)
    store.put_if_absent(keys.intent_key(published.until, published.id), body)
    return store


def leaf_store(*, spilled: int = 0) -> MemoryStore:
    """A table whose newest key frame has leaves, and on demand a spilled commit."""
    made = {name: getattr(keyframe, name) for name in ("INLINE_SEGMENTS", "LEAF_TARGET")}
    keyframe.INLINE_SEGMENTS, keyframe.LEAF_TARGET = 2, 4
    try:
        store = MemoryStore()
        table = create(store)
        for n in range(9):
            bounds = (ColumnStats(2, f"a{n}", None if n == 3 else f"b{n}", n % 2),)
            builders.commit(table, add(table, f"2013-01-{1 + n:02d}", stats=bounds))
        table.write_keyframe()
        if spilled:
            adds = [add(table, f"2013-{1 + n % 12:02d}") for n in range(spilled)]
            drops = [builders.drop_of(s) for s in builders.live(table.session.head())[:3]]
            builders.commit(table, *drops, *adds, operation="replace")
    finally:
        for name, value in made.items():
            setattr(keyframe, name, value)
    return store


def _commits() -> list[bytes]:
    return [
        body
        for objects in _objects().values()
        for name, body in objects.items()
        if (parsed := keys.parse_log_key(name)) and not parsed[1] and not codec.is_stub(body)
    ]


def _key_frames() -> list[bytes]:
    return [
        body
        for objects in _objects().values()
        for name, body in objects.items()
        if (parsed := keys.parse_log_key(name)) and parsed[1]
    ]


def _forks() -> list[bytes]:
    found = _objects()["branched"]["_branches/audit/_fork.json"]
    first = codec.decode_fork(found, "audit")
    numbers = [(4, 0), (0, 0), (10**12 - 1, 0), (10**12 - 1, 10**12 - 1)]
    others = [builders.replaced(first, version=version, held=held) for version, held in numbers]
    return [found, *map(codec.encode_fork, others)]


def _intents() -> list[bytes]:
    """The published one, and transactions of commits as if they had been published."""
    found = [b for n, b in _objects()["rich"].items() if keys.parse_intent_key(n)]
    made = [t for body in _commits() for t in codec.decode_commit(body).transactions]
    made = [t for t in made if t.spill is None]  # R11.1
    return [
        *found,
        *(codec.encode_transaction(builders.replaced(t, until=9), builders.TABLE) for t in made),
    ]


def _keys() -> list[bytes]:
    named = sorted(name for objects in _objects().values() for name in objects)
    parsers = (keys.parse_log_key, keys.parse_segment_key, keys.parse_intent_key)
    return [name.encode() for parse in parsers for name in named if parse(name)]


def _frames() -> list[bytes]:
    """Leaves, spills, and leaves with text, null and integer bounds; no records of vacuums."""
    found = [
        body
        for objects in _objects().values()
        for name, body in objects.items()
        if name.startswith(keys.FRAMES_PREFIX) and b"chunk_start" in body
    ]
    drop = builders.Add("0" * 32, "2013", 1, 1, 1, builders.HASH, 1)
    spill = spill_columns.to_spill([drop, drop], [Drop("1" * 32, "2013-01", builders.HASH)])
    return [*found, frame_bytes.to_parquet(spill)]


def _opened() -> list[bytes]:
    objects = _objects()["tiny"]
    return [body for name, body in objects.items() if name.startswith(keys.LOG_PREFIX)]


def _vectors() -> list[bytes]:
    """Bitmaps of every kind of container: arrays, runs and bits, of one or several parts."""
    plain = [
        BitMap64(numbers)
        for numbers in (
            *([0], [5, 9, 99_999], range(0, 65_536, 2), [*range(40), 65_536, 70_000]),
            *(range(1, 90_000), [*range(0, 60_000, 3), *range(66_000, 80_000)]),
        )
    ]
    packed = [bitmap.copy() for bitmap in plain]
    for bitmap in packed:
        bitmap.run_optimize()
    return [len(one).to_bytes(4, "little") + one.serialize() for one in (*plain, *packed)]


_MAKERS = {
    "commit": _commits,
    "keyframe": _key_frames,
    "intent": _intents,
    "fork": _forks,
    "keys": _keys,
    "predicate": lambda: [text.encode() for text in PREDICATES],
    "leaf": _frames,
    "schema_text": lambda: [text.encode() for text in SCHEMAS],
    "opened": _opened,
    "vector": _vectors,
}
