"""Negative vectors of rows, keyed tables, branches, copies and tails: one for each check."""

import copy
import hashlib
from typing import Any

import pyarrow as pa
from golden import checks, reader
from golden.forge import Forge, log_key, with_cell
from golden.negative_log import LOST, REFUSE, SAME, UNSUPPORTED, set_in
from golden.reader import OP_ID

Value = dict[str, Any]


def newest(table: str) -> Forge:
    """Return a table whose newest version is opened by its commit."""
    version = reader.Reader(checks.objects(table)).newest()
    forge = Forge(table, version)
    forge.objects.pop(log_key(version, ".keyframe"), None)
    return forge


def states(name: str, rule: str, table: str, change: Any) -> Value:
    """Return a case of a small state of the newest version of a keyed table.

    Args:
        name: of the case.
        rule: of the case.
        table: the table.
        change: gets `layout` and `schema`, and changes them.
    """
    forge = newest(table)
    state = reader.Reader(forge.objects).head().state
    parts = {field: copy.deepcopy(state[field]) for field in ("layout", "schema")}
    change(parts)

    def edit(made: Value) -> None:
        for field in ("layout", "schema"):
            if parts[field] != state[field]:
                made["state"][field] = parts[field]
        made["state"] = {f: made["state"][f] for f in reader.FIELDS if f in made["state"]}

    return forge.edit(edit, restate=True).case(name, rule, REFUSE)


