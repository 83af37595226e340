"""Versions that were published to Iceberg, as engines read them: equal to `scan`, or refused."""

import json
import math
from datetime import timedelta
from unittest import mock

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from support.builders import Crash, CrashingStore, Spy, create, events, reopen, replace_object
from support.crashes import SMALL_LEAVES, SMALL_STEMS
from support.evolution_chain import Chain
from support.iceberg_tables import (
    check_versions,
    in_order,
    metadata_path,
    polars_rows,
    pyiceberg_rows,
    rows_of_every_type,
    same_rows,
    table_of_every_type,
    table_with_deletes,
)

from eventlog import Table, compaction, replication
from eventlog.errors import Corrupt, InvalidInput, Unavailable, VersionVacuumed
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.publishing.iceberg import (
    IcebergPublisher,
    audit_iceberg,
    cut_iceberg,
    unpublish_iceberg,
)
from eventlog.publishing.iceberg.manifest_publisher import parse_metadata_key
from eventlog.readers import scan
from eventlog.state import keyframe
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete


def publish(table, first=None, last=None, **options):
    return IcebergPublisher(table.session, **options).publish(first, last)


def objects(store):
    """The objects of a publication, by key."""
    return {row.key: store.get(row.key) for row in store.list("metadata/")}


def history(store=None):
    """A table whose versions have leaves, deletion vectors, drops, and a restore."""
    table = create(store, properties={"keyframe_commits": "3"})
    for day in range(4):
        append(table, events(8, day=day, first=8 * day, days=4))
    delete(table, where="name = 'row 3' or name = 'row 20'")
    compaction.run(table)
    append(table, events(4, day=1, first=100))
    delete(table, where="name = 'row 21'")
    table.restore(4)
    append(table, events(2, day=9, first=200))
    return table


@pytest.fixture(params=[{}, SMALL_LEAVES, SMALL_STEMS], ids=["inline", "leaves", "stems"])
def sizes(request):
    with mock.patch.multiple(keyframe, **{"LEAF_MAX": keyframe.LEAF_MAX, **request.param}):
        yield


# What engines read


@pytest.mark.sample(0, verify=3)
@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.parametrize("granularity", ["hour", "day", "month", "year", "all"])
def test_every_type_reads_as_scan_reads_it(tmp_path, granularity, format_version):
    table = table_of_every_type(tmp_path, granularity=granularity)
    done = publish(table, format_version=format_version)
    assert (done.first, done.last, done.put) == (0, table.session.head().version, done.last + 1)
    check_versions(table, range(done.last + 1))


@pytest.mark.verify
def test_a_version_of_every_type_reads_as_scan_reads_it(tmp_path):
    table = table_of_every_type(tmp_path)
    publish(table, 1, 2)
    check_versions(table, [2])


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.usefixtures("sizes")
def test_deleted_rows_are_in_no_answer(tmp_path, format_version):
    table = table_with_deletes(tmp_path)
    done = publish(table, format_version=format_version)
    check_versions(table, range(done.last + 1))
    newest = metadata_path(table, done.last)
    for version in range(1, done.last + 1):  # by number in the newest metadata
        rows = scan(table, version=version).to_table()
        got = in_order(pyiceberg_rows(newest, snapshot_id=version), rows.schema)
        assert same_rows(got, in_order(rows, rows.schema))
        assert polars_rows(newest, snapshot_id=version).num_rows == rows.num_rows


@pytest.mark.parametrize("format_version", [2, pytest.param(3, marks=pytest.mark.verify)])
def test_a_version_with_deletes_reads_as_scan_reads_it(tmp_path, format_version):
    table = create(LocalStore(str(tmp_path)))
    append(table, events(9, days=3))
    delete(table, where="name = 'row 3' or name = 'row 4'")
    publish(table, 2, format_version=format_version)
    check_versions(table, [2])


