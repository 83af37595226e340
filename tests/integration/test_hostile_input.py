"""Bytes that somebody else wrote, or that rotted: refused with an error of ours, never believed."""

import io
import json

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import builders, repeatable
from support.builders import (
    HASH,
    SCHEMA,
    check_sound,
    commit,
    create,
    events,
    reopen,
    replace_object,
)

from eventlog import Table, compaction, errors, replication
from eventlog.clock import ManualClock
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns, frame_bytes
from eventlog.fsck.check import fsck
from eventlog.model.actions import Add, Drop, SetProperties, SetSchema
from eventlog.model.entries import ColumnStats
from eventlog.state import keyframe
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, overwrite

COMMIT = keys.commit_key(2)


def small_store():
    store = MemoryStore()
    table = create(store)
    append(table, events(3), app_id="job", app_seq=4)
    table.set_properties({"user.note": "a note"})
    return store


def refused(body, error=errors.Corrupt):
    """The body stands at the head of a small table: opening it must raise `error`."""
    store = small_store()
    replace_object(store, COMMIT, body)
    with pytest.raises(error) as caught:
        reopen(store).session.head().entries()
    return caught.value


def changed(*changes):
    """The newest commit of a small table with some of its text replaced, and digests that fit."""
    body = small_store().get(COMMIT)
    for old, new in changes:
        assert body.count(old) >= 1, old
        body = body.replace(old, new, 1)
    return builders.resealed(body)


# --- commits as JSON ----------------------------------------------------------------------------

NOT_A_COMMIT = {
    "empty": b"",
    "null": b"null",
    "array": b"[]",
    "object": b"{}",
    "text": b'"text"',
    "binary": bytes(range(256)),
    "open brackets": b"[" * 100_000,
    "open objects": b'{"header":' * 50_000,
    "two values": b"{}{}",
}


@pytest.mark.parametrize("name", NOT_A_COMMIT)
def test_what_is_no_commit_is_corrupt(name):
    refused(NOT_A_COMMIT[name])
    with pytest.raises(errors.Corrupt):
        codec.decode_keyframe(NOT_A_COMMIT[name], 2)
    with pytest.raises(errors.Corrupt):
        codec.decode_header(NOT_A_COMMIT[name], 2)


def deep(levels):
    return b'{"a":' * levels + b"1" + b"}" * levels


BAD_STATE = {
    "too deep": b'{"schema":' + deep(20) + b"}",
    "far too deep": b'{"schema":' + deep(900) + b"}",
    "deeper than the stack": b'{"schema":' + deep(100_000) + b"}",
    "int of 2^63": b'{"fence":9223372036854775808}',
    "int of 2^64": b'{"fence":18446744073709551616}',
    "huge int": b'{"fence":' + b"9" * 5000 + b"}",
    "negative int": b'{"fence":-1}',
    "float": b'{"fence":1.5}',
    "float that is whole": b'{"fence":1.0}',
    "exponent": b'{"fence":1e2}',
    "NaN": b'{"fence":NaN}',
    "Infinity": b'{"fence":Infinity}',
    "1e400": b'{"fence":1e400}',
    "leading zero": b'{"fence":01}',
    "duplicate key": b'{"fence":1,"fence":2}',
    "duplicate name": b'{"properties":{"user.a":"1","user.a":"2"}}',
    "invalid UTF-8": b'{"properties":{"user.a":"\xff"}}',
    "overlong UTF-8": b'{"properties":{"user.a":"\xc0\xaf"}}',
    "encoded surrogate": b'{"properties":{"user.a":"\xed\xa0\x80"}}',
    "lone surrogate": b'{"properties":{"user.a":"\\ud800"}}',
    "lone low surrogate": b'{"properties":{"user.a":"\\udc00x"}}',
    "escape that is not needed": b'{"properties":{"user.a":"\\u0041"}}',
    "unknown field": b'{"claims":{}}',
    "map where none is": b'{"fence":{"a":1}}',
    "text where a map is": b'{"properties":"x"}',
    "property that is no text": b'{"properties":{"user.a":1}}',
    "raw control character": b'{"properties":{"user.a":"\x01"}}',
}