def fits() -> list[Value]:
    """Cases of layouts and schemas that do not fit (R15.2, section 5.2)."""

    def ids(parts: Value, names: Any) -> list[int]:
        known = {c["name"]: c["id"] for c in parts["schema"]["columns"]}
        return [known.get(name, 99) for name in names]

    def keyed(*, key: Any = None, **fields: Any) -> Any:
        def change(parts: Value) -> None:
            parts["layout"]["keyed"].update(fields)
            if key is not None:
                parts["layout"]["keyed"]["key"] = ids(parts, key)

        return change

    def ordered(*names: str) -> Any:
        return lambda parts: parts["layout"].update(order_by=ids(parts, names))

    def twice(field: str) -> Any:
        return lambda parts: parts["layout"]["keyed"]["merge"][field].append(
            parts["layout"]["keyed"]["merge"][field][0]
        )

    def timed(name: str) -> Any:
        return lambda parts: parts["layout"].update(time_column=ids(parts, [name])[0])

    def timeless(parts: Value) -> None:
        del parts["layout"]["time_column"]

    def merge(rule: str, *, function: Any = None, group: Any = None) -> Any:
        def change(parts: Value) -> None:
            old = parts["layout"]["keyed"].pop("merge", {"rule": "last"})
            made = {"rule": rule}
            functions = [*old.get("functions", [])]
            if function is not None:
                number = ids(parts, function[:1])[0]
                functions = [one for one in functions if one["column"] != number]
                functions.append({"column": number, "function": function[1]})
            groups = [*old.get("groups", [])]
            if group is not None:
                number, *columns = ids(parts, group)
                groups = [one for one in groups if one["order"] != number]
                groups.append({"order": number, "columns": columns})
            made |= {"functions": functions} if functions else {}
            made |= {"groups": groups} if groups else {}
            parts["layout"]["keyed"]["merge"] = made

        return change

    def column(name: str, **fields: Any) -> Any:
        def change(parts: Value) -> None:
            next(c for c in parts["schema"]["columns"] if c["name"] == name).update(fields)

        return change

    def reserved(parts: Value) -> None:
        made = {"id": 99, "name": "_op", "type": "string", "nullable": True}
        parts["schema"]["columns"].append(made)

    def retired(parts: Value) -> None:
        parts["schema"]["retired"] = [parts["schema"]["columns"][-1]["id"]]

    def pairs(first: int, second: int, name: str) -> Value:
        fields = [(first, "x"), (second, name)]
        return {"struct": [{"id": n, "name": name, "type": "int8"} for n, name in fields]}

    def booleans(parts: Value) -> None:
        ordered("name")(parts)
        column("name", type="bool", nullable=False)(parts)

    def several(parts: Value) -> None:
        column("word", type="float64")(parts)
        parts["layout"]["keyed"].pop("merge")
        merge("partial", group=("word", "begun"))(parts)

    def twins(name: str, other: str, field: str) -> Any:
        def change(parts: Value) -> None:
            columns = {c["name"]: c for c in parts["schema"]["columns"]}
            value = columns[other][field]
            columns[name][field] = value.upper() if field == "name" else value

        return change

    aggregate = lambda name, function: merge("aggregate", function=(name, function))
    partial = lambda order, name: merge("partial", group=(order, name))
    cases = [
        ("two columns of one id", "R7.2", "year", twins("n", "at", "id")),
        ("two columns of one name, in capitals", "R7.2", "year", twins("n", "at", "name")),
        ("two columns of one id in a keyed table", "R7.2", "keyed", twins("name", "at", "id")),
        ("a column with id 0", "R7.2", "year", column("n", id=0)),
        ("a column with an id of Iceberg's", "R7.2", "year", column("n", id=2**31 - 200)),
        ("a column with an id that is retired", "R7.2", "year", retired),
        ("two fields of one id", "R7.2", "year", column("n", type=pairs(9, 9, "y"))),
        ("two fields of one name", "R7.2", "year", column("n", type=pairs(8, 9, "X"))),
        ("a time column that is not there", "4.3", "year", timed("nothing")),
        ("years without a time column", "R7.14", "year", timeless),
        ("a key without columns", "R15.2", "keyed", keyed(key=[])),
        ("a key that names a column twice", "R15.2", "keyed", keyed(key=["id", "id"])),
        ("a key of a column that is not there", "R15.2", "keyed", keyed(key=["nothing"])),
        ("5,000 buckets", "R15.2", "keyed", keyed(buckets=5000)),
        ("no buckets", "R15.2", "keyed", keyed(buckets=0)),
        ("14 buckets after two splits", "R15.2", "split", keyed(buckets=14)),
        ("a key of floats", "R15.2", "keyed", column("id", type="float64")),
        ("two order columns", "R15.2", "keyed", ordered("at", "id")),
        ("an order column of booleans", "R15.2", "keyed", booleans),
        ("an order column in the key", "R15.2", "keyed", ordered("id")),
        ("a key that may be null", "R15.2", "keyed", column("id", nullable=True)),
        ("a column called _op", "R15.2", "keyed", reserved),
        ("an unknown merge rule", "5.2", "keyed", merge("newest")),
        ("a group without partial", "5.2", "keyed", merge("last", group=("price", "name"))),
        ("a group ordered by floats", "5.2", "rolled", several),
        (
            "a group of a column not there",
            "5.2",
            "joined",
            partial("note", "nothing"),
        ),
        ("a group of a key column", "5.2", "joined", partial("note", "place")),
        ("a group of the order column", "5.2", "keyed", partial("price", "at")),
        ("a column of two groups", "5.2", "joined", partial("note", "birds")),
        ("a function without aggregate", "5.2", "keyed", merge("last", function=("name", "last"))),
        ("a required column under partial", "5.2", "joined", column("note", nullable=False)),
        (
            "a function of a column not there",
            "5.2",
            "rolled",
            aggregate("nothing", "last"),
        ),
        (
            "a function of a key column",
            "5.2",
            "rolled",
            aggregate("kind", "last"),
        ),
        ("two functions of one column", "5.2", "rolled", twice("functions")),
        ("two groups of one order", "5.2", "joined", twice("groups")),
        ("an unknown function", "5.2", "rolled", aggregate("word", "mean")),
        (
            "the first of the order column",
            "5.2",
            "rolled",
            aggregate("seen", "first"),
        ),
        ("a sum of texts", "5.2", "rolled", aggregate("word", "sum")),
        ("a count of decimals", "5.2", "rolled", aggregate("units", "count")),
        ("the greatest of booleans", "5.2", "rolled", column("high", type="bool")),
    ]
    return [states(*one) for one in cases]


def slices() -> list[Value]:
    """Cases of slices that a table cannot have, of its newest version."""

    def bare(made: Value) -> None:
        del made["delta"]["adds"][-1]["slice"]

    def beyond(made: Value) -> None:
        made["delta"]["adds"][-1]["slice"]["last"] = 99

    def again(made: Value) -> None:
        made["delta"]["adds"][-1]["slice"]["splits"] = 3

    def raised(kind: str) -> Any:
        def change(made: Value) -> None:
            place = made["delta"]["adds"][-1]["slice"]
            place["kind"] = kind
            place["level"] += 1

        return change

    return [
        newest("keyed")
        .edit(raised("base"), restate=True)
        .case("a base above logs", "R15.4", REFUSE),
        newest("keyed").edit(raised("late"), restate=True).case("late above logs", "R15.4", REFUSE),
        newest("keyed").edit(bare, restate=True).case("no slice in a keyed table", "R15.3", REFUSE),
        newest("keyed").edit(beyond, restate=True).case("a bucket not there", "R15.3", REFUSE),
        newest("split").edit(again, restate=True).case("a split to come", "R15.15", REFUSE),
    ]


