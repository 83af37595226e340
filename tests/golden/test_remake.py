"""The makers of the golden tables write the bytes that are there, wherever they run."""

import hashlib
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden import make
from golden.remake import MAKERS

TABLES = Path(__file__).parent / "tables"


def digests(root):
    """The hash of each file below a directory, by its path there."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def written_by():
    """The version of Arrow that wrote the segments."""
    one = next((TABLES / "typed" / "data").rglob("*.parquet"))
    return pq.read_metadata(one).created_by.rpartition(" ")[2]


@pytest.mark.verify
def test_the_makers_write_every_byte_that_is_there(tmp_path, monkeypatch):
    if written_by() != pa.__version__:
        pytest.skip(f"Arrow {written_by()} wrote the tables, and their bytes name it")
    monkeypatch.setattr(make, "TABLES", tmp_path / "tables")
    monkeypatch.setattr(make, "EXPECTED", tmp_path / "expected.json")
    for name in MAKERS:
        import_module(f"golden.{name}").main()
    assert digests(tmp_path / "tables") == digests(TABLES)
    assert (tmp_path / "expected.json").read_bytes() == (
        TABLES.parent / "expected.json"
    ).read_bytes()


def test_every_maker_of_a_table_is_listed():
    found = {path.stem for path in TABLES.parent.glob("make*.py")}
    assert {*MAKERS} == found - {"make_example", "make_negative"}
