"""Negative vectors of deletion vectors: one for each check of a reader."""

import base64
import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from golden.forge import Forge, log_key, with_cell
from golden.negative_log import LOST, OLDER, REFUSE, Value, set_in
from golden.reader import sha256

TABLE = "deletion_vectors"
INLINE, SECOND, LEAVES, SPILLED, HEAD, IN_LOG = 3, 3, 11, 10, 15, 18
PLAIN = struct.pack("<QIII", 1, 0, 12346, 1)  # one part, which has one container and no runs


def at(version: int) -> Forge:
    """Return the table with this version as its newest, which has no key frame of its own."""
    forge = Forge(TABLE, version).cut()
    forge.objects.pop(log_key(version, ".keyframe"), None)
    return forge


def shrunk(made: Value) -> Value:
    """Return the first entry of a delta that has a vector."""
    return next(one for one in made["delta"]["adds"] if "vector" in one)


def key_of(stored: Value) -> str:
    """Return the key of the object that has a stored bitmap."""
    return f"data/{stored['epoch']:012d}/vectors/{stored['object']}.roaring"


def with_stored(bitmap: bytes, rows: int) -> Forge:
    """Put another bitmap where a vector is stored, which its entry describes as it is."""
    forge = at(HEAD)

    def change(made: Value) -> None:
        said = shrunk(made)["vector"]
        place = said["stored"]
        body = forge.objects[key_of(place)]
        forge.objects[key_of(place)] = body[: place["offset"]] + bitmap
        place |= {"size": len(bitmap), "hash": sha256(bitmap)}
        said["rows"] = rows

    return forge.edit(change, restate=True)


def with_bitmap(text: str, rows: int = 2) -> Forge:
    """Put another bitmap into an entry."""

    def change(made: Value) -> None:
        shrunk(made)["vector"].update(bitmap=text, rows=rows)

    return at(IN_LOG).edit(change, restate=True)


def as_text(bitmap: bytes) -> str:
    """Return a bitmap as JSON has it."""
    return base64.b64encode(bitmap).decode()


def bitmap(*numbers: int) -> bytes:
    """Return a bitmap of a few numbers, in the order given."""
    size, first = len(numbers), 16
    return PLAIN + struct.pack(f"<HHI{size}H", 0, size - 1, first, *numbers)


def blobs() -> list[Value]:
    """Cases of the bytes of vectors."""
    said = shrunk(at(HEAD).commit(HEAD))["vector"]["stored"]
    key = key_of(said)

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
        body, found = forge.objects[key], bitmap(1, 3, 4)
        forge.objects[key] = body[: said["offset"]] + found + body[said["offset"] + len(found) :]
        return forge

    good = bitmap(2, 3, 4)
    cases = [
        ("a cut bitmap", good[:-1], 3),
        ("a bitmap with a byte behind it", good + b"\0", 3),
        ("a bitmap with another cookie", good.replace(b"\x3a\x30", b"\x3c\x30"), 3),
        ("a vector of fewer positions", good, 4),
        ("a vector of more positions", good, 2),
        ("a position behind the rows of the segment", bitmap(2, 3, 6), 3),
        ("positions out of order", bitmap(2, 4, 3), 3),
    ]
    return [
        gone(at(HEAD)).case("a vector that is not there", "R20.1", LOST),
        changed(at(HEAD)).case("a bit of a vector", "R20.1", LOST),
        cut(at(HEAD)).case("a vector cut short", "R20.1", LOST),
        other(at(HEAD)).case("a vector of other positions", "R20.1", LOST),
        *(with_stored(found, n).case(name, "R20.1", LOST) for name, found, n in cases),
        *(
            with_bitmap(as_text(found), n).case(f"{name}, in the log", "R20.1", LOST)
            for name, found, n in cases
        ),
    ]


def in_row_of(found: str, **values: Value) -> Callable[[pa.Table], pa.Table]:
    """Return a change of values in the first row that has one in the column `found`."""

    def change(rows: pa.Table) -> pa.Table:
        row = next(n for n, v in enumerate(rows.column(found).to_pylist()) if v is not None)
        for name, value in values.items():
            rows = with_cell(name, value, row)(rows)
        return rows

    return change


