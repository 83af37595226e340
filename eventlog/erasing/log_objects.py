"""Decodes the objects of a log, and of what is published of it, for an erasure's search. No I/O.

Each decoder returns what an object has of the sought rows: rows of segments that stand in it, and
the segments whose bounds may be values of a sought row. A bound is none if its segment was found
without such rows: so these are compared once all objects are read.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UnsetType
from pyroaring import BitMap64

from eventlog.erasing.file_search import FoundRows, sought_in
from eventlog.erasing.sought import Sought, bounds_table
from eventlog.errors import Corrupt
from eventlog.format import codec
from eventlog.format.frames.stem_bytes import from_stem
from eventlog.inline.pack_bytes import open_pack
from eventlog.model.actions import Add
from eventlog.model.records import Transaction
from eventlog.publishing.iceberg.translation.avro_files import avro_records

_ID = re.compile(r"([0-9a-f]{32})\.parquet")


@dataclass(slots=True)
class Contents:
    """What one object has of the sought rows.

    Attributes:
        kind: what it is: `commit`, `segment`, …
        found: rows, and values beside them.
        clean: ids of segments that it has without such rows.
        dirty: ids of segments of which it has such rows.
        bounds: ids of segments, and hashes of leaves, of which it has bounds that may be theirs.
        names: the number of texts of users that name them.
        problem: why it could not be decoded; "": it was.
    """

    kind: str
    found: FoundRows = field(default_factory=FoundRows)
    clean: set[str] = field(default_factory=set)
    dirty: set[str] = field(default_factory=set)
    bounds: set[str] = field(default_factory=set)
    names: int = 0
    problem: str = ""

    def add_rows(self, found: FoundRows, ids: Iterable[str]) -> None:
        """Count what was found in the bytes of segments."""
        self.found.rows += found.rows
        self.found.tombstones += found.tombstones
        self.found.values += found.values
        self.found.keys += found.keys
        (self.dirty if found.rows else self.clean).update(ids)

    def add_bounds(self, entries: Iterable[Any], names: Callable[[Any], str], of: Sought) -> None:
        """Note those of some entries whose bounds may be values of a sought row."""
        entries = list(entries)
        passes = of.passing_bounds(bounds_table(entries))
        self.bounds |= {names(x) for x, passed in zip(entries, passes, strict=True) if passed}


Decoder = Callable[[bytes, Sought], Contents]


def commit_contents(body: bytes, sought: Sought) -> Contents:
    """Return what a commit or its stub has. Raises: `Corrupt`, `UnsupportedFormat`."""
    if codec.is_stub(body):
        codec.decode_stub(body)
        return Contents("stub", names=sought.named_in(msgspec.json.decode(body)))
    commit = codec.decode_commit(body)
    found = Contents("commit", names=sought.named_in(msgspec.json.decode(body)))
    _add_transactions(found, commit.transactions, sought)
    found.add_bounds(commit.delta.adds, _by_id, sought)
    return found


def intent_contents(body: bytes, sought: Sought) -> Contents:
    """Return what a published transaction has. Its digest is not compared. Raises: `Corrupt`."""
    try:
        document = msgspec.json.decode(body)
        document.pop("digest", None)
        transaction = msgspec.convert(document, Transaction)
    except (msgspec.MsgspecError, AttributeError, UnicodeDecodeError) as error:
        raise Corrupt(f"not a published transaction: {error}") from None
    found = Contents("intent", names=sought.named_in(document))
    _add_transactions(found, (transaction,), sought)
    return found


def _add_transactions(found: Contents, transactions: Iterable[Transaction], sought: Sought) -> None:
    adds = [a for t in transactions for a in t.actions if isinstance(a, Add)]
    for add in adds:
        if not isinstance(add.parquet, UnsetType):
            found.add_rows(sought_in(pa.BufferReader(add.parquet), sought), (add.id,))
    found.add_bounds(adds, _by_id, sought)


def keyframe_contents(body: bytes, sought: Sought, version: int) -> Contents:
    """Return what the root of a key frame has. Raises: `Corrupt`, `UnsupportedFormat`."""
    root = codec.decode_keyframe(body, version)
    found = Contents("key frame", names=sought.named_in(msgspec.json.decode(body)))
    found.add_bounds(root.segments, _by_id, sought)
    found.add_bounds(root.leaves, lambda leaf: leaf.sha256, sought)
    if not isinstance(root.stems, UnsetType):
        found.add_bounds(root.stems, lambda stem: stem.sha256, sought)
    return found


def stem_contents(body: bytes, sought: Sought) -> Contents:
    """Return what a stem has. Raises: `Corrupt`."""
    found = Contents("stem")
    found.add_bounds(from_stem(body), lambda leaf: leaf.sha256, sought)
    return found


def frame_contents(body: bytes, sought: Sought) -> Contents:
    """Return what a leaf, a spill or the pending object of a vacuum has. Raises: Arrow's errors."""
    table = pq.read_table(pa.BufferReader(body), use_threads=False)
    if table.column_names == ["key", "dropped", "bytes"]:
        return Contents("pending")
    found = Contents("spill" if "drop" in table.column_names else "leaf")
    adds = table
    if "drop" in table.column_names:
        adds = table.filter(pc.invert(table.column("drop")))
    bounds = {
        name: adds.column(name).cast(pa.int64()) if pa.types.is_null(adds.field(name).type)
        or pa.types.is_int32(adds.field(name).type) else adds.column(name)
        for name in adds.column_names
        if name in ("chunk_start", "chunk_end", "rows") or name.startswith(("min_", "max_"))
    }  # fmt: skip
    passes = sought.passing_bounds(pa.table(bounds))
    ids = adds.column("id").to_pylist()
    found.bounds = {name.hex() for name, passed in zip(ids, passes, strict=True) if passed}
    return found


