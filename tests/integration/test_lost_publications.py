"""What fsck reports of a publication that lost an object, and that its advice leads on."""

import re
from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from support.builders import create, events
from support.published import commands_of, objects_of, path_of, run_commands

from eventlog.compaction import vacuum
from eventlog.errors import Corrupt, InvalidInput
from eventlog.fsck.check import fsck
from eventlog.publishing import publish
from eventlog.publishing.delta.translation import checkpoints
from eventlog.publishing.delta.translation.delta_commits import (
    beginning,
    checkpoint_key,
    delta_commit_key,
    without_files,
)
from eventlog.publishing.iceberg.translation.avro_files import ManifestRecord, avro_records
from eventlog.publishing.iceberg.translation.table_metadata import MetadataFile
from eventlog.publishing.versions import version_steps
from eventlog.store.local import LocalStore
from eventlog.writers import append, delete, upsert

CHECKPOINT, HINT = "_delta_log/_last_checkpoint", "metadata/version-hint.text"


def published(tmp_path, format_name, appends=2, **options):
    table = create(LocalStore(str(tmp_path)))
    for number in range(appends):
        append(table, events(2, day=number))
    publish(table, format_name, **options)
    return table


def findings(table):
    return [(f.severity, f.key, f.version) for f in fsck(table).findings]


def follow_advice(table):
    """Run the commands that the findings name, those of several findings once."""
    found = [commands_of(finding.message) for finding in fsck(table).findings]
    run_commands(dict.fromkeys(command for commands in found for command in commands))
    assert all(found)


def metadata(version):
    return f"metadata/v{version}.metadata.json"


def test_metadata_lost_between_others_is_reported_and_put_again(tmp_path):
    table = published(tmp_path, "iceberg", 5)
    whole = objects_of(table, "metadata/")
    table.store.delete([metadata(v) for v in (1, 2, 4)])
    assert publish(table, "iceberg").put == 0
    assert findings(table) == [("warning", metadata(1), 1), ("warning", metadata(4), 4)]
    follow_advice(table)
    assert objects_of(table, "metadata/") == whole
    assert findings(table) == []


def test_versions_that_are_not_published_for_a_reason_are_not_reported(tmp_path):
    table = published(tmp_path, "iceberg", 2)
    table.pin("main", 1)  # which Iceberg calls the newest version
    refused = table.refresh().version
    with pytest.raises(InvalidInput, match=r"pin under another name.*`eventlog unpin .* main`"):
        publish(table, "iceberg")
    table.unpin("main")
    publish(table, "iceberg", first=table.refresh().version)
    assert findings(table) == []
    append(table, events(1))
    append(table, events(1))
    publish(table, "iceberg", first=table.refresh().version)
    assert findings(table) == [("warning", metadata(refused + 2), refused + 2)]
    table.clock.advance(10**9)
    vacuum(table, retention=timedelta(0), staging=timedelta(0), dry_run=False)
    publish(table, "iceberg")
    assert findings(table) == []


@pytest.mark.parametrize(
    ("first", "body"),
    [(0, b'{"version":9999,"size":1}'), (1, b"[]"), (1, None)],
    ids=["without a checkpoint", "with one", "lost"],
)
def test_a_hint_of_no_checkpoint_is_reported_and_put_again(tmp_path, first, body):
    table = published(tmp_path, "delta", first=first)
    table.store.delete([CHECKPOINT])
    if body is not None:
        table.store.put_hint(CHECKPOINT, body)
    assert findings(table) == [("error", CHECKPOINT, None)]
    follow_advice(table)
    assert DeltaTable(path_of(table)).version() == 2
    assert findings(table) == []


def test_a_hint_with_other_numbers_than_its_checkpoint_is_reported(tmp_path):
    table = published(tmp_path, "delta", first=1)
    whole = table.store.get(CHECKPOINT)
    table.store.put_hint(CHECKPOINT, checkpoints.hint(1, 99, 1))
    assert findings(table) == [("error", CHECKPOINT, 1)]
    follow_advice(table)
    assert table.store.get(CHECKPOINT) == whole
    assert findings(table) == []


def test_newest_versions_that_were_lost_below_their_checkpoint_are_put_again(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 3)
    table = published(tmp_path, "delta", 3)
    whole = objects_of(table)
    table.store.delete([delta_commit_key(2), delta_commit_key(3)])
    assert findings(table) == [("error", delta_commit_key(3), 3)]
    follow_advice(table)
    assert objects_of(table) == whole
    assert findings(table) == []


@pytest.mark.parametrize("body", [b"v99", b"1", b"\xff", None])
def test_a_hint_of_no_metadata_is_reported_and_put_again(tmp_path, body):
    table = published(tmp_path, "iceberg", 1)
    table.store.delete([HINT])
    if body is not None:
        table.store.put_hint(HINT, body)
    assert findings(table) == [("error", HINT, None)]
    follow_advice(table)
    assert table.store.get(HINT) == b"v1"
    assert findings(table) == []


