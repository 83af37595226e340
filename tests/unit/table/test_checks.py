"""Checks of a table: every road in tests its rows, and adding one looks at those that are there."""

import datetime as dt
import math

import pyarrow as pa
import pytest
from support.builders import ApartStore, check_sound, create, reopen

from eventlog import compaction
from eventlog.errors import CommitConflict, InvalidInput, UnsupportedFormat
from eventlog.format import codec, keys
from eventlog.fsck.check import fsck
from eventlog.model.actions import Restore, SameSegments, SetSchema
from eventlog.model.records import Header
from eventlog.readers import count, scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, merge, overwrite, update, upsert

AT = dt.datetime(2013, 1, 7, 12, tzinfo=dt.UTC)
PAIR = pa.struct([("x", pa.int8())])
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        ("n", pa.int64()),
        ("f", pa.float64()),
        ("pair", PAIR),
    ]
)


class Hooked(MemoryStore):
    """A store that lets something happen before the next commit is stored."""

    def __init__(self):
        super().__init__()
        self.acts = []

    def put_if_absent(self, key, body):
        if self.acts and key.startswith(keys.LOG_PREFIX):
            self.acts.pop(0)()
        return super().put_if_absent(key, body)


def rows(*numbers, **columns):
    given = {"at": [AT] * len(numbers), "n": [*numbers]} | columns
    absent = {f.name: [None] * len(numbers) for f in SCHEMA}
    return pa.table(absent | given, schema=SCHEMA)


def table(store=None, **options):
    return create(store, schema=SCHEMA, **{"checks": {"positive": "n > 0"}, **options})


@pytest.fixture
def t():
    made = table()
    append(made, rows(1, 2, None))
    return made


def numbers(t):
    return sorted(n for n in scan(t).to_table()["n"].to_pylist() if n is not None)


# --- Roads in ---------------------------------------------------------------------------------

BAD = rows(-1, 5, -2, -3, -4)
ROADS = {
    "append": lambda t: append(t, BAD),
    "batches": lambda t: append(t, BAD.to_reader(max_chunksize=1)),
    "overwrite": lambda t: overwrite(t, BAD),
    "overwrite where": lambda t: overwrite(t, BAD, where="n < 100"),
    "update": lambda t: update(t, {"n": "n - 10"}),
    "merge": lambda t: merge(t, BAD.append_column("key", BAD["n"]).select(["at", "n"]), "n"),
    "merge matched": lambda t: merge(
        t, rows(1, 2).select(["n"]), "n", when_matched={"n": "-n"}, when_not_matched="ignore"
    ),
}


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_every_road_in_tests_its_rows(t, road):
    with pytest.raises(InvalidInput, match=r"check 'positive' \(n > 0\) is false for \d") as error:
        road(t)
    assert error.value.message.count("(n = -") == min(3, error.value.message.count("-"))
    assert "nothing was committed" in error.value.message
    assert t.refresh().version == 1
    assert numbers(t) == [1, 2]


def test_the_error_has_the_number_of_rows_and_three_examples(t):
    with pytest.raises(InvalidInput, match="is false for 4 rows") as error:
        append(t, BAD)
    assert "(n = -1), (n = -2), (n = -3);" in error.value.message
    with pytest.raises(InvalidInput, match="is false for 1 row, for example"):
        append(t, BAD.slice(0, 2))


def test_null_and_rows_that_meet_the_check_are_written(t):
    append(t, rows(7, None))
    assert numbers(t) == [1, 2, 7]


@pytest.mark.parametrize(
    ("expression", "column", "good", "bad"),
    [
        ("f < 10", "f", [1.0, None], [math.nan]),  # NaN is greater than every number
        ("f <> 2", "f", [math.nan], [2.0]),
        ("pair IS NOT NULL", "pair", [{"x": None}], [None]),
        ("at >= '2013-01-07' AND n < 9", "at", [AT], [AT - dt.timedelta(1)]),
        ("at = date_trunc('hour', at)", "at", [AT], [AT + dt.timedelta(minutes=1)]),
    ],
)
def test_what_breaks_a_check(expression, column, good, bad):
    t = table(checks={"one": expression})
    append(t, rows(*[1] * len(good), **{column: good}))
    with pytest.raises(InvalidInput, match="check 'one'"):
        append(t, rows(1, **{column: bad}))
    assert count(t) == len(good)


