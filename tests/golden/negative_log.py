"""Negative vectors of commits, roots, leaves and spills: one for each check of a reader."""

import copy
from typing import Any

import pyarrow as pa
from golden import reader
from golden.forge import Forge, log_key, with_cell, with_column

REFUSE, UNSUPPORTED, OLDER, SAME, LOST = "refuse", "unsupported", "older key frame", "same", "lost"
Value = dict[str, Any]
YEAR, WHOLE, FRAME = ("year", 2), ("whole", 14), 7
STEMS, STEMMED = ("stems", 16), 15
DAY = 86_400_000
LATE = 253_402_300_800_000


def set_in(*path: str | int, to: Any) -> Any:
    """Return a change that sets a value inside of an object."""

    def change(made: Any) -> None:
        for name in path[:-1]:
            made = made[name]
        made[path[-1]] = to

    return change


def forms() -> list[Value]:
    """Cases of values that are of another form than their field."""
    first = ("transactions", 0)
    add = (*first, "actions", 0)
    layout = next(n for n, a in enumerate(Forge("year", 0).commit(0)["transactions"][0]["actions"])
                  if a["action"] == "set_schema")  # fmt: skip
    column = (*first, "actions", layout, "schema", "columns", 1)
    cases = [
        ("a feature that is a number", "R5.4", YEAR, set_in("header", "features", to=[1])),
        ("a writer that is a number", "R5.2", YEAR, set_in(*first, "writer", to=5)),
        ("an integer of 65 bits", "R5.2", YEAR, set_in(*add, "rows", to=2**63)),
        ("a count below 0", "R5.2", YEAR, set_in(*first, "until", to=-5)),
        ("a boolean that is a number", "R5.2", ("year", 0), set_in(*column, "nullable", to=1)),
        ("a list that is an object", "R5.2", YEAR, set_in(*first, "actions", to={})),
        ("a map that is a list", "R5.2", YEAR, set_in(*first, "info", to=[])),
        ("statistics of three parts", "R5.2", YEAR, set_in(*add, "stats", to=[[1, 0, 0]])),
        ("a float in a type", "R5.1", ("year", 0), set_in(*column, "type", to={"list": 1.5})),
        ("a state that is a list", "R5.2", YEAR, set_in("state", to=[])),
        ("a time in the year 10000", "2.2", YEAR, set_in("header", "time", to=LATE)),
        ("a reader of 65 bits is needed", "R5.4", YEAR, set_in("header", "min_reader", to=2**70)),
        ("a writer of 65 bits is needed", "R5.4", YEAR, set_in("header", "min_writer", to=2**70)),
        ("a transaction's drop without a hash", "R5.1", ("whole", 9), _without_hash),
    ]
    made = [Forge(*at).edit(change).case(name, rule, REFUSE) for name, rule, at, change in cases]
    return [
        *made,
        Forge("split", 10).edit(_splits_of_a_merge).case("splits of a merge", "R5.2", REFUSE),
        Forge("whole", 3).edit(_kind_of_a_claim).case("a claim of another kind", "R5.2", REFUSE),
        _list_for_a_commit(),
        Forge("split", 9)
        .edit(set_in("header", "features", to=["split", "keyed"]))
        .case("features in another order", "R5.4", REFUSE),
        Forge("keyed", 6)
        .edit(set_in("header", "features", to=["keyed", "keyed"]))
        .case("a feature twice", "R5.4", REFUSE),
    ]  # fmt: skip


def _list_for_a_commit() -> Value:
    forge = Forge(*YEAR)
    found = forge.case("a commit that is a list", "R5.4", REFUSE)
    key = "_log/999999999997.json"
    return found | {"changes": [{"key": key, "new": "[]"}]}


def _without_hash(made: Value) -> None:
    drop = next(a for t in made["transactions"] for a in t["actions"] if a["action"] == "drop")
    del drop["hash"]