@pytest.mark.sample(0, verify=4)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("format_version", [2, 3])
def test_evolved_tables_agree_or_are_refused(tmp_path, seed, format_version):
    chain = Chain(seed, LocalStore(str(tmp_path)))
    for _ in range(25):
        chain.step()
    table, refused = chain.table, []
    publisher = IcebergPublisher(table.session, format_version=format_version)
    for version in range(table.refresh().meta.horizon, table.session.head().version + 1):
        try:
            publisher.publish(version, version)
        except InvalidInput as error:
            refused.append(error.message)
            continue
        want = scan(table, version=version).to_table()
        got = polars_rows(metadata_path(table, version)).select(want.column_names)
        rows = [sorted(map(repr, r.cast(want.schema).to_pylist())) for r in (got, want)]
        assert rows[0] == rows[1], version
    assert all("publish with format version 3" in message for message in refused)
    assert format_version == 2 or not refused


@pytest.mark.verify
def test_renamed_dropped_and_widened_columns_read_as_scan_reads_them(tmp_path):
    table = create(LocalStore(str(tmp_path)))
    append(table, events(4))
    table.rename_column("value", "amount")
    table.add_columns(pa.schema([("value", pa.int32())]))
    append(table, events(4, first=4).rename_columns(["at", "name", "amount"]))
    table.widen_column("value", pa.int64())
    table.drop_columns(["amount"])
    done = publish(table)
    check_versions(table, [done.last, 1])


@pytest.mark.verify
def test_defaults_of_older_rows_need_format_3(tmp_path):
    table = create(LocalStore(str(tmp_path)))
    append(table, events(2))
    table.add_columns(pa.schema([("level", pa.int32())]), defaults={"level": 7})
    with pytest.raises(
        InvalidInput, match=r"version 2 .*'level' has a default .* format version 3"
    ):
        publish(table)
    assert {1, 2} & {int(key[10:11]) for key in objects(table.store) if "json" in key} == {1}
    assert set(unpublish_iceberg(table.session, run=False)) == set(objects(table.store))
    unpublish_iceberg(table.session, run=True)
    publish(table, format_version=3)
    check_versions(table, [1, 2])


def test_dates_that_became_timestamps_need_format_3_or_a_compaction(tmp_path):
    schema = pa.schema(
        [("at", pa.timestamp("us", "UTC")), ("name", pa.string()), ("d", pa.date32())]
    )
    table = create(LocalStore(str(tmp_path)), schema=schema)
    append(table, pa.table([[0, 1], ["a", "b"], [1, None]], schema=schema))
    table.widen_column("d", pa.timestamp("us"))
    with pytest.raises(InvalidInput, match="have column 'd' as a date"):
        publish(table, 2)
    for segment in table.session.head().segments():
        compaction.run(table, policy=compaction.Policy(target_bytes=segment.bytes * 100))
    append(table, scan(table).to_table())
    wide = table.drop_segments(
        [s for s in table.session.head().segments() if s.schema == 1], reason="old"
    )
    publish(table, wide)
    check_versions(table, [wide])


@pytest.mark.parametrize(
    "predicate",
    ["f64 < 0", "f64 >= 0", "f64 = 0", "f32 <= 0", "text > 'a'", "text >= 'größe'", "i64 < 0",
     "large > 0", "flag = true", "small <= -1", "row = 5"],
)  # fmt: skip
def test_pruning_by_bounds_loses_no_row(every_type, predicate):
    want = scan(every_type, where=predicate, columns=["row"]).to_table().num_rows
    path = metadata_path(every_type, every_type.session.head().version)
    # pyiceberg orders NaN like Arrow, as `scan` does.
    got = StaticTable.from_metadata(path).scan(row_filter=predicate.replace(" true", " TRUE"))
    assert got.to_arrow().num_rows == want


@pytest.fixture(scope="module")
def every_type(tmp_path_factory):
    table = create(
        LocalStore(str(tmp_path_factory.mktemp("typed"))), schema=rows_of_every_type(0).schema
    )
    for first in (0, 12, 24):
        append(table, rows_of_every_type(first))
    publish(table, 3)
    return table