def test_a_row_for_which_a_check_cannot_be_computed_is_named():
    t = table(checks={"ratio": "10 / n < 8"})
    with pytest.raises(InvalidInput, match=r"fails for 1 row, by .*division by zero.*\(n = 0\)"):
        append(t, rows(5, 0))
    assert t.refresh().version == 0
    append(t, rows(5))
    with pytest.raises(InvalidInput, match=r"fails for 1 row.*\(n = 5\)"):
        t.add_check("other", "1 / (n - 5) < 2")


def test_several_broken_checks_are_all_named():
    t = table(checks={"b": "n < 5", "a": "n <> 7"})
    with pytest.raises(InvalidInput, match=r"'a' .* is false for 1 row.*'b' .* for 2 rows"):
        append(t, rows(7, 8))


# --- Adding -----------------------------------------------------------------------------------


def test_rows_that_are_there_are_tested_before_a_check_is_added():
    t = table(checks=None)
    append(t, rows(-1, 5, -2, None, -3, -4))
    with pytest.raises(InvalidInput, match=r"is false for 4 rows, for example \(n = -1\), "):
        t.add_check("positive", "n > 0")
    assert (t.refresh().version, t.session.head().checks) == (1, {})
    delete(t, where="n < 0")
    version = t.add_check("positive", "n > 0")
    assert (version, t.session.head().checks) == (3, {"positive": "n > 0"})
    assert t.add_check("positive", "n > 0") == 3
    with pytest.raises(InvalidInput, match="there is a check 'positive' already"):
        t.add_check("positive", "n > 1")


@pytest.mark.parametrize(
    ("name", "expression", "why"),
    [
        ("", "n > 0", "not a valid name"),
        (7, "n > 0", "must be text"),
        ("one", "n", "write a comparison"),
        ("one", "x > 0", "unknown column"),
        ("one", "1 = 1", "names no column"),
        ("one", "n >", "not one SQL expression"),
        ("one", "n > 0 OR n < " + "1" * 5000, "at most 4096 characters"),
        ("Positive", "n > 0", "two checks of one name"),
    ],
)
def test_what_cannot_be_a_check(t, name, expression, why):
    with pytest.raises(InvalidInput, match=why):
        t.add_check(name, expression)
    assert t.refresh().version == 1


def test_segments_whose_statistics_prove_a_check_are_not_read(t):
    for segment in t.session.head().segments():
        t.store.delete([keys.key_of(segment)])
    t.add_check("small", "n < 1000 OR n IS NULL")  # no object is there to be read
    assert sorted(t.session.head().checks) == ["positive", "small"]


def test_rows_that_land_while_a_check_is_added_are_tested():
    store = Hooked()
    t = table(store, checks=None)
    append(t, rows(1))
    store.acts = [lambda: append(reopen(store, 7), rows(-1)), lambda: None]
    with pytest.raises(InvalidInput, match=r"is false for 1 row, for example \(n = -1\)"):
        t.add_check("positive", "n > 0")
    assert t.refresh().checks == {}
    delete(t, where="n < 0")
    store.acts = [lambda: append(reopen(store, 8), rows(2)), lambda: None]
    assert t.add_check("positive", "n > 0") == 5
    assert numbers(t) == [1, 2]
    check_sound(store)


def test_a_delete_and_a_compaction_meanwhile_are_no_hindrance():
    store = Hooked()
    t = table(store, checks=None)
    append(t, rows(1, 3))
    append(t, rows(2, 4))

    def compact():
        other = reopen(store, 8)
        policy = compaction.Policy(target_bytes=2**20, backoff_s=1)
        assert compaction.run(other, policy=policy).outcomes

    store.acts = [lambda: delete(reopen(store, 7), where="n = 1"), lambda: None, compact]
    t.add_check("positive", "n > 0")
    assert (numbers(t), t.session.head().checks) == ([2, 3, 4], {"positive": "n > 0"})


@pytest.mark.parametrize("bad", [False, True])
@pytest.mark.parametrize("way", ["append", "overwrite", "update"])
def test_rows_that_were_written_while_a_check_was_added_are_tested(way, bad):
    store = Hooked()
    t = table(store, checks=None)
    append(t, rows(1, 2))
    store.acts = [lambda: reopen(store, 7).add_check("positive", "n > 0")]
    value = -5 if bad else 5
    act = {
        "append": lambda: append(t, rows(value)),
        "overwrite": lambda: overwrite(t, rows(value), where="n < 100"),
        "update": lambda: update(t, {"n": f"{value} * n"}, "n = 1"),
    }[way]
    if bad:
        with pytest.raises(InvalidInput, match="the check was added while these rows were written"):
            act()
        assert numbers(t) == [1, 2]
    else:
        act()
        assert 5 in numbers(t)
    assert fsck(t, checksums=True).findings == ()
    assert t.refresh().checks == {"positive": "n > 0"}