def test_a_path_that_no_reader_of_delta_finds_is_refused_before_anything_is_put(tmp_path):
    table = create(LocalStore(str(tmp_path / "per%20cent")))
    append(table, events(2))
    with pytest.raises(InvalidInput, match="whose path has no '%'"):
        publish(table, "delta")
    assert objects_of(table) == {}


def test_paths_that_a_store_encodes_in_its_uri_are_published_as_delta(tmp_path):
    table = published(tmp_path / "größe von allem", "delta", 1)
    assert "%" in table.uri
    assert DeltaTable(publish(table, "delta").location).version() == 1


@pytest.mark.parametrize("first", [0, 1])
def test_a_delta_version_that_is_lost_is_named_with_commands_that_put_it_again(tmp_path, first):
    table = published(tmp_path, "delta", 4, first=first)
    whole = objects_of(table)
    table.store.delete([f"_delta_log/{2:020d}.json"])
    with pytest.raises(Corrupt, match=f"version 2 is missing .*delta.*--from {first} --version 4"):
        publish(table, "delta", version=2, first=2)
    assert findings(table) == [("error", f"_delta_log/{2:020d}.json", 2)]
    follow_advice(table)
    assert objects_of(table).keys() == whole.keys()
    assert findings(table) == []


@pytest.mark.parametrize(
    ("begun", "lost", "again", "keyed"),
    [
        (0, [delta_commit_key(0)], 0, {"key": "name"}),
        (0, [delta_commit_key(0), delta_commit_key(1)], 2, {}),
        (3, [checkpoint_key(3), CHECKPOINT], 3, {"key": "name"}),
        (3, [checkpoint_key(3), CHECKPOINT, delta_commit_key(3)], 4, {}),
        (3, [delta_commit_key(3), delta_commit_key(4)], 3, {}),  # its checkpoint leads nowhere
    ],
)
def test_a_lost_beginning_is_named_with_commands_that_lead_on(tmp_path, begun, lost, again, keyed):
    table = create(LocalStore(str(tmp_path)), granularity="all", **keyed)
    for number in range(5):
        (upsert if keyed else append)(table, events(2, first=2 * number))
    publish(table, "delta", first=begun)
    table.store.delete(lost)
    there = objects_of(table)
    with pytest.raises(Corrupt, match=f"beginning .* is missing.*--from {again} --version 5"):
        publish(table, "delta")
    assert objects_of(table) == there
    assert [severity for severity, _, _ in findings(table)] == ["error"]
    follow_advice(table)
    assert DeltaTable(path_of(table), version=max(again, 3)).count() == 2 * max(again, 3)
    assert publish(table, "delta").first == again
    assert findings(table) == []


@pytest.mark.verify
def test_a_vacuum_to_a_lost_version_of_delta_names_commands_that_mend(tmp_path, caplog):
    table = create(LocalStore(str(tmp_path)))
    for number in range(3):
        append(table, events(2, day=number))
    table.clock.advance(10 * 86_400_000)
    append(table, events(2, day=3))
    publish(table, "delta")
    table.store.delete([delta_commit_key(3)])
    vacuum(table, retention=timedelta(days=5), staging=timedelta(0), dry_run=False)
    assert "version 3 is not published as Delta, but older and newer ones are" in caplog.text
    run_commands(commands_of(caplog.text))
    assert DeltaTable(path_of(table), version=3).count() == 6
    assert publish(table, "delta").first == 3
    assert findings(table) == []


def with_large_vector(tmp_path, format_name, **options):
    table = create(LocalStore(str(tmp_path)))
    append(table, events(3000))
    places = ", ".join(str(n * n % 2999) for n in range(1, 1100))  # too many to stand in an action
    delete(table, where=f"value IN ({places})")
    append(table, events(1, day=1))  # the newest version is compared by each publisher
    publish(table, format_name, **options)
    return table