def test_null_lists_of_structs_are_empty_lists_in_pyiceberg_alone(tmp_path):
    # A defect of pyiceberg 0.12; when this fails, the guide has to say that it is gone.
    kind = pa.list_(pa.struct([("c", pa.string())]))
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("name", pa.string()), ("l", kind)])
    table = create(LocalStore(str(tmp_path)), schema=schema)
    append(table, pa.table([[0], ["a"], [None]], schema=schema))
    publish(table, 1)
    readers = (pyiceberg_rows, polars_rows)
    found = [reader(metadata_path(table, 1))["l"].to_pylist() for reader in readers]
    assert found == [[[]], [None]]


def test_tags_name_versions(tmp_path):
    table = create(LocalStore(str(tmp_path)))
    append(table, events(3))
    table.tag("report-2013", 1)
    append(table, events(3, day=1, first=3))
    done = publish(table)
    newest = StaticTable.from_metadata(metadata_path(table, done.last))
    assert newest.scan().use_ref("report-2013").to_arrow().num_rows == 3
    assert newest.scan().to_arrow().num_rows == 6
    table.pin("main", 1)
    with pytest.raises(InvalidInput, match="pin under another name"):
        publish(table)


@pytest.mark.verify
def test_a_branch_has_its_parents_segments_by_their_own_place(tmp_path):
    table = create(LocalStore(str(tmp_path)))
    append(table, events(4))
    branch = table.branch("audit")
    append(branch, events(4, day=2, first=10))
    delete(branch, where="name = 'row 1'")
    append(table, events(1, day=5, first=50))
    done = publish(branch)
    path = lambda _, version: f"{done.location}/metadata/v{version}.metadata.json"
    check_versions(branch, range(done.first, done.last + 1), path=path)
    assert done.first == branch.store.forks[0].held
    assert not objects(table.store)
    publish(table)
    check_versions(table, [table.session.head().version])


@pytest.mark.verify
@pytest.mark.parametrize("scheme", [None, "s3a"])
def test_a_table_in_s3_is_read_there(s3, bucket, scheme):
    table = Table.create(f"s3://{bucket}/t", events().schema, time_column="at")
    append(table, events(9, days=3))
    delete(table, where="name = 'row 3'")
    done = publish(table, scheme=scheme)
    append(table, events(1, day=7, first=20))
    assert publish(table).put == 1  # the scheme stays
    options = s3.storage_options()
    names = {
        "s3.endpoint": "endpoint_url", "s3.region": "region",
        "s3.access-key-id": "access_key_id", "s3.secret-access-key": "secret_access_key",
    }  # fmt: skip
    given = {theirs: options[ours] for theirs, ours in names.items()}
    for version in (done.last, done.last + 1):
        uri = f"{scheme or 's3'}://{bucket}/t/metadata/v{version}.metadata.json"
        rows = StaticTable.from_metadata(uri, given).scan().to_arrow()
        want = scan(table, version=version).to_table()
        assert same_rows(in_order(rows, want.schema), in_order(want, want.schema))
    newest = json.loads(table.store.get(f"metadata/v{done.last}.metadata.json"))
    assert newest["location"] == f"{scheme or 's3'}://{bucket}/t"


# What is published is a function of the log


@pytest.mark.sample(0, verify=2)
@pytest.mark.parametrize("format_version", [2, 3])
@pytest.mark.usefixtures("sizes")
def test_one_by_one_is_as_at_once(format_version):
    with mock.patch.multiple(keyframe, **SMALL_LEAVES):
        table = history()
    publish(table, format_version=format_version)
    at_once = objects(table.store)
    table.store.delete(at_once)
    for version in range(table.session.head().version + 1):
        handle = Table.open(table.uri, store=table.store)
        publish(handle, version, version, format_version=format_version)
    assert objects(table.store) == at_once


@pytest.mark.verify
def test_one_version_is_published_with_what_it_names():
    table = history()
    publish(table)
    whole = objects(table.store)
    table.store.delete(whole)
    last = table.session.head().version
    publish(table, last)
    alone = objects(table.store)
    assert alone.items() <= whole.items()
    gone = whole.keys() - alone.keys()
    assert gone == {f"metadata/v{version}.metadata.json" for version in range(last)}


