"""Tables without a time column: dimensions, whose rows are in one chunk."""

import json
import pathlib
from datetime import timedelta

import pyarrow as pa
import pytest
from support.builders import check_sound, create, reopen
from support.iceberg_tables import metadata_path, polars_rows, pyiceberg_rows
from support.published import known_rows, readings

from eventlog import Table, compaction, errors
from eventlog.compaction import Policy
from eventlog.fsck.check import fsck
from eventlog.keyed.rule import keyed_of
from eventlog.publishing import publish
from eventlog.readers import changes, dataset, scan
from eventlog.replication import follow, merge
from eventlog.rewriting.row_digest import digest
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, overwrite, update, upsert
from eventlog.writers import merge as merge_rows

SCHEMA = pa.schema([pa.field("code", pa.string(), nullable=False), ("height", pa.float64())])
KEYS = [(), ("code",)]


def stations(table=None, **heights):
    """A row for each station."""
    schema = SCHEMA if table is None else table.session.head().schema
    return pa.table([[*heights], [*heights.values()]], schema=schema)


def made(store=None, key=(), **options):
    return create(store, schema=SCHEMA, time_column=None, key=key, **options)


def add(table, **heights):
    write = append if keyed_of(table.session.head().layout) is None else upsert
    return write(table, stations(table, **heights))


def described(table):
    """Iceberg's metadata of the newest version."""
    return json.loads(pathlib.Path(metadata_path(table, table.session.head().version)).read_text())


def found(table, **question):
    """The rows of a scan, by code."""
    return dict(
        sorted(tuple(row.values()) for row in scan(table, **question).to_table().to_pylist())
    )


@pytest.fixture(params=KEYS, ids=["plain", "keyed"])
def table(request):
    t = made(key=request.param)
    add(t, ams=1.0, ber=2.0)
    add(t, cph=3.0, osl=None)
    return t


def test_its_rows_are_in_one_chunk_and_its_segments_are_pruned_by_values(table):
    layout = reopen(table.store).snapshot().layout
    assert (layout.time_column, layout.granularity) == (None, "all")
    assert {segment.chunk for segment in table.session.head().segments()} == {"all"}
    assert found(table) == {"ams": 1.0, "ber": 2.0, "cph": 3.0, "osl": None}
    assert found(table, where="height > 2.5 OR code = 'osl'") == {"cph": 3.0, "osl": None}
    assert len(table.session.head().segments("code < 'bz'")) == 1
    assert len(table.session.head().segments("code < 'bz'", chunks="all")) == 1
    check_sound(table.store)
    assert not fsck(table, checksums=True).findings


def test_rows_are_deleted_overwritten_and_followed(table):
    start = table.session.head().version
    delete(table, where="code = 'ber'")
    add(table, sto=5.0)
    with pytest.raises(errors.InvalidInput, match="no time column, so no range of time selects"):
        overwrite(table, stations(lhr=6.0), start="2013-01-01", end="2013-01-02")
    delete(table, where="height = 3.0")
    add(table, lhr=6.0)
    assert found(table) == {"ams": 1.0, "lhr": 6.0, "osl": None, "sto": 5.0}
    rows = changes(table, start).to_table().to_pylist()
    assert {(r["code"], r["_change"]) for r in rows} == {
        ("ber", "delete"),
        ("sto", "insert"),
        ("cph", "delete"),
        ("lhr", "insert"),
    }
    overwrite(table, stations(ams=9.0))
    assert found(table) == {"ams": 9.0}
    table.restore(start)
    assert len(found(table)) == 4
    assert not fsck(table, checksums=True).findings


def test_rows_without_a_key_are_updated_and_merged():
    table = made()
    add(table, ams=1.0, ber=2.0)
    overwrite(table, stations(ber=2.5), where="code = 'ber'")
    update(table, where="code = 'ber'", set={"height": "height + 1"})
    merge_rows(table, stations(ber=4.0, cph=5.0), on="code")
    assert found(table) == {"ams": 1.0, "ber": 4.0, "cph": 5.0}
    merge_rows(table, pa.table({"code": ["ams"]}), "code", when_matched="delete",
               when_not_matched="ignore")  # fmt: skip
    assert found(table) == {"ber": 4.0, "cph": 5.0}