def _splits_of_a_merge(made: Value) -> None:
    merge = next(a for t in made["transactions"] for a in t["actions"] if a["action"] == "merge")
    merge["splits"] = 13


def _kind_of_a_claim(made: Value) -> None:
    claim = next(a for t in made["transactions"] for a in t["actions"] if a["action"] == "claim")
    claim["kind"] = "sole"


def small_states() -> list[Value]:
    """Cases of the small state of a commit."""
    policy = {"analysed": {"version": 1, "policy": "zz"}}
    pending = {"sha256": "zz", "size": 1, "adds": 0, "drops": 0}
    swept = {"swept": {"fence": 0, "horizon": 0, "version": 1, "pending": pending}}
    claim = {"start": 0, "end": 1, "segments": ["zz"], "kind": "shared", "priority": 0}
    claim |= {"group": "g", "owner": "o", "token": 1, "renewed": 1}
    origin = {"origins": {"1a" * 32: {"version": 1, "commit": "zz", "token": 1}}}
    named = [
        ("a policy that is no hash", policy),
        ("a record of a vacuum that is no hash", swept),
        ("a claimed segment that is no id", {"claims": {"ab" * 16: claim}}),
        ("the commit of an origin that is no hash", origin),
    ]
    made = [
        Forge(*YEAR).edit(set_in("state", to=state), restate=True).case(name, "R5.2", REFUSE)
        for name, state in named
    ]
    swapped = lambda made: made.update(state=dict(reversed([*made["state"].items()])))
    made.append(
        Forge("shared", 14).edit(swapped).case("fields of the state swapped", "R6.5", REFUSE)
    )
    odd = {"": {"version": 1, "until": 9}}
    made.append(
        Forge(*YEAR)
        .edit(set_in("state", to={"published": odd}), restate=True)
        .case("a name of a map in another form", "R5.2", "fold")
    )
    return made


def entries() -> list[Value]:
    """Cases of entries of a delta, which the state hash of the commit covers."""
    stats = [[1, 0, 31535999999999, 0], [2, 0, 9, 0]]
    tail = {"size": 10**9, "sha256": "ab" * 32}
    cases = [
        ("an entry of no time chunk", "R3.2", {"chunk": "1970-13"}),
        ("an epoch of 13 digits", "R3.2", {"epoch": 10**12}),
        ("an id in upper case", "R5.2", {"id": "AB" * 16}),
        ("a checksum that is no hash", "R5.2", {"checksum": "zz"}),
        ("statistics in another order", "2.6", {"stats": stats[::-1]}),
        ("statistics of a column twice", "2.6", {"stats": [stats[0], stats[0]]}),
        ("a text and a number as bounds", "R7.4", {"stats": [stats[0], [2, 0, "9", 0]]}),
        ("a tail larger than its object", "2.6", {"tail": tail}),
        ("a tail that is no hash", "R5.2", {"tail": {"size": 1, "sha256": "zz"}}),
    ]
    changes = lambda fields: lambda made: made["delta"]["adds"][1].update(fields)
    made = [
        Forge(*YEAR).edit(changes(fields), restate=True).case(name, rule, REFUSE)
        for name, rule, fields in cases
    ]
    places = [
        ("buckets in the wrong order", {"first": 3, "last": 0}),
        ("versions in the wrong order", {"low": 6, "high": 5}),
        ("rows of a version to come", {"high": 7}),
        ("a slice without an ordinal", {"ordinal": None}),
    ]
    for name, fields in places:
        edit = lambda made, fields=fields: made["delta"]["adds"][-1]["slice"].update(fields)
        made.append(Forge("keyed", 6).edit(edit, restate=True).case(name, "R15.3", REFUSE))

    def texts(commit: Value) -> None:
        commit["delta"]["adds"][1]["stats"][1][1:3] = ["a", "b"]

    made.append(Forge(*YEAR).edit(texts, restate=True).case("bounds of two kinds", "R7.4", REFUSE))
    return made