@pytest.mark.sample(0, verify=1)
@pytest.mark.parametrize("how", ["before", "after", "lost", "refused"])
def test_a_killed_publisher_is_followed_by_another(how):
    table = history()
    publish(table)
    whole, at, died = objects(table.store), 0, 0
    while True:
        at += 1
        table.store.delete(objects(table.store))
        store = CrashingStore(table.store, at, how)
        try:
            publish(Table.open(table.uri, store=store))
        except (Crash, Unavailable):
            died += 1
        if store.calls < at:
            break
        publish(Table.open(table.uri, store=table.store))
        assert objects(table.store) == whole, at
    assert died > 25


@pytest.mark.verify
def test_two_publishers_do_no_harm():
    table = history()
    publish(table)
    whole = objects(table.store)
    table.store.delete(whole)
    one, other = (IcebergPublisher(Table.open(table.uri, store=table.store).session) for _ in "12")
    one.publish(None, 5)
    other.publish()
    one.publish(6)
    assert objects(table.store) == whole


def test_an_append_costs_four_puts_and_marks_two():
    spy = Spy(MemoryStore())
    table = create(spy)
    append(table, events(4))
    publisher = IcebergPublisher(table.session)
    publisher.publish()
    append(table, events(4, first=4))
    spy.puts.clear()
    publish_newest(publisher, table)
    assert [key.split("-")[0] for key, _ in spy.puts] == [
        "metadata/manifest", "metadata/snap", "metadata/v2.metadata.json", "metadata/version"
    ]  # fmt: skip
    table.set_properties({"user.owner": "me"})
    spy.puts.clear()
    publish_newest(publisher, table)
    assert [key for key, _ in spy.puts] == [
        "metadata/v3.metadata.json",
        "metadata/version-hint.text",
    ]


def publish_newest(publisher, table):
    return publisher.publish(table.refresh().version)


def test_a_delete_leaves_manifests_of_data_as_they_are():
    with mock.patch.multiple(keyframe, **SMALL_LEAVES):
        table = create(properties={"keyframe_commits": "3"})
        for day in range(4):
            append(table, events(8, day=day, first=8 * day, days=4))
        publish(table)
        before = objects(table.store)
        names = {"row 0", "row 8", "row 17"}
        delete(table, where="name in ('row 0', 'row 8', 'row 17')")
        publish(table)
    new = objects(table.store).keys() - before.keys()
    kinds = sorted(key.split("-")[0] for key in new)
    assert kinds.count("metadata/manifest") == 1  # that of the deletes
    assert kinds.count("metadata/deletes") == len(names)


# Guards


@pytest.mark.verify
def test_writes_of_others_are_refused_or_touch_metadata_alone(tmp_path):
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - loads an ORM

    table = create(LocalStore(str(tmp_path / "t")))
    append(table, events(6, days=2))
    delete(table, where="name = 'row 1'")
    done = publish(table)
    published = objects(table.store)
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    theirs = catalog.register_table("n.t", f"file://{metadata_path(table, done.last)}")
    rows = theirs.scan().to_arrow()
    for write in (
        lambda: theirs.append(rows),
        lambda: theirs.overwrite(rows),
        lambda: theirs.delete("name = 'row 2'"),
    ):
        with pytest.raises(ValueError, match="eventlog-read-only"):
            write()
    assert objects(table.store).items() >= published.items()
    assert not publish(table).put  # what refused writes left is in no metadata
    theirs.delete("name != 'none'")  # all rows: drops files by metadata alone
    assert theirs.refresh().scan().to_arrow().num_rows == 0
    assert objects(table.store).items() > published.items()
    assert {finding.key.partition("/")[0] for finding in fsck(table).findings} == {"metadata"}
    check_versions(table, [done.last])
    append(table, events(1, day=3, first=9))
    with pytest.raises(Corrupt, match="another program wrote it"):
        publish(table)
    unpublish_iceberg(table.session, run=True)
    assert not objects(table.store)
    check_versions(table, [publish(table).last])


