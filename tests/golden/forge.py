"""Golden tables with changes, as negative vectors have them.

A `Forge` has the objects of a table. Commits and roots are changed as values; their digests, and
where it is asked for their state hash, are made good, so that nothing but the change is wrong.
"""

import base64
import copy
import difflib
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from golden import checks, reader

Value = dict[str, Any]
Edit = Callable[[Value], Any]
TOP = reader.TOP
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[0-9-]+|.', re.DOTALL)


def log_key(version: int, kind: str = "") -> str:
    """Return the key of a commit, or with `.keyframe` of a root."""
    return f"_log/{TOP - version:012d}{kind}.json"


def sealed(bare: str) -> str:
    """Return the text of an object with its digest."""
    return f'{bare[:-1]},"digest":"{hashlib.sha256(bare.encode()).hexdigest()}"}}'


class Forge:
    """The objects of a golden table, to be changed.

    Args:
        table: its name; of a branch with its path.
        version: the version that the vector opens.
    """

    def __init__(self, table: str, version: int) -> None:
        self.table, self.version = table, version
        self.before = checks.objects(table.split("/", maxsplit=1)[0])
        self.objects = dict(self.before)
        self.folder = self._folder()

    def _folder(self) -> str:
        """Return where the branch's own objects lie."""
        folder = ""
        for name in checks.branches_of(self.table):
            told = json.loads(self.before[f"{folder}_branches/{name}/_fork.json"])
            folder += f"_branches/{name}/{told['id']}/"
        return folder

    def cut(self) -> "Forge":
        """Take away everything above the version: it becomes the newest one."""
        for key in self.before:
            found = re.fullmatch(rf"{self.folder}_log/(\d{{12}})(\.keyframe)?\.json", key)
            if found and TOP - int(found[1]) > self.version:
                del self.objects[key]
        return self

    # Values.

    def commit(self, version: int) -> Value:
        """Return a commit without digests."""
        made = json.loads(self.objects[self.folder + log_key(version)])
        del made["digest"], made["header"]["digest"]
        return made

    def root(self, version: int) -> Value:
        """Return a root without its digest."""
        made = json.loads(self.objects[self.folder + log_key(version, ".keyframe")])
        del made["digest"]
        return made

    def put_commit(self, version: int, made: Value) -> None:
        """Store a commit with its digests made good."""
        head = reader.canonical(made["header"])
        rest = reader.canonical({k: v for k, v in made.items() if k != "header"})
        body = sealed(f'{{"header":{sealed(head)},{rest[1:]}')
        self.objects[self.folder + log_key(version)] = body.encode()

    def put_root(self, version: int, made: Value) -> None:
        """Store a root with its digest made good."""
        key = self.folder + log_key(version, ".keyframe")
        self.objects[key] = sealed(reader.canonical(made)).encode()

    def put(self, body: bytes, kind: str = "parquet") -> tuple[str, int]:
        """Store an object under `_frames/`; return its name and size."""
        name = hashlib.sha256(body).hexdigest()
        self.objects[f"{self.folder}_frames/{name}.{kind}"] = body
        return name, len(body)

    def json(self, key: str, edit: Edit) -> "Forge":
        """Change another object of JSON, and make its digest good."""
        made = json.loads(self.objects[key])
        del made["digest"]
        edit(made)
        self.objects[key] = sealed(reader.canonical(made)).encode()
        return self

    # Changes.

    def edit(self, change: Edit, at: int | None = None, *, restate: bool = False) -> "Forge":
        """Change a commit, by default that of the version.

        Args:
            change: gets the commit, and changes it.
            at: its version.
            restate: its state hash and totals become those of what it says.
        """
        at = self.version if at is None else at
        before = self.commit(at)
        after = copy.deepcopy(before)
        change(after)
        if restate:
            self.add_up(after, _sums(self, after), _sums(self, before))
        self.put_commit(at, after)
        return self

    def add_up(self, made: Value, now: list[int], then: list[int]) -> None:
        """Change the state hash and the totals of a header by a difference of sums."""
        total, *sums = (a - b for a, b in zip(now, then, strict=True))
        number = (int(made["header"]["state_hash"], 16) + total) % reader.PRIME
        made["header"]["state_hash"] = f"{number:064x}"
        totals, deleted = made["header"]["totals"], made["header"]["totals"].pop("deleted", 0)
        inline = totals.pop("inline", 0)
        for name, more in zip(("segments", "rows", "bytes"), sums[:3], strict=True):
            totals[name] += more
        if deleted + sums[3]:
            totals["deleted"] = deleted + sums[3]
        if inline:
            totals["inline"] = inline

    def edit_root(self, at: int, change: Edit) -> "Forge":
        """Change a root."""
        made = self.root(at)
        change(made)
        self.put_root(at, made)
        return self

    def leaf(
        self,
        at: int,
        change: Callable[[pa.Table], pa.Table],
        *,
        number: int = 0,
        own: bool = False,
        **said: Any,
    ) -> "Forge":
        """Change the rows of a leaf, and its name in the root.

        Args:
            at: the version of the root.
            change: returns the new rows.
            number: of the leaf.
            own: the hashes of entries, what the root says, and the commit of the version that is
                opened become those of the changed rows.
            said: the root's fields of the leaf, in place of the true ones.
        """
        made = self.root(at)
        ref = made["leaves"][number]
        old = pq.read_table(pa.BufferReader(self.frame(ref["sha256"])))
        new = change(old)
        if own:
            new, sums = _hashed(new)
            gone = ref.pop("deleted", 0)
            then = [int(ref["hash_sum"], 16), ref["segments"], ref["rows"] - gone, ref["bytes"]]
            then.append(gone)
            ref["hash_sum"] = f"{sums[0] % reader.PRIME:064x}"
            ref |= {"segments": sums[1], "rows": sums[2] + sums[4], "bytes": sums[3]}
            ref |= {"deleted": sums[4]} if sums[4] else {}
            self.add_up({"header": made}, sums, then)
            commit = self.commit(self.version)
            self.add_up(commit, sums, then)
            self.put_commit(self.version, commit)
        ref["sha256"], ref["size"] = self.put(parquet(new))
        ref |= said
        self.put_root(at, made)
        return self

    def stem(
        self, at: int, change: Callable[[list[Value]], Any], number: int = 0, **said: Any
    ) -> "Forge":
        """Change the leaves of a stem, and its name in the root.

        Args:
            at: the version of the root.
            change: gets the leaves, and changes them.
            number: of the stem.
            said: fields of the root's entry for the stem, in place of its own.
        """
        made = self.root(at)
        ref = made["stems"][number]
        leaves = self.leaves_of_stem(ref["sha256"])
        change(leaves)
        body = pa.compress(reader.canonical(leaves).encode(), "zstd", asbytes=True)
        ref["sha256"], ref["size"] = self.put(body, "json.zst")
        ref |= said
        self.put_root(at, made)
        return self

    def leaves_of_stem(self, name: str) -> list[Value]:
        """Return the descriptions of leaves in a stem."""
        body = next(b for k, b in self.objects.items() if k.endswith(f"_frames/{name}.json.zst"))
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            found: list[Value] = json.loads(stream.read())
        return found

    def spill(self, change: Callable[[pa.Table], pa.Table], **said: int) -> "Forge":
        """Change the rows of the spill of the version's delta, and its name in the commit."""
        made = self.commit(self.version)
        ref = made["delta"]["spill"]
        new = change(pq.read_table(pa.BufferReader(self.frame(ref["sha256"]))))
        ref["sha256"], ref["size"] = self.put(parquet(new))
        ref |= said
        self.put_commit(self.version, made)
        return self

    def frame(self, name: str) -> bytes:
        """Return an object under `_frames/`, of the branch or its parents."""
        return next(b for k, b in self.objects.items() if k.endswith(f"_frames/{name}.parquet"))

    def rows_of_leaf(self, name: str) -> pa.Table:
        """Return the rows of a leaf."""
        return pq.read_table(pa.BufferReader(self.frame(name)))

    def segment(self, change: Callable[[pa.Table], pa.Table], *, like: str = "") -> "Forge":
        """Change the rows of a segment of the delta; its entry keeps its id and has their bytes.

        Args:
            change: returns the new rows.
            like: a text that the entry's JSON has.
        """

        def entry(made: Value) -> None:
            one = next(e for e in made["delta"]["adds"] if like in reader.canonical(e))
            key = f"data/{one['epoch']:012d}/{one['chunk']}/{one['id']}.parquet"
            body = parquet(change(pq.read_table(pa.BufferReader(self.objects[key]))))
            self.objects[key] = body
            one |= {"bytes": len(body), "checksum": hashlib.sha256(body).hexdigest()}

        return self.edit(entry, restate=True)

    # What it becomes.

    def case(self, name: str, rule: str, what: str) -> Value:
        """Return the vector."""
        changes = [{"key": key, "absent": True} for key in self.before if key not in self.objects]
        for key, body in self.objects.items():
            if self.before.get(key) != body:
                changes.append({"key": key} | _change(self.before.get(key), body))
        fields = {"name": name, "rule": rule, "what": what, "table": self.table}
        return fields | {"version": self.version, "changes": changes}


