"""Segments of other programs, odd in one way each: only errors of our own leave the public API."""

import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from msgspec import UNSET
from support.builders import replaced
from support.foreign import COLUMNS, KEYED, foreign, rows_of, stored, table_of

from eventlog import compaction
from eventlog.errors import Corrupt, DataLoss, EventLogError
from eventlog.format import codec, keys
from eventlog.format.parts import describe
from eventlog.fsck.check import fsck
from eventlog.limits import WHOLE_BYTES
from eventlog.model.actions import Add, Restore, SetLayout, SetSchema
from eventlog.model.entries import ColumnStats, Schema, Slice, Tail
from eventlog.readers import changes, count, scan
from eventlog.writers import append, delete, overwrite, upsert

KINDS = {
    "bool": pa.bool_(), "int8": pa.int8(), "uint64": pa.uint64(), "float64": pa.float64(),
    "text": pa.string(), "bytes": pa.binary(), "nanos": pa.timestamp("ns", "UTC"),
    "null": pa.null(), "list": pa.list_(pa.int64()), "struct": pa.struct([("a", pa.int8())]),
}  # fmt: skip
RULES = {
    "plain": {},
    "last": KEYED,
    "first": {**KEYED, "properties": {"merge": "first"}},
    "partial": {"key": "id", "buckets": 1, "properties": {"merge": "partial"}},
    "aggregate": {**KEYED, "properties": {"merge": "aggregate", "merge.day": "max"}},
}
SOME_RULES = [
    pytest.param(rule, marks=[] if rule in ("plain", "partial") else pytest.mark.long)
    for rule in RULES
]


def _exchanged(name, kind):
    rows = rows_of()
    return rows.set_column(rows.schema.get_field_index(name), name, pa.nulls(2, kind))


def _with(**columns):
    rows = rows_of()
    for name, values in columns.items():
        rows = rows.append_column(name, pa.array(values))
    return rows


ODD = {
    **{f"without {name}": rows_of().drop_columns([name]) for name in COLUMNS.names},
    **{
        f"two columns {name}": rows_of().append_column(name, rows_of().column(name))
        for name in COLUMNS.names
    },
    **{
        f"{name} as {other}": _exchanged(name, kind)
        for name in ("id", "seen", "day")
        for other, kind in KINDS.items()
    },
    **{f"{name} null": _exchanged(name, COLUMNS.field(name).type) for name in COLUMNS.names},
    "other columns": pa.table({"q": [1, 2]}),
    "no rows": rows_of().slice(0, 0),
    "numbers in _op": _with(_op=[1, 2]),
    "bytes in _op": _with(_op=[b"d", b"u"]),
    "unknown _op": _with(_op=["x", "d"]),
    "_op null": _with(_op=pa.nulls(2)),
    "two _op": _with(_op=["d", "u"]).append_column("_op", pa.array(["d", "u"])),
    "text in _version": _with(_op=["d", "u"], _version=["a", "b"]),
    "odd _version": _with(_op=["d", "u"], _version=[-5, 2**62]),
    "wild times": rows_of(at=pa.array([2**62, -(2**62)], pa.timestamp("us", "UTC"))),
    "text as dictionary": rows_of(id=pa.array([1, 2], pa.int64()).dictionary_encode()),
}


def looks(table, keyed):
    """All that reads rows."""
    yield lambda: scan(table).to_table()
    yield lambda: scan(table, ["id"]).to_table()
    yield lambda: scan(table, ["day"], "id = 1 and small > 0.1").to_table()
    yield lambda: count(table, "seen > 3")
    yield lambda: changes(table, 1).to_table()
    yield lambda: fsck(table, checksums=True)
    if keyed:
        yield lambda: fsck(table, keys=True)
        yield lambda: delete(table, where="day is not null")
    yield lambda: scan(table, where="id = 1").to_table()


def odd_one(odd, options, kind="log"):
    """A table with an odd segment beside a good one; None if the log refuses its statistics."""
    table = table_of(**options)
    (upsert if options else append)(table, rows_of([1, 9]))
    foreign(table, ODD[odd], kind)
    return table