def texts() -> list[Value]:
    """Cases of bitmaps as text."""
    good = as_text(bitmap(2, 3))  # it ends in =
    odd = f"{good[:-2]}{chr(ord(good[-2]) + 1)}="
    found = [
        ("a bitmap without padding", good.rstrip("="), "R5.1"),
        ("a bitmap with bits behind its last byte", odd, "R5.1"),
        ("a bitmap with the letters of another base64", f"-{good[1:]}", "R5.1"),
        ("a bitmap that is no base64", f"?{good[1:]}", "R5.1"),
        ("a bitmap with a line break", f"{good[:4]}\n{good[4:]}", "R5.1"),
        ("a bitmap of no bytes", "", "R20.2"),
    ]
    return [with_bitmap(text).case(name, rule, REFUSE) for name, text, rule in found]


def entries() -> list[Value]:
    """Cases of entries with a vector."""
    own: list[tuple[str, str, Value]] = [
        ("a vector of no rows", "R20.2", {"rows": 0}),
        ("a vector of all rows", "R20.2", {"rows": 6}),
        ("a vector with two bitmaps", "R20.2", {"bitmap": as_text(bitmap(2, 3, 4))}),
    ]
    fields: list[tuple[str, str, Value]] = [
        ("a vector of no bytes", "R20.2", {"size": 0}),
        ("an object of vectors in upper case", "R5.2", {"object": "AB" * 16}),
        ("a vector's hash that is no hash", "R5.2", {"hash": "zz"}),
        ("a vector of an epoch of 13 digits", "R3.2", {"epoch": 10**12}),
        ("a vector that begins before its object", "R5.2", {"offset": -1}),
    ]

    def of_vector(more: Value) -> Callable[[Value], None]:
        """A change of the fields of a vector, in their order."""

        def change(made: Value) -> None:
            said = shrunk(made)["vector"]
            found = said | more
            said.clear()
            said |= {name: found[name] for name in ("rows", "bitmap", "stored") if name in found}

        return change

    def without(made: Value) -> None:
        del shrunk(made)["vector"]["stored"]

    places = lambda fields: lambda made: shrunk(made)["vector"]["stored"].update(fields)
    changes = [(name, rule, of_vector(more)) for name, rule, more in own]
    changes += [(name, rule, places(more)) for name, rule, more in fields]
    changes.append(("a vector without a bitmap", "R20.2", without))
    return [
        *(
            at(HEAD).edit(change, restate=True).case(name, rule, REFUSE)
            for name, rule, change in changes
        ),
        *texts(),
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
        action["hash"] = action["vector"]["stored"]["object"] = "zz"

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
        .spill(in_row_of("vector_size", vector_hash=None))
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
        first = names.index("vector_rows")
        names[first], names[first + 1] = names[first + 1], names[first]
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
        ("a leaf with a part of a vector", in_row_of("vector_size", vector_size=None), "R9.3"),
        (
            "a leaf with a vector of two bitmaps",
            in_row_of("vector_size", vector_bitmap=b"x"),
            "R9.3",
        ),
        (
            "a leaf with a vector without bitmap",
            in_row_of("vector_bitmap", vector_bitmap=None),
            "R9.3",
        ),
        ("a leaf with a bitmap of no vector", in_row_of("vector_bitmap", vector_rows=None), "R9.3"),
        (
            "a leaf with a bitmap of no bytes",
            in_row_of("vector_bitmap", vector_bitmap=b""),
            "R20.2",
        ),
        (
            "a leaf with another bitmap than its entry",
            in_row_of("vector_bitmap", vector_bitmap=b"x"),
            "R9.8",
        ),
        (
            "a leaf with another vector than its entry",
            in_row_of("vector_size", vector_offset=99),
            "R9.8",
        ),
    ]
    return [at(12).leaf(LEAVES, change).case(name, rule, OLDER) for name, change, rule in cases]


def all_cases() -> list[Value]:
    """Return the vectors."""
    return [*blobs(), *entries(), *headers(), *deltas(), *spills(), *roots()]
