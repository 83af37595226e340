"""`erase`: what held the rows of a person is named, and when nothing does, no byte has them."""

import io
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from unittest import mock

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.builders import START_MS, Spy, create, events, replace_object
from support.crashes import SMALL_LEAVES, SMALL_STEMS, MortalStore
from support.intents import Intents
from support.raw_search import objects_with

from eventlog import Table, errors
from eventlog.clock import ManualClock
from eventlog.compaction import Policy, run, vacuum
from eventlog.display import command
from eventlog.erasing import erase, search
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.log import spills
from eventlog.model.actions import Add, Drop, Replace
from eventlog.model.entries import ColumnStats
from eventlog.publishing import publish
from eventlog.publishing.iceberg.translation.table_metadata import MetadataFile
from eventlog.replication import break_replica, follow
from eventlog.state import keyframe
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.store.testing.faults import Crash
from eventlog.writers import append, delete, upsert

MARKER, NUMBER = "ada.lovelace@example.org", 77_654_321_012_345_678
HER = f"person = '{MARKER}'"
NOW = {"dry_run": False, "retention": timedelta(0)}
HOUR = 3_600_000
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", "UTC")),
        ("person", pa.string()),
        ("number", pa.int64()),
        ("note", pa.string()),
    ]
)
KEY = {"key": ["id"], "buckets": 2}


def made(schema=SCHEMA, *, store=None, **options):
    """A table whose small appends stand in commits, with a key frame at each fourth version."""
    store = MemoryStore() if store is None else store
    properties = {"inline_bytes": "4096", "keyframe_commits": "4", **options.pop("properties", {})}
    return Table.create(
        store.uri, schema, store=store, clock=ManualClock(START_MS, 1), time_column="at",
        granularity="day", properties=properties, **options,
    )  # fmt: skip