@pytest.mark.parametrize("name", BAD_STATE)
def test_bad_json_in_the_state_of_a_commit_is_corrupt(name):
    body = small_store().get(COMMIT)
    start = body.index(b'"state":') + 8
    end = body.index(b',"transactions":')
    refused(body[:start] + BAD_STATE[name] + body[end:])


REWRITES = {
    "white space": (b'{"header":', b'{ "header":'),
    "newline at the end": (b"", b""),
    "unknown field": (b'{"header":', b'{"hello":1,"header":'),
    "unknown header field": (b'"features":[]', b'"features":[],"extra":1'),
    "unknown action": (b'"action":"set_properties"', b'"action":"set_fire"'),
    "duplicate key": (b'"version":2', b'"version":1,"version":2'),
    "other number form": (b'"version":2', b'"version":2.0'),
    "text for a number": (b'"version":2', b'"version":"2"'),
    "true for a number": (b'"min_reader":1', b'"min_reader":true'),
    "other format": (b'"format":"eventlog"', b'"format":"deltalog"'),
    "other version": (b'"version":2', b'"version":3'),
    "no previous commit": (b'"prev":"', b'"prev":null,"x":"'),
    "upper-case hash": (b'"prev":"', b'"prev":"A'),
    "key frame of the future": (b'"keyframe":null', b'"keyframe":2'),
    "negative key frame": (b'"keyframe":null', b'"keyframe":-1'),
    "time past 9999": (b'"time":16', b'"time":99999916'),
    "negative count": (b'"segments":1', b'"segments":-1'),
    "count of 2^63": (b'"segments":1', b'"segments":9223372036854775808'),
}


@pytest.mark.parametrize("name", REWRITES)
def test_a_commit_that_is_not_canonical_is_corrupt(name):
    body = changed(REWRITES[name])
    refused(body + b"\n" if name == "newline at the end" else body)


def test_reordered_fields_are_refused():
    value = json.loads(small_store().get(COMMIT))
    value["header"] = dict(reversed(value["header"].items()))
    refused(json.dumps(value, separators=(",", ":")).encode())
    value = dict(reversed(json.loads(small_store().get(COMMIT)).items()))
    refused(json.dumps(value, separators=(",", ":")).encode())