def deltas() -> list[Value]:
    """Cases of the lists of a delta."""

    def older(made: Value) -> None:
        made["delta"]["adds"][0]["version"] = 1

    def newer(made: Value) -> None:
        made["delta"]["adds"][-1]["version"] = 3

    def twice(made: Value) -> None:
        again = copy.deepcopy(made["delta"]["adds"][-1])
        made["delta"]["adds"].append(again | {"partition": again["partition"] + 1})

    def itself(made: Value) -> None:
        made["header"]["keyframe"] = 2
        made["delta"]["adds"] = []

    def renewed(made: Value) -> None:
        made["delta"]["drops"] = [{"action": "renew", "id": "ab" * 16, "token": 1}]

    def both(made: Value) -> None:
        made["delta"]["adds"] = [Forge("whole", 4).commit(4)["delta"]["adds"][0]]

    return [
        Forge(*YEAR).edit(older, restate=True).case("an add of before its base", "R6.6", REFUSE),
        Forge(*YEAR).edit(newer, restate=True).case("an add of a later version", "R6.6", REFUSE),
        Forge(*YEAR).edit(twice, restate=True).case("an id twice in a delta", "R6.6", REFUSE),
        Forge(*YEAR).edit(itself).case("a base that is itself", "2.2", REFUSE),
        Forge(*YEAR).edit(renewed).case("a delta that renews", "2.5", REFUSE),
        Forge("whole", 5).edit(both).case("a spill beside a list", "2.5", REFUSE),
        _wrong_fall(),
        _no_fall(),
        _lower_totals(),
    ]


def _wrong_fall() -> Value:
    """The commit below, which is not the one before, where the key frame is missing."""
    forge = Forge(*YEAR)
    del forge.objects["_log/999999999998.keyframe.json"]
    forge.edit(set_in("transactions", 0, "info", to={"x": "y"}), at=1)
    return forge.case("stepping back to another commit", "4.1", REFUSE)


def _no_fall() -> Value:
    forge = Forge(*WHOLE)
    for key in ("_log/999999999992.json", "_log/999999999992.keyframe.json"):
        del forge.objects[key]
    return forge.case("stepping back to no commit", "4.1", REFUSE)


def _lower_totals() -> Value:
    """A drop of what is not there, and an add of a segment that is."""

    def change(made: Value) -> None:
        drops = made["delta"]["drops"]
        drops[0]["hash"] = f"{int(drops[0]['hash'], 16) ^ 1:064x}"

    return (
        Forge("whole", 10)
        .edit(change, restate=True)
        .case("a drop whose hash no entry has", "4.1", REFUSE)
    )