def rows(count, first=0, *, hers=2):
    """Rows of others and, at every tenth or so, hers."""
    at = [datetime(2013, 1, 1 + n % 3, 5, tzinfo=UTC) for n in range(first, first + count)]
    mine = [n % max(1, count // hers) == 1 for n in range(count)]
    people = [MARKER if m else f"person {first + n}" for n, m in enumerate(mine)]
    numbers = [NUMBER if m else first + n for n, m in enumerate(mine)]
    notes = [f"note {n} of {p}" for n, p in enumerate(people)]
    return pa.table([at, people, numbers, notes], schema=SCHEMA)


def erased(table, where=HER, **options):
    """What is erased an hour later: the commits of a clock that stands still are in its future."""
    table.clock.advance(HOUR)
    return erase(table, where, **(NOW | options))


def left(table):
    """The objects that have her, by a search that knows nothing of the package."""
    return objects_with(table.store, MARKER, NUMBER)


def holds(report):
    return {(one.kind, one.name) for one in report.held_by}


def lived(table):
    """Her rows in commits, packs and objects, behind vectors in and beside the log; a log cut once.

    Returns: the number of rows of others.
    """
    for number in range(6):
        append(table, rows(10, 100 * number))
    append(table, rows(1_500, 10_000, hers=4))  # too large for a commit
    # A vector that is too large for the log, and small ones.
    delete(table, where="number % 3 = 0 and number >= 10000 and number < 40000")
    delete(table, where="number = 102")
    run(table)
    table.clock.advance(HOUR)
    vacuum(table, dry_run=False, retention=timedelta(0), log=True, log_retention=timedelta(0))
    for number in range(6):
        append(table, rows(10, 1000 + 100 * number))
    delete(table, where="number = 1003")
    return table.count(where=f"not ({HER})")


def held_table():
    """The same with all that may hold rows: pins, tags, branches, a copy, publications."""
    table = made()
    lived(table)
    table.pin("audit", owner="the auditor")
    table.tag("before")
    publish(table, "delta")
    publish(table, "iceberg")
    branch = table.branch("fix")
    append(branch, rows(10, 5000))
    append(branch, rows(1_500, 50_000))
    other = table.branch("done")
    append(other, rows(10, 6000))
    table.merge(other)
    table.delete_branch("done")
    copy = MemoryStore()
    follow(table, Table(copy, table.clock), name="west")
    append(table, rows(10, 7000))
    publish(table, "delta")
    publish(table, "iceberg")
    return table


def test_a_report_names_what_holds_rows_and_none_left_is_none_in_any_byte():
    table = held_table()
    others = table.count(where=f"not ({HER})")
    found = erase(table, HER)
    assert found.dry_run
    assert not found.none_left
    assert left(table)
    assert {one.key for one in found.searched} == {row.key for row in table.store.list("")}
    report = erased(table)
    assert report.deleted is not None
    assert report.rewritten
    assert not report.failures
    assert table.count() == others
    assert holds(report) == {
        ("pin", "audit"), ("tag", "before"), ("branch", "fix"), ("copy", "west"),
    }  # fmt: skip
    assert [(one.name, one.acked) for one in report.copies]
    assert left(table).keys() <= {one.key for one in report.left}
    # One hold after another goes, as the report says.
    table.unpin("audit", owner="the auditor")
    table.untag("before")
    table.delete_branch("fix")
    report = erased(table)
    assert holds(report) == {("copy", "west")}
    break_replica(table, "west")
    report = erased(table)
    assert {kind for kind, _ in holds(report)} == {"publication"}
    for form in ("delta", "iceberg"):
        publish(table, form)
    report = erased(table)
    assert report.held_by == ()
    assert report.none_left
    assert left(table) == {}
    assert table.count() == others
    assert [one.message for one in fsck(table, checksums=True).findings] == []


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_publication_goes_on_above_a_log_that_was_cut(form):
    table = made()
    for number in range(6):
        append(table, rows(10, 100 * number))
    publish(table, form)
    table.clock.advance(HOUR)
    cut_at_once(table)
    for number in range(3):
        append(table, rows(10, 1000 + 100 * number))
        assert publish(other(table), form).last == other(table).refresh().version
    assert [one.message for one in fsck(other(table)).findings] == []


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_publication_that_a_cut_overtook_is_named_and_goes_on(form):
    table = made()
    publish(table, form)
    for number in range(6):
        append(table, rows(10, 100 * number))
        table.clock.advance(HOUR)
    cut_at_once(table)
    (found,) = fsck(other(table)).findings
    assert found.severity == "warning"
    assert "goes on at version" in found.message
    publish(other(table), form)
    assert [one.message for one in fsck(other(table)).findings] == []


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_publication_of_a_keyed_table_goes_on_where_it_begins_at_the_cut(form):
    table = create(key="name", order_by="at", granularity="all")
    for number in range(6):
        upsert(table, events(2, first=number))
        publish(other(table), form)
        table.clock.advance(HOUR)
    cut_at_once(table)
    assert [one.message for one in fsck(other(table)).findings] == []
    upsert(table, events(2))
    assert publish(other(table), form).last == other(table).refresh().version
    assert [one.message for one in fsck(other(table)).findings] == []


def test_a_manifest_list_of_another_version_does_not_stand_for_that_of_the_cut():
    table = made()
    for number in range(6):
        append(table, rows(10, 1000 + 10 * number))
    publish(table, "iceberg")
    table.clock.advance(HOUR)
    cut_at_once(table)
    append(table, rows(10, 100))
    publish(other(table), "iceberg")
    cut, newest = table.refresh().meta.cut.version, table.refresh().version
    lists = [
        MetadataFile.of(table.store.get(f"metadata/v{version}.metadata.json")).versions[-1]
        for version in (cut, newest)
    ]
    key = f"metadata/v{cut}.metadata.json"
    mine, others = (one.manifest_list.encode() for one in lists)
    assert mine != others
    replace_object(table.store, key, table.store.get(key).replace(mine, others))
    assert key in {one.key for one in fsck(other(table)).findings}


def cut_at_once(table):
    vacuum(table, dry_run=False, retention=timedelta(0), log=True, log_retention=timedelta(0))


def other(table):
    """A handle like that of another process."""
    return Table(table.store, ManualClock(table.clock.now_ms(), table.clock.now_ms() % 9973))


def test_the_retention_holds_rows_until_a_time_and_the_same_command_ends_it_then():
    table = made()
    for number in range(6):
        append(table, rows(10, 100 * number))
    report = erased(table, retention=None)
    assert holds(report) == {("retention", "")}
    assert report.held_by[0].until is not None
    assert left(table)
    assert not report.none_left
    again = erased(table, retention=None)
    assert again.held_by[0].until == report.held_by[0].until  # a call does not put it off
    table.clock.advance(report.held_by[0].until - table.clock.now_ms())
    report = erased(table, retention=None)
    assert report.none_left
    assert left(table) == {}
    assert report.deleted is None
    assert report.rewritten == 0


def test_an_object_that_cannot_be_read_is_never_taken_for_clean():
    table = made()
    append(table, rows(10))
    for key in ("notes.txt", "data/000000000001/2013-01-01/copy.parquet"):
        table.store.put_if_absent(key, MARKER.encode())
    damaged = f"data/000000009999/2013-01-01/{'ab' * 16}.parquet"
    table.store.put_if_absent(damaged, b"PAR1 of nobody")
    report = erased(table)
    assert not report.none_left
    assert [(one.kind, one.objects) for one in report.held_by] == [("unknown", 3)]
    assert {one.key for one in report.left if one.problem} == {
        "notes.txt", "data/000000000001/2013-01-01/copy.parquet", damaged,
    }  # fmt: skip


def keyed(**options):
    """A keyed table in which rows of a key are hidden by later ones, merged in part."""
    schema = pa.schema([("id", pa.int64()), *SCHEMA])
    table = made(schema, **KEY, **options)
    for number in range(12):
        added = rows(12, 12 * number)
        people = added["person"].to_pylist()
        ids = [NUMBER if p == MARKER else n for n, p in enumerate(people)]
        # The event time of a key never changes.
        at = pa.array([datetime(2013, 1, 1 + n % 3, 5, tzinfo=UTC) for n in ids])
        added = added.set_column(0, "at", at).add_column(0, "id", pa.array(ids))
        upsert(table, added.cast(schema))
        if number == 8:
            run(table)
    return table


@pytest.mark.parametrize("where", [HER, f"id = {NUMBER}"])
def test_all_rows_of_an_erased_key_go_from_a_keyed_table(where):
    table = keyed()
    others = table.scan(where=f"id <> {NUMBER}").to_table().sort_by("number").to_pylist()
    assert left(table)
    report = erased(table, where)
    assert report.none_left, (report.held_by, report.left)
    assert left(table) == {}
    assert table.scan().to_table().sort_by("number").to_pylist() == others
    assert [one.message for one in fsck(table, checksums=True, keys=True).findings] == []


def test_older_rows_of_a_key_that_has_another_value_now_go_and_the_key_stays():
    schema = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("person", pa.string())]
    )
    table = made(schema, **KEY)
    day = datetime(2013, 1, 1, 5, tzinfo=UTC)
    for person in (MARKER, "now another"):
        upsert(table, pa.table([[7, 8], [day, day], [person, "somebody"]], schema=schema))
    report = erased(table)
    assert report.deleted is not None or report.rewritten
    assert report.none_left
    assert left(table) == {}
    assert sorted(table.scan().to_table()["person"].to_pylist()) == ["now another", "somebody"]


