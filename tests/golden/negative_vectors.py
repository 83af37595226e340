"""Negative vectors of deletion vectors: one for each check of a reader."""

import struct
import zlib
from typing import Any

import pyarrow as pa
from golden.forge import Forge, log_key, with_cell
from golden.negative_log import LOST, OLDER, REFUSE, SAME, Value, set_in
from golden.reader import sha256

TABLE = "deletion_vectors"
INLINE, SECOND, LEAVES, SPILLED, HEAD = 3, 3, 11, 10, 15
MAGIC = b"\xd1\xd3\x39\x64"
PLAIN = struct.pack("<QIII", 1, 0, 12346, 1)  # one part, which has one container and no runs


def at(version: int) -> Forge:
    """Return the table with this version as its newest, which has no key frame of its own."""
    forge = Forge(TABLE, version).cut()
    forge.objects.pop(log_key(version, ".keyframe"), None)
    return forge


def shrunk(made: Value) -> Value:
    """Return the first entry of a delta that has a vector."""
    return next(one for one in made["delta"]["adds"] if "vector" in one)


def with_blob(forge: Forge, blob: bytes, rows: int) -> Forge:
    """Put other bytes where a vector is, which its entry describes as they are."""

    def change(made: Value) -> None:
        said = shrunk(made)["vector"]
        key = f"data/{said['epoch']:012d}/vectors/{said['object']}.puffin"
        body = forge.objects[key]
        forge.objects[key] = body[: said["offset"]] + blob
        said |= {"size": len(blob), "hash": sha256(blob), "rows": rows}

    return forge.edit(change, restate=True)


def framed(inner: bytes) -> bytes:
    """Return the bytes of a bitmap in the frame of a vector."""
    return struct.pack(">I", len(inner)) + inner + struct.pack(">I", zlib.crc32(inner))


def bitmap(*numbers: int) -> bytes:
    """Return a bitmap of a few numbers, in the order given."""
    size, first = len(numbers), 16
    return PLAIN + struct.pack(f"<HHI{size}H", 0, size - 1, first, *numbers)


def blobs() -> list[Value]:
    """Cases of the bytes of vectors."""
    said = shrunk(at(HEAD).commit(HEAD))["vector"]
    key = f"data/{said['epoch']:012d}/vectors/{said['object']}.puffin"

    def gone(forge: Forge) -> Forge:
        del forge.objects[key]
        return forge

    def changed(forge: Forge) -> Forge:
        body = forge.objects[key]
        place = said["offset"] + said["size"] - 5
        forge.objects[key] = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        return forge

    def cut(forge: Forge) -> Forge:
        forge.objects[key] = forge.objects[key][: said["offset"] + said["size"] - 1]
        return forge

    def other(forge: Forge) -> Forge:
        body, blob = forge.objects[key], framed(MAGIC + bitmap(1, 3, 4))
        forge.objects[key] = body[: said["offset"]] + blob + body[said["offset"] + len(blob) :]
        return forge

    good = MAGIC + bitmap(2, 3, 4)
    whole = framed(good)
    cases = [
        ("a vector of another length", struct.pack(">I", len(good) + 1) + whole[4:], 3),
        ("a vector with another checksum", whole[:-4] + b"\0\0\0\0", 3),
        ("a vector of another magic", framed(b"\xd1\xd3\x39\x65" + bitmap(2, 3, 4)), 3),
        ("a vector of a cut bitmap", framed(good[:-1]), 3),
        ("a bitmap with another cookie", framed(good.replace(b"\x3a\x30", b"\x3c\x30")), 3),
        ("a vector of fewer positions", framed(good), 4),
        ("a vector of more positions", framed(good), 2),
        ("a position behind the rows of the segment", framed(MAGIC + bitmap(2, 3, 6)), 3),
        ("positions out of order", framed(MAGIC + bitmap(2, 4, 3)), 3),
    ]  # fmt: skip
    return [
        gone(at(HEAD)).case("a vector that is not there", "R20.1", LOST),
        changed(at(HEAD)).case("a bit of a vector", "R20.1", LOST),
        cut(at(HEAD)).case("a vector cut short", "R20.1", LOST),
        other(at(HEAD)).case("a vector of other positions", "R20.1", LOST),
        _footer(key),
        *(with_blob(at(HEAD), blob, n).case(name, "R20.1", LOST) for name, blob, n in cases),
    ]