def test_a_writer_that_staged_before_a_check_commits_its_segment_once_it_is_tested():
    store = Hooked()
    t = table(store, checks=None)
    store.acts = [lambda: reopen(store, 7).add_check("positive", "n > 0")]
    append(t, rows(5))
    (segment,) = t.session.head().segments()
    assert (segment.schema, t.session.head().stored_schema.id) == (1, 2)


def test_two_checks_at_once_both_count_and_two_of_one_name_do_not():
    store = Hooked()
    t = table(store, checks=None)
    store.acts = [lambda: reopen(store, 7).add_check("small", "n < 9")]
    t.add_check("positive", "n > 0")
    assert t.session.head().checks == {"positive": "n > 0", "small": "n < 9"}
    store.acts = [lambda: reopen(store, 8).add_check("third", "n < 8")]
    with pytest.raises(CommitConflict, match="another writer added check 'third'"):
        t.add_check("third", "n < 7")
    store.acts = [lambda: reopen(store, 9).drop_check("third")]
    t.drop_check("positive")
    assert t.session.head().checks == {"small": "n < 9"}


def test_a_check_that_another_writer_replaces_meanwhile_is_not_dropped():
    store = Hooked()
    t = table(store, checks={"positive": "n > 0"})
    other = reopen(store, 7)
    store.acts = [lambda: other.drop_check("positive") and other.add_check("positive", "n > -1")]
    with pytest.raises(CommitConflict, match=r"is dropped; but meanwhile .*: n > -1"):
        t.drop_check("positive")
    assert t.refresh().checks == {"positive": "n > -1"}


def test_a_column_that_is_dropped_while_a_check_reads_it_is_a_conflict():
    store = Hooked()
    t = table(store, checks=None)
    store.acts = [lambda: reopen(store, 7).add_check("positive", "n > 0")]
    with pytest.raises(CommitConflict, match=r"check 'positive' is added: n > 0"):
        t.drop_columns(["n"])
    t.drop_check("positive")
    store.acts = [lambda: reopen(store, 8).drop_columns(["n"])]
    with pytest.raises(InvalidInput, match="which is not there"):
        t.add_check("positive", "n > 0")


# --- Columns ----------------------------------------------------------------------------------


def test_a_check_follows_a_renamed_column(t):
    t.rename_column("n", "a number")
    t.add_columns([pa.field("n", pa.int64())])
    assert t.session.head().checks == {"positive": '"a number" > 0'}
    given = rows(-1).rename_columns(["at", "a number", "f", "pair"])
    with pytest.raises(InvalidInput, match=r"check 'positive' \(\"a number\" > 0\) is false"):
        append(t, given)
    append(t, rows(3).rename_columns(["at", "a number", "f", "pair"]))
    append(t, pa.table({"at": [AT], "n": [-7]}))
    assert t.add_check("positive", '"a number" > 0') == t.session.head().version


@pytest.mark.parametrize(
    "name", ["at ", "at--x", "at/**/", "l'eau", '5" pipe', "`", "/*", "select"]
)
def test_a_check_follows_a_column_to_any_name(t, name):
    t.rename_column("n", name)
    append(t, rows(3).rename_columns(["at", name, "f", "pair"]))
    with pytest.raises(InvalidInput, match=r"check 'positive' .* is false"):
        append(t, rows(-1).rename_columns(["at", name, "f", "pair"]))


def test_a_column_of_a_check_cannot_be_dropped(t):
    with pytest.raises(InvalidInput, match="a check 'positive' that reads column 'n'"):
        t.drop_columns(["n"])
    assert t.drop_check("positive") == 2
    assert t.drop_columns(["n"]) == 3
    with pytest.raises(InvalidInput, match="no check 'positive'; checks: none"):
        t.drop_check("positive")


def test_floats_and_dates_of_a_check_do_not_get_wider_and_integers_do():
    columns = [("x", pa.float32()), ("i", pa.int8()), ("d", pa.date32())]
    schema = pa.schema([SCHEMA.field("at"), *columns])
    day = "CAST(d AS STRING) = '2013-01-07'"
    t = create(schema=schema, checks={"day": day, "tenth": "x = 0.1", "small": "i < 5"})
    append(t, pa.table({"at": [AT], "x": [0.1], "i": [1], "d": [AT.date()]}).cast(schema))
    with pytest.raises(InvalidInput, match="column 'x' is read by check 'tenth'"):
        t.widen_column("x", pa.float64())
    with pytest.raises(InvalidInput, match="column 'd' is read by check 'day'"):
        t.widen_column("d", pa.timestamp("us"))
    t.widen_column("i", pa.int64())
    with pytest.raises(InvalidInput, match="check 'small'"):
        append(t, pa.table({"at": [AT], "i": [2**40]}))