@pytest.mark.parametrize("body", [b"[" * 200_000, b"{}", b"\xff"], ids=["deep", "empty", "no text"])
def test_newer_metadata_that_is_not_ours_is_named(body):
    table = create()
    publish(table)
    append(table, events(2))
    table.store.put_if_absent("metadata/v1.metadata.json", body)
    with pytest.raises(Corrupt) as found:
        publish(table)
    assert found.value.key == "metadata/v1.metadata.json"
    assert [f.key for f in fsck(table).findings] == ["metadata/v1.metadata.json"]


def test_metadata_of_a_stranger_is_noticed():
    table = history()
    done = publish(table)
    key = f"metadata/v{done.last}.metadata.json"
    theirs = json.loads(table.store.get(key))
    theirs["current-snapshot-id"] = 1
    replace_object(table.store, key, json.dumps(theirs).encode())
    with pytest.raises(Corrupt, match="another program"):
        publish(table)
    replace_object(table.store, key, b"{}")
    with pytest.raises(Corrupt, match="another program"):
        publish(table)


def test_metadata_of_a_stranger_is_noticed_below_the_horizon():
    table = history()
    last = publish(table).last
    key = f"metadata/v{last}.metadata.json"
    theirs = json.loads(table.store.get(key))
    theirs["current-snapshot-id"] = 1
    replace_object(table.store, key, json.dumps(theirs).encode())
    append(table, events(1, first=300))
    table.clock.advance(10**9)
    compaction.vacuum(table, retention=timedelta(0), staging=timedelta(0), dry_run=False)
    assert table.refresh().meta.horizon > last
    with pytest.raises(Corrupt, match="another program"):
        publish(table)


def test_metadata_of_another_name_is_noticed():
    table = history()
    publish(table, 0, 3)
    key = "metadata/00001-5f1c.metadata.json"  # as pyiceberg names it
    assert table.store.put_if_absent(key, b"{}")
    with pytest.raises(Corrupt, match="another program wrote it") as raised:
        publish(table)
    assert raised.value.key == key


def test_a_version_that_another_program_took_is_not_replaced():
    table = history()
    publish(table, 0, 3)
    publisher = IcebergPublisher(table.session)
    assert table.store.put_if_absent("metadata/v4.metadata.json", b"theirs")
    with pytest.raises(Corrupt, match="another program") as raised:
        publisher.publish()
    assert raised.value.key == "metadata/v4.metadata.json"
    assert table.store.get("metadata/v4.metadata.json") == b"theirs"
    above = f"metadata/v{table.session.head().version + 1}.metadata.json"
    assert table.store.put_if_absent(above, b"theirs")
    with pytest.raises(Corrupt) as raised:
        publish(table)
    assert raised.value.key == above


@pytest.mark.verify
def test_a_manifest_of_other_contents_is_not_taken():
    table = history()
    publish(table)
    key = next(key for key in objects(table.store) if "/snap-" in key)
    publisher = IcebergPublisher(table.session)
    for each in objects(table.store):
        table.store.delete([each])
    publisher = IcebergPublisher(table.session)
    assert table.store.put_if_absent(key, b"theirs")
    with pytest.raises(Corrupt, match="another program"):
        publisher.publish()


def test_a_table_that_was_replaced_is_not_published_into_the_old_publication(tmp_path):
    table = create(LocalStore(str(tmp_path / "one")))
    append(table, events(1))
    publish(table)
    other = create(LocalStore(str(tmp_path / "two")), seed=9)
    append(other, events(1))
    for key, body in objects(table.store).items():
        other.store.put_if_absent(key, body)
    with pytest.raises(InvalidInput, match=r"the table of the publication .* unpublish"):
        publish(other)


@pytest.mark.verify
def test_a_table_that_went_on_from_an_older_copy_is_not_published_on():
    table = history()
    publish(table, 0, 6)
    for version in range(
        5, table.session.head().version + 1
    ):  # as if `_log/` was put back from a copy
        table.store.delete([keys.commit_key(version), keys.keyframe_key(version)])
    other = reopen(table.store)
    append(other, events(1, day=11, first=800))
    append(other, events(1, day=12, first=801))
    assert other.session.head().version == 6
    with pytest.raises(Corrupt, match="restored from an older copy") as raised:
        publish(other)
    assert raised.value.key == "metadata/v6.metadata.json"