def segments() -> list[Value]:
    """Cases of segments that are not what their entries say."""

    def of(name: str) -> Any:
        def change(made: Value) -> None:
            made["delta"]["adds"][-1][name] += 1

        return change

    def operation(rows: pa.Table) -> pa.Table:
        if "_op" in rows.column_names:
            return with_cell("_op", "D")(rows)
        field = pa.field("_op", pa.string(), metadata={b"PARQUET:field_id": str(OP_ID).encode()})
        return rows.append_column(field, pa.array(["D"] * rows.num_rows))

    def raised(made: Value) -> None:
        made["state"]["horizon"] = 99

    log = '"kind":"log"'
    bare = lambda rows: rows.drop_columns(["at"])
    nameless = lambda rows: rows.append_column("more", pa.nulls(rows.num_rows, pa.int64()))

    def moved(rows: pa.Table) -> pa.Table:
        place = rows.schema.get_field_index("many")
        field = rows.schema.field(place)
        inner = field.type.value_field.with_metadata({b"PARQUET:field_id": b"99"})
        kind = pa.list_(inner)
        return rows.set_column(place, field.with_type(kind), rows.column(place).cast(kind))

    first = lambda rows: rows.schema.field(0).with_name("more")
    twice = lambda rows: rows.append_column(first(rows), rows.column(0))
    return [
        newest("year").edit(of("bytes"), restate=True).case("a longer object", "2.10", LOST),
        newest("year").edit(of("rows"), restate=True).case("another row count", "2.10", LOST),
        newest("keyed").segment(operation, like=log).case("an _op in upper case", "R15.6", LOST),
        newest("whole").segment(bare).case("a required column not there", "4.3", LOST),
        newest("whole").segment(nameless).case("a column without a field id", "R7.10", LOST),
        newest("evolved").segment(moved).case("elements of another field id", "R7.10", LOST),
        newest("whole").segment(twice).case("two columns of one field id", "4.3", LOST),
        _creator("year", "R7.7", "a byte of a segment that means nothing"),
        newest("year")
        .edit(raised, restate=True)
        .case("a horizon above the newest version", "R12.1", REFUSE),
        Forge("shared", 4).case("a version below the horizon", "R12.7", "vacuumed"),
    ]


def _creator(table: str, rule: str, name: str) -> Value:
    """Return a case of a segment of the newest version with one other byte in its footer."""
    forge = newest(table)
    one = forge.commit(forge.version)["delta"]["adds"][-1]
    key = f"data/{one['epoch']:012d}/{one['chunk']}/{one['id']}.parquet"
    at = forge.objects[key].rindex(b"parquet-cpp")
    made = Forge(table, forge.version).case(name, rule, LOST)
    return made | {"changes": [{"key": key, "at": at, "hex": b"P".hex()}]}


def tails() -> list[Value]:
    """Cases of an object of more than 1 MiB."""
    forge = newest("large")
    one = forge.commit(1)["delta"]["adds"][0]
    key = f"data/{one['epoch']:012d}/{one['chunk']}/{one['id']}.parquet"
    body = forge.objects[key]
    start = len(body) - one["tail"]["size"]
    plain = lambda name, rule: Forge("large", 1).case(name, rule, LOST)
    byte = lambda at, put: [{"key": key, "at": at, "hex": put.hex()}]
    end = len(body) - 8 - int.from_bytes(body[-8:-4], "little")  # of the checksums
    longer = body[:end] + b"\0" * 4 + body[end:]
    size = one["tail"]["size"] + 4

    def grown(made: Value) -> None:
        entry = made["delta"]["adds"][0]
        entry |= {"bytes": len(longer), "checksum": hashlib.sha256(longer).hexdigest()}
        entry["tail"] = {"size": size, "sha256": hashlib.sha256(longer[-size:]).hexdigest()}

    other = forge.edit(grown, restate=True).case("a checksum too many", "R7.6", LOST)
    other["changes"].append({"key": key, "at": end, "insert": "00" * 4})
    return [
        plain("a byte of a part changed", "R7.7") | {"changes": byte(500_000, b"y")},
        plain("a byte of a tail changed", "R7.7")
        | {"changes": byte(body.rindex(b"parquet-cpp"), b"P")},
        plain("a checksum of a part changed", "R7.7") | {"changes": byte(start, b"zz")},
        plain("a large object cut short", "2.10") | {"changes": [{"key": key, "cut": 700_000}]},
        other,
    ]


