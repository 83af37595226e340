"""Versions published as Delta: read by other engines, guarded, and a function of the log alone."""

import contextlib
import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pyarrow as pa
import pytest
from support import published
from support.builders import CrashingStore, add, commit, create, events, live, replace_object
from support.deleting import delete_rows
from support.published import (
    actions_of,
    commands_of,
    compact_all,
    known_rows,
    objects_of,
    path_of,
    put_checkpoint,
    readings,
    run_commands,
    table_of_every_type,
)

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction.vacuum import vacuum
from eventlog.errors import Corrupt, EventLogError, InvalidInput, VersionVacuumed
from eventlog.fsck.check import fsck
from eventlog.publishing import publish, unpublish
from eventlog.publishing.delta.translation import checkpoints
from eventlog.readers import scan
from eventlog.replication import follow
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Crash
from eventlog.store.testing.wrappers import CountingStore
from eventlog.writers import append, overwrite

DELTA = "_delta_log/"
VECTORLESS = 3  # versions of `table_of_every_type` before rows are deleted


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    t = table_of_every_type(str(tmp_path_factory.mktemp("typed")))
    publish(t, "delta")
    return t


def test_each_engine_reads_each_version_as_a_scan_or_refuses_it(typed):
    head = typed.refresh().version
    assert head >= 7
    for version in range(head + 1):
        expected = known_rows(typed, version)
        for engine, found in readings(typed, version).items():
            if engine == "deltalake, Arrow" and _has_vectors(typed, version):
                assert "deletionVectors" in found
            else:
                assert found == expected, (version, engine)


@pytest.mark.verify
def test_engines_read_vectors_that_are_no_part_of_the_action(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    append(t, events(1400))
    (segment,) = live(t.session.head())
    delete_rows(t, {segment.id: range(0, 1400, 2)})
    publish(t, "delta")
    (stored,) = [a["add"]["deletionVector"] for a in actions_of(t, 2) if "add" in a]
    assert stored["storageType"] == "u"
    assert len(objects_of(t, "_delta_vectors/")) == 1
    found = readings(t, 2)
    assert found["deltalake"] == found["polars"] == known_rows(t, 2)


def test_settings_say_that_there_are_vectors_to_readers_that_look_nowhere_else(typed):
    newest, seen = {}, set()
    for version in range(typed.session.head().version + 1):
        for action in actions_of(typed, version):
            newest |= action
        told = "deletionVectors" in newest["protocol"].get("readerFeatures", ())
        settings = newest["metaData"]["configuration"]
        assert settings.get("delta.enableDeletionVectors") == ("true" if told else None), version
        seen.add(told)
    assert seen == {True, False}


def test_filters_find_the_rows_of_columns_without_bounds(tmp_path):
    import pyarrow.compute as pc  # noqa: PLC0415
    from deltalake import DeltaTable  # noqa: PLC0415

    more = [pa.field(f"c{n}", pa.int64()) for n in range(20)]  # statistics have 16 columns
    schema = pa.schema(
        [
            pa.field("the `time", pa.timestamp("us", "UTC"), nullable=False),
            ("flag", pa.bool_()),
            ("x", pa.float64()),
            ("b", pa.binary()),
            *more,
        ]
    )
    t = Table.create(str(tmp_path), schema, time_column="the `time")
    at = dt.datetime(2013, 1, 7, tzinfo=dt.UTC)
    rows = {"the `time": [at, at], "flag": [True, False], "x": [float("nan"), 1.0]}
    rows |= {"b": [b"1", b"2"]} | {f.name: [1, 2] for f in more}
    append(t, pa.table(rows, schema=schema))
    publish(t, "delta")
    theirs = DeltaTable(str(tmp_path))
    assert theirs.to_pyarrow_dataset().count_rows() == 2
    later = pa.scalar(at + dt.timedelta(days=1), pa.timestamp("us", "UTC"))
    for name, value in [("flag", True), ("x", 1.0), ("b", b"1"), ("c19", 1), ("the `time", at)]:
        kept = pc.field(name) == pa.scalar(value, schema.field(name).type)
        assert theirs.to_pyarrow_table(filters=kept).num_rows == rows[name].count(value), name
    assert theirs.to_pyarrow_table(filters=pc.field("the `time") > later).num_rows == 0
    assert "minValues" in actions_of(t, 1)[-1]["add"]["stats"]


def test_a_time_without_a_form_in_milliseconds_leaves_both_bounds_out(tmp_path):
    from deltalake import DeltaTable  # noqa: PLC0415

    schema = pa.schema([pa.field("at", pa.timestamp("us", "UTC"), nullable=False)])
    t = Table.create(str(tmp_path), schema, time_column="at", granularity="all")
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_500, dt.UTC)
    append(t, pa.table({"at": [dt.datetime(2013, 1, 7, tzinfo=dt.UTC), last]}, schema=schema))
    publish(t, "delta")
    (stats,) = [json.loads(a["add"]["stats"]) for a in actions_of(t, 1) if "add" in a]
    assert stats == {"numRecords": 2, "tightBounds": False}
    assert DeltaTable(str(tmp_path)).to_pyarrow_table().num_rows == 2


