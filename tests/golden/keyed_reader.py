"""A second reader of keyed tables, from the text of FORMAT.md: it shares no code with the package.

It takes the objects of a table, and which transactions took effect, and works as slowly as it can:
every version from version 0, every row of every segment, and the rows of a key all at once
(`support.keyed_model`).
"""

import base64
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
from golden.reader import OP_ID
from support.keyed_model import answer

TOP = 999_999_999_999
MASK = 0xFFFF_FFFF


def ordinal(entry):
    """The place of an entry among those of its span."""
    own = entry["slice"]["ordinal"]
    return entry["at"][1] if own is None else own


def murmur3(data):
    """`murmur3_x86_32` of bytes, with seed 0."""
    h = 0
    padded = data + b"\0" * (-len(data) % 4)
    for start in range(0, len(padded), 4):
        k = int.from_bytes(padded[start : start + 4], "little") * 0xCC9E2D51 & MASK
        h ^= (k << 15 | k >> 17) * 0x1B873593 & MASK
        if start + 4 <= len(data):
            h = ((h << 13 | h >> 19) * 5 + 0xE6546B64) & MASK
    h ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        h = (h ^ h >> shift) * factor & MASK
    return h ^ h >> 16


def hashed(value, kind):
    """The hash of one value of a key, which is given as JSON could say it."""
    if kind == "string":
        return murmur3(value.encode())
    if kind == "binary":
        return murmur3(value)
    if kind.startswith("decimal"):
        size = 1
        while not -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
            size += 1
        return murmur3(value.to_bytes(size, "big", signed=True))
    return murmur3(value.to_bytes(8, "little", signed=True))


def bucket(values, kinds, buckets, splits=0):
    """The bucket of a key, in a table whose buckets were split so many times."""
    total = 0
    for value, kind in zip(values, kinds, strict=True):
        total = (31 * total + hashed(value, kind)) & MASK
    first = buckets >> splits
    rest, number = divmod(total & 0x7FFF_FFFF, first)
    for _ in range(splits):
        rest, bit = divmod(rest, 2)
        number = 2 * number + bit
    return number


def splits_of(place):
    """How often buckets had been split when these were numbered."""
    return place.get("splits", 0)


def exact(column, kind):
    """The values of a column as integers, text, bytes or floats."""
    if kind.startswith("decimal"):
        scale = column.type.scale
        return [None if v is None else int(v.scaleb(scale)) for v in column.to_pylist()]
    if kind.startswith("timestamp"):
        return column.cast(pa.int64()).to_pylist()
    return (column.cast(pa.int32()) if kind == "date" else column).to_pylist()