def forks() -> list[Value]:
    """Cases of `_fork.json`, of the branch at its fork."""
    table, key = "branched/_branches/audit", "_branches/audit/_fork.json"
    edits = [
        ("a fork of another name", "6.1", REFUSE, set_in("name", to="other")),
        ("a fork that holds what is above it", "6.1", REFUSE, set_in("held", to=5)),
        ("a fork of another commit", "R16.4", REFUSE, set_in("commit", to="0" * 64)),
        ("a fork of another table", "R16.4", REFUSE, set_in("table", to="0" * 32)),
        ("a fork whose id is none", "R5.2", REFUSE, set_in("id", to="zz")),
        ("a fork for a newer reader", "R5.4", UNSUPPORTED, set_in("min_reader", to=2)),
        ("a fork with another field", "R5.1", REFUSE, set_in("more", to=1)),
    ]
    made = [
        Forge(table, 4).json(key, edit).case(name, rule, what) for name, rule, what, edit in edits
    ]
    plain = lambda name, rule: Forge(table, 4).case(name, rule, REFUSE)
    made.append(
        plain("a byte of a fork changed", "R5.3")
        | {"changes": [{"key": key, "at": 14, "hex": b"f".hex()}]}
    )
    forge = Forge(table, 4)
    del forge.objects[log_key(4)]
    made.append(forge.case("no commit at the fork", "R6.3", REFUSE))
    # The branch has no commit of its own, and its parent has lost that of the fork and all above.
    forge = Forge(table, 4).cut()
    for version in range(4, 10):
        for kind in ("", ".keyframe"):
            forge.objects.pop(log_key(version, kind), None)
    below = forge.case("a branch whose parent ends below the fork", "R16.4", REFUSE)
    made.append(below | {"version": 3})
    return made


def starts() -> list[Value]:
    """Cases of the starts of a copy."""
    first, second = (f"_starts/{reader.TOP - version:012d}.json" for version in (5, 10))
    at = "copied", 13
    edits = [
        ("a start of another version", "7", REFUSE, set_in("version", to=9)),
        ("a start after itself", "7", REFUSE, set_in("after", to=10)),
        ("a start after less than nothing", "7", REFUSE, set_in("after", to=-2)),
        ("a start of another table", "7", REFUSE, set_in("table", to="0" * 32)),
        (
            "a start whose features stand twice",
            "R5.4",
            REFUSE,
            set_in("features", to=["keyed"] * 2),
        ),
        ("a start for a newer reader", "R5.4", UNSUPPORTED, set_in("min_reader", to=2)),
        ("a start with an unknown feature", "R5.4", UNSUPPORTED, set_in("features", to=["x"])),
    ]
    made = [Forge(*at).json(second, edit).case(*rest) for *rest, edit in edits]
    forge = Forge(*at)
    del forge.objects[first]
    made.append(forge.case("no start of a copy", "R17.4", REFUSE))
    forge = Forge(*at)
    del forge.objects[log_key(11)]
    made.append(forge.case("a gap of a copy without a start", "R17.4", REFUSE))
    forge = Forge(*at)
    del forge.objects[log_key(7)]
    made.append(forge.case("a gap that a start has", "R17.4", SAME))
    long = {"key": second, "text": [['"after":5', '"after":' + " " * 4096 + "5"]]}
    made.append(Forge(*at).case("a start of more than 4,096 bytes", "R5.3", REFUSE))
    made[-1]["changes"] = [long]
    forge = Forge(*at)
    for version in (0, 5, 6):
        forge.objects.pop(log_key(version), None)
    made.append(forge.case("a copy that lacks more", "R17.4", REFUSE))
    return made


def all_cases() -> list[Value]:
    """Return all cases of this module."""
    return [*fits(), *slices(), *segments(), *tails(), *forks(), *starts()]