def test_histories_of_others_have_the_times_of_commits(typed):
    from deltalake import DeltaTable  # noqa: PLC0415

    told = DeltaTable(path_of(typed)).history()
    ours = [*typed.history()]
    assert [(h["version"], h["operation"]) for h in told] == [
        (h.version, h.operation) for h in ours
    ]
    times = [dt.datetime.fromtimestamp(h["timestamp"] / 1000, dt.UTC) for h in told]
    assert times == [h.time for h in ours]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "write",
    [
        lambda other, path: __import__("deltalake").write_deltalake(
            path, published.rows(90, 1).append_column("added", pa.array(["y"])), mode="append"
        ),
        lambda other, path: other.delete("number = 0"),
        lambda other, path: other.update(new_values={"truth": "true"}),
        lambda other, path: other.optimize.compact(),
        lambda other, path: other.vacuum(0, dry_run=False, enforce_retention_duration=False),
        lambda other, path: other.vacuum(
            0, dry_run=False, enforce_retention_duration=False, full=True
        ),
        lambda other, path: other.restore(1),
        lambda other, path: other.alter.set_table_properties({"delta.appendOnly": "true"}),
    ],
    ids=["append", "delete", "update", "optimize", "vacuum", "full-vacuum", "restore", "alter"],
)
def test_writes_of_others_are_refused_and_touch_nothing_of_ours(typed, write):
    from deltalake import DeltaTable  # noqa: PLC0415

    before = objects_of(typed, "")
    with pytest.raises(Exception, match=r"eventlog\.readOnly"):
        write(DeltaTable(path_of(typed)), path_of(typed))
    after = objects_of(typed, "")
    assert {key: after.get(key) for key in before} == before
    # A file in the root is all that a refused append leaves.
    assert all(key.startswith("part-") for key in after.keys() - before.keys())


@pytest.mark.verify
def test_others_cleaning_up_the_log_leaves_every_version(typed):
    from deltalake import DeltaTable  # noqa: PLC0415

    before = objects_of(typed)
    DeltaTable(path_of(typed)).cleanup_metadata()
    assert objects_of(typed) == before


def test_a_compaction_changes_no_rows_and_an_append_does(typed):
    changes = {}
    for version in range(1, typed.refresh().version + 1):
        operation = typed.snapshot(version).header.changes.operation
        files = [a.get("add") or a.get("remove") for a in actions_of(typed, version)]
        changes.setdefault(operation, set()).update(f["dataChange"] for f in files if f)
    assert changes["compact"] == {False}
    assert changes["append"] == changes["delete"] == {True}


def _has_vectors(t, version):
    return "vectors" in t.snapshot(version).header.features