def test_a_commit_that_is_too_large_is_refused_before_it_is_parsed(monkeypatch):
    body = b"[" + b"1," * (codec.MAX_COMMIT_BYTES // 2) + b"1]"
    monkeypatch.setattr(msgspec.json, "decode", None)
    for decode in (codec.decode_commit, lambda b: codec.decode_commit(b + bytes(2**20))):
        with pytest.raises(errors.Corrupt, match="bytes of JSON"):
            decode(body)
    with pytest.raises(errors.Corrupt, match="bytes of JSON"):
        codec.decode_keyframe(bytes(codec.MAX_KEYFRAME_BYTES + 1), 2)


NEWER = {
    "reader": (b'"min_reader":1', b'"min_reader":2'),
    "reader far ahead": (b'"min_reader":1', b'"min_reader":9223372036854775807'),
    "feature": (b'"features":[]', b'"features":["columns by sound"]'),
}


@pytest.mark.parametrize("name", NEWER)
def test_what_needs_a_newer_reader_says_so(name):
    body = changed(NEWER[name])
    assert "upgrade" in str(refused(body, errors.UnsupportedFormat))
    # Whatever else a newer format changes must not hide that.
    body = body.replace(b'"actions":', b'"deeds":').replace(b'{"header"', b'{"new":[],"header"')
    refused(body, errors.UnsupportedFormat)
    with pytest.raises(errors.UnsupportedFormat):
        codec.decode_header(changed(NEWER[name])[: codec.HEADER_BYTES], 2)


def test_a_table_for_newer_writers_is_read_but_not_written():
    store = small_store()
    replace_object(store, COMMIT, changed((b'"min_writer":1', b'"min_writer":2')))
    table = reopen(store)
    assert table.session.head().totals.rows == 3
    for write in (
        lambda: append(table, events(1)),
        lambda: append(table, events(1), app_id="new", app_seq=1),
        lambda: table.set_properties({"user.a": "b"}),
        lambda: table.add_columns(SCHEMA.append(pa.field("extra", pa.int64()))),
    ):
        with pytest.raises(errors.UnsupportedFormat):
            write()
    assert len(builders.bodies(store)) == 3


def newer(table):
    """The newest commit of a table requires writers of a newer format from now on."""
    key = keys.commit_key(table.refresh().version)
    body = table.store.get(key).replace(b'"min_writer":1', b'"min_writer":2')
    replace_object(table.store, key, builders.resealed(body))


WRITES = {
    "append": lambda t, *_: append(t, events(1)),
    "overwrite": lambda t, *_: overwrite(t, events(1)),
    "drop": lambda t, *_: t.drop_segments(builders.live(t.session.head())[:1], reason="lost"),
    "branch": lambda t, *_: t.branch("new"),
    "delete_branch": lambda t, *_: t.delete_branch("audit"),
    "merge of a branch": lambda t, *_: t.merge("audit"),
    "write_keyframe": lambda t, *_: t.write_keyframe(),
    "pin": lambda t, *_: t.pin("p"),
    "claim": lambda t, *_: t.claim("1970-01-01", "1970-01-02"),
    "restore": lambda t, *_: t.restore(1),
    "vacuum": lambda t, *_: compaction.vacuum(t, dry_run=False),
    "compact": lambda t, *_: refusing(t),
    "merge": lambda t, other, _: replication.merge(other, t),
    "follow": lambda t, other, _: replication.follow(other, t),
    "followed": lambda t, _, empty: replication.follow(t, Table(empty)),
    "backfill": lambda t, other, _: replication.backfill(other, t),
    "backfilled": lambda t, other, _: replication.backfill(t, other),
}


def refusing(table):
    """Compact a table; raise what a task met, whose errors are part of its outcome."""
    made = compaction.run(table, policy=compaction.Policy(claim_bytes=0))
    assert {o.error.split(":")[0] for o in made.outcomes} == {"UnsupportedFormat"}
    raise errors.UnsupportedFormat("told")


@pytest.mark.sample(6)
@pytest.mark.parametrize("write", WRITES)
def test_nothing_is_written_or_deleted_in_a_table_for_newer_writers(write):
    table, copy, empty = create(), MemoryStore(), MemoryStore()
    for n in range(9):
        append(table, events(2, first=2 * n))
    append(table.branch("audit"), events(1, first=50))
    replication.follow(table, Table(copy), start="keyframe")
    append(Table.open("", store=copy, clock=ManualClock(builders.START_MS, 900)), events(1))
    newer(table)
    other = Table.open("", store=copy)
    stores = (table.store, copy, empty)
    before = [{row.key: s.get(row.key) for row in s.list("")} for s in stores]
    with pytest.raises(errors.UnsupportedFormat):
        WRITES[write](reopen(table.store), other, empty)
    assert [{row.key: s.get(row.key) for row in s.list("")} for s in stores] == before


def test_a_repair_writes_nothing_in_a_table_for_newer_writers():
    table = create(properties={"keyframe_commits": "3"})
    for _ in range(4):
        append(table, events(1))
    [key] = [row.key for row in table.store.list("_log/") if "keyframe" in row.key]
    newer(table)
    table.store.delete([key])
    report = fsck(reopen(table.store), repair=True)
    assert [(r.key, r.done) for r in report.repairs] == [(key, False)]
    assert "upgrade eventlog" in report.repairs[0].message
    assert key not in {row.key for row in table.store.list("_log/")}


def test_deep_column_types_are_refused_wherever_they_stand():
    table = create()
    deep_type = {"list": {"id": 9, "type": "string"}}
    for _ in range(400):
        deep_type = {"list": {"id": 9, "type": deep_type}}
    schema = table.session.head().stored_schema
    columns = (*schema.columns, msgspec.structs.replace(schema.columns[0], id=9, type=deep_type))
    wide = msgspec.structs.replace(schema, id=2, columns=columns)
    with pytest.raises((errors.InvalidInput, errors.CommitConflict)):
        commit(table, SetSchema(wide))
    stored = codec.decode_commit(builders.bodies(table.store)[0])
    bad = msgspec.structs.replace(stored.transactions[0], actions=(SetSchema(wide),))
    with pytest.raises(errors.Corrupt):
        codec.decode_commit(
            msgspec.json.encode(msgspec.structs.replace(stored, transactions=(bad,)))
        )


# --- entries and keys ----------------------------------------------------------------------------

BAD_KEYS = [
    "..",
    "../../etc/passwd",
    "a//b",
    "%2e%2e",
    "a\\b",
    "a\x00b",
    "a\nb",
    "s3://elsewhere/secret",
    "/etc/passwd",
    "file:///etc/passwd",
    "",
    "ALL",
    "é" * 16,
    "0" * 31,
    "0" * 33,
    "A" * 32,
    "\u0660" * 32,
]


def with_entry(field, value):
    """A small table whose newest commit holds an entry with a bad field."""
    store = small_store()
    stored = codec.decode_commit(store.get(COMMIT))
    (entry,) = stored.delta.adds
    bad = msgspec.structs.replace(entry, **{field: value})
    total = int(stored.header.state_hash, 16) - codec.entry_hash(entry) + codec.entry_hash(bad)
    header = msgspec.structs.replace(stored.header, state_hash=codec.hex_hash(total))
    delta = msgspec.structs.replace(stored.delta, adds=(bad,))
    return store, msgspec.structs.replace(stored, header=header, delta=delta)


@pytest.mark.parametrize("field", ["id", "chunk", "checksum"])
@pytest.mark.parametrize("value", BAD_KEYS)
def test_an_entry_that_names_no_key_of_ours_is_corrupt(field, value):
    store, stored = with_entry(field, value)
    replace_object(store, COMMIT, codec.encode_commit(stored))
    with pytest.raises(errors.Corrupt):
        reopen(store).session.head().entries()


@pytest.mark.sample(17)
@pytest.mark.parametrize("field", ["id", "chunk", "checksum"])
@pytest.mark.parametrize("value", BAD_KEYS)
def test_an_inlined_entry_that_names_no_key_of_ours_is_stepped_over(field, value):
    """A key frame is derived: a bad one costs time, never the answer."""
    store = small_store()
    table = reopen(store)
    table.write_keyframe()
    append(table, events(1, first=3))
    root = codec.decode_keyframe(store.get(keys.keyframe_key(2)), 2)
    bad = msgspec.structs.replace(root.segments[0], **{field: value})
    replace_object(
        store,
        keys.keyframe_key(2),
        codec.encode_keyframe(msgspec.structs.replace(root, segments=(bad,))),
    )
    check_sound(store)


@pytest.mark.parametrize("value", [*BAD_KEYS, "2013-13", "2013-02-30", "2013-01-07T24", "0000"])
def test_staged_segments_with_bad_keys_are_never_committed(value):
    table = create()
    good = builders.add(table)
    for field in ("id", "chunk", "checksum"):
        with pytest.raises(errors.CommitConflict):
            commit(table, msgspec.structs.replace(good, **{field: value}))
    with pytest.raises(errors.CommitConflict):
        commit(table, Drop(value, "2013-01-07", HASH))
    with pytest.raises(errors.CommitConflict):
        commit(table, Drop("0" * 32, value, HASH))
    table.write_keyframe()
    commit(table, good)
    with pytest.raises(errors.CommitConflict):
        commit(table, Drop(value, "2013-01-07", HASH))
    check_sound(table.store)


def test_statistics_of_mixed_types_are_corrupt_and_never_committed():
    table = create()
    mixed = (ColumnStats(2, "text", "text", 0), ColumnStats(2, 1, 2, 0))
    for stats in (mixed, (ColumnStats(2, "a", 1, 0),), tuple(reversed(mixed))):
        with pytest.raises((errors.InvalidInput, errors.CommitConflict)):
            commit(table, builders.add(table, stats=stats))
    commit(table, builders.add(table, stats=(ColumnStats(2, "a", "b", 0),)))
    check_sound(table.store)
    store, stored = with_entry("stats", (ColumnStats(2, "a", 1, 0),))
    replace_object(store, COMMIT, codec.encode_commit(stored))
    with pytest.raises(errors.Corrupt):
        reopen(store).session.head().entries()


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": -1},
        {"bytes": 2**63},
        {"epoch": -1},
        {"rows": 1.5},
        {"rows": "many"},
        {"schema": None},
        {"stats": (ColumnStats(2, "a", "b", -1),)},
        {"id": "\ud800" * 32},
    ],
    ids=str,
)
def test_values_that_the_format_does_not_have_are_invalid_input(changes):
    """A slot is never freed: a commit that no reader accepts would end the table."""
    table = create()
    bad = msgspec.structs.replace(builders.add(table), **changes)
    with pytest.raises(errors.InvalidInput):
        commit(table, bad)
    commit(table, builders.add(table))
    check_sound(table.store)


