"""A second reader of tables, from the text of FORMAT.md: it shares no code with the package.

It takes the objects of a table, opens a version and reads all entries and rows, as slowly as it
can. Each check is one call of `need`, `readable` or `intact`, with the rule that it is for:
`checks.py` takes them out one at a time, and looks which negative vectors notice. The fold is not
here, and the rows of keyed tables are merged by `keyed_reader.py`.
"""

import base64
import hashlib
import io
import json
import re
import struct
import zlib
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from itertools import pairwise

import pyarrow as pa
import pyarrow.parquet as pq

TOP = 999_999_999_999
FEATURES = {"cut", "inline", "keyed", "merged", "split", "vectors"}
PRIME = 2**256
OP_ID, VERSION_ID = 2**31 - 201, 2**31 - 202  # field ids of columns of logs (section 2.10)
MIN_MS, MAX_MS = -62_135_596_800_000, 253_402_300_800_000
KIB, MIB = 2**10, 2**20


class Refused(Exception):
    """The read fails as corrupt, or an object of a key frame is not used."""


class Unsupported(Exception):
    """The read fails because a newer reader is needed."""


class Lost(Exception):
    """Rows cannot be returned: data loss."""


class Vacuumed(Exception):
    """The version is below the horizon."""


class CutOff(Exception):
    """The log is cut above the version."""


def need(condition, rule):
    """Refuse as corrupt unless the condition holds."""
    if not condition:
        raise Refused(rule)


def whole(condition):
    """Refuse a version of which a stub is left."""
    if not condition:
        raise CutOff("R22.2")


def readable(condition, rule):
    """Refuse as unsupported unless the condition holds."""
    if not condition:
        raise Unsupported(rule)


def intact(condition, rule):
    """Refuse as data loss unless the condition holds."""
    if not condition:
        raise Lost(rule)


# --- JSON -----------------------------------------------------------------------------------------


