"""The packs of golden tables have the rows of the commits, by the text of FORMAT.md alone."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden import checks
from golden.reader import TOP, Reader, canonical, sha256

TABLES = ("inline", "inline_keys")


def roots(objects):
    """The roots of key frames, with their versions."""
    for key, body in sorted(objects.items()):
        if key.endswith(".keyframe.json"):
            yield TOP - int(key[5:17]), json.loads(body)


def packed(objects, root):
    """The rows of the segments in the packs of a root, by id."""
    for one in root.get("packs", []):
        body = objects[f"_packs/{TOP - one['last']:012d}/{one['sha256']}.parquet"]
        assert (sha256(body), len(body)) == (one["sha256"], one["size"])
        file = pq.ParquetFile(pa.BufferReader(body))
        stored = file.metadata.metadata[b"eventlog.segments"]
        index = json.loads(stored)
        assert canonical(index).encode() == stored
        assert len(index) == one["segments"]
        assert sum(size for _, _, size, _ in index) == one["bytes"]
        versions = [version for *_, version in index]
        assert (min(versions), max(versions)) >= (one["first"], one["first"])
        assert max(versions) <= one["last"]
        table, at = file.read(use_threads=False), 0
        for name, rows, _, _ in index:
            yield name, table.slice(at, rows)
            at += rows
        assert at == table.num_rows


@pytest.mark.parametrize("name", TABLES)
def test_packs_have_the_rows_of_the_commits(name):
    objects, compared = checks.objects(name), 0
    reader = Reader(objects)
    for version, root in roots(objects):
        live = {one["id"]: one for one in reader.open(version).live.values() if "inline" in one}
        found = dict(packed(objects, root))
        assert found.keys() == live.keys()
        for key, rows in found.items():
            body = reader.object(live[key])
            own = pq.ParquetFile(pa.BufferReader(body)).read()
            assert rows.schema.equals(own.schema.remove_metadata())
            assert rows.to_pylist() == own.to_pylist()
            compared += 1
    assert compared > 2