@pytest.mark.parametrize("key", ["..", "a//b", "../x", "a%2fb", "a\\b", "a\x01b", "/a", "s3://b/k"])
def test_keys_outside_the_root_never_reach_a_store(key):
    for call in (
        lambda s: s.get(key),
        lambda s: s.put_if_absent(key, b""),
        lambda s: s.delete([key]),
    ):
        with pytest.raises(errors.InvalidInput):
            call(MemoryStore())


# --- names ---------------------------------------------------------------------------------------

BAD_COLUMNS = ["", "a\nb", "a\x00b", "x" * 256, "tab\there", "\u2028", "AT"]


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_hostile_column_names_are_invalid_input(name):
    with pytest.raises(errors.InvalidInput):
        create(schema=SCHEMA.append(pa.field(name, pa.int64())))
    with pytest.raises(errors.InvalidInput):
        create().add_columns(SCHEMA.append(pa.field(name, pa.int64())))


FINE_COLUMNS = ["../../etc", "a b", "%s", "\\", "'; drop table", "größe", "列", "😀", "nulls_1"]


@pytest.mark.hazard("W8")
@pytest.mark.parametrize("name", FINE_COLUMNS)
def test_odd_column_names_are_only_names(name):
    table = create(schema=SCHEMA.append(pa.field(name, pa.string())))
    rows = events(2).append_column(name, pa.array(["a", None]))
    append(table, rows)
    table.write_keyframe()
    assert check_sound(table.store).session.head().schema.names[-1] == name