@pytest.mark.long
@pytest.mark.hazard("W6")
@pytest.mark.parametrize(
    "rule",
    # The audit below has both; without a key the same is read with fewer steps.
    [pytest.param("plain", marks=pytest.mark.long), *SOME_RULES[1:]],
)
def test_only_errors_of_our_own_leave(rule):
    for odd in ODD:
        table = odd_one(odd, RULES[rule])
        for look in looks(table, bool(RULES[rule])):
            try:
                look()
            except EventLogError:
                continue
            except Exception as error:
                raise AssertionError(f"{odd}: {error!r}") from error
        for outcome in compaction.run(table).outcomes:
            ours = ("DataLoss", "InvalidInput")
            assert outcome.status != "failed" or str(outcome.error).startswith(ours), odd


@pytest.mark.parametrize("name", ["id", "seen"])
@pytest.mark.parametrize("how", ["without", "null"])
def test_what_rows_are_merged_by_is_there_or_lost(name, how):
    odd = f"without {name}" if how == "without" else f"{name} null"
    table = odd_one(odd, KEYED)
    words = "lacks column" if how == "without" else "has nulls"
    for look in (lambda: scan(table).to_table(), lambda: scan(table, ["id"]).to_table()):
        with pytest.raises(DataLoss, match=f"{words} '{name}'|'{name}' of the object {words}"):
            look()


@pytest.mark.parametrize("options", [{}, KEYED], ids=["plain", "keyed"])
@pytest.mark.parametrize("name", COLUMNS.names)
def test_a_column_that_a_file_has_twice_is_data_loss(name, options):
    table = odd_one(f"two columns {name}", options)
    with pytest.raises(DataLoss, match=f"two columns of field id .*, '{name}'"):
        scan(table, ["id"]).to_table()


FIRST = 10**15  # its bytes are nowhere else in a footer


def _in_groups(change=None):
    """A segment of two row groups, whose footer has one bound of the column `seen` changed."""
    rows = rows_of([1, 2, 3, 4], seen=pa.array([FIRST, FIRST + 1, FIRST + 2, None], pa.int64()))
    body = stored(rows, row_group_size=2)
    at = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    old, new = (struct.pack("<q", FIRST + n) for n in change or (0, 0))
    assert body[at:].count(old) >= 2
    return body[:at] + body[at:].replace(old, new)


@pytest.mark.parametrize(
    ("change", "words", "missed"),
    [
        (None, None, 0),
        ((0, 1), "'seen' in the footer of the segment begin above its least value", FIRST),
        ((1, 0), "'seen' in the footer of the segment end below its greatest value", FIRST + 1),
        ((0, -5), None, 0),
    ],
)
def test_an_audit_compares_the_statistics_of_row_groups_with_the_rows(change, words, missed):
    table = table_of()
    foreign(table, _in_groups(change), rows=4)
    found = [f.message for f in fsck(table, checksums=True).findings]
    assert len(found) == (words is not None)
    assert all(words in message for message in found)
    if missed:  # the row is there, and the statistics leave it out
        assert missed in scan(table).to_table()["seen"].to_pylist()
        assert count(table, f"seen = {missed}") == 0


@pytest.mark.parametrize("options", [{}, KEYED], ids=["plain", "keyed"])
def test_an_audit_finds_nothing_in_row_groups_of_any_column(options):
    table = table_of(**options)
    rows = pa.concat_tables([rows_of(range(n, n + 3)) for n in range(0, 30, 3)])
    foreign(table, stored(rows, row_group_size=7), rows=30)
    assert fsck(table, checksums=True).findings == ()


@pytest.mark.hazard("W6")
@pytest.mark.parametrize("spelled", ["optional", "int64"])
def test_an_audit_names_a_segment_over_whose_footer_arrow_ends_the_process(spelled):
    element = b"\x15\x04\x25\x02\x18\x04seen"  # of the footer's schema: an optional INT64
    other = {"optional": b"\x15\x04\x25\x00\x18\x04seen", "int64": b"\x15\x0a\x25\x02\x18\x04seen"}
    body = stored(rows_of([1, 2]))
    assert body.count(element) == 1
    table = table_of()
    append(table, rows_of([7]))
    foreign(table, body.replace(element, other[spelled]), rows=2)
    (found,) = fsck(table, checksums=True).findings
    words = {"optional": "has a histogram of 2 levels", "int64": "has another type than its column"}
    assert "readers refuse the segment" in found.message
    assert words[spelled] in found.message


