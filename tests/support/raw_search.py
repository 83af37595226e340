"""A search of every byte under a root that knows nothing of the package: what a stranger would do.

Whatever looks like Parquet, JSON, Avro, ZSTD or base64 is decoded, as deep as it goes, and each
value is compared with some markers: texts, and whole numbers.
"""

import base64
import binascii
import datetime as dt
import io
import json
import zlib

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq


def objects_with(store, *markers):
    """Return the keys of the objects in which a marker is found, and how often it is."""
    found = {}
    for row in store.list(""):
        count = sum(any(_is(value, one) for one in markers) for value in values(store.get(row.key)))
        if count:
            found[row.key] = count
    return found


def _is(value, marker):
    if isinstance(marker, str):
        if isinstance(value, bytes):
            return marker.encode() in value
        return isinstance(value, str) and marker in value
    if isinstance(value, bytes):
        return any(marker.to_bytes(8, order) in value for order in ("little", "big"))
    return not isinstance(value, bool) and value == marker


def values(body):
    """Yield all values in some bytes, and the bytes."""
    yield body
    if body[:4] == b"PAR1" and body[-4:] == b"PAR1":
        yield from _parquet(body)
    elif body[:4] == b"Obj\x01":
        reader = fastavro.reader(io.BytesIO(body))
        for part in (dict(reader.metadata), *reader):
            yield from _inside(part)
    elif body[:4] == b"\x28\xb5\x2f\xfd":
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            yield from values(stream.read())
    elif body[:1] in (b"{", b"["):
        yield from _json(body)
    elif body[:2] == b"x\x9c":
        yield from values(zlib.decompress(body))


def _parquet(body):
    file = pq.ParquetFile(io.BytesIO(body))
    yield from _inside({k.decode(): v.decode(errors="replace")
                        for k, v in (file.metadata.metadata or {}).items()})  # fmt: skip
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        for at in range(group.num_columns):
            stats = group.column(at).statistics
            if stats is not None and stats.has_min_max:
                yield from _inside([stats.min, stats.max])
    texts = [file.metadata.schema.column(at).path for at in range(file.metadata.num_columns)
             if file.metadata.schema.column(at).physical_type == "BYTE_ARRAY"]  # fmt: skip
    coded = pq.ParquetFile(io.BytesIO(body), read_dictionary=texts).read()
    for column in coded.columns:
        for chunk in column.chunks:
            if pa.types.is_dictionary(chunk.type):
                yield from _inside(chunk.dictionary.to_pylist())
            yield from _inside(chunk.to_pylist())


def _json(body):
    try:
        yield from _inside(json.loads(body))
    except ValueError:
        for line in body.splitlines():
            try:
                yield from _inside(json.loads(line))
            except ValueError:
                return  # bytes that begin like JSON


def _inside(value):
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _inside(name)
            yield from _inside(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _inside(part)
    elif isinstance(value, str):
        yield value
        yield from _text(value)
    elif isinstance(value, bytes):
        yield from values(value)
    elif isinstance(value, dt.datetime):
        epoch = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        yield (value - epoch) // dt.timedelta(microseconds=1)
    elif value is not None:
        yield value


def _text(value):
    if value[:1] in ("{", "["):
        try:
            yield from _inside(json.loads(value))
        except ValueError:
            return
    elif len(value) > 32:
        try:
            yield from values(base64.b64decode(value, validate=True))
        except (binascii.Error, pa.ArrowException, OSError, ValueError):
            return