@pytest.mark.parametrize(
    "properties",
    [
        {"unknown": "1"},
        {"keyframe_commits": "0"},
        {"keyframe_commits": "-1"},
        {"keyframe_commits": "\uff11"},
        {"keyframe_commits": "9" * 5000},
        {"keyframe_bytes": "1e5"},
        {"user." + "x" * 300: "1"},
        {"user.x": "x" * 5000},
        {"user.\ud800": "1"},
        {"user.x": "\udfff"},
        {"stats_columns": "no such column"},
        {"stats_columns": "²"},
    ],
    ids=lambda p: ascii(next(iter(p.items())))[:30],
)
def test_hostile_properties_are_invalid_input(properties):
    with pytest.raises(errors.InvalidInput):
        create(properties=properties)
    table = create()
    with pytest.raises(errors.InvalidInput):
        table.set_properties(properties)
    assert table.refresh().version == 0


def test_hostile_property_values_in_the_log_are_brought_within_bounds():
    table = create()
    changes = tuple(
        msgspec.convert({"name": n, "old": None, "new": v}, builders.PropertyChange)
        for n, v in (("keyframe_commits", "0"), ("segment_bytes", "9" * 4000), ("user.x", "\x00"))
    )
    commit(table, SetProperties(changes), operation="properties")
    for n in range(3):
        append(table, events(1, first=n))
    check_sound(table.store)