def test_rows_that_only_an_upload_has_are_found_and_held_for_the_staging():
    table = made(properties={"inline_bytes": "0"})
    append(table, rows(10))
    stray = next(row.key for row in table.store.list("data/"))
    body = table.store.get(stray)
    other = f"data/000000000001/2013-01-01/{'cd' * 16}.parquet"
    table.store.put_if_absent(other, body)
    report = erased(table, retention=timedelta(days=30))
    assert {one.kind for one in report.held_by} == {"retention", "staging"}
    assert other in {one.key for one in report.left}
    report = erased(table)
    assert report.none_left
    assert left(table) == {}


@pytest.mark.sample(3, verify=10)
@pytest.mark.parametrize("at", range(1, 300, 5))
def test_an_erasure_that_dies_at_a_call_of_the_store_is_ended_by_the_next_one(at):
    table = made()
    for number in range(5):
        append(table, rows(10, 100 * number))
    append(table, rows(600, 10_000))
    others = table.count(where=f"not ({HER})")
    table.clock.advance(HOUR)
    dying = Table.open(
        table.uri, store=MortalStore(table.store, at), clock=ManualClock(table.clock.now_ms(), at)
    )
    with suppress(Crash, errors.EventLogError):
        erase(dying, HER, **NOW)
    report = erased(table)
    assert report.none_left
    assert left(table) == {}
    assert table.count() == others


@pytest.mark.parametrize("sizes", [SMALL_LEAVES, SMALL_STEMS], ids=["leaves", "stems"])
def test_leaves_stems_and_spills_are_searched_and_large_objects_in_parts(sizes, monkeypatch):
    monkeypatch.setattr(search, "_PART", 512)
    monkeypatch.setattr(spills, "SPILL_BYTES", 1)
    with mock.patch.multiple(keyframe, **sizes):
        table = made(properties={"inline_bytes": "0", "keyframe_commits": "2"})
        for number in range(3):
            append(table, rows(12, 100 * number))
        wide = rows(40, 1000)
        days = pa.array([datetime(2013, 2, 1, tzinfo=UTC) + timedelta(days=n) for n in range(40)])
        append(table, wide.set_column(0, "at", days).cast(SCHEMA))
        delete(table, where="number % 5 = 0")
        table.write_keyframe()
        found = erase(table, HER)
        kinds = {one.kind for one in found.searched}
        assert {"leaf", "spill"} <= kinds
        assert sizes is SMALL_LEAVES or "stem" in kinds
        assert left(table).keys() <= {one.key for one in found.left}
        assert not [one.problem for one in found.searched if one.problem]
        # One task at a time: a commit that loses a race leaves a spill, which no log names.
        report = erased(table, policy=Policy(max_tasks=1))
    assert report.none_left, report.left
    assert left(table) == {}
    assert {one.kind for one in report.searched} >= {"leaf", "stub"}


