"""Programs that delete what an Iceberg table names, or its directory, meet a guard first."""

import re

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from support.builders import Spy, create, events
from support.iceberg_tables import check_versions, metadata_path
from support.published import objects_of, path_of

from eventlog.errors import Corrupt
from eventlog.fsck.check import fsck
from eventlog.publishing import publish, unpublish
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

BARRIER = "metadata/v999999999.gz.metadata.json"
HINT = "metadata/version-hint.text"


def registered(tmp_path, format_version):
    """A table with a version that is published, and that table in a catalog of pyiceberg."""
    t = create(LocalStore(str(tmp_path / "t")))
    append(t, events(6, days=2))
    done = publish(t, "iceberg", format_version=format_version)
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    return t, catalog.register_table("n.t", f"file://{metadata_path(t, done.last)}")


@pytest.mark.parametrize("format_version", [2, pytest.param(3, marks=pytest.mark.verify)])
def test_a_purge_fails_before_it_deletes_anything(tmp_path, format_version):
    t, theirs = registered(tmp_path, format_version)
    before = objects_of(t, "")
    assert theirs.scan().to_arrow().num_rows == 6
    with pytest.raises(FileNotFoundError, match="eventlog-read-only"):
        theirs.inspect.all_files()
    assert theirs.inspect.files().num_rows == 2
    with pytest.raises(FileNotFoundError, match="eventlog-read-only"):
        theirs.catalog.purge_table("n.t")
    assert objects_of(t, "") == before
    assert publish(t, "iceberg").put == 0
    assert fsck(t).ok


def test_a_statement_that_pyiceberg_refuses_does_not_stop_the_publisher(tmp_path):
    t, theirs = registered(tmp_path, 3)
    with pytest.raises(NotImplementedError, match="V3"):
        theirs.transaction().set_properties(a="b").commit_transaction()
    assert [*objects_of(t, "metadata/00000-").values()] == [b""]
    append(t, events(1))
    assert publish(t, "iceberg").put == 1


def version_that_java_finds(store):
    """The number whose metadata a catalog of directories opens: HadoopTableOperations of Iceberg.

    That of the hint if it is a number, else the highest one of a file.
    """
    hint = store.get(HINT).decode()
    if re.fullmatch(r"[+-]?\d+", hint):
        return int(hint)
    names = [row.key.removeprefix("metadata/") for row in store.list("metadata/")]
    return max(int(found[1]) for name in names if (found := re.match(r"v(\d+)\..*", name)))


def test_a_catalog_of_directories_finds_no_table_and_others_the_newest(tmp_path):
    t = create(LocalStore(str(tmp_path)))
    for number in range(3):
        append(t, events(2, first=2 * number))
        done = publish(t, "iceberg")
        found = version_that_java_finds(t.store)
        assert f"metadata/v{found}.gz.metadata.json" == BARRIER
        assert f"metadata/v{found}.metadata.json" not in objects_of(t, "metadata/")
        newest = StaticTable.from_metadata(path_of(t))
        assert newest.metadata_location.endswith(f"/v{done.last}.metadata.json")
    check_versions(t, [done.last])


def test_the_barrier_is_there_before_a_version_is_and_after_it():
    spy = Spy(MemoryStore())
    t = create(spy)
    append(t, events(2))
    publish(t, "iceberg")
    put = [key for key, _ in spy.puts if key.startswith("metadata/")]
    assert put[0] == BARRIER
    assert put[-1] == HINT
    order = unpublish(t, "iceberg")
    assert (order[0], order[-1]) == (HINT, BARRIER)


def test_a_barrier_that_is_lost_is_found_and_put_again():
    t = create()
    publish(t, "iceberg")
    whole = objects_of(t, "metadata/")
    t.store.delete([BARRIER])
    assert [finding.key for finding in fsck(t).findings] == [BARRIER]
    assert publish(t, "iceberg").put == 0
    assert objects_of(t, "metadata/") == whole
    t.store.delete([BARRIER])
    t.store.put_if_absent(BARRIER, b"theirs")
    assert [finding.key for finding in fsck(t).findings] == [BARRIER]
    append(t, events(2))
    t.store.delete([BARRIER])
    t.store.put_if_absent("metadata/v1.gz.metadata.json", b"theirs")
    with pytest.raises(Corrupt, match="another program wrote it"):
        publish(t, "iceberg")


@pytest.mark.parametrize("format_version", [2, 3])
def test_programs_that_look_at_no_format_find_a_sort_order_and_no_merge_on_read(
    tmp_path, format_version
):
    t, theirs = registered(tmp_path, format_version)
    (order,) = theirs.sort_order().fields
    assert theirs.schema().find_column_name(order.source_id) == "at"
    modes = {theirs.properties[f"write.{change}.mode"] for change in ("delete", "update", "merge")}
    assert modes == {"copy-on-write"}
    assert set(theirs.inspect.files()["sort_order_id"].to_pylist()) == {None}
    assert theirs.scan().to_arrow().num_rows == t.scan().count()