def test_a_segment_without_rows_is_read_with_a_filter():
    table = odd_one("no rows", {})
    assert scan(table, where="id = 1").to_table().num_rows == 1
    assert count(table, "seen > 3") == 2


def _schemas(table):
    """First schemas and layouts that do not fit together, with the words of the error."""
    head = table.session.head()
    stored, layout = head.stored_schema, head.state.stored_layout
    again = replaced(stored.columns[0], id=len(stored.columns) + 1)
    twice = Schema(stored.id, (*stored.columns, again))
    yield layout, twice, "two columns of one name"
    renamed = replaced(again, name=again.name.upper())
    capitals = Schema(stored.id, (*stored.columns, renamed))
    yield layout, capitals, "two columns of one name"
    one_id = replaced(again, id=stored.columns[-1].id, name="other")
    shared = Schema(stored.id, (*stored.columns, one_id))
    yield layout, shared, "two columns of one id"
    first, *rest = stored.columns
    far = replaced(first, id=2**31 - 200)
    yield layout, replaced(stored, columns=(far, *rest)), "not 1 to 2147483445"
    yield layout, replaced(stored, retired=(first.id,)), "an id that is retired"
    yield (
        layout,
        replaced(stored, columns=(replaced(first, id=0), *rest)),
        "a column or field with id 0",
    )
    yield replaced(layout, time_column=99), stored, "no column has id 99"
    yield replaced(layout, time_column=3), stored, "'seen' has type int64"
    yield replaced(layout, order_by=(99,)), stored, "no column has id 99"
    days = replaced(layout, time_column=UNSET, granularity="day")
    yield days, stored, "without a time column has one chunk"


def _begun(monkeypatch, layout, schema):
    """A table as another program may begin its log."""
    with monkeypatch.context() as patched:
        actions = [SetLayout(layout), SetSchema(schema)]
        patched.setattr("eventlog.table.table.creation", lambda *_, **__: actions)
        return table_of()


@pytest.mark.parametrize("number", range(10))
def test_a_log_whose_layout_and_schema_do_not_fit_is_corrupt(number, monkeypatch):
    layout, schema, words = list(_schemas(table_of()))[number]
    table = _begun(monkeypatch, layout, schema)
    for call in (
        lambda: scan(table).to_table(),
        lambda: count(table, "id = 1"),
        lambda: changes(table, 0).to_table(),
        lambda: append(table, rows_of()),
        lambda: table.add_columns(COLUMNS.append(pa.field("more", pa.int64()))),
    ):
        with pytest.raises(Corrupt, match=words):
            call()
    [found] = fsck(table).findings
    assert (found.severity, found.version, found.key) == ("error", 0, keys.commit_key(0))
    assert words in found.message


def test_an_audit_reports_a_first_schema_that_breaks_a_rule_without_a_reader_s_notice(monkeypatch):
    head = table_of().session.head()
    table = _begun(monkeypatch, head.state.stored_layout, replaced(head.stored_schema, id=2))
    assert count(table) == 0
    [found] = fsck(table).findings
    assert (found.severity, found.version) == ("error", 0)
    assert "the first schema has id 2, not 1" in found.message


def test_an_audit_reports_a_type_that_the_format_does_not_have(monkeypatch):
    head = table_of().session.head()
    *rest, last = head.stored_schema.columns
    columns = (*rest, replaced(last, type={"element": "int64"}))
    table = _begun(
        monkeypatch, head.state.stored_layout, replaced(head.stored_schema, columns=columns)
    )
    [found] = fsck(table).findings
    assert "is not a column type of the format" in found.message