def test_a_change_of_columns_says_which_checks_came_and_went(t):
    t.add_check("small", "n < 1000")
    t.drop_check("positive")
    assert t.diff(1, 3).columns == (
        "check 'positive' is dropped",
        "check 'small' is added: n < 1000",
    )


# --- Versions ---------------------------------------------------------------------------------


def test_a_restore_tests_the_rows_of_before_a_check():
    t = table(checks=None)
    append(t, rows(-1, 1))
    append(t, rows(2))
    overwrite(t, rows(3))
    t.add_check("positive", "n > 0")
    version = t.session.head().version
    with pytest.raises(InvalidInput, match=r"is false for 1 row.*version 1 did not have the check"):
        t.restore(1)
    assert t.refresh().version == version
    t.drop_check("positive")
    t.restore(1)
    assert numbers(t) == [-1, 1]


def test_a_restore_brings_back_rows_that_meet_a_later_check():
    store = MemoryStore()
    t = table(store, checks=None)
    append(t, rows(1, 4))
    delete(t, where="n = 4")
    t.add_check("positive", "n > 0")
    t.restore(1)  # the row that was deleted
    assert numbers(t) == [1, 4]
    overwrite(t, rows(9))
    t.restore(1)  # the whole segment
    assert numbers(t) == [1, 4]
    assert {s.schema for s in t.session.head().segments()} == {1}
    check_sound(store)
    assert fsck(t, checksums=True).findings == ()


def test_deleted_rows_that_break_a_check_do_not_come_back():
    t = table(checks=None)
    append(t, rows(1, -4))
    delete(t, where="n = -4")
    t.add_check("positive", "n > 0")
    with pytest.raises(InvalidInput, match=r"\(n = -4\)"):
        t.restore(1)
    assert numbers(t) == [1]


def test_a_restore_of_a_version_with_the_check_reads_nothing(t):
    overwrite(t, rows(9))
    for segment in t.snapshot(1).segments():
        body = t.store.get(keys.key_of(segment))
        assert body
    t.restore(1)
    assert numbers(t) == [1, 2]


def test_checks_are_those_of_the_version(t):
    t.drop_check("positive")
    append(t, rows(-3))
    assert t.snapshot(1).checks == {"positive": "n > 0"}
    assert t.snapshot(3).checks == {}
    assert fsck(t, version=1, checksums=True).findings == ()


def test_a_branch_has_the_checks_of_its_table():
    store = ApartStore("memory://checked-parent")
    t = table(store)
    append(t, rows(1))
    branch = t.branch("try")
    with pytest.raises(InvalidInput, match="check 'positive'"):
        append(branch, rows(-1))


# --- Keyed tables -----------------------------------------------------------------------------


def keyed(rule="last", **options):
    properties = {"merge": rule, **options.pop("properties", {})}
    return create(schema=SCHEMA, key="n", properties=properties, **options)


def test_an_upsert_is_tested_and_a_delete_is_not():
    t = keyed(checks={"small": "f < 10"})
    upsert(t, rows(1, 2, f=[1.0, 2.0]))
    with pytest.raises(InvalidInput, match=r"check 'small' \(f < 10\) is false for 1 row"):
        upsert(t, rows(1, 2, f=[11.0, 3.0]))
    delete(t, keys=pa.table({"n": [2]}))
    assert numbers(t) == [1]


def test_the_rows_that_a_reader_sees_are_tested_in_a_keyed_table():
    t = keyed()
    upsert(t, rows(1, 2, f=[11.0, 2.0]))
    with pytest.raises(InvalidInput, match="is false for 1 row"):
        t.add_check("small", "f < 10")
    upsert(t, rows(1, f=[1.0]))
    t.add_check("small", "f < 10")
    with pytest.raises(InvalidInput, match="version 1 did not have the check"):
        t.restore(1)  # which would show again what the later row hides


def test_rows_that_land_meanwhile_are_merged_with_those_that_hide_them():
    store = Hooked()
    t = create(store, schema=SCHEMA, key="n")
    upsert(t, rows(1, f=[1.0]))

    def meanwhile():
        other = reopen(store, 7)
        upsert(other, rows(2, f=[11.0]))
        upsert(other, rows(2, f=[2.0]))

    store.acts = [meanwhile]
    t.add_check("small", "f < 10")
    assert t.session.head().checks == {"small": "f < 10"}