@pytest.mark.parametrize(
    "where",
    [
        f"number = {NUMBER} or at < '1900-01-01'",
        pc.field("number") == NUMBER,
        f"person in ('{MARKER}', 'nobody') and at >= '2013-01-01'",
        "person like 'ada.%' and number > 1000000",
    ],
    ids=["or", "arrow", "and", "like"],
)
def test_rows_are_found_by_any_predicate(where):
    table = made()
    for number in range(4):
        append(table, rows(10, 100 * number))
    append(table, rows(400, 10_000))
    others = table.count(where=f"not ({HER})")
    assert left(table).keys() <= {one.key for one in erase(table, where).left}
    assert erased(table, where).none_left
    assert left(table) == {}
    assert table.count() == others


def test_rows_go_with_columns_that_were_renamed_or_dropped_or_came_later():
    table = made()
    append(table, rows(400))
    append(table, rows(10, 1000))
    table.rename_column("person", "who")
    table.drop_columns(["note"])
    table.add_columns(pa.schema([("more", pa.int64())]))
    append(table, pa.table({"at": ["2013-01-01T05:00:00Z"], "who": ["Grace"], "more": [3]}))
    assert erased(table, f"who = '{MARKER}'").none_left
    assert left(table) == {}
    assert erased(table, "more = 3").none_left
    assert table.count() == 406


def test_an_intent_with_bounds_of_the_rows_ends_with_its_window():
    table = made()
    append(table, rows(10))
    head = table.refresh()
    gone = Drop("ab" * 16, "2013-01-01", "cd" * 32)
    stats = (ColumnStats(2, MARKER, MARKER, 0),)
    made_of = Add("ef" * 16, "2013-01-01", head.version, 1, 100, "ab" * 32, 1, stats)
    replaced = table.transaction("compact", [Replace(head.version, 0), gone, made_of])
    published = msgspec.structs.replace(replaced, until=head.version + 20)
    Intents(table.store, table.clock).publish(published, table.id)
    assert any(one.kind == "intent" and one.values for one in erase(table, HER).left)
    report = erased(table)
    assert report.none_left, report.left
    assert list(table.store.list("_intents/")) == []
    assert left(table) == {}


def test_bounds_of_rows_that_are_left_are_no_traces():
    table = made()
    day = [datetime(2013, 1, 1, 5, tzinfo=UTC)] * 3
    # Of the row that stays and the next one: together they look like a row that is erased.
    people, numbers = ["a", "b", "c"], [1, 5, 9]
    for _ in range(3):
        append(table, pa.table([day, people, numbers, ["x"] * 3], schema=SCHEMA))
    report = erased(table, "person = 'a' and number > 4")
    assert report.none_left, report.left
    assert report.deleted is None


def test_a_full_vacuum_takes_packs_of_a_table_that_has_no_rows_in_commits_any_more():
    table = made()
    for number in range(9):
        append(table, rows(10, 100 * number))
    table.set_properties({"inline_bytes": "0"})
    run(table)
    table.write_keyframe()
    append(table, rows(10, 900))
    assert list(table.store.list("_packs/"))
    table.clock.advance(HOUR)
    now = {"dry_run": False, "retention": timedelta(0)}
    vacuum(table, **now)
    assert list(table.store.list("_packs/"))
    report = vacuum(table, full=True, **now)
    assert report.gone["packs"].objects
    assert not list(table.store.list("_packs/"))


def test_a_value_that_only_a_dictionary_has_is_found():
    table = made(properties={"inline_bytes": "0"})
    append(table, rows(10, hers=1))
    key = next(row.key for row in table.store.list("data/"))
    stored = pq.read_table(io.BytesIO(table.store.get(key)))
    at = stored.schema.get_field_index("person")
    people = pa.DictionaryArray.from_arrays(
        pa.array([1] * stored.num_rows, pa.int32()), [MARKER, "somebody"]
    )
    field = pa.field("person", people.type, metadata=stored.schema.field(at).metadata)
    body = io.BytesIO()
    pq.write_table(stored.set_column(at, field, people), body, store_schema=False)
    stray = f"data/000000009999/2013-01-01/{'cd' * 16}.parquet"
    table.store.put_if_absent(stray, body.getvalue())
    assert stray in left(table)
    report = erased(table)
    (found,) = report.left
    assert (found.key, found.rows, found.verdict) == (stray, 0, "values")
    assert holds(report) == {("staging", "")}