def _history(store):
    """Four versions in memory: an append, another, and a restore of the first."""
    t = create(store)
    append(t, events(3))
    append(t, events(3, day=1))
    t.restore(1)
    return t


def test_one_by_one_is_as_all_at_once():
    store = MemoryStore()
    t = _history(store)
    for version in range(t.refresh().version + 1):
        assert publish(t, "delta", version=version).put == 1
    one_by_one = objects_of(t)
    unpublish(t, "delta", dry_run=False)
    assert not objects_of(t)
    done = publish(t, "delta")
    assert (done.first, done.last, done.put) == (0, t.refresh().version, t.refresh().version + 1)
    assert objects_of(t) == one_by_one
    assert publish(t, "delta").put == 0


@pytest.mark.verify
def test_two_publishers_at_once_do_no_harm():
    store = MemoryStore()
    t = _history(store)
    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(publish, Table.open("", store=store), "delta") for _ in range(4)]
    assert {task.result().last for task in done} == {t.refresh().version}
    both = objects_of(t)
    unpublish(t, "delta", dry_run=False)
    publish(t, "delta")
    assert both == objects_of(t)


@pytest.mark.verify
@pytest.mark.parametrize("how", ["before", "after", "lost", "refused"])
def test_a_publisher_killed_at_any_call_is_continued_by_another(how):
    store = MemoryStore()
    t = _history(store)
    commit(t, *_fills(t))
    publish(t, "delta", first=2)
    whole = objects_of(t)
    for at in range(1, 200):
        unpublish(t, "delta", dry_run=False)
        crashing = CrashingStore(store, 10**9, how)
        other = Table.open("", store=crashing)
        crashing.calls, crashing._at = 0, at
        with contextlib.suppress(Crash, EventLogError):
            publish(other, "delta", first=2)
        if crashing.calls < at:
            return
        assert publish(t, "delta", first=None if objects_of(t) else 2).last == t.refresh().version
        assert objects_of(t) == whole, at
    raise AssertionError("no end")


def _fills(t):
    return [add(t, "1970-01-05")]


def test_each_version_costs_one_get_and_one_put():
    store = MemoryStore()
    t = create(store)
    for number in range(20):
        append(t, events(1, day=number))
    publish(t, "delta", version=9)
    counting = CountingStore(store)
    other = Table.open("", store=counting)
    other.refresh()
    with counting.measure() as counts:
        assert publish(other, "delta").put == 11
    assert counts.put == 11
    # The commits, and: the newest, the last published one as it is, and twice the one below it.
    assert counts.get <= 11 + 6
    assert counts.list == 1


def test_a_publication_begins_at_the_horizon_and_a_vacuum_cuts_it(tmp_path):
    clock = ManualClock(published.START_MS, 1)
    t = Table.create(str(tmp_path), events().schema, time_column="at", clock=clock)
    for number in range(6):
        append(t, events(3, day=number % 2, first=3 * number))
    compact_all(t)
    clock.sleep(3600)
    append(t, events(2, first=50))
    append(t, events(2, first=60))
    publish(t, "delta")
    report = vacuum(t, dry_run=True, retention=timedelta(minutes=30), staging=timedelta(minutes=30))
    before = objects_of(t)
    done = vacuum(t, dry_run=False, retention=timedelta(minutes=30), staging=timedelta(minutes=30))
    horizon = t.refresh().meta.horizon
    assert horizon > 5
    assert report.gone["published"].objects == done.gone["published"].objects == horizon
    left = objects_of(t)
    assert f"{DELTA}{horizon:020d}.checkpoint.parquet" in left.keys() - before.keys()
    assert json.loads(left[f"{DELTA}_last_checkpoint"])["version"] == horizon
    publish(t, "delta")
    newest = t.refresh().version
    for version in (horizon, newest):
        found = readings(t, version)
        assert found["deltalake"] == found["polars"] == known_rows(t, version)
    assert "refused" in readings(t, horizon - 1)["deltalake"]
    cut = objects_of(t)
    unpublish(t, "delta", dry_run=False)
    assert publish(t, "delta").first == horizon
    again = objects_of(t)
    assert again == cut
    assert fsck(t).ok


