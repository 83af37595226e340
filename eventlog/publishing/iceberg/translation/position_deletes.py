"""Deletion vectors of segments in the two forms that Iceberg has for them. No I/O.

Format version 2 has files of positions; there is one for each segment, since Polars reads no
others. Format version 3 has bitmaps in Puffin files; each has one, since DuckDB returns wrong rows
of those that have several.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from eventlog.format.deletion_vectors import encode_bitmap
from eventlog.model.columns.column_types import FIELD_ID
from eventlog.publishing.iceberg.translation.avro_files import compact_json

PATH_ID, POSITION_ID = 2147483546, 2147483545  # the field ids that Iceberg reserves for these
_ROW_POSITION = 2147483645
_PUFFIN = b"PFA1"
PUFFIN_OFFSET = len(_PUFFIN)
_VECTOR = b"\xd1\xd3\x39\x64"
_FIELDS = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID: str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID: str(POSITION_ID)}),
    ]
)


def positions_parquet(path: str, positions: BitMap64) -> bytes:
    """Return the bytes of a file of positions of one segment.

    Args:
        path: the URI of the segment.
        positions: of its deleted rows.
    """
    rows = pa.array(positions, pa.int64())
    paths = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(rows)), [path])
    table = pa.table([paths.cast(pa.string()), rows], schema=_FIELDS)
    body = BytesIO()
    pq.write_table(
        table, body, compression="zstd", use_dictionary=["file_path"], store_schema=False
    )
    return body.getvalue()


def same_positions(one: bytes, other: bytes) -> bool:
    """Return whether two files of positions have the same rows: releases of Arrow differ."""
    try:
        tables = [pq.read_table(BytesIO(body)) for body in (one, other)]
    except (pa.ArrowException, OSError):
        return False
    return bool(tables[0].equals(tables[1]))


def vector_puffin(path: str, positions: BitMap64) -> tuple[bytes, int]:
    """Return the bytes of a Puffin file with one deletion vector, and the vector's size.

    The vector begins at `PUFFIN_OFFSET`.

    Source: https://iceberg.apache.org/puffin-spec/, blob type `deletion-vector-v1`.

    Args:
        path: the URI of the segment.
        positions: of its deleted rows.
    """
    checked = _VECTOR + encode_bitmap(positions)
    blob = struct.pack(">I", len(checked)) + checked + struct.pack(">I", crc32(checked))
    described: dict[str, Any] = {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": PUFFIN_OFFSET,
        "length": len(blob),
        "properties": {"referenced-data-file": path, "cardinality": str(len(positions))},
    }
    footer = compact_json({"blobs": [described]}).encode()
    end = _PUFFIN + footer + struct.pack("<i", len(footer)) + bytes(4) + _PUFFIN
    return _PUFFIN + blob + end, len(blob)