@pytest.mark.parametrize(
    ("app_id", "app_seq"),
    [("", 1), ("x" * 256, 1), ("a", -1), ("a", 2**63), ("\ud800", 1), ("a", None), (None, 1)],
    ids=ascii,
)
def test_hostile_app_ids_are_invalid_input(app_id, app_seq):
    table = create()
    with pytest.raises(errors.InvalidInput):
        append(table, events(1), app_id=app_id, app_seq=app_seq)
    assert table.refresh().version == 0


@pytest.mark.hazard("W8")
@pytest.mark.parametrize("app_id", ["..", "a/b", '"', "\x00", "null", "😀" * 255])
def test_odd_app_ids_are_only_names(app_id):
    table = create()
    assert append(table, events(1), app_id=app_id, app_seq=0) == 1
    table.write_keyframe()
    assert append(reopen(table.store), events(1), app_id=app_id, app_seq=0) == 1
    check_sound(table.store)


def test_long_writers_and_operations_are_invalid_input():
    table = create()
    for field in ("writer", "operation"):
        transaction = table.transaction("append", [builders.add(table)])
        for text in ("x" * 121, "😀" * 120 + "x"):
            with pytest.raises(errors.InvalidInput):
                table.commit(msgspec.structs.replace(transaction, **{field: text}))
    assert table.refresh().version == 0
    # The longest that there is still fits into the header's 2 KB, escaped.
    transaction = table.transaction("\x01" * 120, [builders.add(table)])
    table.commit(msgspec.structs.replace(transaction, writer="\x01" * 120))
    assert [len(entry.writer) for entry in table.history(limit=1)] == [120]


# --- Parquet of leaves and spills -----------------------------------------------------------------


@pytest.fixture
def leaf_store(monkeypatch):
    for name, value in (("INLINE_SEGMENTS", 2), ("LEAF_TARGET", 4), ("LEAF_SMALL", 1)):
        monkeypatch.setattr(f"eventlog.state.keyframe.{name}", value)
    store = MemoryStore()
    table = create(store)
    for n in range(12):
        commit(table, builders.add(table, f"2013-01-{1 + n:02d}"))
    table.write_keyframe()
    commit(table, builders.add(table))
    assert len(table.session.head().base.leaves) > 2
    return store


def hostile_leaf(leaf, table):
    """A leaf entry whose object is `table`: everything that the root says of it fits."""
    body = frame_bytes.to_parquet(table)
    return msgspec.structs.replace(leaf, sha256=codec.sha256(body), size=len(body)), body