@pytest.mark.parametrize("buckets", [0, 3, 2**63 - 1])
def test_a_keyed_layout_that_does_not_fit_is_corrupt_for_planners_writers_and_audits(
    buckets, monkeypatch
):
    head = table_of(**KEYED).session.head()
    keyed = replaced(
        head.state.stored_layout.keyed, buckets=buckets, splits=1 if buckets == 3 else UNSET
    )
    table = _begun(monkeypatch, replaced(head.state.stored_layout, keyed=keyed), head.stored_schema)
    words = "buckets"
    for call in (
        lambda: scan(table).to_table(),
        lambda: upsert(table, rows_of()),
        lambda: table.set_buckets(8),
        lambda: compaction.run(table),
        lambda: compaction.explain_slices(table, "all"),
    ):
        with pytest.raises(Corrupt, match=words):
            call()
    found = [finding.message for finding in fsck(table, checksums=True).findings]
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.hazard("W6")
def test_nulls_in_a_column_that_is_not_nullable_are_read_alike_and_not_rewritten():
    """What is returned for them is not defined; that it is rows, or an error of our own, is."""
    kind = pa.field("small", pa.float32(), nullable=False)
    table = table_of(schema=COLUMNS.set(COLUMNS.get_field_index("small"), kind))
    append(table, rows_of([1]))
    foreign(table, rows_of([2], small=pa.nulls(1, pa.float32())))
    told = changes(table, 0).to_table()
    assert told.column("small").to_pylist() == scan(table).to_table().column("small").to_pylist()
    [outcome] = compaction.run(table).outcomes
    assert outcome.status == "failed"
    assert str(outcome.error).startswith("DataLoss")
    assert "column 'small' of the object has nulls" in str(outcome.error)


@pytest.mark.hazard("W6")
@pytest.mark.parametrize("options", [{}, KEYED | {"key": "name"}], ids=["plain", "keyed"])
def test_text_that_is_no_utf_8_is_data_loss(options):
    columns = COLUMNS.append(pa.field("name", pa.string(), nullable=not options))
    table = table_of(schema=columns, **options)
    bad = pa.array([b"\xff\xfe", b"a\xc3"]).view(pa.string())
    foreign(table, rows_of().append_column(columns.field("name"), bad))
    looks_at = [
        lambda: scan(table).to_table(),
        lambda: scan(table, where="lower(name) = 'a'").to_table(),
        lambda: changes(table, 0).to_table(),
    ]
    for look in looks_at:
        with pytest.raises(DataLoss, match="UTF"):
            look()
    if options:
        assert "UTF" in "".join(finding.message for finding in fsck(table, keys=True).findings)


def _findings(table, **options):
    return list(fsck(table, checksums=True, **options).findings)


@pytest.mark.verify
@pytest.mark.hazard("W6")
@pytest.mark.parametrize("rule", SOME_RULES)
def test_an_audit_with_checksums_reports_what_readers_refuse(rule):
    for odd in ODD:
        table = odd_one(odd, RULES[rule])
        found = [(f.severity, f.key, f.message) for f in _findings(table)]
        error = refusal(table)
        if error is not None:
            words = f"readers refuse the segment: {error.damage}"
            assert ("error", error.key, words) in found, odd
        elif not (RULES[rule] and odd == "text in _version"):  # which merges alone read
            assert not any("refuse" in message for _, _, message in found), odd


def refusal(table):
    """The error of a scan or of the changes; None if there is none."""
    try:
        scan(table).to_table()
        changes(table, 0).to_table()
    except DataLoss as error:
        return error
    return None


BODIES = {
    "no Parquet": (b"hello" * 100, 2),
    "an empty object": (b"", 2),
    "more rows": (stored(rows_of()), 1),
    "fewer rows": (stored(rows_of()), 3),
}


