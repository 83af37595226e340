"""Negative vectors of segments in commits: one for each check of a reader."""

from typing import Any

import pyarrow as pa
from golden.forge import Forge, log_key, with_cell
from golden.negative_log import LOST, OLDER, REFUSE, Value, set_in

TABLE = "inline"
SECOND, SPILLED, LEAVES, HEAD, BARE = 2, 13, 14, 15, 11


def at(version: int) -> Forge:
    """Return the table with this version as its newest, which has no key frame of its own."""
    forge = Forge(TABLE, version).cut()
    forge.objects.pop(log_key(version, ".keyframe"), None)
    return forge


def bytes_of_rows() -> list[Value]:
    """Cases of the bytes in a commit, of a version without packs."""

    def gone(forge: Forge) -> Forge:
        made = forge.commit(1)
        del made["transactions"][0]["actions"][0]["parquet"]
        forge.put_commit(1, made)
        return forge

    def other(forge: Forge) -> Forge:
        made, second = forge.commit(1), forge.commit(2)
        body = second["transactions"][0]["actions"][0]["parquet"]
        made["transactions"][0]["actions"][0]["parquet"] = body
        forge.put_commit(1, made)
        return forge

    return [
        gone(at(SECOND)).case("bytes that the commit does not have", "R21.2", LOST),
        other(at(SECOND)).case("bytes of another segment", "R21.2", LOST),
    ]


def entries() -> list[Value]:
    """Cases of entries, headers and their feature."""
    late = set_in("delta", "adds", 0, "inline", to=SECOND + 1)
    return [
        at(SECOND).edit(late, restate=True).case("bytes in a later commit", "2.6", REFUSE),
        at(SECOND)
        .edit(set_in("delta", "adds", 0, "inline", to=None))
        .case("bytes in the commit null", "R5.1", REFUSE),
        at(HEAD)
        .edit(set_in("header", "features", to=["vectors"]))
        .case("segments in commits without the feature", "R21.3", REFUSE),
        at(BARE)
        .edit(set_in("header", "features", to=["inline"]))
        .case("the feature without segments in commits", "R21.3", REFUSE),
        at(BARE)
        .edit(set_in("header", "totals", "inline", to=0))
        .case("no segments in commits, as a number", "R5.1", REFUSE),
        at(SECOND)
        .edit(set_in("transactions", 0, "actions", 0, "parquet", to="UEFS!"))
        .case("bytes that are no base64", "R5.1", REFUSE),
    ]


def roots() -> list[Value]:
    """Cases of roots, over which a reader steps."""

    def of_pack(**fields: int) -> Any:
        return lambda made: made["packs"][0].update(fields)

    def turned(made: Value) -> None:
        made["packs"].reverse()

    def both(made: Value) -> None:
        made["leaves"][0]["inline"] += 1
        made["totals"]["inline"] += 1

    cases = [
        ("a root without the feature of segments in commits", "R21.3", _less("inline")),
        ("another number of segments in commits", "R9.6", set_in("totals", "inline", to=1)),
        ("no segments in commits of a leaf", "R5.1", set_in("leaves", 0, "inline", to=0)),
        ("another number of segments in commits of a leaf, and of the root", "R9.6", both),
        ("an empty list of packs", "R5.1", set_in("packs", to=[])),
        ("a pack that begins after its end", "R21.4", of_pack(first=99)),
        ("a pack of a later key frame", "R21.4", of_pack(last=99)),
        ("a pack of no segments", "R21.4", of_pack(segments=0)),
        ("a pack with a name that is no hash", "R5.2", set_in("packs", 0, "sha256", to="zz")),
        ("packs in another order", "R21.4", turned),
    ]
    made = [
        at(HEAD).edit_root(LEAVES, change).case(name, rule, OLDER) for name, rule, change in cases
    ]
    return [*made, *leaves(), _unread()]


def _less(feature: str) -> Any:
    return lambda made: made["features"].remove(feature)


def leaves() -> list[Value]:
    """Cases of the column `inline` in a leaf and in a spill."""

    def first(rows: pa.Table) -> pa.Table:
        names = [name for name in rows.column_names if name != "inline"]
        return rows.select(["inline", *names])

    def text(rows: pa.Table) -> pa.Table:
        place = rows.column_names.index("inline")
        return rows.set_column(place, "inline", pa.array(["1"] * rows.num_rows))

    found = [
        ("a leaf whose column `inline` is the first", first, "R9.3"),
        ("a leaf whose column `inline` has texts", text, "R9.3"),
        ("a leaf with bytes in a version below 0", with_cell("inline", -1), "R5.2"),
        ("a leaf with bytes in a later commit", with_cell("inline", 99), "2.6"),
    ]
    made = [at(HEAD).leaf(LEAVES, change).case(name, rule, OLDER) for name, change, rule in found]
    spilled = at(SPILLED).spill(with_cell("inline", 99))
    return [*made, spilled.case("a spill with bytes in a later commit", "2.6", REFUSE)]


def _unread() -> Value:
    """A reader that finds no pack goes to the commits."""
    forge = at(HEAD)
    for key in [key for key in forge.objects if key.startswith("_packs/")]:
        del forge.objects[key]
    return forge.case("packs that are not there", "R21.4", "same")


def all_cases() -> list[Value]:
    """Return the vectors."""
    return [*bytes_of_rows(), *entries(), *roots()]