def roots() -> list[Value]:
    """Cases of roots, over which a reader steps."""

    def more(name: str, *, both: bool) -> Any:
        def change(made: Value) -> None:
            made["totals"][name] += 1
            if both:
                made["leaves"][0][name] += 1

        return change

    def sum_off(made: Value) -> None:
        for holder, name in ((made["leaves"][0], "hash_sum"), (made, "state_hash")):
            holder[name] = f"{(int(holder[name], 16) + 1) % 2**256:064x}"

    def of_leaf(**fields: Any) -> Any:
        return lambda made: made["leaves"][0].update(fields)

    def stats(*wanted: Any) -> Any:
        def change(made: Value) -> None:
            known = {s[0]: s for s in made["leaves"][0]["stats"]}
            made["leaves"][0]["stats"] = [known[w] if isinstance(w, int) else w for w in wanted]

        return change

    cases = [
        ("a root of another version", "2.9", set_in("version", to=6)),
        ("a root of the year 10000", "2.9", set_in("time", to=LATE)),
        ("a root whose features stand twice", "R5.4", set_in("features", to=["keyed", "keyed"])),
        ("a number of segments that is not the sum", "R9.6", more("segments", both=False)),
        ("a number of rows that is not the sum", "R9.6", more("rows", both=False)),
        ("a number of bytes that is not the sum", "R9.6", more("bytes", both=False)),
        ("another number of entries of a leaf", "R9.6", more("segments", both=True)),
        ("other rows of a leaf", "R9.6", more("rows", both=True)),
        ("other bytes of a leaf", "R9.6", more("bytes", both=True)),
        ("a sum of a leaf that the root confirms", "R9.6", sum_off),
        ("another size of a leaf", "R9.6", of_leaf(size=1)),
        ("a leaf that ends later", "R9.6", of_leaf(end=DAY * 10)),
        ("statistics of a leaf in another order", "2.9", stats(4, 1)),
        ("statistics of a column that entries lack", "R9.2", stats(1, [2, None, None, 0], 4)),
        ("no bounds of a leaf that has some", "R9.2", stats([1, None, None, 0], 4)),
        ("bounds of a leaf of another kind", "R9.2", stats([1, "0", "9", 0], 4)),
    ]
    made = [Forge(*WHOLE).edit_root(FRAME, c).case(name, rule, OLDER) for name, rule, c in cases]
    policy = {"version": 1, "policy": "zz"}
    made.append(
        Forge(*YEAR)
        .edit_root(1, set_in("state", "analysed", to=policy))
        .case("a policy in a root that is no hash", "R5.2", OLDER)
    )

    def swapped(root: Value) -> None:
        root["segments"].reverse()

    made.append(Forge(*YEAR).edit_root(1, swapped).case("entries of a root swapped", "R9.1", OLDER))

    return [*made, _moved_out(), _empty_leaf(), *_own_roots()]


def _moved_out() -> Value:
    """An entry of a leaf that stands in the root itself."""
    forge = Forge(*WHOLE)
    said = forge.root(FRAME)["leaves"][0]
    rows = forge.rows_of_leaf(said["sha256"])
    first = reader.entry_of(rows.to_pylist()[0])
    left = [reader.entry_of(row) for row in rows.to_pylist()[1:]]
    total = sum(map(reader.entry_hash, left)) % reader.PRIME
    fields = {"first": f"{left[0]['chunk']}/{left[0]['id']}", "segments": len(left)}
    fields |= {name: sum(one[name] for one in left) for name in ("rows", "bytes")}
    forge.leaf(FRAME, lambda rows: rows.slice(1), hash_sum=f"{total:064x}", **fields)
    forge.edit_root(FRAME, lambda made: made.update(segments=[first]))
    return forge.case("entries in a root beside leaves", "R9.1", OLDER)


def _empty_leaf() -> Value:
    forge = Forge(*WHOLE)
    said = forge.root(FRAME)["leaves"][-1]
    empty = forge.rows_of_leaf(said["sha256"]).slice(0, 0)
    fields = {"first": "1970-01-09/" + "0" * 32, "end": 9 * DAY, "hash_sum": "0" * 64, "stats": []}
    fields |= {"segments": 0, "rows": 0, "bytes": 0}
    forge.edit_root(FRAME, lambda made: made["leaves"].append(copy.deepcopy(said)))
    forge.leaf(FRAME, lambda rows: empty, number=3, **fields)
    return forge.case("a leaf without entries", "2.9", OLDER)


def _own_roots() -> list[Value]:
    """Cases of a key frame of the head itself, which is another table's or another state's."""

    def other(made: Value) -> None:
        before = reader.state_sum(made["state"])
        made["state"]["properties"] = {"user.x": "y"}
        total = int(made["state_hash"], 16) - before + reader.state_sum(made["state"])
        made["state_hash"] = f"{total % reader.PRIME:064x}"

    at = ("rules", 13)
    return [
        Forge(*at).edit_root(13, other).case("an own root of another state", "R9.6", OLDER),
        Forge(*at)
        .edit_root(13, set_in("table", to="0" * 32))
        .case("an own root of another table", "R9.6", OLDER),
    ]