@pytest.mark.hazard("W6")
@pytest.mark.parametrize("options", [{}, KEYED], ids=["plain", "keyed"])
@pytest.mark.parametrize("odd", BODIES)
def test_an_audit_with_checksums_reports_objects_that_are_no_such_segment(odd, options):
    table = table_of(**options)
    (upsert if options else append)(table, rows_of([1, 9]))
    body, rows = BODIES[odd]
    foreign(table, body, rows=rows)
    with pytest.raises(DataLoss) as refused:
        scan(table).to_table()
    [found] = _findings(table)
    assert (found.severity, found.key) == ("error", refused.value.key)
    assert found.message == f"readers refuse the segment: {refused.value.damage}"
    if options:
        assert [finding.message for finding in _findings(table, keys=True)] == [found.message]


FALSE_TAILS = {
    "of 8 bytes": lambda body: describe(body[-8:]),
    "of the whole": describe,
    "of other bytes": lambda body: Tail(1000, codec.sha256(b"")),
    "without checksums": lambda body: describe(body[-1000:]),
}


@pytest.mark.hazard("W6")
@pytest.mark.parametrize("tail", FALSE_TAILS)
def test_an_audit_with_checksums_reports_a_false_tail(tail):
    table = table_of()
    ids = pa.array([n * 7919 % 2**31 for n in range(200_000)])
    body = stored(rows_of(ids))
    assert len(body) > WHOLE_BYTES
    foreign(table, body, rows=len(ids), tail=FALSE_TAILS[tail](body))
    with pytest.raises(DataLoss) as refused:
        scan(table).to_table()
    [found] = _findings(table)
    assert found.message == f"readers refuse the segment: {refused.value.damage}"


def test_an_audit_with_checksums_reads_a_large_segment_without_a_tail():
    table = table_of()
    ids = pa.array([n * 7919 % 2**31 for n in range(200_000)])
    foreign(table, stored(rows_of(ids)), rows=len(ids))
    assert not _findings(table)
    assert scan(table).to_table().num_rows == 200_000


@pytest.mark.hazard("W6")
@pytest.mark.parametrize("options", [{}, KEYED], ids=["plain", "keyed"])
def test_an_audit_with_checksums_reports_rows_in_wrong_places_and_nulls(options):
    """Readers need not look for these."""
    kind = pa.field("small", pa.float32(), nullable=False)
    schema = COLUMNS.set(COLUMNS.get_field_index("small"), kind)
    table = table_of(schema=schema, granularity="year", **options)
    rows = rows_of([1, 2, 3], small=pa.nulls(3, pa.float32()))
    times = pa.array([0, 2**51, 2**52], pa.timestamp("us", "UTC"))
    foreign(table, rows.set_column(1, "at", times), chunk="1970")
    found = [finding.message for finding in _findings(table)]
    assert found == [
        "the segment has 3 rows without a value in column 'small', which is not nullable",
        "the segment has 2 rows with an event time outside of the chunk",
    ]


ID, SMALL = (COLUMNS.get_field_index(name) + 1 for name in ("id", "small"))
FALSE_STATISTICS = {
    "begin above its least value 1": ("id", (ID, 2, 3, 0)),
    "end below its greatest value 3": ("id", (ID, 1, 2, 0)),
    "record 1 nulls, and it has 0": ("id", (ID, 1, 3, 1)),
    "have a bound, and it has a NaN": ("small", (SMALL, 0, 2**62, 0)),
}


@pytest.mark.hazard("W6")
@pytest.mark.parametrize("options", [{}, KEYED], ids=["plain", "keyed"])
@pytest.mark.parametrize("problem", FALSE_STATISTICS)
def test_an_audit_with_checksums_compares_statistics_with_the_rows(options, problem):
    """Else a scan with a predicate leaves out rows, and nothing tells."""
    table, (column, wrong) = table_of(**options), FALSE_STATISTICS[problem]
    rows = rows_of([1, 2, 3], small=pa.array([1, 2, float("nan")], pa.float32()))
    foreign(table, rows, stats=(ColumnStats(ID, 1, 3, 0), ColumnStats(SMALL, None, None, 0)))
    assert not _findings(table)
    foreign(table, rows, stats=(ColumnStats(*wrong),))
    assert [found.severity for found in _findings(table)] == ["error"]
    for more in [{}] if not options else [{}, {"keys": True}]:
        [found] = _findings(table, **more)
        assert f"the statistics of column '{column}'" in found.message
        assert problem in found.message