@pytest.mark.verify
def test_a_copy_that_got_older_versions_goes_on(tmp_path):
    table = history()
    copy = str(tmp_path / "copy")
    replication.follow(table, copy, start="keyframe")
    before = publish(Table.open(copy))
    assert before.first > 1
    replication.backfill(table, copy)
    append(table, events(1, day=15, first=850))
    replication.follow(table, copy)
    assert publish(Table.open(copy)).put == table.session.head().version - before.last
    assert [*audit_iceberg(Table.open(copy).session)] == []
    check_versions(Table.open(copy), [before.first, table.session.head().version])


@pytest.mark.verify
def test_the_form_of_a_publication_stays():
    table = history()
    publish(table, format_version=3)
    append(table, events(1, day=20, first=500))
    assert publish(table).put == 1
    newest = json.loads(table.store.get(f"metadata/v{table.session.head().version}.metadata.json"))
    assert newest["format-version"] == 3
    with pytest.raises(InvalidInput, match="format version of the publication"):
        publish(table, format_version=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "gs"}, "not one of s3, s3a, s3n"),
        ({"scheme": "s3a"}, "has no other scheme"),
        ({"format_version": 1}, "not 2 or 3"),
    ],
)
def test_arguments_that_are_wrong(options, message):
    with pytest.raises(InvalidInput, match=message):
        publish(create(), **options)


@pytest.mark.parametrize("name", ["a%20b", "a#b"])
def test_paths_that_engines_read_in_different_ways_are_refused(tmp_path, name):
    with pytest.raises(InvalidInput, match="engines read the URI"):
        publish(create(LocalStore(str(tmp_path / name))))


@pytest.mark.verify
def test_paths_with_spaces_and_letters_are_read(tmp_path):
    table = create(LocalStore(str(tmp_path / "a größe")))
    append(table, events(2))
    delete(table, where="name = 'row 1'")
    publish(table)
    check_versions(table, [2])


# Life


@pytest.mark.verify
def test_old_versions_go_and_what_later_ones_need_stays(tmp_path):
    table = history(LocalStore(str(tmp_path)))
    publish(table)
    whole, last = objects(table.store), table.session.head().version
    assert cut_iceberg(table.session, 0, run=True) == ()
    foreseen = cut_iceberg(table.session, 8, run=False)
    assert objects(table.store) == whole
    assert cut_iceberg(table.session, 8, run=True) == foreseen
    assert sum(size for _, size in foreseen) == sum(len(whole[key]) for key, _ in foreseen)
    gone = {key for key, _ in foreseen}
    assert {key for key in gone if "json" in key} == {
        f"metadata/v{version}.metadata.json" for version in range(8)
    }
    assert {key.split("-")[0] for key in gone} >= {"metadata/snap", "metadata/manifest"}
    check_versions(table, range(8, last + 1))
    assert cut_iceberg(table.session, 8, run=True) == ()


def test_a_publication_that_a_vacuum_overtook_goes_on_at_the_horizon(tmp_path):
    table = create(LocalStore(tmp_path))
    append(table, events(2))
    publish(table)
    for day in range(2):
        append(table, events(2, day=day, first=10 * day + 10))
        table.clock.advance(10**9)
    compaction.vacuum(table, retention=timedelta(0), staging=timedelta(0), dry_run=False)
    head = table.refresh()
    assert head.meta.horizon > 2
    done = publish(table)
    assert (done.last, done.put) == (head.version, head.version - head.meta.horizon + 1)
    check_versions(table, range(head.meta.horizon, head.version + 1), (pyiceberg_rows,))
    assert fsck(table).findings == ()