def stems() -> list[Value]:
    """Cases of stems, and of the entries for them in a root."""

    def of_stem(**fields: Any) -> Any:
        return lambda made: made["stems"][0].update(fields)

    def moved(name: str) -> Any:
        """Return a change that moves one from the sum of a stem to that of the next."""

        def change(made: Value) -> None:
            for stem, more in zip(made["stems"], (1, -1), strict=False):
                if name == "hash_sum":
                    stem[name] = f"{(int(stem[name], 16) + more) % reader.PRIME:064x}"
                else:
                    stem[name] += more

        return change

    def split_deleted(made: Value) -> None:
        for stem in made["stems"][:2]:
            stem["deleted"] = 1

    def stats(*wanted: Any) -> Any:
        def change(made: Value) -> None:
            known = {s[0]: s for s in made["stems"][0]["stats"]}
            made["stems"][0]["stats"] = [known[w] if isinstance(w, int) else w for w in wanted]

        return change

    first = Forge(*STEMS).root(STEMMED)["stems"][0]
    cases = [
        ("another size of a stem", "R9.6", of_stem(size=1)),
        ("another number of leaves of a stem", "R9.9", of_stem(leaves=first["leaves"] + 1)),
        ("a stem of no leaves", "R5.2", of_stem(leaves=0)),
        ("a stem that begins elsewhere", "R9.9", of_stem(first="1970-01-01/" + "0" * 32)),
        ("a stem that ends later", "R9.9", of_stem(end=first["end"] + DAY)),
        ("a stem that ends before its first chunk", "2.9", of_stem(end=DAY)),
        ("entries of a stem that are those of the next", "R9.9", moved("segments")),
        ("rows of a stem that are those of the next", "R9.9", moved("rows")),
        ("bytes of a stem that are those of the next", "R9.9", moved("bytes")),
        ("a sum of hashes of a stem that is the next one's", "R9.9", moved("hash_sum")),
        ("deleted rows of a stem that are the next one's", "R9.9", split_deleted),
        ("a column less in the statistics of a stem", "R9.9", stats(1)),
        ("wider bounds of a stem", "R9.9", stats([1, 0, DAY * 10**5, 0], 2)),
        ("statistics of a stem in another order", "2.9", stats(2, 1)),
        ("stems swapped", "R9.1", lambda made: made["stems"].reverse()),
    ]
    made = [
        Forge(*STEMS).edit_root(STEMMED, change).case(name, rule, OLDER)
        for name, rule, change in cases
    ]
    empty = set_in("stems", to=[])
    made.append(Forge(*YEAR).edit_root(1, empty).case("no stems, listed", "R5.1", OLDER))
    return [*made, _leaf_beside_stems(), *_stem_objects()]


def _leaf_beside_stems() -> Value:
    """A leaf of a stem that stands in the root itself."""
    forge = Forge(*STEMS)
    leaf, *rest = forge.leaves_of_stem(forge.root(STEMMED)["stems"][-1]["sha256"])
    said = {"leaves": len(rest), "first": rest[0]["first"], "stats": reader.common_stats(rest)}
    said |= {name: sum(one[name] for one in rest) for name in ("segments", "rows", "bytes")}
    total = sum(int(one["hash_sum"], 16) for one in rest) % reader.PRIME
    forge.stem(STEMMED, lambda made: made.pop(0), -1, hash_sum=f"{total:064x}", **said)
    forge.edit_root(STEMMED, lambda made: made["leaves"].append(leaf))
    return forge.case("a leaf beside stems", "R9.1", OLDER)


