"""A table and one of another format in one root: either's programs may delete the other's files."""

from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from support.builders import create, events
from support.published import path_of

from eventlog import compaction
from eventlog.errors import Corrupt, InvalidInput
from eventlog.fsck.check import fsck
from eventlog.publishing import publish, unpublish
from eventlog.store.local import LocalStore
from eventlog.writers import append

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


def delta_table(folder):
    for _ in range(3):
        write_deltalake(str(folder), ROWS, mode="append")


def iceberg_table(folder):
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{folder.parent}")
    catalog.create_namespace("n")
    catalog.create_table("n.t", ROWS.schema, location=f"file://{folder}").append(ROWS)


MAKERS = {"delta": delta_table, "iceberg": iceberg_table}


@pytest.mark.parametrize("format_name", MAKERS)
def test_a_table_does_not_begin_in_the_root_of_another_one(tmp_path, format_name):
    MAKERS[format_name](tmp_path / "t")
    store = LocalStore(str(tmp_path / "t"))
    before = objects_of_store(store)
    with pytest.raises(InvalidInput, match=f"{format_name.title()} table here.*another path"):
        create(store)
    assert objects_of_store(store) == before


@pytest.mark.parametrize("format_name", MAKERS)
def test_a_table_begins_where_an_earlier_one_was_published(format_name):
    t = create()
    append(t, events(2))
    publish(t, format_name)
    t.store.delete([row.key for row in t.store.list("_log/")])
    append(create(t.store, seed=2), events(2))


@pytest.mark.parametrize("horizon", [0, 6])
def test_the_delta_table_of_somebody_else_is_named_and_touched_by_nothing(tmp_path, horizon):
    t = filled(tmp_path, horizon)
    delta_table(tmp_path / "t")
    check_named(t, "delta", "_delta_log/")
    assert DeltaTable(path_of(t)).version() == 2


def test_the_iceberg_table_of_somebody_else_is_named_and_touched_by_nothing(tmp_path):
    t = filled(tmp_path, 0)
    iceberg_table(tmp_path / "t")
    check_named(t, "iceberg", "metadata/")


def filled(tmp_path, horizon):
    t = create(LocalStore(str(tmp_path / "t")))
    for number in range(6):
        append(t, events(1, day=number))
    if horizon:
        t.clock.advance(10**9)
        compaction.vacuum(t, retention=timedelta(0), staging=timedelta(0), dry_run=False)
    return t


def check_named(t, format_name, prefix):
    before = objects_of_store(t.store)
    calls = (publish, lambda *given: unpublish(*given, dry_run=False))
    for call, kind in zip(calls, (Corrupt, InvalidInput), strict=True):
        with pytest.raises(kind, match=r"did not publish.*a root of its own"):
            call(t, format_name)
    found = [finding for finding in fsck(t).findings if finding.key.startswith(prefix)]
    assert [finding.severity for finding in found] == ["error"]
    assert "a root of its own" in found[0].message
    assert objects_of_store(t.store) == before


def objects_of_store(store):
    return {row.key: store.get(row.key) for row in store.list("")}