def test_a_deletion_vector_that_is_lost_is_reported_and_put_again(tmp_path):
    table = with_large_vector(tmp_path, "delta")
    (key,) = (row.key for row in table.store.list("_delta_vectors/"))
    assert findings(table) == []
    whole = table.store.get(key)
    for left in ([], [whole[:-1]]):
        table.store.delete([key])
        for body in left:
            table.store.put_if_absent(key, body)
        assert publish(table, "delta").put == 0
        assert findings(table) == [("error", key, None)]
        follow_advice(table)
        assert table.store.get(key) == whole
        assert findings(table) == []


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("left", "way"),
    [
        ("_delta_vectors/", "unpublish"),
        (CHECKPOINT, "publish"),
        ("metadata/manifest-", "publish"),
        (HINT, "unpublish"),
    ],
)
def test_objects_without_a_version_are_reported_with_commands_that_mend(tmp_path, left, way):
    root = left.partition("/")[0]
    name = "iceberg" if root == "metadata" else "delta"
    table = with_large_vector(tmp_path, name)
    if left == CHECKPOINT:
        table.store.put_hint(CHECKPOINT, checkpoints.hint(100, 1, 1))
    whole = objects_of(table, root[:6]).keys()
    table.store.delete([key for key in whole if not key.startswith(left)])
    (found,) = fsck(table).findings
    assert (found.severity, found.key) == ("warning", f"{root.replace('vectors', 'log')}/")
    run_commands(one for one in commands_of(found.message) if one.startswith(way))
    assert findings(table) == []
    publish(table, name)
    assert objects_of(table, root[:6]).keys() >= whole - {CHECKPOINT}


@pytest.mark.parametrize("kind", ["manifest-", "snap-", "deletes-", "v999999999", "stranger"])
def test_objects_of_iceberg_that_are_lost_or_strange_have_commands_that_mend(tmp_path, kind):
    table = with_large_vector(tmp_path, "iceberg", format_version=3)
    whole = objects_of(table, "metadata/")
    lost = [key for key in whole if key.startswith(f"metadata/{kind}")]
    table.store.delete(lost)
    if not lost:
        table.store.put_if_absent("metadata/stranger.avro", b"?")
    assert {key for _, key, _ in findings(table)} == set(lost or ["metadata/stranger.avro"])
    follow_advice(table)
    assert objects_of(table, "metadata/") == whole
    assert findings(table) == []


def upserted(tmp_path):
    """Publish versions of a keyed table, each of which hides rows."""
    table = create(LocalStore(str(tmp_path)), key="name", granularity="all")
    for number in range(4):
        upsert(table, events(3, first=number))
    publish(table, "iceberg")
    table.clock.advance(10**9)
    return table


def named_by(table, version):
    """The keys of the manifest list and the manifests of deletes that a version names."""
    file = MetadataFile.of(table.store.get(metadata(version)))
    (own,) = (s for s in file.versions if s.snapshot_id == file.current_snapshot_id)
    key = own.manifest_list.removeprefix(f"{file.location}/")
    manifests = avro_records(table.store.get(key), ManifestRecord)
    return [key, *(m.manifest_path.removeprefix(f"{file.location}/") for m in manifests)]


def spoiled(table, key, change):
    body = change(table.store.get(key))
    table.store.delete([key])
    table.store.put_if_absent(key, body)