def _footer(key: str) -> Value:
    """What a Puffin reader needs, and no reader of the table looks at."""
    forge = at(HEAD)
    forge.objects[key] = forge.objects[key][:-20]
    return forge.case("an object of vectors without its footer", "R20.1", SAME)


def entries() -> list[Value]:
    """Cases of entries with a vector."""
    fields: list[tuple[str, str, Value]] = [
        ("a vector of no rows", "R20.2", {"rows": 0}),
        ("a vector of all rows", "R20.2", {"rows": 6}),
        ("a vector of no bytes", "R20.2", {"size": 0}),
        ("an object of vectors in upper case", "R5.2", {"object": "AB" * 16}),
        ("a vector's hash that is no hash", "R5.2", {"hash": "zz"}),
        ("a vector of an epoch of 13 digits", "R3.2", {"epoch": 10**12}),
        ("a vector that begins before its object", "R5.2", {"offset": -1}),
    ]
    change = lambda fields: lambda made: shrunk(made)["vector"].update(fields)
    made = [
        at(HEAD).edit(change(more), restate=True).case(name, rule, REFUSE)
        for name, rule, more in fields
    ]
    return [
        *made,
        at(HEAD)
        .edit(lambda made: shrunk(made).update(vector=None))
        .case("a vector that is null", "R5.1", REFUSE),
        _keyed(),
        _unread(),
    ]


def _keyed() -> Value:
    vector = shrunk(at(HEAD).commit(HEAD))["vector"] | {"rows": 1}

    def change(made: Value) -> None:
        made["delta"]["adds"][-1]["vector"] = vector
        made["header"]["features"].append("vectors")

    forge = Forge("keyed", 6).edit(change, restate=True)
    return forge.case("an entry with a slice and a vector", "R20.2", REFUSE)


def _unread() -> Value:
    """A reader does not look at what an action names: its transaction would be void."""

    def change(made: Value) -> None:
        action = made["transactions"][0]["actions"][0]
        action["hash"] = action["vector"]["object"] = "zz"

    return at(HEAD).edit(change).case("a delete of no entry", "R20.3", "fold")


def headers() -> list[Value]:
    """Cases of the feature and of counts that are absent where they are 0."""
    plain = Forge(TABLE, 14).cut()
    return [
        at(HEAD)
        .edit(set_in("header", "features", to=[]))
        .case("deleted rows without the feature", "R20.4", REFUSE),
        plain.edit(set_in("header", "features", to=["vectors"])).case(
            "the feature without deleted rows", "R20.4", REFUSE
        ),
        Forge(TABLE, 14)
        .cut()
        .edit(set_in("header", "totals", "deleted", to=0))
        .case("no deleted rows, as a number", "R5.1", REFUSE),
        at(HEAD)
        .edit(set_in("header", "changes", "vectors", to=0))
        .case("no vectors, as a number", "R5.1", REFUSE),
        at(HEAD)
        .edit(set_in("header", "changes", "vectors", to=2))
        .case("another number of vectors", "R10.6", "fold"),
        at(HEAD).edit(_all_rows).case("rows that are deleted and counted", "R9.6", REFUSE),
        at(HEAD)
        .edit(set_in("transactions", 0, "actions", 0, "vector", "more", to=1))
        .case("an unknown field of a vector", "R5.1", REFUSE),
    ]


def _all_rows(made: Value) -> None:
    totals = made["header"]["totals"]
    totals["rows"] += totals["deleted"]