@pytest.mark.verify
def test_a_checkpoint_after_some_versions_gives_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINT_EVERY", 10)
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    append(t, events(3))
    for number in range(10):
        t.set_properties({"user.n": str(number)})
    append(t, events(3, first=3))
    publish(t, "delta")
    assert f"{DELTA}{10:020d}.checkpoint.parquet" in objects_of(t)
    assert json.loads(t.store.get(f"{DELTA}_last_checkpoint"))["version"] == 10
    t.store.delete([f"{DELTA}{number:020d}.json" for number in range(10)])
    for version in (10, t.refresh().version):
        found = readings(t, version)
        assert found["deltalake"] == found["deltalake, Arrow"] == known_rows(t, version)
        assert found["polars"] == found["deltalake"]


def test_branches_are_refused_by_name():
    t = _history(MemoryStore())
    t.branch("audit")
    with pytest.raises(InvalidInput, match=r"a branch is not published as Delta.*Iceberg"):
        publish(Table.open("", store=t.store, branch="audit"), "delta")


def test_maps_of_structs_are_refused_by_name():
    pair = pa.struct([("x", pa.int32())])
    t = create(schema=events().schema.append(pa.field("odd", pa.map_(pair, pa.int32()))))
    with pytest.raises(InvalidInput, match="column 'odd' has a map"):
        publish(t, "delta")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("change", "column"),
    [
        (lambda t: t.rename_column("value", "price"), "price"),
        (lambda t: t.add_columns([pa.field("more", pa.int32())], {"more": 7}), "more"),
        (lambda t: t.widen_column("small", pa.int64()), "small"),
        (lambda t: t.rename_column(["place", "x"], "y"), "place"),
        (lambda t: (t.drop_columns(["small"]), t.rename_column("value", "small")), "small"),
    ],
    ids=["rename", "default", "widen", "nested", "another"],
)
def test_versions_that_engines_would_read_as_nulls_are_refused_by_name(tmp_path, change, column):
    more = [("small", pa.int32()), ("place", pa.struct([("x", pa.int32())]))]
    schema = pa.schema([*events().schema, *(pa.field(*pair) for pair in more)])
    t = Table.create(str(tmp_path), schema, time_column="at")
    append(t, _of(schema, 0))
    change(t)
    with pytest.raises(InvalidInput, match=f"column '{column}' was renamed.*Iceberg") as caught:
        publish(t, "delta")
    assert caught.value.version >= 2
    assert known_rows(t, 1) == readings(t, 1)["polars"]
    overwrite(t, _of(t.session.head().schema, 5))
    written_again = t.refresh().version
    unpublish(t, "delta", dry_run=False)
    publish(t, "delta", first=written_again)
    for found in readings(t, written_again).values():
        assert found == known_rows(t, written_again)


def test_a_vacuum_names_what_mends_a_publication_that_cannot_go_on(tmp_path, caplog):
    t = Table.create(str(tmp_path), events().schema, time_column="at", clock=ManualClock(10**12, 1))
    append(t, events(2))
    publish(t, "delta")
    t.rename_column("value", "price")
    append(t, events(2, day=1).rename_columns(t.session.head().schema.names))
    t.clock.advance(10**9)
    vacuum(t, retention=timedelta(0), staging=timedelta(0), dry_run=False)
    (warning,) = [f for f in fsck(t).findings if "not published as Delta" in f.message]
    for message in (warning.message, caplog.text):
        assert "versions above 1 are not published as Delta" in message
        assert "`eventlog unpublish delta" in message
        assert "column 'price' was renamed" in message
    assert (warning.severity, warning.version) == ("warning", 1)
    unpublish(t, "delta", dry_run=False)
    assert fsck(t).ok