NOW = {"retention": timedelta(0), "staging": timedelta(0), "dry_run": False}
DAMAGES = {
    "empty": lambda body: b"",
    "cut": lambda body: body[: len(body) // 2],
    "another schema": lambda body: body.replace(b'"type"', b'"tipe"', 1),
    "other records": lambda body: body.replace(b'"manifest_path"', b'"manifest_paph"', 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_vacuum_goes_on_where_an_object_of_a_kept_version_is_damaged(tmp_path, caplog, damage):
    table = upserted(tmp_path)
    newest = table.refresh().version
    key, *_ = named_by(table, newest)
    spoiled(table, key, DAMAGES[damage])
    assert vacuum(table, **NOW).horizon == newest
    assert "stays: an object of the publication is damaged" in caplog.text
    assert f"key={key}" in caplog.text
    assert metadata(0) in objects_of(table, "metadata/")
    assert [(k, severity) for severity, k, _ in findings(table)] == [(key, "error")]
    follow_advice(table)
    assert findings(table) == []


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_vacuum_takes_damaged_objects_of_old_versions(tmp_path, caplog, damage):
    table = upserted(tmp_path)
    newest = table.refresh().version
    for key in {*named_by(table, 1), metadata(0)} - {*named_by(table, newest)}:
        spoiled(table, key, DAMAGES[damage])
    vacuum(table, **NOW)
    assert "stays" not in caplog.text
    assert metadata(0) not in objects_of(table, "metadata/")
    publish(table, "iceberg")
    assert findings(table) == []


@pytest.mark.parametrize("field", ["sequence-number", "manifest-list", "snapshot-id"])
@pytest.mark.parametrize("newest", [False, True], ids=["old", "newest"])
def test_metadata_that_lacks_a_field_ends_nothing(tmp_path, caplog, field, newest):
    table = upserted(tmp_path)
    key = metadata(table.refresh().version if newest else 1)
    spoiled(table, key, lambda body: body.replace(f'"{field}"'.encode(), b'"other"'))
    vacuum(table, **NOW)
    assert (f"key={key}" in caplog.text) == newest
    if newest:
        with pytest.raises(Corrupt, match="not what this table is published as"):
            publish(table, "iceberg")
        assert key in {found for _, found, _ in findings(table)}
        follow_advice(table)
    publish(table, "iceberg")
    assert findings(table) == []


def test_commands_pass_over_versions_that_iceberg_refuses(tmp_path):
    table = published(tmp_path, "iceberg", 2)
    table.pin("main", 1)
    table.unpin("main")
    append(table, events(1))
    publish(table, "iceberg", first=table.refresh().version - 1)
    whole = objects_of(table, "metadata/")
    table.store.delete([next(key for key in whole if "/manifest-" in key)])
    follow_advice(table)
    assert objects_of(table, "metadata/") == whole


def test_a_checkpoint_of_another_program_has_commands_that_mend(tmp_path):
    table = published(tmp_path, "delta", 4)
    DeltaTable(path_of(table)).create_checkpoint()
    (finding,) = fsck(table).findings
    assert finding.key == f"_delta_log/{4:020d}.checkpoint.parquet"
    assert finding.message.startswith("another program wrote this checkpoint")
    follow_advice(table)
    assert findings(table) == []


@pytest.mark.parametrize("spoil", ["its files", "its checkpoint"])
def test_a_keyed_version_with_a_checkpoint_that_lost_its_files_is_reported(
    tmp_path, monkeypatch, spoil
):
    """A version that a publisher begins with has no files in its commit either."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 2)
    table = create(LocalStore(str(tmp_path)), key=("name", "at"), buckets=2)
    for number in range(3):
        upsert(table, events(2, day=number))
    publish(table, "delta")
    assert findings(table) == []
    key = delta_commit_key(2)
    if spoil == "its files":
        left = without_files(table.store.get(key))
    else:  # as of a publisher that began there, and then its checkpoint was lost
        (step,) = version_steps(table.session.log, 2, 2)
        left = beginning(step)
        table.store.delete([checkpoint_key(2)])
    table.store.delete([key])
    table.store.put_if_absent(key, left)
    assert ("error", key, 2) in findings(table)
    follow_advice(table)
    assert DeltaTable(path_of(table)).version() == 3
    assert findings(table) == []


def behind(tmp_path, change, **options):
    """Publish to Iceberg, change the table, and let a vacuum pass what is published."""
    table = published(tmp_path, "iceberg", 1, **options)
    change(table)
    append(table, events(2, day=1))
    table.clock.advance(10**9)
    vacuum(table, retention=timedelta(0), staging=timedelta(0), dry_run=False)
    return table


WAYS_ON = {
    "nothing": (
        lambda t: None,
        r"may miss .*: `eventlog publish iceberg \S+` goes on at",
    ),
    "a reserved name, renamed since": (
        lambda t: t.add_columns([pa.field("_pos", pa.int64())]),
        r"`eventlog publish iceberg \S+ --from \d+` publishes the newest",
    ),
    "a default": (
        lambda t: t.add_columns([pa.field("more", pa.int64())], {"more": 7}),
        r"unpublish iceberg \S+ --run`, then .* --format-version 3`.*has a default",
    ),
    "a reserved name": (
        lambda t: t.add_columns([pa.field("_pos", pa.int64())]),
        r"`eventlog unpublish iceberg \S+ --run` takes these back, since version .*_pos",
    ),
}


@pytest.mark.parametrize("name", WAYS_ON)
def test_vacuum_and_fsck_name_the_command_by_which_iceberg_goes_on(tmp_path, caplog, name):
    change, advice = WAYS_ON[name]
    table = behind(tmp_path, change)
    if "renamed" in name:  # the horizon is at a version that has the old name
        table.rename_column("_pos", "more")
    (found,) = fsck(table).findings
    assert (found.severity, found.key, found.version) == ("warning", metadata(1), 1)
    assert re.search(advice, found.message), found.message
    assert "versions above 1 are not published as Iceberg" in caplog.text
    follow_advice(table)
    assert findings(table) == []


def test_what_a_refused_write_of_pyiceberg_left_is_a_warning(tmp_path):
    table = published(tmp_path / "t", "iceberg")
    catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("n")
    place = f"file://{path_of(table)}/{metadata(2)}"
    before = objects_of(table, "metadata/").keys()
    with pytest.raises(ValueError, match="eventlog-read-only"):
        catalog.register_table("n.t", place).overwrite(events(1))
    left = objects_of(table, "metadata/").keys() - before
    assert {key.rpartition(".")[2] for key in left} == {"avro"}
    assert {*findings(table)} == {("warning", key, None) for key in left}
    assert all("harmless" in finding.message for finding in fsck(table).findings)
    assert publish(table, "iceberg").put == 0
    follow_advice(table)
    assert findings(table) == []