def deltas() -> list[Value]:
    """Cases of what was live before the key frame, and has got a vector."""

    def alone(made: Value) -> None:
        made["delta"]["drops"] = []

    def bare(made: Value) -> None:
        del made["delta"]["adds"][0]["vector"]

    def of_another(made: Value) -> None:
        made["delta"]["drops"][0]["id"] = "ab" * 16

    found = [
        ("an entry of before its base without a drop", alone, "R6.6"),
        ("an entry of before its base without a vector", bare, "R6.6"),
        ("an entry of before its base, and another drop", of_another, "R6.6"),
    ]
    return [
        at(SECOND).edit(change, restate=True).case(name, rule, REFUSE)
        for name, change, rule in found
    ]


def spills() -> list[Value]:
    """Cases of the spill of a delta with vectors."""

    def deletes(rows: pa.Table) -> pa.Table:
        filled = rows.to_pylist()
        first = next(row for row in filled if row["drop"])
        other = next(row for row in filled if not row["drop"])
        first |= {name: other[name] for name in first if name.startswith("vector_")}
        return pa.Table.from_pylist(filled, schema=rows.schema)

    counted = lambda made: made["delta"]["spill"].update(vectors=1)
    return [
        at(SPILLED).spill(deletes).case("a delta that deletes rows", "R6.4", REFUSE),
        at(SPILLED).edit(counted).case("a delta's spill with a number of deletes", "R6.4", REFUSE),
        at(SPILLED)
        .spill(with_cell("vector_hash", None))
        .case("a spill with a part of a vector", "R9.3", REFUSE),
    ]


def roots() -> list[Value]:
    """Cases of roots, over which a reader steps."""

    def of_leaf(**fields: int) -> Any:
        return lambda made: made["leaves"][0].update(fields)

    def both(made: Value) -> None:
        made["leaves"][0]["deleted"] += 1
        made["totals"]["deleted"] += 1
        made["totals"]["rows"] -= 1

    def inline(made: Value) -> None:
        first = next(one for one in made["segments"] if "vector" in one)
        first["vector"]["rows"] = first["rows"]

    cases = [
        (12, LEAVES, "a root without the feature", "R20.4", set_in("features", to=[])),
        (12, LEAVES, "other deleted rows of a root", "R9.6", set_in("totals", "deleted", to=1)),
        (12, LEAVES, "no deleted rows of a leaf", "R5.1", of_leaf(deleted=0)),
        (12, LEAVES, "other deleted rows of a leaf, and of the root", "R9.6", both),
        (INLINE, 2, "a vector of all rows in a root", "R20.2", inline),
    ]
    made = [
        at(version).edit_root(framed_at, change).case(name, rule, OLDER)
        for version, framed_at, name, rule, change in cases
    ]
    return [*made, *leaves()]


def leaves() -> list[Value]:
    """Cases of the columns of vectors in a leaf."""

    def swapped(rows: pa.Table) -> pa.Table:
        names = rows.column_names
        first = names.index("vector_epoch")
        names[first], names[first + 2] = names[first + 2], names[first]
        return rows.select(names)

    def bare(rows: pa.Table) -> pa.Table:
        return rows.drop_columns(["vector_offset"])

    def text(rows: pa.Table) -> pa.Table:
        place = rows.column_names.index("vector_object")
        values = pa.array([v and v.hex() for v in rows.column("vector_object").to_pylist()])
        return rows.set_column(place, "vector_object", values)

    cases = [
        ("a leaf with columns of vectors in another order", swapped, "R9.3"),
        ("a leaf without a column of vectors", bare, "R9.3"),
        ("a leaf whose objects of vectors are texts", text, "R9.3"),
        ("a leaf with a part of a vector", with_cell("vector_size", None), "R9.3"),
        ("a leaf with another vector than its entry", with_cell("vector_offset", 99), "R9.8"),
    ]
    return [at(12).leaf(LEAVES, change).case(name, rule, OLDER) for name, change, rule in cases]


def all_cases() -> list[Value]:
    """Return the vectors."""
    return [*blobs(), *entries(), *headers(), *deltas(), *spills(), *roots()]
