"""Delta's checkpoint of a version: `_delta_log/<N>.checkpoint.parquet`. No I/O.

Source: Delta's PROTOCOL.md, "Checkpoints" (classic, one file) and "Last Checkpoint File". Its rows
depend on the version alone; its bytes also on the release of Arrow.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import UnsetType

from eventlog.errors import Corrupt
from eventlog.format.deletion_vectors import vector_hash
from eventlog.format.frames import entry_columns
from eventlog.log.snapshot import Snapshot
from eventlog.publishing.delta.translation.delta_commits import Vectors, in_commit_time
from eventlog.publishing.delta.translation.delta_schema import metadata, one_line, protocol
from eventlog.publishing.delta.translation.statistics import StatisticsWriter

HINT_KEY = "_delta_log/_last_checkpoint"
CHECKPOINT_EVERY = 100  # versions: how many commits a reader reads at most above a checkpoint

_TEXTS = pa.list_(pa.string())
_MAP = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
_ADD = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
        ("deletionVector", _VECTOR),
    ]
)
_REMOVE = pa.struct(
    [
        ("path", pa.string()),
        ("deletionTimestamp", pa.int64()),
        ("dataChange", pa.bool_()),
        ("extendedFileMetadata", pa.bool_()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("deletionVector", _VECTOR),
    ]
)
_METADATA = pa.struct(
    [
        ("id", pa.string()),
        ("name", pa.string()),
        ("description", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", _TEXTS),
        ("configuration", _MAP),
        ("createdTime", pa.int64()),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", _TEXTS),
        ("writerFeatures", _TEXTS),
    ]
)
_TXN = pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())])
_SCHEMA = pa.schema(
    [
        ("txn", _TXN),
        ("add", _ADD),
        ("remove", _REMOVE),
        ("metaData", _METADATA),
        ("protocol", _PROTOCOL),
    ]
)


def is_due(version: int, first: int) -> bool:
    """Return whether a version gets a checkpoint, in a publication that begins at `first`."""
    return version > 0 and (version == first or version % CHECKPOINT_EVERY == 0)


def checkpoint_rows(snapshot: Snapshot, entries: pa.Table, vectors: Vectors) -> pa.Table:
    """Return the actions that a version consists of, as the rows of a checkpoint.

    Args:
        snapshot: of the version.
        entries: of its live segments, as `eventlog.format.frames.entry_columns` has them.
        vectors: theirs, by `vector_name`.
    """
    fields = metadata(snapshot)
    head: list[dict[str, Any]] = [
        {"protocol": protocol(snapshot)},
        {
            "metaData": fields
            | {
                "format": {"provider": "parquet", "options": []},
                "configuration": [*fields["configuration"].items()],
            }
        },
    ]
    described = pa.Table.from_pylist(head, schema=_SCHEMA)
    return pa.concat_tables([described, _adds(snapshot, entries, vectors)])


def checkpoint_bytes(rows: pa.Table) -> bytes:
    """Return a checkpoint with these rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def described_rows(body: bytes) -> pa.Table:
    """Return the rows of a checkpoint, in the columns that `checkpoint_rows` has.

    Raises:
        Corrupt: it is none with these columns.
    """
    try:
        return pq.read_table(pa.BufferReader(body)).cast(_SCHEMA)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise Corrupt(f"the checkpoint does not decode: {error}") from None


def _adds(snapshot: Snapshot, entries: pa.Table, vectors: Vectors) -> pa.Table:
    """Return the rows of live segments, in columns: a table may have very many."""
    paths = pa.array(entry_columns.object_keys(entries), pa.string())
    order = pc.sort_indices(paths)
    paths, entries = paths.take(order), entries.take(order)
    count, none = len(paths), pa.array([], pa.string())
    columns = {
        "path": paths,
        "partitionValues": pa.MapArray.from_arrays([0] * (count + 1), none, none),
        "size": entries.column("bytes").combine_chunks(),
        "modificationTime": pa.repeat(pa.scalar(in_commit_time(snapshot)), count),
        "dataChange": pa.repeat(pa.scalar(False), count),
        "stats": StatisticsWriter(snapshot).texts(entries),
        "deletionVector": pa.array(_descriptors(paths, entries, vectors), _VECTOR),
    }
    adds = pa.StructArray.from_arrays([columns[f.name] for f in _ADD], fields=[*_ADD])
    others = [adds if f.name == "add" else pa.nulls(count, f.type) for f in _SCHEMA]
    return pa.Table.from_arrays(others, schema=_SCHEMA)


def _descriptors(
    paths: pa.Array, entries: pa.Table, vectors: Vectors
) -> list[dict[str, Any] | None]:
    found: list[dict[str, Any] | None] = [None] * len(paths)
    for row, vector in enumerate(entry_columns.vectors(entries)):
        if not isinstance(vector, UnsetType):
            found[row] = vectors[paths[row].as_py(), vector_hash(vector)].descriptor()
    return found


def hinted_version(body: bytes) -> int:
    """Return the version that the hint names; -1 if it has none."""
    try:
        version = json.loads(body)["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1
    return version if isinstance(version, int) else -1


def hint(version: int, rows: int, size: int) -> bytes:
    """Return the object that names the newest checkpoint.

    Args:
        version: of the checkpoint.
        rows: their number.
        size: of the checkpoint, in bytes.
    """
    return one_line({"version": version, "size": rows, "sizeInBytes": size}).encode()