def _stem_objects() -> list[Value]:
    """Cases of the object of a stem."""
    name = Forge(*STEMS).root(STEMMED)["stems"][0]["sha256"]
    key = f"_frames/{name}.json.zst"
    body = Forge(*STEMS).objects[key]
    same = {"at": len(body), "insert": pa.compress(b"", "zstd", asbytes=True).hex()}
    damages = [
        ("no stem", {"absent": True}),
        ("a stem that was cut", {"cut": len(body) - 4}),
        ("a stem with a byte more that means the same", same),
    ]
    made = [
        {
            "name": said, "rule": "R9.6", "table": STEMS[0], "version": STEMS[1],
            "changes": [{"key": key} | damage], "what": OLDER,
        }
        for said, damage in damages
    ]  # fmt: skip

    def with_body(said: str, rule: str, body: bytes) -> Value:
        forge = Forge(*STEMS)
        root = forge.root(STEMMED)
        root["stems"][0]["sha256"], root["stems"][0]["size"] = forge.put(body, "json.zst")
        forge.put_root(STEMMED, root)
        return forge.case(said, rule, OLDER)

    leaves = Forge(*STEMS).leaves_of_stem(name)
    spaced = reader.canonical(leaves).replace(",", ", ", 1).encode()
    made.append(
        with_body("a stem that is not compressed", "2.9.1", reader.canonical(leaves).encode())
    )
    made.append(with_body("a stem with a space", "R5.1", pa.compress(spaced, "zstd", asbytes=True)))
    changes = [
        ("a stem without leaves", "2.9.1", lambda made: made.clear()),
        ("leaves of a stem swapped", "R9.1", lambda made: made.reverse()),
        ("a leaf of a stem without entries", "2.9", lambda made: made[0].update(segments=0)),
        ("a leaf of a stem that begins nowhere", "2.9", lambda made: made[0].update(first="x/y")),
        ("a leaf of a stem with a field more", "R5.1", lambda made: made[0].update(more=1)),
        ("another size of a leaf of a stem", "R9.6", lambda made: made[0].update(size=1)),
    ]
    made += [
        Forge(*STEMS).stem(STEMMED, change).case(said, rule, OLDER)
        for said, rule, change in changes
    ]
    return made