@pytest.mark.hazard("W6")
@pytest.mark.parametrize(("least", "bounds"), [("1e30", (0, 5)), ("-1e30", (0, None))])
def test_an_audit_with_checksums_compares_values_that_no_bound_can_have(least, bounds):
    kind = pa.decimal128(38, 0)
    table = table_of(schema=COLUMNS.append(pa.field("sum", kind)))
    rows = rows_of().append_column("sum", pa.array([Decimal(least)] * 2, kind))
    number = len(COLUMNS) + 1
    foreign(table, rows, stats=(ColumnStats(number, None, None, 0),))
    assert not _findings(table)
    foreign(table, rows, stats=(ColumnStats(number, *bounds, 0),))
    [found] = _findings(table)
    assert "the statistics of column 'sum' of the segment" in found.message


@pytest.mark.hazard("W6")
def test_an_audit_with_checksums_reports_keys_of_other_buckets():
    table = table_of(**KEYED | {"buckets": 4})
    foreign(table, rows_of(range(100)))
    [found] = _findings(table)
    assert "rows with keys of other buckets: look-ups miss them" in found.message
    with_keys = [finding.message for finding in _findings(table, keys=True)]
    assert sum("with keys of other buckets" in message for message in with_keys) == 1


@pytest.mark.hazard("W6")
def test_an_audit_with_checksums_reads_older_and_held_segments_by_their_schema():
    table = table_of()
    foreign(table, rows_of(small=pa.nulls(2, pa.string())))
    table.pin("kept")
    overwrite(table, rows_of([5]))
    [held] = _findings(table)
    assert "which pin 'kept' protects, is damaged: readers refuse the segment" in held.message
    [older] = _findings(table, version=1)
    assert older.message.startswith("readers refuse the segment: column 'small'")


def _raised(table, kind, span):
    """Bring back what was never live: a segment of level 1, by a restore of version 0."""
    body = stored(rows_of([1], seen=pa.array([8], pa.int64())))
    place = Slice(kind, 0, 0, *span, 1, 0)
    add = Add(
        table.clock.random_id(), "all", table.refresh().version, 1, len(body), codec.sha256(body),
        1, (), slice=place,
    )  # fmt: skip
    assert table.store.put_if_absent(keys.key_of(add), body)
    table.commit(table.transaction("restore", [Restore(0), add]))


@pytest.mark.hazard("W6")
@pytest.mark.parametrize("kind", ["base", "late"])
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "plain"])
def test_a_base_or_late_segment_above_others_is_corrupt(rule, kind):
    """It would have taken them in; what is above what could be read in two ways."""
    table = table_of(**RULES[rule])
    upsert(table, rows_of([1]))
    upsert(table, rows_of([2]))
    _raised(table, kind, (2, 2))
    before = table.session.head().version
    upsert(table, rows_of([7]))
    words = f"has kind {kind}, and lies above segment .* in bucket 0 of chunk all"
    for call in (
        lambda: scan(table).to_table(),
        lambda: count(table),
        lambda: scan(table, where="id = 1").to_table(),
        lambda: changes(table, before).to_table(),
        lambda: changes(table, 0).to_table(),
        lambda: compaction.run(table),
        lambda: compaction.explain_slices(table, "all"),
        lambda: delete(table, where="day is not null"),
    ):
        with pytest.raises(Corrupt, match=words):
            call()
    for options in ({}, {"keys": True, "checksums": True}):
        found = [finding.message for finding in fsck(table, **options).findings]
        assert sum("lies above segment" in message for message in found) == 1, found


@pytest.mark.parametrize("kind", ["base", "late"])
def test_a_base_or_late_segment_below_all_others_is_read(kind):
    table = table_of(**KEYED)
    upsert(table, rows_of([1]))
    upsert(table, rows_of([2]))
    _raised(table, kind, (0, 1))
    upsert(table, rows_of([7]))
    assert sorted(scan(table).to_table().column("id").to_pylist()) == [1, 2, 7][kind == "late" :]