def test_keys_are_deleted_by_their_values_alone():
    table = made(key="code")
    add(table, ams=1.0, ber=2.0)
    delete(table, keys=pa.table({"code": ["ber", "nowhere"]}))
    assert found(table) == {"ams": 1.0}
    with pytest.raises(errors.InvalidInput, match="overwritten as a whole"):
        overwrite(table, stations(ams=2.0), where="code = 'ams'")
    with pytest.raises(errors.InvalidInput, match="keys to delete have the columns code"):
        delete(table, keys=pa.table({"code": ["ams"], "height": [1.0]}))


def test_compaction_joins_its_segments_and_cuts_none(table):
    for n in range(12):
        add(table, **{f"n{n}": float(n)})
    before = found(table)
    with pytest.raises(errors.InvalidInput, match="cannot have chunks by month"):
        compaction.plan(table, Policy(granularity="month"))
    report = compaction.run(table)
    assert [outcome.status for outcome in report.outcomes] == ["done"]
    assert len(table.session.head().segments()) == 1
    assert found(table) == before
    with pytest.raises(errors.InvalidInput, match=r"fixed at its creation|cannot have chunks by"):
        table.set_granularity("day")
    compaction.vacuum(table, dry_run=False, retention=timedelta(0), staging=timedelta(0))
    assert found(table) == before


def test_a_value_that_moves_to_another_row_is_noticed_without_times():
    rows = pa.table({"text": ["a", "b"], "n": [1, 2], "x": [0.5, None]})
    moved = rows.set_column(2, "x", pa.array([None, 0.5]))
    assert digest(rows, None) != digest(moved, None)
    parts = digest(rows.slice(1), None) + digest(rows.slice(0, 1), None)
    assert parts == digest(rows, None)
    texts = rows.select(["text"])
    assert digest(texts, None) != digest(texts.slice(1), None)


def test_columns_are_renamed_and_dropped(table):
    table.rename_column("height", "metres")
    table.add_columns(pa.schema([("name", pa.string())]))
    table.drop_columns(["metres"])
    assert table.session.head().schema.names == ["code", "name"]
    assert scan(table).to_table().num_rows == 4


def test_a_claim_on_the_chunk_keeps_another_one_away(table):
    lease = table.claim(owner="one")
    with pytest.raises(errors.CommitConflict):
        table.claim("2013-01-01", "2013-01-02", owner="two")
    lease.release()


def test_branches_and_copies_are_merged(table, tmp_path):
    branch = table.branch("audit")
    add(branch, sto=5.0)
    table.merge("audit")
    follow(table, tmp_path / "copy")
    copy = Table.open(tmp_path / "copy")
    add(copy, lhr=6.0)
    add(table, gva=7.0)
    merge(copy, table)
    assert found(table) == {**found(copy), "gva": 7.0}
    assert found(table)["lhr"] == 6.0
    assert not fsck(table).findings


@pytest.mark.verify
def test_engines_read_what_is_published(tmp_path):
    table = Table.create(tmp_path, SCHEMA)
    for n in range(12):  # a checkpoint of Delta is due
        add(table, **{f"n{n}": float(n), "none": None})
    publish(table, "delta")
    publish(table, "iceberg")
    for version in (1, 12):
        assert set(map(tuple, readings(table, version).values())) == {
            tuple(known_rows(table, version))
        }
        for read in (polars_rows, pyiceberg_rows):
            rows = read(metadata_path(table, version))
            order = [("code", "ascending"), ("height", "ascending")]
            known = scan(table, version=version).to_table().sort_by(order)
            assert rows.sort_by(order).to_pylist() == known.to_pylist()
    assert [part for part in described(table)["partition-specs"] if part["fields"]] == []
    (order,) = described(table)["sort-orders"]  # programs that look at no format refuse to insert
    assert [field["source-id"] for field in order["fields"]] == [1]


def test_a_dataset_has_its_rows(table):
    assert dataset(table).to_table().num_rows == 4


@pytest.mark.parametrize("granularity", ["hour", "day", "month", "year"])
def test_chunks_by_time_need_a_time_column(granularity):
    store = MemoryStore()
    with pytest.raises(errors.InvalidInput, match=f"cannot have chunks by {granularity}"):
        made(store, granularity=granularity)
    assert not [*store.list("")]
    assert made(store, granularity="all").snapshot().layout.time_column is None