@pytest.mark.verify
def test_nothing_of_vacuumed_versions_comes_back():
    table = history()
    publish(table)
    table.clock.advance(10**9)
    append(table, events(1, day=30, first=900))
    publish(table)
    compaction.vacuum(table, retention=timedelta(0), staging=timedelta(0), dry_run=False)
    left, horizon = objects(table.store), table.refresh().meta.horizon
    assert min(v for v in map(parse_metadata_key, left) if v is not None) == horizon
    assert [*audit_iceberg(table.session)] == []
    publish(table, None, table.session.head().version - 1)
    append(table, events(1, day=31, first=901))
    publish(table)
    assert not {key for key, _ in cut_iceberg(table.session, horizon, run=False)}
    new = {key.split("-")[0] for key in objects(table.store).keys() - left.keys()}
    assert new == {"metadata/manifest", "metadata/snap"} | {
        f"metadata/v{version}.metadata.json"
        for version in range(horizon + 1, table.session.head().version + 1)
    }
    assert [*audit_iceberg(table.session)] == []


@pytest.mark.verify
def test_versions_below_the_horizon_are_not_published():
    table = history()
    table.clock.advance(10**9)
    append(table, events(1, day=30, first=900))
    compaction.vacuum(table, retention=timedelta(0), staging=timedelta(0), dry_run=False)
    horizon = table.refresh().meta.horizon
    assert horizon
    with pytest.raises(VersionVacuumed):
        publish(table, 0)
    assert publish(table).first == horizon


def test_an_iceberg_table_of_somebody_else_is_left_alone(tmp_path):
    table = create(LocalStore(str(tmp_path)))
    table.store.put_if_absent("metadata/v1.metadata.json", b'{"properties":{}}')
    table.store.put_if_absent("metadata/version-hint.text", b"1")
    with pytest.raises(InvalidInput, match="did not publish"):
        unpublish_iceberg(table.session, run=False)
    assert cut_iceberg(table.session, 1, run=True) == ()
    assert [problem.key for problem in audit_iceberg(table.session)] == [
        "metadata/v1.metadata.json"
    ]


@pytest.mark.verify
def test_what_a_killed_unpublish_left_is_unpublished():
    table = history()
    publish(table)
    order = unpublish_iceberg(table.session, run=False)
    assert order[0] == "metadata/version-hint.text"
    for key in order:
        assert unpublish_iceberg(table.session, run=False)[0] == key
        table.store.delete([key])
    assert unpublish_iceberg(table.session, run=False) == ()


@pytest.mark.verify
@pytest.mark.parametrize("format_version", [2, 3])
def test_an_audit_compares_each_object(format_version):
    table = history()
    publish(table, format_version=format_version)
    whole = objects(table.store)
    assert [*audit_iceberg(table.session)] == []
    kinds = {key.split("-")[0]: key for key in sorted(whole) if "hint" not in key}
    assert {*kinds} >= {"metadata/snap", "metadata/manifest", "metadata/deletes"}
    for key in kinds.values():
        replace_object(table.store, key, bytes(9) + whole[key][9:])
        assert key in {problem.key for problem in audit_iceberg(table.session)}, key
        table.store.delete([key])
        found = {problem.key for problem in audit_iceberg(table.session)}
        ends = [
            f"metadata/v{version}.metadata.json" for version in (0, table.session.head().version)
        ]
        assert key in found or key in ends  # of the publication
        table.store.put_if_absent(key, whole[key])
    table.store.put_if_absent("metadata/stranger.avro", b"")
    (problem,) = audit_iceberg(table.session)
    assert problem.key == "metadata/stranger.avro"
    assert problem.severity == "warning"  # it is no metadata file: no reader sees it
    assert "it is harmless" in problem.message
    assert objects(table.store).items() - {("metadata/stranger.avro", b"")} == whole.items()


def test_a_hint_that_is_behind_is_put_again():
    table = history()
    done = publish(table)
    table.store.put_hint("metadata/version-hint.text", b"3")
    assert publish(table).put == 0
    assert table.store.get("metadata/version-hint.text") == f"v{done.last}".encode()


def test_polars_and_pyiceberg_take_no_version_for_another(tmp_path):
    table = create(LocalStore(str(tmp_path)))
    append(table, events(4))
    done = publish(table)
    newest = metadata_path(table, done.last)
    assert pyiceberg_rows(newest, snapshot_id=10**12).num_rows == 0  # version 0
    assert pl.scan_iceberg(newest, snapshot_id=10**12).collect().height == 0
    assert math.inf > StaticTable.from_metadata(newest).metadata.last_sequence_number == 1