class Reader:
    """Reads a table from its objects.

    Args:
        objects: bytes by key.
        accepted: for each version, which of its transactions took effect.
    """

    def __init__(self, objects, accepted):
        self.objects, self.versions = objects, []
        self.state, self.known = {}, {}
        live = {}
        for version, outcomes in enumerate(accepted):
            commit = json.loads(objects[f"_log/{TOP - version:012d}.json"])
            self._state(commit)
            actions = [
                action
                for txn, good in zip(commit["transactions"], outcomes, strict=True)
                if good
                for action in [*txn["actions"], *self._spilled(txn["spill"])]
            ]
            gone = {a["id"] for a in actions if a["action"] == "drop"}
            adds = [a for a in actions if a["action"] == "add"]
            live = {i: entry for i, entry in live.items() if i not in gone}
            for partition, add in enumerate(adds):
                live[add["id"]] = add | {"at": (version, partition)}
            self.versions.append((dict(live), dict(self.state)))

    def _state(self, commit):
        for name in ("layout", "schema", "properties"):
            if name in commit["state"]:
                self.state[name] = commit["state"][name]

    def _spilled(self, spill):
        """The adds of a spill of a transaction; the golden ones have no drops."""
        if spill is None:
            return []
        assert not spill["drops"]
        body = self.objects[f"_frames/{spill['sha256']}.parquet"]
        rows = pq.read_table(io.BytesIO(body)).to_pylist()
        names = ("kind", "first", "last", "low", "high", "level", "ordinal")
        return [
            {
                "action": "add",
                "id": row["id"].hex(),
                "chunk": "all",
                "epoch": row["epoch"],
                "rows": row["rows"],
                "slice": {name: row[f"slice_{name}"] for name in names}
                | ({"splits": row["slice_splits"]} if row.get("slice_splits") else {}),
            }
            for row in rows
        ]

    def rows(self, version):
        """The rows of a version, by chunk and key."""
        live, state = self.versions[version]
        layout = state["layout"]
        found = {}
        for chunk in {entry["chunk"] for entry in live.values()}:
            here = [entry for entry in live.values() if entry["chunk"] == chunk]
            for number in range(layout["keyed"]["buckets"]):
                for key, row in self._slice(here, number, state).items():
                    found[chunk, key] = row
        return found

    def _slice(self, entries, number, state):
        """The rows of one bucket of a chunk."""
        placed = []
        for entry in entries:
            place = entry["slice"]
            span = [entry["at"][0] if place[end] is None else place[end] for end in ("low", "high")]
            of_it = number >> (splits_of(state["layout"]["keyed"]) - splits_of(place))
            if place["first"] <= of_it <= place["last"]:
                placed.append((*span, place["level"], entry))
        counting = [
            one
            for one in placed
            if not any(o[2] > one[2] and o[0] <= one[0] and one[1] <= o[1] for o in placed)
        ]
        kinds = ["base", "late", "log"]
        counting.sort(key=lambda o: (o[0], o[1], kinds.index(o[3]["slice"]["kind"]), ordinal(o[3])))
        read = [
            (o[3]["slice"]["kind"], row)
            for o in counting
            for row in self._read(o[3], number, state)
        ]
        key = named(state)["key"]
        name = lambda row: tuple(row[k] for k in key)
        logged = {name(row) for kind, row in read if kind == "log"}
        told = {name(row) for kind, row in read if kind == "late"} & logged
        rows = [
            row
            for kind, row in read
            if kind == "log"
            or (kind == "late" and name(row) in told)
            or (kind == "base" and name(row) not in told)
        ]
        return merged(rows, state)

    def _read(self, entry, number, state):
        """The rows of a segment in a bucket."""
        at = entry["id"], state["schema"]["id"], state["layout"]["keyed"]["buckets"]
        if at not in self.known:
            self.known[at] = list(self._all(entry, state))
        return [row for own, row in self.known[at] if own == number]

    def _all(self, entry, state):
        """Yield the bucket of each row of a segment, and the row."""
        place = f"data/{entry['epoch']:012d}/{entry['chunk']}/{entry['id']}.parquet"
        own = entry.get("parquet")
        body = self.objects[place] if own is None else base64.b64decode(own)
        table = pq.read_table(io.BytesIO(body))
        assert table.num_rows == entry["rows"]
        columns = state["schema"]["columns"]
        there = {
            (field.metadata or {}).get(b"PARQUET:field_id"): column
            for field, column in zip(table.schema, table.columns, strict=True)
        }
        found = {c["name"]: there.get(str(c["id"]).encode()) for c in columns}
        values = {
            c["name"]: [None] * table.num_rows
            if found[c["name"]] is None
            else exact(found[c["name"]], c["type"])
            for c in columns
        }
        marks = there.get(str(OP_ID).encode())
        ops = None if marks is None else marks.to_pylist()
        values["_op"] = [op or "u" for op in ops or [None] * table.num_rows]
        types = {c["name"]: c["type"] for c in columns}
        keyed = state["layout"]["keyed"]
        key = named(state)["key"]
        kinds = [types[k] for k in key]
        for values_of_row in zip(*values.values(), strict=True):
            row = dict(zip(values, values_of_row, strict=True))
            values_of_key = [row[k] for k in key]
            yield bucket(values_of_key, kinds, keyed["buckets"], splits_of(keyed)), row


def named(state):
    """The key, the order column and the merge rule, by the names of columns."""
    layout, names = state["layout"], {c["id"]: c["name"] for c in state["schema"]["columns"]}
    keyed = layout["keyed"]
    merge = keyed.get("merge", {"rule": "last"})
    orders = {}
    for group in merge.get("groups", ()):
        orders |= dict.fromkeys([group["order"], *group["columns"]], group["order"])
    return {
        "key": [names[number] for number in keyed["key"]],
        "order": names[layout["order_by"][0]] if layout["order_by"] else None,
        "kind": merge["rule"],
        "functions": {names[f["column"]]: f["function"] for f in merge.get("functions", ())},
        "orders": {names[number]: names[order] for number, order in orders.items()},
    }


def merged(rows, state):
    """The rows of keys, of rows in the order in which they are applied."""
    return answer(rows, **named(state))