def pack_contents(body: bytes, sought: Sought) -> Contents:
    """Return what a pack has. Raises: `Corrupt`, `DataLoss`, Arrow's errors."""
    packed = open_pack(body)
    if packed is None:
        raise Corrupt("not a pack")
    found = Contents("pack")
    # A pack has rows of segments that may be live, and proves nothing of their bytes.
    found.add_rows(sought_in(pa.BufferReader(body), sought), ())
    return found


def vectors_contents(body: bytes, _sought: Sought) -> Contents:
    """Return what an object of deletion vectors has: positions, and nothing else.

    Raises:
        ValueError: it is no row of bitmaps.
    """
    at = 0
    while at < len(body):
        bitmap = BitMap64.deserialize(body[at:])
        at += len(bitmap.serialize())
    return Contents("vectors")


def plain_contents(kind: str) -> Decoder:
    """Return the decoder of small objects of JSON, of which only texts count."""

    def decoded(body: bytes, sought: Sought) -> Contents:
        return Contents(kind, names=sought.named_in(msgspec.json.decode(body)))

    return decoded


def text_contents(kind: str) -> Decoder:
    """Return the decoder of objects that are a text, perhaps of JSON."""

    def decoded(body: bytes, sought: Sought) -> Contents:
        return Contents(kind, names=int(sought.is_named(body.decode())))

    return decoded


def delta_commit_contents(body: bytes, sought: Sought) -> Contents:
    """Return what a commit of a publication as Delta has. Raises: `ValueError`."""
    found = Contents("delta")
    for line in body.splitlines():
        action = json.loads(line)
        _add_published(found, action.get("add"), sought)
    return found


def delta_checkpoint_contents(body: bytes, sought: Sought) -> Contents:
    """Return what a checkpoint of a publication as Delta has. Raises: Arrow's errors."""
    found = Contents("delta")
    for add in pq.read_table(pa.BufferReader(body), columns=["add"])["add"].to_pylist():
        _add_published(found, add, sought)
    return found


def _add_published(found: Contents, add: Mapping[str, Any] | None, sought: Sought) -> None:
    """Note a file of a Delta log, if it has bounds of a column that the predicate reads."""
    if not add:
        return
    stats = json.loads(add.get("stats") or "{}")
    bounded = {*stats.get("minValues", {}), *stats.get("maxValues", {})}
    if bounded & sought.predicate.columns():
        found.bounds.add(_id_in(add["path"]))


class _Pair(msgspec.Struct, frozen=True):
    key: int
    value: bytes


class _DataFile(msgspec.Struct, frozen=True):
    file_path: str
    lower_bounds: list[_Pair] | None = None
    upper_bounds: list[_Pair] | None = None


class _Entry(msgspec.Struct, frozen=True):
    data_file: _DataFile


class _Anything(msgspec.Struct, frozen=True):
    manifest_path: str | None = None


def avro_contents(body: bytes, sought: Sought) -> Contents:
    """Return what a manifest, or a list of manifests, of a publication as Iceberg has.

    Raises:
        Corrupt: it is none.
        InvalidInput: an extra is not installed.
    """
    found = Contents("iceberg")
    if any(record.manifest_path for record in avro_records(body, _Anything)):
        return found
    wanted = sought.column_ids()
    for entry in avro_records(body, _Entry):
        file = entry.data_file
        if wanted & {pair.key for pair in [*(file.lower_bounds or ()), *(file.upper_bounds or ())]}:
            found.bounds.add(_id_in(file.file_path))
    return found


def positions_contents(body: bytes, _sought: Sought) -> Contents:
    """Return what a file of position deletes of Iceberg has: names of files, and positions.

    Raises:
        Corrupt: it has other columns.
    """
    names = pq.ParquetFile(io.BytesIO(body)).schema_arrow.names
    if {*names} - {"file_path", "pos"}:
        raise Corrupt("not a file of position deletes")
    return Contents("iceberg")


def _by_id(entry: Any) -> str:
    return str(entry.id)


def _id_in(path: str) -> str:
    """Return the id of the segment that a path names, or the path."""
    match = _ID.search(path)
    return match[1] if match else path