def test_a_name_that_a_user_gave_is_found():
    table = made()
    append(table, rows(10), app_id=f"load of {MARKER}", app_seq=1)
    report = erased(table)
    assert holds(report) == {("name", "")}
    assert left(table).keys() == {one.key for one in report.left}


@pytest.mark.parametrize(
    "where",
    [
        pc.field("person") == MARKER,
        (pc.field("person").isin(["a", MARKER])) & (pc.field("number") > 0),
    ],
)
def test_a_name_that_a_user_gave_is_found_by_the_texts_of_an_arrow_expression(where):
    table = made()
    append(table, rows(10))
    erased(table)
    table.pin(f"complaint of {MARKER}", owner="the auditor")
    report = erased(table, where)
    assert holds(report) == {("name", "")}
    assert left(table).keys() == {one.key for one in report.left}


def test_in_a_branch_its_own_objects_are_searched_and_its_log_stays():
    table = made()
    append(table, rows(10))
    branch = table.branch("fix")
    append(branch, rows(10, 100))
    report = erased(branch)
    assert branch.count() == 16
    assert holds(report) == {("branch", "fix")}
    assert table.count() == 10


def test_branches_that_hold_rows_are_named_with_the_table_that_deletes_them():
    table = made()
    append(table, rows(10))
    branch = table.branch("out")
    append(branch, rows(10, 100))
    append(branch.branch("inn"), rows(10, 200))
    out = f"{table.uri}/_branches/out"

    def advised(of):
        return {one.name: one.advice for one in erased(of).held_by}

    def ends(uri, name):
        return f"{command('branch', uri, name, '--delete')}, then run this again"

    inner = advised(branch.branch("deep"))
    assert inner == {"deep": ends(out, "deep")}
    assert advised(branch) == {name: ends(out, name) for name in ("deep", "inn")} | {
        "out": ends(table.uri, "out")
    }
    assert advised(table) == {
        "out": ends(table.uri, "out"), "out/deep": ends(out, "deep"), "out/inn": ends(out, "inn"),
    }  # fmt: skip
    for name in ("deep", "inn"):
        branch.delete_branch(name)
    table.delete_branch("out")
    assert erased(table).none_left


def test_what_a_writer_into_a_directory_left_is_found_and_deleted(tmp_path):
    root = tmp_path / "table"
    table = made(store=LocalStore(root), properties={"inline_bytes": "0"})
    append(table, rows(10).filter(pc.field("person") != MARKER))
    # Killed before its file has its name: nothing tidies up.
    with (
        mock.patch("os.link", side_effect=Crash),
        mock.patch("os.unlink", side_effect=OSError),
        suppress(Crash),
    ):
        append(table, rows(10))
    files = sorted((root / ".tmp").iterdir())
    written = table.clock.now_ms() / 1000
    for file in files:
        os.utime(file, (written, written))
    digests = [sha256(file.read_bytes()).hexdigest() for file in files]
    for options in ({"dry_run": True}, {"retention": timedelta(hours=3)}):
        report = erased(table, **options)
        assert [one.key for one in report.left] == [f".tmp/{file.name}" for file in files]
        assert [one.sha256 for one in report.left] == digests
        assert [(one.kind, one.objects) for one in report.held_by] == [("staging", len(files))]
    assert erased(table).none_left
    assert not any((root / ".tmp").iterdir())


def test_writers_that_commit_meanwhile_keep_their_rows():
    table = made()
    for number in range(4):
        append(table, rows(10, 100 * number))

    added = []

    def meanwhile(key):
        if keys.parse_log_key(key) is not None and len(added) < 5:
            added.append(key)
            append(other, rows(10, 1000 + 100 * len(added), hers=1))

    other = Table.open(
        table.uri, store=table.store, clock=ManualClock(table.clock.now_ms() + HOUR, 7)
    )
    others = table.count(where=f"not ({HER})")
    table.clock.advance(HOUR)
    spy = Spy(table.store)
    spy.before_put = meanwhile
    erase(Table.open(table.uri, store=spy, clock=table.clock), HER, **NOW)
    assert table.count(where=f"not ({HER})") == others + 9 * len(added)
    assert erased(table).none_left
    assert left(table) == {}