def canonical(value):
    """The one encoding of a value (R5.1)."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sha256(body):
    """The sha256 of bytes or text, in hexadecimal."""
    return hashlib.sha256(body.encode() if isinstance(body, str) else body).hexdigest()


def digest(text):
    """The sha256 of a text as a number."""
    return int(sha256(text), 16)


def inside(value):
    """How many arrays and objects lie inside one another."""
    if not isinstance(value, dict | list):
        return 0
    parts = value.values() if isinstance(value, dict) else value
    return 1 + max(map(inside, parts), default=0)


def has_float(value):
    """Whether there is a float anywhere inside."""
    if isinstance(value, dict | list):
        return any(map(has_float, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def loaded(body, limit):
    """The text of an object, and its value."""
    need(len(body) <= limit, "R5.3")
    try:
        text = body.decode()
        return text, json.loads(text)
    except (ValueError, RecursionError):
        raise Refused("R5.3") from None


def gate(value):
    """Whether this reader can read the rest (R5.4)."""
    need(isinstance(value, dict) and value.get("format") == "eventlog", "R5.4")
    named = value.get("features", [])
    need(isinstance(named, list) and all(isinstance(name, str) for name in named), "R5.4")
    for field in ("min_reader", "min_writer"):
        count(value.get(field, 1))
    count(value.get("min_reader"))
    readable(value["min_reader"] <= 1, "R5.4")
    readable(set(named) <= FEATURES, "R5.4")


def unsealed(text, before=""):
    """A text without its digest, which must be right (section 1.6)."""
    bare, found, last = text.rpartition(',"digest":"')
    need(found and last == sha256(before + bare + "}") + '"}', "1.6")
    return bare + "}"


def strict(text, form):
    """The value of a text without digest, in the one encoding of its form."""
    value = json.loads(text)
    need(inside(value) <= 40, "R5.3")
    form(value)
    need(canonical(value) == text, "R5.1")
    return value


# --- forms of fields ------------------------------------------------------------------------------


def text(value):
    """A text of Unicode."""
    need(isinstance(value, str), "R5.2")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused("R5.2") from None


def integer(value):
    """An integer of 64 bits."""
    need(type(value) is int, "R5.2")
    need(-(2**63) < value < 2**63, "R5.2")


def count(value):
    """An integer that is not negative."""
    integer(value)
    need(value >= 0, "R5.2")


def some(value):
    """A count that is absent where it is 0."""
    integer(value)
    need(value >= 1, "R5.2")


def boolean(value):
    """True or false."""
    need(type(value) is bool, "R5.2")


def splits(value):
    """How often buckets were split."""
    integer(value)
    need(1 <= value <= 12, "R5.2")


def is_hex(value, digits):
    """Whether a text is so many lower-case hexadecimal digits."""
    return re.fullmatch(f"[0-9a-f]{{{digits}}}", value, re.ASCII) is not None


def hex32(value):
    """An id."""
    text(value)
    need(is_hex(value, 32), "R5.2")


def hex64(value):
    """A hash."""
    text(value)
    need(is_hex(value, 64), "R5.2")


def base64_text(value):
    """Bytes as base64, in the one form that they have (R5.1)."""
    text(value)
    try:
        found = base64.b64decode(value, validate=True)
    except ValueError:
        raise Refused("R5.1") from None
    need(base64.b64encode(found).decode() == value, "R5.1")


def choice(*names):
    """One of a few texts."""

    def check(value):
        need(value in names, "R5.2")

    return check


def maybe(form):
    """A value or null."""
    return lambda value: None if value is None else form(value)


def many(form):
    """A list."""

    def check(value):
        need(isinstance(value, list), "R5.2")
        for one in value:
            form(one)

    return check


def mapped(form):
    """An object of any names, in their order."""

    def check(value):
        need(isinstance(value, dict), "R5.2")
        need([*value] == sorted(value, key=str.encode), "R5.1")
        for one in value.values():
            form(one)

    return check


ABSENT = (
    *("slice", "keyed", "splits", "origins", "place", "origin", "commits"),
    *("vector", "vectors", "deleted", "bitmap", "stored"),
    *("inline", "packs", "parquet", "cut"),
)


def record(**forms):
    """An object of these fields in this order."""

    def check(value):
        need(isinstance(value, dict), "R5.2")
        may_lack = {*ABSENT, *(n for n, form in forms.items() if hasattr(form, "may_lack"))}
        wanted = [name for name in forms if name in value or name not in may_lack]
        need([*value] == wanted, "R5.1")
        for name in wanted:
            forms[name](value[name])

    return check


def absent_or(form):
    """A field that an object may lack, though others of its name may not."""

    def check(value):
        form(value)

    check.may_lack = True
    return check


def array(*forms):
    """A list of so many values."""

    def check(value):
        need(isinstance(value, list) and len(value) == len(forms), "R5.2")
        for form, one in zip(forms, value, strict=True):
            form(one)

    return check


def bound(value):
    """A bound of statistics."""
    if not isinstance(value, str):
        maybe(integer)(value)


def column_type(value):
    """The type of a column, whatever it is."""
    need(isinstance(value, str | dict), "2.8.1")
    need(not has_float(value), "R5.1")


def default_value(value):
    """A default, whatever its type is."""
    if not isinstance(value, bool | str):
        integer(value)


def free(value):
    """Any value of JSON."""


def fields(**forms):
    """The fields of an action."""
    return forms


granularity = choice("hour", "day", "month", "year", "all")
totals = record(segments=count, rows=count, bytes=count, deleted=some, inline=some)
changes = record(
    operation=text, writer=text, transactions=count, adds=count, drops=count, rows=integer,
    bytes=integer, vectors=some,
)  # fmt: skip
header = record(
    format=text, min_reader=count, min_writer=count, features=many(text), table=hex32,
    version=count, prev=maybe(hex64), time=integer, keyframe=maybe(count), totals=totals,
    state_hash=hex64, changes=changes, write_features=absent_or(many(text)),
)  # fmt: skip
stats = many(array(count, bound, bound, count))
tail = record(size=count, sha256=text)
place = record(
    kind=choice("base", "late", "log"), first=count, last=count, low=maybe(count),
    high=maybe(count), level=count, ordinal=maybe(count), splits=splits,
)  # fmt: skip
stored = record(epoch=count, object=text, offset=count, size=count, hash=text)
vector = record(rows=count, bitmap=base64_text, stored=stored)
entry = record(
    id=text, chunk=text, epoch=count, version=count, partition=count, rows=count, bytes=count,
    checksum=text, schema=count, stats=stats, tail=maybe(tail), slice=place, vector=vector,
    inline=count,
)  # fmt: skip
spill = record(sha256=hex64, size=count, adds=count, drops=count, vectors=some)
unread_spill = record(sha256=text, size=count, adds=count, drops=count, vectors=some)
schema = record(
    id=count,
    columns=many(
        record(
            id=count,
            name=text,
            type=column_type,
            nullable=boolean,
            initial=absent_or(default_value),
            write=absent_or(default_value),
        )
    ),
    retired=absent_or(many(count)),
    by_id=absent_or(choice(True)),
    checks=absent_or(
        many(
            record(
                name=text,
                expression=text,
                columns=many(record(id=count, name=text)),
                schema=count,
            )
        )
    ),
)
merge_rule = record(
    rule=text,
    functions=absent_or(many(record(column=count, function=text))),
    groups=absent_or(many(record(order=count, columns=many(count)))),
)
layout = record(
    time_column=absent_or(count),
    granularity=granularity,
    order_by=many(count),
    keyed=record(key=many(count), buckets=count, splits=splits, merge=absent_or(merge_rule)),
)
chunk_state = record(
    state=choice("stable", "unstable", "deferred"), version=count, segments=count, failures=count,
    until=integer,
)  # fmt: skip
claim_kind = choice("exclusive", "shared")
span = {"start": integer, "end": integer}
named = {"name": text, "owner": text}
held = {"name": text, "token": count}
leased = {"id": text, "token": count}
analysed = record(version=count, policy=text)
ACTIONS = {
    "add": fields(
        id=text, chunk=text, epoch=count, rows=count, bytes=count, checksum=text, schema=count,
        stats=stats, tail=maybe(tail), slice=place, vector=vector, tested=absent_or(count),
        parquet=base64_text, inline=count,
    ),
    "delete_rows": fields(id=text, chunk=text, hash=text, vector=vector),
    "drop": fields(id=text, chunk=text, hash=text),
    "set_layout": fields(layout=layout),
    "set_schema": fields(schema=schema),
    "set_properties": fields(changes=many(record(name=text, old=maybe(text), new=maybe(text)))),
    "set_granularity": fields(old=granularity, new=granularity),
    "unchanged": span,
    "same_segments": fields(hash_sum=text),
    "fence": fields(epoch=count),
    "horizon": fields(version=count),
    "cut": fields(version=count, whole=count, seen=count),
    "swept": fields(
        sweep=record(
            fence=count, horizon=count, version=count, pending=maybe(unread_spill), place=text
        )
    ),
    "pin": fields(name=text, version=count, owner=text),
    "unpin": fields(name=text, owner=text, token=count),
    "attach": fields(name=text, acked=count, owner=text),
    "ack": held | fields(version=count),
    "detach": held,
    "break": fields(kind=choice("pin", "claim", "replica")) | held | fields(renewed=count),
    "claim": fields(id=text)
    | span
    | fields(segments=many(text), kind=claim_kind, priority=integer, group=text, owner=text),
    "renew": leased,
    "release": leased,
    "restore": fields(
        version=count,
        apps=absent_or(mapped(record(old=maybe(count), new=maybe(count)))),
        origin=absent_or(text),
    ),
    "assess": fields(
        old=maybe(analysed),
        analysed=maybe(analysed),
        chunks=many(record(chunk=text, state=maybe(chunk_state))),
    ),
    "set_clock": fields(version=count, old=integer, new=integer),
    "advance": fields(app=text, old=maybe(count), new=count),
    "replace": fields(version=count, deletes=count),
    "update": fields(rows=count, paired=boolean),
    "merge": fields(
        version=count, chunk=text, first=count, last=count, low=count, high=count,
        inputs=many(text), rows=count, superseded=count, splits=splits,
    ),
    "set_buckets": fields(old=count, new=count),
    "origin": fields(
        id=text, old=maybe(count), version=count, commit=text,
        apps=mapped(record(old=maybe(count), done=many(array(count, count)))),
        checked=maybe(count), commits=many(array(count, text)),
    ),
}  # fmt: skip
FORMS = {name: record(action=text, **forms) for name, forms in ACTIONS.items()}


def action(value):
    """An action with its tag."""
    need(isinstance(value, dict) and value.get("action") in FORMS, "R5.3")
    FORMS[value["action"]](value)


transaction = record(
    id=hex32, operation=text, writer=text, read_version=integer, until=maybe(count),
    app=maybe(record(id=text, seq=count)), claim=maybe(record(id=text, token=count)),
    actions=many(action), spill=maybe(spill), info=mapped(text),
)  # fmt: skip
stub = record(header=header, commit=hex64)
commit = record(
    header=header,
    state=free,
    transactions=many(transaction),
    delta=record(adds=many(entry), drops=many(action), spill=maybe(spill)),
)
VALUES = {
    "layout": maybe(layout),
    "schema": maybe(schema),
    "fence": count,
    "horizon": count,
    "swept": maybe(
        record(fence=count, horizon=count, version=count, pending=maybe(spill), place=text)
    ),
    "analysed": maybe(record(version=count, policy=hex64)),
    "clock": many(record(version=count, old=integer, new=integer)),
    "cut": record(version=some, whole=count, seen=count, token=count),
}
MAPS = {
    "properties": text,
    "apps": record(seq=count, version=count, time=integer),
    "published": record(version=count, until=count),
    "claims": record(
        **span, segments=many(hex32), kind=claim_kind, priority=integer, group=text, owner=text,
        token=count, renewed=count,
    ),
    "pins": record(version=count, owner=text, token=count, time=integer),
    "replicas": record(acked=count, owner=text, token=count),
    "chunks": chunk_state,
    "origins": record(version=count, commit=hex64, token=count),
}  # fmt: skip
FIELDS = [
    "layout", "schema", "properties", "apps", "published", "claims", "pins", "replicas", "fence",
    "horizon", "swept", "chunks", "analysed", "clock", "origins", "cut",
]  # fmt: skip
DEFAULTS = {f: {} for f in MAPS} | {"fence": 0, "horizon": 0, "clock": []}
small_state = record(**{f: mapped(MAPS[f]) if f in MAPS else VALUES[f] for f in FIELDS})
leaf = record(
    sha256=hex64, size=count, first=text, end=integer, segments=count, rows=count, bytes=count,
    hash_sum=hex64, stats=stats, deleted=some, inline=some,
)  # fmt: skip
stem = record(
    sha256=hex64, size=count, leaves=some, first=text, end=integer, segments=count, rows=count,
    bytes=count, hash_sum=hex64, stats=stats, deleted=some, inline=some,
)  # fmt: skip
pack = record(first=count, last=count, sha256=hex64, size=count, segments=count, bytes=count)
root = record(
    format=text, min_reader=count, features=many(text), table=hex32, version=count, commit=hex64,
    time=integer, totals=totals, state_hash=hex64, state=small_state, segments=many(entry),
    leaves=many(leaf), stems=absent_or(many(stem)), packs=many(pack),
)  # fmt: skip
start = record(
    format=text, min_reader=count, features=many(text), table=hex32, version=count, after=integer
)
fork = record(
    format=text, min_reader=count, table=hex32, id=hex32, name=text, version=count, commit=hex64,
    held=count,
)  # fmt: skip


# --- entries --------------------------------------------------------------------------------------


@cache
def interval(name):
    """The interval of a chunk's name in ms (section 1.4), or None."""
    if name == "all":
        return MIN_MS, MAX_MS
    found = re.fullmatch(r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d))?)?)?", name, re.ASCII)
    if found is None:
        return None
    given = [int(part) for part in found.groups() if part is not None]
    try:
        low = datetime(*[*given, 1, 1][: max(3, len(given))], tzinfo=UTC)
    except ValueError:
        return None
    first = (low - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta_ms
    if len(given) > 2:
        return first, first + (86_400_000 if len(given) == 3 else 3_600_000)
    year, month = low.year, low.month
    year, month = (year + 1, 1) if len(given) == 1 or month == 12 else (year, month + 1)
    if year == 10_000:
        return first, MAX_MS
    return first, (datetime(year, month, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // (
        timedelta_ms
    )


timedelta_ms = datetime(1970, 1, 1, 0, 0, 0, 1000) - datetime(1970, 1, 1)


@cache
def chunk_of(low, high):
    """The name of the chunk of an interval, or None."""
    if (low, high) == (MIN_MS, MAX_MS):
        return "all"
    if not MIN_MS <= low < MAX_MS:
        return None
    at = datetime(1970, 1, 1, tzinfo=UTC) + low * timedelta_ms
    names = [f"{at:%Y}".zfill(4), f"{at.year:04}-{at:%m}", f"{at.year:04}-{at:%m-%d}"]
    names.append(f"{names[-1]}T{at:%H}")
    return next((name for name in names if interval(name) == (low, high)), None)


def entry_hash(one):
    """The hash of an entry as a number (R8.1)."""
    return digest(canonical(one))


def kinds_of(one):
    """By column id, whether its bounds are texts, as far as there are any."""
    return {(s[0], isinstance(b, str)) for s in one for b in s[1:3] if b is not None}


def check_entry(one):
    """Check an entry by itself."""
    hex32(one["id"])
    need(interval(one["chunk"]) is not None, "R3.2")
    need(one["epoch"] <= TOP, "R3.2")
    hex64(one["checksum"])
    columns = [s[0] for s in one["stats"]]
    need(columns == sorted(set(columns)), "2.6")
    need(len(dict(kinds_of(one["stats"]))) == len(kinds_of(one["stats"])), "R7.4")
    if one["tail"] is not None:
        hex64(one["tail"]["sha256"])
        need(one["tail"]["size"] <= one["bytes"], "2.6")
    if "vector" in one:
        need(1 <= one["vector"]["rows"] < one["rows"], "R20.2")
        need(len(one["vector"]) == 2, "R20.2")
        need(one["vector"].get("bitmap") != "", "R20.2")
        need("slice" not in one, "R20.2")
    if "inline" in one:
        need(one["inline"] <= one["version"], "2.6")
    if "stored" in one.get("vector", {}):
        at = one["vector"]["stored"]
        hex32(at["object"])
        hex64(at["hash"])
        need(at["epoch"] <= TOP, "R3.2")
        need(at["size"] >= 1, "R20.2")
    if "slice" in one:
        at = one["slice"]
        need(None not in (at["low"], at["high"], at["ordinal"]), "R15.3")
        need(at["first"] <= at["last"], "R15.3")
        need(at["low"] <= at["high"], "R15.3")
        need(at["high"] <= one["version"], "R15.3")


def gone_of(one):
    """The number of rows of an entry that are deleted."""
    return one["vector"]["rows"] if "vector" in one else 0


def sums_of(entries):
    """The totals of entries (section 2.2)."""
    deleted = sum(map(gone_of, entries))
    rows, size = (sum(one[name] for one in entries) for name in ("rows", "bytes"))
    made = {"segments": len(entries), "rows": rows - deleted, "bytes": size}
    inline = sum("inline" in one for one in entries)
    made |= {"deleted": deleted} if deleted else {}
    return made | ({"inline": inline} if inline else {})


def order(one):
    """The place of an entry in a key frame (R9.1)."""
    return (*interval(one["chunk"]), one["id"])


def rises(places):
    """Whether each is greater than the one before."""
    return all(a < b for a, b in pairwise(places))


# --- leaves and spills ----------------------------------------------------------------------------

INT, TEXT, FLAG, NONE = "INT64 None", "BYTE_ARRAY String", "BOOLEAN None", "INT32 Null"
FIXED = {
    "chunk_start": INT, "chunk_end": INT, "id": "FIXED_LEN_BYTE_ARRAY(16) None", "epoch": INT,
    "version": INT, "partition": INT, "rows": INT, "bytes": INT,
    "checksum": "FIXED_LEN_BYTE_ARRAY(32) None", "schema": INT,
    "hash": "FIXED_LEN_BYTE_ARRAY(32) None", "tail_size": INT,
    "tail_sha256": "FIXED_LEN_BYTE_ARRAY(32) None",
}  # fmt: skip
SLICE = {"slice_kind": TEXT} | {
    f"slice_{n}": INT for n in ("first", "last", "low", "high", "level", "ordinal")
}
SPLITS = {"slice_splits": INT}
STORED = {f"vector_{n}": INT for n in ("epoch", "object", "offset", "size", "hash")}
STORED |= {"vector_object": FIXED["id"], "vector_hash": FIXED["hash"]}
VECTOR = {"vector_rows": INT, "vector_bitmap": "BYTE_ARRAY None"} | STORED
INLINE = {"inline": INT}
ORDERS = [
    *([*FIXED], [*FIXED, *VECTOR], [*FIXED, *SLICE]),
    [*FIXED, *SLICE, *SPLITS],
]
PLACE = ("chunk_start", "chunk_end", "id")
NULLABLE = ("tail_size", "tail_sha256")


def frame(body, rows, *, spilled):
    """The rows of a leaf or a spill, as dicts."""
    try:
        file = pq.ParquetFile(io.BytesIO(body))
        need(file.metadata.num_rows == rows, "R9.6")
        kinds = [column_kind(file.schema.column(n)) for n in range(len(file.schema))]
        check_columns(kinds, spilled=spilled)
        table = file.read(use_threads=False)
        table.validate(full=True)
        return table.to_pylist()
    except (pa.ArrowException, OSError, ValueError):
        raise Refused("R9.3") from None


def column_kind(column):
    """The path of a Parquet column and its type."""
    length = f"({column.length})" if column.physical_type.startswith("FIXED") else ""
    repeated = " repeated" if column.max_repetition_level or column.max_definition_level > 1 else ""
    return column.path, f"{column.physical_type}{length} {column.logical_type}{repeated}"


def check_columns(kinds, *, spilled):
    """Check the columns of a leaf or a spill, and their types (R9.3)."""
    names = [name for name, _ in kinds]
    need(len(set(names)) == len(names), "R9.3")
    need(("drop" in names) == spilled, "R6.4")
    known = FIXED | SLICE | SPLITS | VECTOR | INLINE
    ordered = [name for name in names if name in known]
    need("inline" not in ordered[:-1], "R9.3")
    need([name for name in ordered if name != "inline"] in ORDERS, "R9.3")
    triples = [n for n in names if n not in known and n != "drop"]
    ids = {n.removeprefix("nulls_") for n in triples if n.startswith("nulls_")}
    need(all(re.fullmatch(r"0|[1-9]\d*", n, re.ASCII) for n in ids), "R9.3")
    wanted = {f"{stem}_{n}" for n in ids for stem in ("min", "max", "nulls")}
    need(set(triples) == wanted, "R9.3")
    kinds = dict(kinds)
    fixed = known | {"drop": FLAG} | {f"nulls_{n}": INT for n in ids}
    need(all(kinds[name] == kind for name, kind in fixed.items() if name in kinds), "R9.3")
    for n in ids:
        both = [kinds[f"{stem}_{n}"] for stem in ("min", "max")]
        need({*both} <= {INT, TEXT, NONE}, "R9.3")
        need(not {INT, TEXT} <= {*both}, "R7.4")


def check_row(row, *, spilled):
    """Check what the columns of a row say by themselves; of an add or an entry."""
    needed = [n for n in FIXED if n not in NULLABLE]
    if spilled:
        needed = [n for n in needed if n not in ("hash", "version", "partition")]
    need(all(row[name] is not None for name in needed), "R6.4" if spilled else "R9.3")
    numbers = [n for n, v in row.items() if type(v) is int and not n.startswith(("min_", "max_"))]
    need(all(row[n] >= 0 for n in numbers if n not in PLACE), "R5.2")
    need((row["tail_size"] is None) == (row["tail_sha256"] is None), "R9.3")
    parts = [row.get(name) is not None for name in STORED]
    need(all(parts) or not any(parts), "R9.3")
    places = any(parts) + (row.get("vector_bitmap") is not None)
    need(places == (row.get("vector_rows") is not None), "R9.3")
    parts = [row.get(name) for name in SLICE]
    left = ("slice_low", "slice_high", "slice_ordinal") if spilled else ()
    always = [row.get(name) for name in SLICE if name not in left]
    need(all(v is None for v in parts) or None not in always, "R9.3")
    need((row.get("slice_low") is None) == (row.get("slice_high") is None), "R6.4")
    if row.get("slice_kind") is not None:
        need(row["slice_kind"] in ("base", "late", "log"), "R15.3")
        need(row.get("slice_splits") is None or 1 <= row["slice_splits"] <= 12, "R5.2")
    else:
        need(row.get("slice_splits") is None, "R6.4")


def entry_of(row):
    """The entry of a row of a leaf or spill (R9.3)."""
    ids = sorted(int(n.removeprefix("nulls_")) for n in row if n.startswith("nulls_"))
    made = {"id": row["id"].hex(), "chunk": chunk_of(row["chunk_start"], row["chunk_end"])}
    made |= {n: row[n] for n in ("epoch", "version", "partition", "rows", "bytes")}
    made |= {"checksum": row["checksum"].hex(), "schema": row["schema"]}
    triple = lambda n: [n, *(row[f"{stem}_{n}"] for stem in ("min", "max", "nulls"))]
    made["stats"] = [triple(n) for n in ids if row[f"nulls_{n}"] is not None]
    size = row["tail_size"]
    made["tail"] = None if size is None else {"size": size, "sha256": row["tail_sha256"].hex()}
    if row.get("slice_kind") is not None:
        made["slice"] = {n.removeprefix("slice_"): row[n] for n in SLICE}
        if row.get("slice_splits") is not None:
            made["slice"]["splits"] = row["slice_splits"]
    if row.get("vector_rows") is not None:
        plain = lambda value: value.hex() if isinstance(value, bytes) else value
        made["vector"] = {"rows": row["vector_rows"]}
        if row["vector_bitmap"] is not None:
            made["vector"]["bitmap"] = base64.b64encode(row["vector_bitmap"]).decode()
        else:
            at = {n.removeprefix("vector_"): plain(row[n]) for n in STORED}
            made["vector"]["stored"] = at
    if row.get("inline") is not None:
        made["inline"] = row["inline"]
    return made


def entries_of_leaf(body, said):
    """The entries of a leaf, which the root describes, by the hashes that it has (R9.6)."""
    need(sha256(body) == said["sha256"], "R9.6")
    need(len(body) == said["size"], "R9.6")
    rows = frame(body, said["segments"], spilled=False)
    made = {}
    for row in rows:
        check_row(row, spilled=False)
        need(chunk_of(row["chunk_start"], row["chunk_end"]) is not None, "R9.3")
        one = entry_of(row)
        check_entry(one)
        need(int.from_bytes(row["hash"]) == entry_hash(one), "R9.8")
        made[int.from_bytes(row["hash"])] = one
    found = [*made.values()]
    total = sum(int.from_bytes(row["hash"]) for row in rows) % PRIME
    need(f"{total:064x}" == said["hash_sum"], "R9.6")
    need(f"{found[0]['chunk']}/{found[0]['id']}" == said["first"], "R9.6")
    need(max(row["chunk_end"] for row in rows) == said["end"], "R9.6")
    need(sum(row["rows"] for row in rows) == said["rows"], "R9.6")
    need(sum(row["bytes"] for row in rows) == said["bytes"], "R9.6")
    need(sum(map(gone_of, found)) == said.get("deleted", 0), "R9.6")
    need(sum("inline" in one for one in found) == said.get("inline", 0), "R9.6")
    need(rises([order(one) for one in found]), "R9.1")
    for column, low, high, nulls in said["stats"]:
        check_bounds(column, low, high, nulls, found)
    return made


def leaves_of_stem(body, said):
    """The descriptions of leaves in a stem, whose sums are in the root (2.9.1, R9.9)."""
    need(sha256(body) == said["sha256"], "R9.6")
    need(len(body) == said["size"], "R9.6")
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            found = stream.read(64 * MIB + 1)
    except (pa.ArrowException, OSError):
        raise Refused("2.9.1") from None
    made = strict(loaded(found, 64 * MIB)[0], many(leaf))
    need(made, "2.9.1")
    check_pieces(made)
    need(len(made) == said["leaves"], "R9.9")
    need(made[0]["first"] == said["first"], "R9.9")
    need(max(one["end"] for one in made) == said["end"], "R9.9")
    for name in ("segments", "rows", "bytes", "deleted", "inline"):
        need(sum(one.get(name, 0) for one in made) == said.get(name, 0), "R9.9")
    total = sum(int(one["hash_sum"], 16) for one in made) % PRIME
    need(f"{total:064x}" == said["hash_sum"], "R9.9")
    need(common_stats(made) == said["stats"], "R9.9")
    return made


def common_stats(leaves):
    """The statistics that all of these leaves have (R9.9)."""
    made = []
    for column in sorted({s[0] for one in leaves for s in one["stats"]}):
        mine = [s for one in leaves for s in one["stats"] if s[0] == column]
        lows, highs = ([s[side] for s in mine if s[side] is not None] for side in (1, 2))
        kinds = {isinstance(b, str) for b in lows + highs}
        if len(mine) == len(leaves) and len(kinds) < 2:
            low, high = min(lows, default=None), max(highs, default=None)
            made.append([column, low, high, sum(s[3] for s in mine)])
    return made


def check_bounds(column, low, high, nulls, made):
    """Check that a root's bounds of a column enclose the entries of its leaf (R9.2)."""
    mine = [s for one in made for s in one["stats"] if s[0] == column]
    need(sum(s[3] for s in mine) == nulls, "R9.2")
    unsaid = [one for one in made if column not in [s[0] for s in one["stats"]]]
    need(not unsaid, "R9.2")
    for said, side, worse in ((low, 1, min), (high, 2, max)):
        held = [s[side] for s in mine if s[side] is not None]
        need((said is None) == (not held), "R9.2")
        if said is not None:
            alike = all(isinstance(b, str) == isinstance(said, str) for b in held)
            need(alike and worse(said, worse(held)) == said, "R9.2")
    full = all(
        (s[1] is not None and s[2] is not None) or s[3] == one["rows"]
        for one in made
        for s in one["stats"]
        if s[0] == column
    )
    need(full, "R9.2")


# --- the small state ------------------------------------------------------------------------------


def patched(before, diff):
    """The small state with a commit's `state` applied (section 2.4)."""
    need(isinstance(diff, dict), "R5.2")
    need([f for f in FIELDS if f in diff] == [*diff], "R6.5")
    after = dict(before)
    for field, change in diff.items():
        if field not in MAPS:
            VALUES[field](change)
            need(change != before[field], "R6.5")
            after[field] = change
            continue
        mapped(maybe(MAPS[field]))(change)
        need(change != {}, "R6.5")
        need(all(before[field].get(name) != value for name, value in change.items()), "R6.5")
        merged = before[field] | change
        after[field] = {name: value for name, value in merged.items() if value is not None}
    return after


def state_sum(state):
    """The sum of the hashes of the parts of the small state (R8.2)."""
    total = 0
    for field, value in state.items():
        if field in MAPS:
            total += sum(digest(canonical([field, name, v])) for name, v in value.items())
        elif value != DEFAULTS.get(field):
            total += digest(canonical([field, None, value]))
    return total


def whole_state(given=None):
    """The small state with every field."""
    return {f: (given or {}).get(f, DEFAULTS.get(f)) for f in FIELDS}


# --- reading --------------------------------------------------------------------------------------


class Version:
    """A version: its header, its commit hash, the small state, and its live entries by hash."""

    def __init__(self, head, commit_hash, state, live, base):
        self.header, self.commit_hash, self.state = head, commit_hash, state
        self.live, self.base = live, base


class Reader:
    """Reads a table, or a branch of it.

    Args:
        objects: bytes by key.
        branches: the names of the branches from the first one below the table.
    """

    def __init__(self, objects, branches=()):
        self.objects, self.table, self.forks = objects, None, []
        self.levels = [("", -1)]
        for name in branches:
            above = self.levels[0][0]
            body = objects.get(f"{above}_branches/{name}/_fork.json")
            if body is None:
                raise KeyError(name)
            told = fork_of(body, name)
            self.forks.append(told)
            self.levels.insert(0, (f"{above}_branches/{name}/{told['id']}/", told["version"]))

    # Where objects lie (R16.3).

    def places(self, key):
        """The full keys of an object, the first one that counts first."""
        folder, _, rest = key.partition("/")
        for prefix, forked in self.levels:
            if folder == "_frames":
                yield prefix + key
                continue
            if folder in ("_log", "_packs", "_starts"):
                inherited = TOP - int(rest[:12]) <= forked
            else:
                inherited = folder == "data" and int(rest[:12]) < forked
            if not inherited:
                yield prefix + key
                return

    def get(self, key):
        """The bytes of an object; None: there is none."""
        return next((self.objects[p] for p in self.places(key) if p in self.objects), None)

    def listed(self, folder, pattern):
        """The versions of the keys in a folder that parse, the newest first."""
        found = set()
        for key in self.objects:
            for prefix, _ in self.levels:
                match = re.fullmatch(re.escape(f"{prefix}{folder}/") + pattern, key, re.ASCII)
                if match and key in self.places(key.removeprefix(prefix)):
                    found.add(TOP - int(match[1]))
        return sorted(found, reverse=True)

    # Commits, roots, starts.

    def commit(self, version):
        """The commit of a version, and its hash."""
        body = self.get(f"_log/{TOP - version:012d}.json")
        need(body is not None, "R6.3")
        whole, value = loaded(body, 8 * MIB)
        need(isinstance(value, dict), "R5.4")
        gate(value.get("header"))
        plain = unsealed(whole)
        end = header_end(plain)
        need(end is not None and len(whole[:end].encode()) <= 2048, "R6.1")
        bare = unsealed(plain[len('{"header":') : end])
        if plain[end:].startswith(',"commit":'):  # R22.2
            made = strict('{"header":' + bare + plain[end:], stub)
            check_header(made["header"], version)
            self.check_table(made["header"]["table"])
            return None, made["commit"]
        made = strict('{"header":' + bare + plain[end:], commit)
        check_commit(made, version)
        self.check_table(made["header"]["table"])
        for told in self.forks:
            if told["version"] == version:
                need(sha256(body) == told["commit"], "R16.4")
                need(made["header"]["table"] == told["table"], "R16.4")
        return made, sha256(body)

    def check_table(self, table):
        """Check that a commit is of the table that is being read (R10.1)."""
        self.table = self.table or table
        need(table == self.table, "R10.1")

    def root(self, version):
        """The root of the key frame of a version."""
        body = self.get(f"_log/{TOP - version:012d}.keyframe.json")
        need(body is not None, "R9.6")
        whole, value = loaded(body, 64 * MIB)
        gate(value)
        made = strict(unsealed(whole), root)
        check_root(made, version)
        return made

    def starts(self):
        """The gaps that a replica has, as the versions around them (R17.4)."""
        found = []
        for version in self.listed("_starts", r"(\d{12})\.json"):
            body = self.get(f"_starts/{TOP - version:012d}.json")
            whole, value = loaded(body, 4 * KIB)
            gate(value)
            made = strict(unsealed(whole), start)
            check_features(made["features"])
            need(made["version"] == version, "7")
            need(-1 <= made["after"] < version, "7")
            need(made["table"] == self.table, "7")
            found.append((made["after"], version))
        return found

    def check_chain(self, version):
        """Check that a commit follows the one before it, or its stub (R6.2)."""
        _, before = self.commit(version - 1)
        made, _ = self.commit(version)
        whole(made is not None)
        need(made["header"]["prev"] == before, "R6.2")

    def newest(self):
        """The newest version (R3.1), after a look for gaps (R6.3)."""
        every = self.listed("_log", r"(\d{12})\.json")
        framed = self.listed("_log", r"(\d{12})\.keyframe\.json")
        if self.forks:  # R16.4
            need(every and every[0] >= self.forks[-1]["version"], "R16.4")
        if not every:
            raise KeyError("no table")
        page = sorted([*every, *framed], reverse=True)[:16]  # of a LIST
        versions = [version for version in every if version >= page[-1]]
        whole = [*versions, -1] if len(versions) == len(every) else versions
        gaps = [(low, high) for high, low in pairwise(whole) if high - low > 1]
        if gaps:
            self.commit(versions[0])
            known = self.starts()
            for low, high in gaps:
                need(any(a <= low and high <= b for a, b in known), "R6.3")
        return versions[0]

    # Versions.

    def head(self):
        """The newest version, over its own key frame if there is one."""
        version = self.newest()
        made, commit_hash = self.commit(version)
        if version in self.listed("_log", r"(\d{12})\.keyframe\.json"):
            try:
                return self.over_own(made["header"], commit_hash)
            except (Refused, Unsupported):
                pass
        return self.resolved(made, commit_hash)

    def open(self, version):
        """A version, over the key frame that it names, its own, or an older one."""
        made, commit_hash = self.commit(version)
        whole(made is not None)
        return self.resolved(made, commit_hash)

    def over_own(self, head, commit_hash):
        """The version of a root itself."""
        found = self.root(head["version"])
        need(found["table"] == head["table"], "R9.6")
        need(found["commit"] == commit_hash, "R9.6")
        need(found["time"] == head["time"], "R9.6")
        need(found["totals"] == head["totals"], "R9.6")
        need(found["state_hash"] == head["state_hash"], "R9.6")
        live = self.live_of(found)
        return Version(head, commit_hash, whole_state(found["state"]), live, head["version"])

    def live_of(self, found):
        """The entries of a root, by hash."""
        made = {entry_hash(one): one for one in found["segments"]}
        leaves = [*found["leaves"]]
        for one in found.get("stems", []):
            body = self.get(f"_frames/{one['sha256']}.json.zst")
            need(body is not None, "R9.6")
            leaves += leaves_of_stem(body, one)
        for one in leaves:
            body = self.get(f"_frames/{one['sha256']}.parquet")
            need(body is not None, "R9.6")
            made |= entries_of_leaf(body, one)
        return made

    def resolved(self, made, commit_hash):
        """The version of a commit (section 4.1)."""
        head = made["header"]
        delta = self.delta(made)
        below = head["keyframe"]
        if below is None:
            return applied(made, commit_hash, Version(head, None, whole_state(), {}, None), delta)
        try:
            found = self.root(below)
            need(found["table"] == head["table"], "R9.6")
            base = Version(found, None, whole_state(found["state"]), self.live_of(found), below)
            return applied(made, commit_hash, base, delta)
        except (Refused, Unsupported):
            pass
        older, older_hash = self.commit(below)
        if older is None:  # R22.4
            return self.over_own(head, commit_hash)
        if below == head["version"] - 1:
            need(older_hash == head["prev"], "4.1")
        return applied(made, commit_hash, self.resolved(older, older_hash), delta)

    def delta(self, made):
        """The adds and drops of a commit's delta, spilled or not (R6.4, R6.6)."""
        head, said = made["header"], made["delta"]
        adds, drops = said["adds"], said["drops"]
        if said["spill"] is not None:
            adds, drops = self.spilled(said["spill"], head["version"])
        for one in adds:
            check_entry(one)
        for drop in drops:
            hex32(drop["id"])
            need(interval(drop["chunk"]) is not None, "R5.2")
            hex64(drop["hash"])
        base = -1 if head["keyframe"] is None else head["keyframe"]
        dropped = {drop["id"] for drop in drops}
        fresh = [one for one in adds if one["id"] not in dropped or "vector" not in one]
        need(all(base < one["version"] for one in fresh), "R6.6")
        need(all(one["version"] <= head["version"] for one in adds), "R6.6")
        need(rises([(one["version"], one["partition"]) for one in adds]), "R6.6")
        need(rises([(drop["chunk"].encode(), drop["id"]) for drop in drops]), "R6.6")
        for listed in (adds, drops):
            need(len({one["id"] for one in listed}) == len(listed), "R6.6")
        return adds, drops

    def spilled(self, said, version):
        """The adds and drops in a spill of a delta (R6.4)."""
        body = self.get(f"_frames/{said['sha256']}.parquet")
        need(body is not None, "R6.4")
        need(sha256(body) == said["sha256"], "R6.4")
        need(len(body) == said["size"], "R6.4")
        need("vectors" not in said, "R6.4")
        rows = frame(body, said["adds"] + said["drops"], spilled=True)
        need(all(row["drop"] is not None for row in rows), "R6.4")
        added = [row for row in rows if not row["drop"]]
        need(len(added) == said["adds"], "R6.4")
        need(all(chunk_of(r["chunk_start"], r["chunk_end"]) for r in rows), "R6.4")
        gone = []
        for row in (row for row in rows if row["drop"]):
            need(all(row[name] is not None for name in (*PLACE, "hash")), "R6.4")
            others = [n for n in row if n not in (*PLACE, "hash", "drop")]
            need(all(row[name] is None for name in others), "R6.4")
            chunk = chunk_of(row["chunk_start"], row["chunk_end"])
            gone.append({"id": row["id"].hex(), "chunk": chunk, "hash": row["hash"].hex()})
        own = [row for row in added if row["version"] in (None, version)]
        for row in added:
            check_row(row, spilled=True)
            need((row["version"] is None) == (row["partition"] is None), "R6.4")
            need(row["hash"] is None, "R6.4")
        need(len({row["version"] for row in own}) < 2, "R6.4")
        for number, row in enumerate(own):
            if row["version"] is None:
                row |= {"version": version, "partition": number}
        for row in added:
            if row.get("slice_kind") is not None:
                filled = {"slice_low": version, "slice_high": version}
                filled["slice_ordinal"] = row["partition"]
                row |= {name: value for name, value in filled.items() if row[name] is None}
        return [entry_of(row) for row in added], gone

    # Rows.

    def rows(self, version, newest):
        """The rows of a version as a table; of a keyed table nothing, after the same checks.

        Args:
            version: the version.
            newest: the newest version that is known.
        """
        need(newest.state["horizon"] <= newest.header["version"], "R12.1")
        if version.header["version"] < newest.state["horizon"]:
            raise Vacuumed("R12.7")
        arranged, columns = version.state["layout"], version.state["schema"]
        inner = [field for column in columns["columns"] for field in inside_of(column["type"])]
        numbers = [one["id"] for one in (*columns["columns"], *inner)]
        need(len({*numbers}) == len(numbers), "R7.2")
        need({*columns.get("retired", [])}.isdisjoint(numbers), "R7.2")
        need(all(0 < number < VERSION_ID for number in numbers), "R7.2")
        known = {column["id"] for column in columns["columns"]}
        timed = [arranged["time_column"]] if "time_column" in arranged else []
        need({*timed, *arranged["order_by"]} <= known, "4.3")
        need(timed or arranged["granularity"] == "all", "R7.14")
        structs = [one["type"].get("struct") for one in inner if isinstance(one["type"], dict)]
        structs += [
            c["type"].get("struct") for c in columns["columns"] if isinstance(c["type"], dict)
        ]
        for named in (columns["columns"], *(one for one in structs if one)):
            need(len({lower(one["name"]) for one in named}) == len(named), "R7.2")
        keyed = arranged.get("keyed")
        if keyed is not None:
            check_fit(arranged, columns["columns"])
            for one in version.live.values():
                need("slice" in one, "R15.3")
                more = keyed.get("splits", 0) - one["slice"].get("splits", 0)
                need(more >= 0, "R15.15")
                need((one["slice"]["last"] + 1 << max(more, 0)) <= keyed["buckets"], "R15.3")
            for chunk in {one["chunk"] for one in version.live.values()}:
                here = [one["slice"] for one in version.live.values() if one["chunk"] == chunk]
                for number in range(keyed["buckets"]):
                    check_order(here, number, keyed.get("splits", 0))
        try:
            parts = [self.segment(one, columns["columns"], keyed) for one in version.live.values()]
        except Lost:
            if self.forks and version.header["version"] < self.forks[-1]["held"]:
                raise Vacuumed("R16.8") from None
            raise
        return pa.concat_tables(parts) if parts and keyed is None else None

    def segment(self, one, columns, keyed):
        """The rows of a segment, in the columns of the table."""
        deleted = self.deleted(one) if "vector" in one else []
        body = self.object(one)
        intact(body is not None, "R7.7")
        intact(len(body) == one["bytes"], "2.10")
        check_bytes(body, one)
        try:
            table = pq.ParquetFile(pa.BufferReader(body)).read(use_threads=False)
        except (pa.ArrowException, OSError, ValueError):
            raise Lost("4.3") from None
        intact(table.num_rows == one["rows"], "2.10")
        made = []
        found = by_id(table)
        if keyed is not None and OP_ID in found:
            intact(set(found[OP_ID].to_pylist()) <= {None, "u", "d"}, "R15.6")
        for column in columns:
            intact(column["id"] in found or column["nullable"], "4.3")
            there = found.get(column["id"])
            if there is None and "initial" in column:
                value = default_of(column["type"], column["initial"])
                kind = arrow_of(column["type"])
                there = pa.chunked_array([pa.array([value] * table.num_rows, kind)])
            elif there is not None and isinstance(column["type"], dict):
                there = rebuilt(there, column["type"])
            made.append(there)
        if keyed is not None:
            return None
        blank = [pa.nulls(table.num_rows) if values is None else values for values in made]
        names = [column["name"] for column in columns]
        found = pa.table(blank, names)
        kinds = [arrow_of(column["type"]) for column in columns]
        typed = [f.type if k is None else k for f, k in zip(found.schema, kinds, strict=True)]
        found = found.cast(pa.schema([*zip(names, typed, strict=True)]))
        kept = [True] * found.num_rows
        for position in deleted:
            kept[position] = False
        return found.filter(pa.array(kept, pa.bool_()))

    def object(self, one):
        """The bytes of a segment's object, wherever they are (R21.2); None if nowhere."""
        inside = self.get(f"_log/{TOP - one['inline']:012d}.json") if "inline" in one else None
        for txn in json.loads(inside)["transactions"] if inside else []:
            for add in txn["actions"]:
                body = base64.b64decode(add.get("parquet", ""))
                if sha256(body) == one["checksum"]:
                    return body
        return self.get(f"data/{one['epoch']:012d}/{one['chunk']}/{one['id']}.parquet")

    def deleted(self, one):
        """The positions of the rows of a segment that its vector deletes (R20.1)."""
        said = one["vector"]
        if "stored" in said:
            at = said["stored"]
            body = self.get(f"data/{at['epoch']:012d}/vectors/{at['object']}.roaring")
            intact(body is not None, "R20.1")
            bitmap = body[at["offset"] :][: at["size"]]
            intact(sha256(bitmap) == at["hash"], "R20.1")
        else:
            bitmap = base64.b64decode(said["bitmap"])
        try:
            positions = bitmap64(bitmap)
        except (struct.error, IndexError):
            raise Lost("R20.1") from None
        intact(len(positions) == said["rows"], "R20.2")
        intact(rises(positions) and positions[-1] < one["rows"], "R20.2")
        return positions


def bitmap64(body):
    """The numbers of a 64-bit Roaring bitmap (R20.1)."""
    (parts,) = struct.unpack_from("<Q", body)
    at, found = 8, []
    for _ in range(parts):
        (high,) = struct.unpack_from("<I", body, at)
        low, at = bitmap32(body, at + 4)
        found += [(high << 32) + number for number in low]
    if at != len(body):
        raise IndexError("more bytes than the bitmap has")
    return found


def bitmap32(body, at):
    """The numbers of a 32-bit Roaring bitmap at an offset, and the offset where it ends."""
    (cookie,) = struct.unpack_from("<I", body, at)
    runs = b""
    if cookie & 0xFFFF == 12347:
        size = (cookie >> 16) + 1
        runs = body[at + 4 : at + 4 + (size + 7) // 8]
        at += 4 + len(runs)
    elif cookie == 12346:
        (size,) = struct.unpack_from("<I", body, at + 4)
        at += 8
    else:
        raise IndexError("neither of the two cookies")
    heads = [struct.unpack_from("<HH", body, at + 4 * n) for n in range(size)]
    at += 4 * size + (0 if runs and size < 4 else 4 * size)  # offsets, which are not needed
    found = []
    for n, (key, fewer) in enumerate(heads):
        if runs and runs[n // 8] >> n % 8 & 1:
            (count_of_runs,) = struct.unpack_from("<H", body, at)
            pairs = struct.unpack_from(f"<{2 * count_of_runs}H", body, at + 2)
            low = [v for a, b in zip(*[iter(pairs)] * 2, strict=True) for v in range(a, a + b + 1)]
            at += 2 + 4 * count_of_runs
        elif fewer < 4096:
            low = struct.unpack_from(f"<{fewer + 1}H", body, at)
            at += 2 * (fewer + 1)
        else:
            words = struct.unpack_from("<1024Q", body, at)
            low = [
                64 * w + bit for w, word in enumerate(words) for bit in range(64) if word >> bit & 1
            ]
            at += 8192
        found += [(key << 16) + number for number in low]
    return found, at


def by_id(table):
    """The columns of a file by their field ids."""
    found = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        number = (field.metadata or {}).get(b"PARQUET:field_id")
        intact(number is not None, "R7.10")
        intact(int(number) not in found, "4.3")
        found[int(number)] = column
    return found


def default_of(kind, encoded):
    """The value that a default stands for (R7.12)."""
    if kind in ("float32", "float64"):
        bits = encoded if encoded >= 0 else encoded ^ 0x7FFF_FFFF_FFFF_FFFF
        return struct.unpack(">d", struct.pack(">q", bits))[0]
    if kind.startswith("decimal"):
        scale = int(re.findall(r"\d+", kind)[1])
        return Decimal((int(encoded.startswith("-")), [*map(int, encoded.lstrip("-"))], -scale))
    if kind == "binary":
        return bytes.fromhex(encoded)
    return encoded // 86_400_000_000 if kind == "date" else encoded


def number_of(field):
    """The id of a field of a file."""
    return int((field.metadata or {}).get(b"PARQUET:field_id", -1))


def ends_of(stored, kind):
    """The ids of elements, keys and values in a file and in the table, at any depth."""
    if isinstance(kind, str):
        return
    if "struct" in kind:
        there = {number_of(field): field.type for field in stored}
        parts = [(there.get(part["id"]), part) for part in kind["struct"]]
    else:
        fields = [stored.value_field] if "list" in kind else [stored.key_field, stored.item_field]
        inner = [kind["list"]] if "list" in kind else kind["map"]
        yield from ((number_of(f), part["id"]) for f, part in zip(fields, inner, strict=True))
        parts = [(f.type, part) for f, part in zip(fields, inner, strict=True)]
    for inner_type, part in parts:
        if inner_type is not None:
            yield from ends_of(inner_type, part["type"])


def rebuilt(column, kind):
    """A nested column with the fields of the table, found by id."""
    stored = column.type
    intact(all(there == wanted for there, wanted in ends_of(stored, kind)), "R7.10")
    values = [made(value, stored, kind) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(values, nested(kind))])


def made(value, stored, kind):
    """A value of the type of a file as one of the table's type."""
    if value is None or isinstance(kind, str):
        return value
    if "list" in kind:
        return [made(one, stored.value_type, kind["list"]["type"]) for one in value]
    if "map" in kind:
        types = [*zip((stored.key_type, stored.item_type), kind["map"], strict=True)]
        return [
            tuple(made(v, t, part["type"]) for v, (t, part) in zip(pair, types, strict=True))
            for pair in value
        ]
    there = {number_of(field): field for field in stored}
    return {
        part["name"]: None
        if part["id"] not in there
        else made(value[there[part["id"]].name], there[part["id"]].type, part["type"])
        for part in kind["struct"]
    }


def nested(kind):
    """The Arrow type of any column type."""
    if isinstance(kind, str):
        return arrow_of(kind)
    if "list" in kind:
        return pa.list_(nested(kind["list"]["type"]))
    if "map" in kind:
        return pa.map_(*(nested(part["type"]) for part in kind["map"]))
    return pa.struct([(part["name"], nested(part["type"])) for part in kind["struct"]])


def inside_of(kind):
    """The fields inside of a column type."""
    if isinstance(kind, dict):
        for parts in kind.values():
            for part in parts if isinstance(parts, list) else [parts]:
                yield part
                yield from inside_of(part["type"])


def applied(made, commit_hash, base, delta):
    """A version, given the one that its delta starts from."""
    head, live, (adds, drops) = made["header"], base.live, delta
    state = patched(base.state, made["state"])
    hashes = {int(drop["hash"], 16): drop for drop in drops}
    new = {entry_hash(one): one for one in adds}
    need(not hashes.keys() & new.keys(), "R6.6")
    need(all(number in live for number in hashes), "4.1")
    for number, drop in hashes.items():
        one = live.get(number, drop)
        need(one["id"] == drop["id"], "R6.6")
        need(one["chunk"] == drop["chunk"], "R6.6")
    left = {number: one for number, one in live.items() if number not in hashes} | new
    total = (state_sum(state) + sum(live) - sum(hashes) + sum(new)) % PRIME
    need(f"{total:064x}" == head["state_hash"], "R9.6")
    number = len(live) - len(hashes) + len(new)
    need(sums_of([*left.values()]) | {"segments": number} == head["totals"], "R9.6")
    kinds = set().union(*(kinds_of(one["stats"]) for one in left.values()))
    need(len(dict(kinds)) == len(kinds), "R7.4")
    return Version(head, commit_hash, state, left, base.base)


def arrow_of(kind):
    """The Arrow type of a column; None where a table of these tests has no null column of it."""
    plain = {
        "bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(),
        "int64": pa.int64(), "float32": pa.float32(), "float64": pa.float64(),
        "string": pa.string(), "binary": pa.binary(), "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    }  # fmt: skip
    if isinstance(kind, dict):
        return None
    if kind.startswith("decimal"):
        return pa.decimal128(*map(int, re.findall(r"\d+", kind)))
    return plain[kind]


def fork_of(body, name):
    """Where a branch forks (section 6.1)."""
    whole, value = loaded(body, 4 * KIB)
    gate(value)
    made = strict(unsealed(whole), fork)
    need(made["name"] == name, "6.1")
    need(made["held"] <= made["version"], "6.1")
    return made


def header_end(plain):
    """Where the header of a commit ends, by its brackets (R6.1)."""
    if not plain.startswith('{"header":{'):
        return None
    level = 0
    for match in re.finditer(r'"(?:[^"\\]|\\.)*"|[{}]', plain[len('{"header":') :]):
        level += {"{": 1, "}": -1}.get(match[0], 0)
        if not level:
            return len('{"header":') + match.end()
    return None


def check_features(named):
    """Check the order of features (R5.4)."""
    need(rises(named), "R5.4")


def check_commit(made, version):
    """Check a commit by itself (section 4.1)."""
    check_header(made["header"], version)
    need(made["transactions"], "2.1")
    for one in made["transactions"]:
        need(one["read_version"] >= -1, "R5.2")
        need(one["read_version"] < version, "R5.2")
    need(all(drop["action"] == "drop" for drop in made["delta"]["drops"]), "2.5")
    listed = made["delta"]["adds"] or made["delta"]["drops"]
    need(not (made["delta"]["spill"] and listed), "2.5")


def check_header(head, version):
    """Check the header of a commit or of its stub."""
    need(head["version"] == version, "2.2")
    check_features(head["features"])
    if "write_features" in head:
        need(head["write_features"], "R5.4")
        check_features(head["write_features"])
    need(("vectors" in head["features"]) == ("deleted" in head["totals"]), "R20.4")
    need(("inline" in head["features"]) == ("inline" in head["totals"]), "R21.3")
    need(MIN_MS <= head["time"] < MAX_MS, "2.2")
    need((head["prev"] is None) == (version == 0), "2.2")
    need(head["keyframe"] is None or head["keyframe"] < version, "2.2")


def check_pieces(pieces):
    """Check what is said of leaves or stems, without reading them (4.4)."""
    for one in pieces:
        chunk, slash, number = one["first"].partition("/")
        need(slash and interval(chunk) is not None and is_hex(number, 32), "2.9")
        need(one["segments"] >= 1, "2.9")
        need(interval(chunk)[1] <= one["end"] <= MAX_MS, "2.9")
        columns = [s[0] for s in one["stats"]]
        need(columns == sorted(set(columns)), "2.9")
        need(len(dict(kinds_of(one["stats"]))) == len(kinds_of(one["stats"])), "R7.4")
    places = [one["first"].split("/") for one in pieces]
    need(rises([(*interval(chunk), number) for chunk, number in places]), "R9.1")


def check_root(made, version):
    """Check a root by itself (R9.1, R9.6)."""
    need(made["version"] == version, "2.9")
    check_features(made["features"])
    need(("vectors" in made["features"]) == ("deleted" in made["totals"]), "R20.4")
    need(("inline" in made["features"]) == ("inline" in made["totals"]), "R21.3")
    need(made.get("packs") != [], "R5.1")
    for one in made.get("packs", []):
        need(one["first"] <= one["last"] <= version, "R21.4")
        need(one["segments"] >= 1, "R21.4")
    need(rises([(one["last"], one["sha256"]) for one in made.get("packs", [])]), "R21.4")
    need(MIN_MS <= made["time"] < MAX_MS, "2.9")
    need(made["state"].get("origins") != {}, "R5.1")
    pieces = [*made["leaves"], *made.get("stems", [])]
    need(made.get("stems") != [], "R5.1")
    ways = [made["segments"], made["leaves"], made.get("stems")]
    need(len([way for way in ways if way]) <= 1, "R9.1")
    for one in made["segments"]:
        check_entry(one)
    need(rises([order(one) for one in made["segments"]]), "R9.1")
    check_pieces(pieces)
    total = state_sum(made["state"]) + sum(map(entry_hash, made["segments"]))
    total += sum(int(one["hash_sum"], 16) for one in pieces)
    need(f"{total % PRIME:064x}" == made["state_hash"], "R9.6")
    number = len(made["segments"]) + sum(one["segments"] for one in pieces)
    need(number == made["totals"]["segments"], "R9.6")
    parts = [*made["segments"], *pieces]
    deleted = sum(map(gone_of, made["segments"]))
    deleted += sum(one.get("deleted", 0) for one in pieces)
    said = made["totals"]
    need(said.get("deleted", 0) == deleted, "R9.6")
    inline = sum("inline" in one for one in made["segments"])
    inline += sum(one.get("inline", 0) for one in pieces)
    need(said.get("inline", 0) == inline, "R9.6")
    need(sum(one["rows"] for one in parts) == said["rows"] + deleted, "R9.6")
    need(sum(one["bytes"] for one in parts) == said["bytes"], "R9.6")


def check_bytes(body, one):
    """Compare the bytes of a segment with its entry (R7.7)."""
    if len(body) <= MIB or one["tail"] is None:
        intact(sha256(body) == one["checksum"], "R7.7")
        return
    last = body[-one["tail"]["size"] :]
    intact(len(last) == one["tail"]["size"] and sha256(last) == one["tail"]["sha256"], "R7.7")
    footer = int.from_bytes(last[-8:-4], "little") + 8
    try:
        groups = pq.read_metadata(pa.BufferReader(last[-footer:]))
    except (pa.ArrowException, OSError, ValueError):
        raise Lost("R7.6") from None
    spans = []
    for group in range(groups.num_row_groups):
        for n in range(groups.num_columns):
            column = groups.row_group(group).column(n)
            first = column.data_page_offset
            if column.has_dictionary_page:
                first = min(first, column.dictionary_page_offset)
            spans.append((first, first + column.total_compressed_size))
    spans.sort()
    cuts = [0, *(first for first, _ in spans[1:]), spans[-1][1], len(body) - len(last)]
    sums = last[:-footer]
    intact(len(sums) == 4 * (len(cuts) - 1), "R7.6")
    for n, (first, end) in enumerate(pairwise(cuts)):
        found = zlib.crc32(body[first:end]).to_bytes(4, "little")
        intact(found == sums[4 * n : 4 * n + 4], "R7.7")


# --- keyed tables ---------------------------------------------------------------------------------

INTEGERS = ("int8", "int16", "int32", "int64")
TIMES = ("timestamp", "timestamp_ntz", "date")


def is_order(kind):
    """Whether rows can be ordered by a column of this type (R15.2)."""
    plain = isinstance(kind, str)
    return plain and (kind in (*INTEGERS, *TIMES, "string") or kind.startswith("decimal"))


def lower(value):
    """A text with `a` to `z` for `A` to `Z`; a number as it is (R7.2)."""
    if not isinstance(value, str):
        return value
    return "".join(chr(ord(one) + 32) if "A" <= one <= "Z" else one for one in value)


def check_order(places, number, splits):
    """Check that what counts in a bucket lies above bases and late segments (R15.4).

    Args:
        places: the slices of all live segments of a chunk.
        number: the bucket.
        splits: after how many splits it is numbered so.
    """
    here = [
        one
        for one in places
        if one["first"] <= number >> max(splits - one.get("splits", 0), 0) <= one["last"]
    ]
    spans = []
    for one in here:
        above = [o for o in here if o["level"] > one["level"]]
        if not any(o["low"] <= one["low"] and one["high"] <= o["high"] for o in above):
            spans.append((one["low"], one["high"], one["kind"]))
    for low, high, kind in spans:
        need(kind == "log" or (low, high) == min(spans)[:2], "R15.4")


def check_fit(arranged, columns):
    """Check that layout and schema of a keyed table fit together (R15.2, 5.2)."""
    keyed, kinds = arranged["keyed"], {c["id"]: c["type"] for c in columns}
    key, buckets = keyed["key"], keyed["buckets"]
    need(1 <= len(key) <= 16, "R15.2")
    need(len(set(key)) == len(key), "R15.2")
    need(1 <= buckets <= 4096, "R15.2")
    need(buckets % 2 ** keyed.get("splits", 0) == 0, "R15.2")
    for number in key:
        need(is_order(kinds.get(number)) or kinds.get(number) == "binary", "R15.2")
    need(len(arranged["order_by"]) <= 1, "R15.2")
    ordered = arranged["order_by"][0] if arranged["order_by"] else None
    if ordered is not None:
        need(is_order(kinds.get(ordered)), "R15.2")
        need(ordered not in key, "R15.2")
    nullable = {c["id"] for c in columns if c["nullable"]}
    need(not nullable & {*key, ordered}, "R15.2")
    need(not {c["name"] for c in columns} & {"_op", "_version"}, "R15.2")
    merge = keyed.get("merge", {"rule": "last"})
    rule, functions, groups = (merge.get(name, []) for name in ("rule", "functions", "groups"))
    need(rule in ("last", "first", "partial", "aggregate"), "5.2")
    need(not groups or rule == "partial", "5.2")
    need(not functions or rule == "aggregate", "5.2")
    need(len({one["column"] for one in functions}) == len(functions), "5.2")
    need(len({one["order"] for one in groups}) == len(groups), "5.2")
    member = {}
    for group in groups:
        need(is_order(kinds.get(group["order"])), "5.2")
        for column in {group["order"], *group["columns"]}:
            need(column in kinds, "5.2")
            need(column not in key, "5.2")
            need(column != ordered, "5.2")
            need(member.setdefault(column, group["order"]) == group["order"], "5.2")
    for one in functions:
        check_function(one["column"], one["function"], kinds, key, ordered)
    if rule in ("partial", "aggregate"):
        free_of = {*key, ordered, arranged.get("time_column")}
        need(kinds.keys() - nullable <= free_of, "5.2")


def check_function(name, function, kinds, key, ordered):
    """Check the function of a column under `aggregate` (section 5.2)."""
    kind = kinds.get(name)
    need(kind is not None, "5.2")
    need(name not in key, "5.2")
    need(function in ("last", "first", "sum", "min", "max", "count"), "5.2")
    need(name != ordered or function in ("last", "max"), "5.2")
    number = isinstance(kind, str) and (kind in INTEGERS or kind.startswith("decimal"))
    need(function != "sum" or number, "5.2")
    need(function != "count" or kind == "int64", "5.2")
    need(function not in ("min", "max") or is_order(kind) or kind in ("float32", "float64"), "5.2")