def leaves() -> list[Value]:
    """Cases of the columns and rows of a leaf."""
    nulls = lambda kind: pa.nulls(6, kind)
    flags = pa.array([False] * 6, pa.bool_())

    def twice(rows: pa.Table) -> pa.Table:
        return rows.append_column("min_4", rows.column("min_4"))

    def turned(rows: pa.Table) -> pa.Table:
        names = [*rows.column_names]
        names[3], names[4] = names[4], names[3]
        return rows.select(names)

    def retyped(name: str, kind: pa.DataType) -> Any:
        def change(rows: pa.Table) -> pa.Table:
            place = rows.column_names.index(name)
            return rows.set_column(place, name, rows.column(name).cast(kind))

        return change

    def with_bounds(low: pa.DataType, high: pa.DataType, name: str = "9") -> Any:
        def change(rows: pa.Table) -> pa.Table:
            for stem, kind in (("min", low), ("max", high), ("nulls", pa.int64())):
                rows = rows.append_column(f"{stem}_{name}", nulls(kind))
            return rows

        return change

    def sliced(rows: pa.Table) -> pa.Table:
        place = rows.column_names.index("tail_sha256") + 1
        names = ("first", "last", "low", "high", "level", "ordinal")
        kinds = [("kind", pa.string()), *((name, pa.int64()) for name in names)]
        for n, (name, kind) in enumerate(kinds):
            rows = rows.add_column(place + n, f"slice_{name}", nulls(kind))
        return rows.add_column(place + 7, "slice_splits", pa.array([1] * 6, pa.int64()))

    def half_a_tail(rows: pa.Table) -> pa.Table:
        bare = rows.column("tail_size").to_pylist().index(None)
        return with_cell("tail_size", 5, bare)(rows)

    first_last = lambda rows: rows.select([*rows.column_names[13:], *rows.column_names[:13]])
    cases = [
        ("a leaf with the column of a spill", "R9.3", OLDER, with_column("drop", flags)),
        ("a column of a leaf twice", "R9.3", OLDER, twice),
        ("columns of a leaf in another order", "R9.3", OLDER, turned),
        ("an unknown column of a leaf", "R9.3", OLDER, with_column("more", nulls(pa.int64()))),
        ("an id of a column with a zero", "R9.3", OLDER, with_bounds(pa.int64(), pa.int64(), "09")),
        ("a leaf without a minimum", "R9.3", OLDER, lambda rows: rows.drop_columns(["min_4"])),
        ("a count of 32 bits", "R9.3", OLDER, retyped("epoch", pa.int32())),
        ("a count that is a time", "R9.3", OLDER, retyped("epoch", pa.timestamp("us"))),
        ("an id of any length", "R9.3", OLDER, retyped("id", pa.binary())),
        ("bounds of 32 bits", "R9.3", OLDER, with_bounds(pa.int32(), pa.int32())),
        ("bounds of a leaf of two kinds", "R7.4", OLDER, with_bounds(pa.string(), pa.int64())),
        ("bounds of a leaf of no kind", "R9.3", SAME, with_bounds(pa.null(), pa.null())),
        ("bounds before the entries", "R9.3", SAME, first_last),
        ("a null in a leaf", "R9.3", OLDER, with_cell("hash", None)),
        ("an epoch of 13 digits in a leaf", "R3.2", OLDER, with_cell("epoch", 10**12)),
        ("half a tail in a leaf", "R9.3", OLDER, half_a_tail),
        ("splits without a slice", "R9.3", OLDER, sliced),
        ("an interval that is no chunk's", "R9.3", OLDER, with_cell("chunk_end", 5)),
    ]
    made = [
        Forge(*WHOLE).leaf(FRAME, change).case(name, rule, what)
        for name, rule, what, change in cases
    ]
    swap = lambda rows: rows.take([0, 2, 1, *range(3, rows.num_rows)])
    made.append(Forge(*WHOLE).leaf(FRAME, swap).case("entries of a leaf swapped", "R9.1", OLDER))
    made.append(_other_bytes())
    kept = ("leaves", 7)  # which drops nothing of its key frame
    own = [
        ("a count of a leaf below 0", "R5.2", with_cell("partition", -1)),
    ]
    made += [
        Forge(*kept).leaf(6, change, own=True).case(name, rule, REFUSE)
        for name, rule, change in own
    ]

    def unbounded(rows: pa.Table) -> pa.Table:
        return with_cell("min_1", None, 1)(with_cell("max_1", None, 1)(rows))

    made.append(
        Forge(*kept)
        .leaf(6, unbounded, own=True)
        .case("bounds of a leaf over values without any", "R9.2", REFUSE)
    )
    tail = lambda rows: with_cell("tail_size", 10**9)(with_cell("tail_sha256", b"x" * 32)(rows))
    made.append(
        Forge(*kept)
        .leaf(6, tail, own=True)
        .case("a tail of a leaf larger than its object", "2.6", REFUSE)
    )
    forge = Forge("split", 13)  # its rows are read at the head only
    gone = {drop["hash"] for drop in forge.commit(13)["delta"]["drops"]}
    rows = forge.rows_of_leaf(forge.root(12)["leaves"][0]["sha256"]).column("hash").to_pylist()
    row = next(n for n, number in enumerate(rows) if number.hex() not in gone)
    forge.leaf(12, with_cell("slice_splits", 13, row), own=True)
    made.append(forge.case("splits of a leaf's slice", "R5.2", REFUSE))
    keyed = [
        ("a kind of a leaf's slice", {"slice_kind": "redo"}),
        ("a leaf's slice in part", {"slice_first": None}),
        ("buckets of a leaf in the wrong order", {"slice_first": 9, "slice_last": 0}),
        ("versions of a leaf in the wrong order", {"slice_low": 9, "slice_high": 8}),
        ("versions of a leaf to come", {"slice_high": 999}),
    ]
    for name, cells in keyed:
        change = lambda rows, cells=cells: _cells(rows, cells)
        forge = Forge("split", 17)
        del forge.objects[log_key(17, ".keyframe")]
        if "in part" not in name:
            made.append(forge.leaf(16, change, own=True).case(name, "R15.3", REFUSE))
        else:
            made.append(forge.leaf(16, change).case(name, "R9.3", OLDER))
    return made