def parquet(rows: pa.Table) -> bytes:
    """Return rows as Parquet."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", store_schema=False, write_statistics=False)
    return bytes(sink.getvalue())


def with_cell(name: str, value: Any, row: int = 0) -> Callable[[pa.Table], pa.Table]:
    """Return a change of one value of a column."""

    def change(rows: pa.Table) -> pa.Table:
        values = rows.column(name).to_pylist()
        values[row] = value
        field = rows.schema.field(name).with_nullable(True)
        return rows.set_column(rows.column_names.index(name), field, pa.array(values, field.type))

    return change


def with_column(name: str, values: pa.Array | None, at: int | None = None) -> Any:
    """Return a change that adds a column, of nulls where it has no values."""

    def change(rows: pa.Table) -> pa.Table:
        place = rows.num_columns if at is None else at
        return rows.add_column(place, name, values)

    return change


def _sums(forge: Forge, made: Value) -> list[int]:
    """Return the sums over the parts of a commit that it says itself."""
    state = reader.whole_state()
    if made["header"]["keyframe"] is not None and made["state"]:
        below = made["header"]["keyframe"]
        state = reader.whole_state(forge.root(below)["state"])
    for field, change in made["state"].items():
        if field in reader.MAPS:
            merged = state[field] | change
            state[field] = {k: merged[k] for k in sorted(merged) if merged[k] is not None}
        else:
            state[field] = change
    adds, drops = made["delta"]["adds"], made["delta"]["drops"]
    total = sum(map(reader.entry_hash, adds)) - sum(int(d["hash"], 16) for d in drops)
    if made["state"]:
        total += reader.state_sum(state)
    elif made["header"]["keyframe"] is not None:
        below = made["header"]["keyframe"]
        total += reader.state_sum(reader.whole_state(forge.root(below)["state"]))
    return [total, *_counts(adds, len(drops))]


def _counts(entries: list[Value], drops: int = 0) -> list[int]:
    """Return the number, rows, bytes and deleted rows of entries."""
    made = reader.sums_of(entries)
    return [len(entries) - drops, made["rows"], made["bytes"], made.get("deleted", 0)]


def _hashed(rows: pa.Table) -> tuple[pa.Table, list[int]]:
    """Return rows of a leaf with the hashes of their entries, and their sums."""
    entries = [reader.entry_of(row) for row in rows.to_pylist()]
    hashes = [reader.entry_hash(one) for one in entries]
    column = pa.array([number.to_bytes(32) for number in hashes], pa.binary(32))
    rows = rows.set_column(rows.column_names.index("hash"), "hash", column)
    return rows, [sum(hashes), *_counts(entries)]


def _change(before: bytes | None, after: bytes) -> Value:
    """Return how an object becomes another one: as few texts to find and to put as possible."""
    if before is None or not after.startswith(b"{"):
        return {"base64": base64.b64encode(after).decode()}
    old, new = (_TOKEN.findall(body.decode()) for body in (before, after))
    edits: list[tuple[str, str]] = []
    text = before.decode()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for kind, first, last, start, end in matcher.get_opcodes():
        more = 0
        while kind != "equal":  # with so much of what stands around it that it is found once
            left, right = new[max(0, start - more) : start], old[last : last + more]
            find, put = (
                "".join([*left, *part, *right]) for part in (old[first:last], new[start:end])
            )
            if find and text.count(find) == 1:
                text = text.replace(find, put)
                edits.append((find, put))
                break
            more += 1
    assert text == after.decode()
    return {"text": edits}