def leaf_changes(entries):
    column = entries.column_names.index
    wrong_type = pa.array(["x"] * entries.num_rows)
    return {
        "row lost": entries.slice(1),
        "row doubled": pa.concat_tables([entries, entries.slice(0, 1)]),
        "no rows": entries.slice(0, 0),
        "column lost": entries.drop_columns(["epoch"]),
        "columns swapped": entries.select([*entries.column_names[1:], entries.column_names[0]]),
        "unknown column": entries.append_column("surprise", wrong_type),
        "odd statistics": entries.append_column("min_²", wrong_type),
        "half of statistics": entries.append_column("min_7", wrong_type),
        "null ids": entries.set_column(
            column("id"), "id", pa.nulls(entries.num_rows, pa.binary(16))
        ),
        "null hashes": entries.set_column(
            column("hash"), "hash", pa.nulls(entries.num_rows, pa.binary(32))
        ),
        "wrong type": entries.set_column(column("rows"), "rows", wrong_type),
        "no chunk": entries.set_column(
            column("chunk_end"), "chunk_end", pa.array([1] * entries.num_rows)
        ),
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", leaf_changes(entry_columns.EMPTY))
def test_a_leaf_that_is_not_what_its_root_says_is_stepped_over(leaf_store, name):
    root = codec.decode_keyframe(leaf_store.get(keys.keyframe_key(12)), 12)
    leaf = root.leaves[0]
    entries = frame_bytes.from_parquet(leaf_store.get(keys.frame_key(leaf.sha256)), leaf.segments)
    bad, body = hostile_leaf(leaf, leaf_changes(entries)[name])
    with pytest.raises(errors.Corrupt):
        keyframe.check_leaf(bad, body)
    leaf_store.put_if_absent(keys.frame_key(bad.sha256), body)
    forged = msgspec.structs.replace(root, leaves=(bad, *root.leaves[1:]))
    replace_object(leaf_store, keys.keyframe_key(12), codec.encode_keyframe(forged))
    check_sound(leaf_store)


@pytest.mark.verify
def test_a_leaf_of_many_more_rows_than_named_is_refused_by_its_footer(monkeypatch):
    sink = io.BytesIO()
    pq.write_table(pa.table({"rows": pa.array([0] * 10_000_000)}), sink, compression="zstd")
    body = sink.getvalue()
    assert len(body) < 100_000
    for decode in ("read", "iter_batches"):  # nothing may be decompressed
        monkeypatch.setattr(pq.ParquetFile, decode, None)
    with pytest.raises(errors.Corrupt, match="10000000 rows"):
        frame_bytes.from_parquet(body, 12)


def test_a_leaf_that_claims_too_much_is_refused_by_its_footer(monkeypatch):
    entries = entry_columns.from_segments(builders.live(reopen(small_store()).session.head()))
    body = frame_bytes.to_parquet(pa.concat_tables([entries] * 500))
    monkeypatch.setattr(frame_bytes, "_MAX_FRAME_BYTES", 1000)
    with pytest.raises(errors.Corrupt):
        frame_bytes.from_parquet(body, 500)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(1000)])
def test_a_leaf_whose_dictionary_expands_too_far_is_refused(monkeypatch, kind):
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": pa.array(["x" * 1000] * 2000).cast(kind)}), sink)
    monkeypatch.setattr(frame_bytes, "_MAX_FRAME_BYTES", 10**6)
    with pytest.raises(errors.Corrupt, match="decodes to more than 1000000 bytes"):
        frame_bytes.read_frame(sink.getvalue(), 2000)


@pytest.mark.parametrize(
    "body", [b"", b"PAR1", b"PAR1" * 3, b"\x00" * 1000, b"PAR1" + b"\xff" * 50]
)
def test_bytes_that_are_no_parquet_are_corrupt(body):
    with pytest.raises(errors.Corrupt):
        frame_bytes.from_parquet(body, 1)


# --- every byte -----------------------------------------------------------------------------------


@pytest.fixture
def quiet(caplog):
    caplog.set_level("ERROR")  # thousands of key frames are stepped over here


def outcome(store):
    """What a reader makes of a store: the answers of the newest version, or that it is refused."""
    try:
        table = Table(store)
        head = table.session.head()
        everything = builders.live(head)
        later = builders.live(head, 1_357_603_200_000)  # 2013-01-08 and later
    except errors.EventLogError as error:
        return type(error)
    return head.version, head.totals, head.meta, everything, later


def audited(store):
    """What the fold from version 0 makes of the commits, or that it refuses them."""
    try:
        state = builders.fold_all(store)[-1][0]
    except errors.EventLogError as error:
        return type(error)
    return state.version, state.header.totals, state.meta, state.segments


# Every third byte in a default run: tests/fuzz flips every bit of what is decoded.
EVERY = 1 if repeatable.EXAMPLES else 3


def damages(body, bits):
    for at in range(0, len(body), EVERY):
        for bit in bits:
            yield (
                f"bit {bit} of byte {at}",
                body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :],
            )
    for at in range(0, len(body), 7 * EVERY):
        yield f"cut at {at}", body[:at]


def tiny_store():
    """Few bytes with much in them: properties, marks, drops, two key frames."""
    store = MemoryStore()
    table = create(store, properties={"keyframe_commits": "3"})
    for n in range(4):
        commit(table, builders.add(table, f"2013-01-{7 + n % 2:02d}", rows=5 + n))
    gone = builders.live(table.session.head())[0]
    commit(table, builders.drop_of(gone), app=builders.App("job", 4), operation="replace")
    return store