def _cells(rows: pa.Table, cells: Value) -> pa.Table:
    # What is no kind replaces that of a base: it must not lie above others either.
    row = rows.column("slice_kind").to_pylist().index("base") if "slice_kind" in cells else 0
    for name, value in cells.items():
        rows = with_cell(name, value, row)(rows)
    return rows


def _other_bytes() -> Value:
    """A leaf that means the same with other bytes than its name says."""
    forge = Forge(*WHOLE)
    said = forge.root(FRAME)["leaves"][0]
    key = f"_frames/{said['sha256']}.parquet"
    at = forge.objects[key].index(b"parquet-cpp")
    made = forge.case("other bytes of a leaf that mean the same", "R9.6", OLDER)
    return made | {"changes": [{"key": key, "at": at, "hex": b"Parquet".hex()}]}


def spills() -> list[Value]:
    """Cases of the spill of a delta."""
    at = ("whole", 5)  # ten adds, of which the last four are of the commit
    rules = ("rules", 4)
    drop = 7  # the first of its drops
    plain = [
        ("a spill without its column", lambda rows: rows.drop_columns(["drop"])),
        ("a spill that marks nothing", with_cell("drop", None)),
        ("a hash of a spilled add", with_cell("hash", b"x" * 32)),
        ("no checksum of a spilled add", with_cell("checksum", None)),
        ("a spilled interval that is no chunk's", with_cell("chunk_end", 5)),
        ("a spilled count below 0", with_cell("rows", -1)),
        (
            "a spilled add with its place, beside others without",
            lambda rows: with_cell("version", 5, 7)(with_cell("partition", 1, 7)(rows)),
        ),
    ]
    made = [Forge(*at).spill(change).case(name, "R6.4", REFUSE) for name, change in plain]
    dropped = [
        ("a spilled drop without a hash", with_cell("hash", None, drop)),
        ("rows of a spilled drop", with_cell("rows", 1, drop)),
        ("rows of a spilled drop below 0", with_cell("rows", -1, drop)),
        ("a schema of a spilled drop", with_cell("schema", 1, drop)),
    ]
    made += [Forge(*rules).spill(change).case(name, "R6.4", REFUSE) for name, change in dropped]
    counts = {"adds": 8, "drops": 1}
    made.append(
        Forge(*rules).spill(lambda rows: rows, **counts).case("counts of a spill", "R6.4", REFUSE)
    )
    made.append(
        Forge(*rules).spill(lambda rows: rows, size=1).case("the size of a spill", "R6.4", REFUSE)
    )
    first = lambda rows: rows.select(["drop", *(n for n in rows.column_names if n != "drop")])
    made.append(Forge(*rules).spill(first).case("a spill that marks first", "R6.4", SAME))
    half = lambda rows: with_cell("slice_high", 12, rows.num_rows - 1)(rows)
    made.append(Forge("split", 12).spill(half).case("half a span of a spill", "R6.4", REFUSE))
    forge = Forge(*at)
    key = f"_frames/{forge.commit(5)['delta']['spill']['sha256']}.parquet"
    place = forge.objects[key].index(b"parquet-cpp")
    other = forge.case("other bytes of a spill that mean the same", "R6.4", REFUSE)
    made.append(other | {"changes": [{"key": key, "at": place, "hex": b"Parquet".hex()}]})
    return made


def all_cases() -> list[Value]:
    """Return all cases of this module."""
    return [
        *(*forms(), *small_states(), *entries(), *deltas(), *roots(), *stems(), *leaves()),
        *spills(),
    ]