@pytest.mark.parametrize(
    ("rule", "properties", "expression", "why"),
    [
        ("partial", {}, "s < 10 OR at IS NULL", "their values may come from different rows"),
        ("aggregate", {"merge.s": "sum"}, "s < 10", "a sum of values"),
        ("aggregate", {"merge.s": "max"}, "s < 10 OR at IS NULL", "different rows"),
    ],
)
def test_a_check_that_written_rows_cannot_decide_is_refused(rule, properties, expression, why):
    schema = pa.schema([SCHEMA.field("at"), ("n", pa.int64()), ("s", pa.int64())])
    if rule == "aggregate":
        properties = {"merge.at": "max", **properties}
    made = {"schema": schema, "key": "n", "properties": {"merge": rule, **properties}}
    t = create(**made)
    with pytest.raises(InvalidInput, match=why):
        t.add_check("one", expression)
    with pytest.raises(InvalidInput, match=why):
        create(**made, checks={"one": expression})
    t.add_check("other", "n < 100")


def test_a_check_of_one_column_beside_the_key_holds_under_partial():
    t = keyed("partial", checks={"small": "f < 10 * n"})
    upsert(t, rows(1, f=[9.0]))
    upsert(t, rows(1, pair=[{"x": 1}]))  # null keeps what is there
    with pytest.raises(InvalidInput, match="check 'small'"):
        upsert(t, rows(1, f=[11.0]))
    assert scan(t).to_table()["f"].to_pylist() == [9.0]


# --- The format -------------------------------------------------------------------------------


def header(t, version):
    return codec.decode_commit(t.store.get(keys.commit_key(version)), version).header


def test_writers_that_do_not_know_a_feature_refuse_and_readers_do_not(t, monkeypatch):
    assert header(t, 1).write_features == ("checks",)
    monkeypatch.setattr("eventlog.commit.proposal.KNOWN_WRITE_FEATURES", frozenset())
    with pytest.raises(UnsupportedFormat, match="with checks"):
        append(t, rows(1))
    assert numbers(t) == [1, 2]
    monkeypatch.undo()
    t.drop_check("positive")
    assert "write_features" not in t.store.get(keys.commit_key(2)).decode().split('"digest"')[0]
    assert isinstance(header(t, 2), Header)


def test_a_check_without_the_segments_that_were_tested_is_void(t):
    t.drop_check("positive")
    schema = t.snapshot(1).stored_schema
    (known,) = schema.checks
    new = type(schema)(3, schema.columns, checks=(type(known)("c", "n > 0", known.columns, 3),))
    with pytest.raises(CommitConflict, match="does not name the segments"):
        t.commit(t.transaction("schema", [SetSchema(new)]))
    t.commit(t.transaction("schema", [SameSegments(t.session.head().hash_sum()), SetSchema(new)]))
    assert t.session.head().checks == {"c": "n > 0"}


def test_a_check_that_pretends_to_be_older_is_void(t):
    schema = t.session.head().stored_schema
    (known,) = schema.checks
    checks = (type(known)("older", "n > 1", known.columns, 1), known)
    new = SetSchema(type(schema)(2, schema.columns, checks=checks))
    transaction = t.transaction("schema", [SameSegments(t.session.head().hash_sum()), new])
    with pytest.raises(CommitConflict, match="it has a new check 'older'"):
        t.commit(transaction)


def test_no_add_of_before_a_check_lands(t):
    t.add_check("small", "n < 100")
    (old,) = [a for txn in codec.decode_commit(t.store.get(keys.commit_key(1)), 1).transactions
              for a in txn.actions]  # fmt: skip
    overwrite(t, rows(5))
    for more in ([], [Restore(1)]):
        with pytest.raises(CommitConflict, match="added a check that its rows may break"):
            t.commit(t.transaction("again", [*more, old]))


def test_fsck_reports_rows_that_break_a_check(monkeypatch):
    t = table()
    with monkeypatch.context() as patched:
        patched.setattr("eventlog.staging.stager.checks_of", lambda _: ())
        append(t, rows(-1, 1))
    (found,) = fsck(t, checksums=True).findings
    assert (found.severity, "check 'positive' (n > 0) is false for 1 row" in found.message) == (
        "error",
        True,
    )
    delete(t, where="n < 0")
    assert fsck(t, checksums=True).findings == ()