@pytest.mark.verify
@pytest.mark.usefixtures("quiet")
def test_flipped_or_cut_commits_are_detected_or_mean_the_same_to_the_fold():
    store = tiny_store()
    before = audited(store)
    damaged = 0
    for version, body in enumerate(builders.bodies(store)):
        key = keys.commit_key(version)
        for what, bad in damages(body, bits=(version % 8,)):
            replace_object(store, key, bad)
            after = audited(store)
            assert isinstance(after, type) or after == before, f"{what} of version {version}"
            damaged += 1
        replace_object(store, key, body)
    assert damaged > 5000 // EVERY
    assert audited(store) == before


@pytest.mark.usefixtures("quiet")
def test_flipped_or_cut_head_is_detected_on_open():
    store = tiny_store()
    key = keys.commit_key(5)
    body = store.get(key)
    for what, bad in damages(body, bits=range(8)):
        replace_object(store, key, bad)
        assert isinstance(outcome(store), type), what
    assert len(body) > 1000


def test_flipped_headers_are_detected_where_only_the_header_is_read():
    body = tiny_store().get(keys.commit_key(5))
    header = codec.decode_header(body[: codec.HEADER_BYTES], 5)
    end = body.index(b'},"state":')
    for at in range(len('{"header":'), end):
        bad = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 : codec.HEADER_BYTES]
        with pytest.raises((errors.Corrupt, errors.UnsupportedFormat)):
            codec.decode_header(bad, 5)
    assert codec.decode_header(body, 5) == header


@pytest.mark.verify
@pytest.mark.usefixtures("quiet")
def test_flipped_or_cut_key_frames_never_change_the_answer():
    store = tiny_store()
    before = outcome(store)
    assert before[0] == 5
    # Version 5 has just made its own key frame; what it starts from is that of version 2.
    key = keys.keyframe_key(2)
    body = store.get(key)
    for what, bad in damages(body, bits=(0,)):
        replace_object(store, key, bad)
        assert outcome(store) == before, what


@pytest.mark.verify
@pytest.mark.usefixtures("quiet")
def test_flipped_or_cut_roots_and_leaves_never_change_the_answer(leaf_store):
    before = outcome(leaf_store)
    root = codec.decode_keyframe(leaf_store.get(keys.keyframe_key(12)), 12)
    key = keys.keyframe_key(12)
    body = leaf_store.get(key)
    for what, bad in damages(body, bits=(1,)):
        replace_object(leaf_store, key, bad)
        assert outcome(leaf_store) == before, f"{what} of the root"
    replace_object(leaf_store, key, body)
    leaf = root.leaves[0]
    key = keys.frame_key(leaf.sha256)
    body = leaf_store.get(key)
    for number, (what, bad) in enumerate(damages(body, bits=(1, 6))):
        with pytest.raises(errors.Corrupt):
            keyframe.check_leaf(leaf, bad)
        if number % 100 == 0:
            replace_object(leaf_store, key, bad)
            assert outcome(leaf_store) == before, f"{what} of a leaf"


def test_flipped_spills_are_corrupt():
    table = create(properties={"keyframe_bytes": "1048576"})  # no leaves beside them
    adds = [builders.add(table, f"2013-{1 + n % 12:02d}") for n in range(1500)]
    commit(table, *adds)
    spilled = [o.key for o in table.store.list("_frames/")]
    assert spilled
    for key in spilled:
        body = table.store.get(key)
        for at in range(0, len(body), len(body) // 20):
            replace_object(table.store, key, body[:at] + bytes([body[at] ^ 16]) + body[at + 1 :])
            with pytest.raises(errors.Corrupt):
                builders.fold_all(table.store)
        table.store.delete([key])
        with pytest.raises(errors.Corrupt):
            builders.fold_all(table.store)
        replace_object(table.store, key, body)
    check_sound(table.store)
    assert Add is type(adds[0])