def test_a_refusal_after_a_rename_names_commands_that_publish_the_newest(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    append(t, events(2))
    publish(t, "delta")
    t.rename_column("value", "price")
    with pytest.raises(InvalidInput, match=r"version 2 .*Versions 0 to 1 are .*`overwrite`.* N\b"):
        publish(t, "delta")
    overwrite(t, scan(t), read_version=2)
    append(t, scan(t))
    with pytest.raises(InvalidInput, match=r"Publish version 4, the newest, and later") as refused:
        publish(t, "delta", first=3)
    run_commands(commands_of(refused.value.message)[:2])
    done = publish(t, "delta")
    assert (done.first, done.last, done.put) == (4, 4, 0)


def test_a_publication_is_taken_back_only_for_versions_that_can_be_published(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    append(t, events(2))
    t.rename_column("value", "price")
    overwrite(t, scan(t), read_version=2)
    append(t, scan(t))
    publish(t, "delta", first=3)
    there = objects_of(t)
    for first in (0, 2):
        with pytest.raises(
            InvalidInput, match=r"version 2 .*renamed.* as early as it can"
        ) as early:
            publish(t, "delta", first=first)
        assert "unpublish" not in early.value.message
    assert objects_of(t) == there
    unpublish(t, "delta", dry_run=False)
    publish(t, "delta", first=4)
    with pytest.raises(InvalidInput, match=r"version 2 .*renamed.* can begin at 3: ") as early:
        publish(t, "delta", first=1)
    run_commands(commands_of(early.value.message))
    assert publish(t, "delta").spans == ((3, 4),)


def test_versions_below_the_horizon_are_no_reason_to_take_a_publication_back():
    t = _history(MemoryStore())
    publish(t, "delta", first=2)
    t.clock.advance(10**9)
    vacuum(t, retention=timedelta(0), staging=timedelta(0), dry_run=False)
    with pytest.raises(VersionVacuumed):
        publish(t, "delta", first=1)


def _of(schema, n):
    values = {"at": dt.datetime(2013, 1, 1 + n, tzinfo=dt.UTC), "name": "a", "value": n / 2}
    values |= {"price": n / 4, "more": n, "small": n, "place": {"x": n, "y": n}}
    named = {name: values[name] for name in schema.names}
    return pa.Table.from_pylist([named], schema=schema)


def test_dropped_columns_are_no_obstacle(tmp_path):
    t = Table.create(str(tmp_path), events().schema, time_column="at")
    append(t, events(3))
    t.drop_columns(["value"])
    append(t, events(3, first=3).drop(["value"]))
    publish(t, "delta")
    for version in (1, 2, 3):
        for found in readings(t, version).values():
            assert found == known_rows(t, version)


def test_a_publication_of_another_table_is_refused():
    store = MemoryStore()
    publish(_history(store), "delta")
    other = create(MemoryStore(), seed=7)
    for key, body in objects_of(Table(store)).items():
        other.store.put_if_absent(key, body)
    for number in range(3):
        append(other, events(1, day=number))
    with pytest.raises(Corrupt, match=r"publishes another table \(id .*eventlog unpublish delta"):
        publish(other, "delta")


def test_a_publication_ahead_of_the_table_is_refused():
    t = _history(MemoryStore())
    publish(t, "delta")
    other = create(MemoryStore())
    for key, body in objects_of(t).items():
        other.store.put_if_absent(key, body)
    with pytest.raises(Corrupt, match="unpublish"):
        publish(other, "delta")


def test_objects_of_strangers_stop_the_publisher_and_are_found():
    store = MemoryStore()
    t = _history(store)
    publish(t, "delta", version=1)
    key = f"{DELTA}{2:020d}.json"
    store.put_if_absent(key, b'{"commitInfo":{"engineInfo":"delta-rs"}}\n')
    with pytest.raises(Corrupt, match="another program wrote it") as caught:
        publish(t, "delta")
    assert caught.value.key == key
    assert {f.key for f in fsck(t).findings if f.severity == "error"} == {key}


def test_the_hint_only_rises():
    t = _history(MemoryStore())
    publish(t, "delta", first=3)
    unnamed = t.store.get(f"{DELTA}_last_checkpoint")
    put_checkpoint(t, 1)
    assert t.store.get(f"{DELTA}_last_checkpoint") == unnamed
    t.store.put_hint(f"{DELTA}_last_checkpoint", b"[]")
    put_checkpoint(t, 3)
    assert t.store.get(f"{DELTA}_last_checkpoint") == unnamed


def test_a_gap_is_named():
    t = _history(MemoryStore())
    publish(t, "delta")
    key = f"{DELTA}{1:020d}.json"
    t.store.delete([key])
    with pytest.raises(Corrupt, match="version 1 is missing in the publication"):
        publish(t, "delta")
    assert key in {f.key for f in fsck(t).findings}


def test_fsck_compares_commits_and_checkpoints_with_the_log():
    store = MemoryStore()
    t = _history(store)
    publish(t, "delta", first=2)
    assert fsck(t).ok
    body = store.get(f"{DELTA}{3:020d}.json")
    replace_object(store, f"{DELTA}{3:020d}.json", body.replace(b'"remove"', b'"rem0ve"'))
    keys = [f"{DELTA}{3:020d}.json", f"{DELTA}{2:020d}.checkpoint.parquet"]
    replace_object(store, keys[1], b"PAR1")
    store.put_if_absent(f"{DELTA}note.txt", b"?")
    found = [f.key for f in fsck(t).findings if f.severity == "error"]
    assert sorted(found) == sorted([*keys, f"{DELTA}note.txt"])


def test_a_publication_that_begins_later_has_to_be_taken_back():
    t = _history(MemoryStore())
    publish(t, "delta", first=2)
    assert publish(t, "delta", first=3).first == 2
    with pytest.raises(InvalidInput, match="the publication begins at version 2"):
        publish(t, "delta", first=1)
    with pytest.raises(InvalidInput, match="version 1 cannot be the last one"):
        publish(t, "delta", version=1)


def test_very_many_versions_are_asked_for(monkeypatch):
    from eventlog.publishing import versions  # noqa: PLC0415

    t = _history(MemoryStore())
    monkeypatch.setattr(versions, "MOST_VERSIONS", 3)
    with pytest.raises(InvalidInput, match=r"4 versions would be published.*--from"):
        publish(t, "delta")
    assert publish(t, "delta", first=0).put == 4


def test_the_log_of_another_program_is_not_taken_back():
    t = _history(MemoryStore())
    key = f"{DELTA}{0:020d}.json"
    t.store.put_if_absent(key, b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n')
    with pytest.raises(InvalidInput, match="that eventlog did not publish"):
        unpublish(t, "delta", dry_run=False)
    assert list(objects_of(t)) == [key]


def test_nothing_is_taken_back_unless_it_runs():
    t = _history(MemoryStore())
    publish(t, "delta")
    there = objects_of(t)
    assert sorted(unpublish(t, "delta")) == sorted(there)
    assert objects_of(t) == there


@pytest.mark.verify
def test_a_copy_publishes_the_same_from_where_it_begins():
    source = create()
    for number in range(70):
        append(source, events(1, day=number % 3, first=number))
    target = MemoryStore("memory://published-copy")
    followed = follow(source, target.uri, start="keyframe")
    copy = Table.open(target.uri)
    done = publish(copy, "delta")
    assert done.first == followed.start > 0
    assert done.last == source.refresh().version
    assert fsck(copy).ok
    publish(source, "delta", first=done.first)
    ours, theirs = objects_of(source), objects_of(copy)
    assert ours.keys() == theirs.keys()
    lowest = f"{DELTA}{done.first:020d}.json"  # the copy has not the version before
    assert {key for key in ours if ours[key] != theirs[key]} == {lowest}
