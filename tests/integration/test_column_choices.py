"""Columns that both of two logs changed: they are made one by the choice or command named."""

import datetime as dt
import re
import shlex

import pyarrow as pa
import pytest
from click.testing import CliRunner

from eventlog import Table
from eventlog.cli.program import build
from eventlog.errors import CommitConflict
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.replication import follow, merge
from eventlog.writers import append, overwrite

AT = dt.datetime(2013, 1, 7, 12, tzinfo=dt.UTC)
SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        ("a", pa.int8()),
        ("b", pa.int8()),
        ("s", pa.struct([("x", pa.int8()), ("y", pa.int8())])),
    ]
)
Q = pa.field("q", pa.int64())


@pytest.fixture(params=["copy", "branch"])
def both(request, tmp_path):
    """A table of one row, and its copy or branch."""
    one = Table.create(tmp_path / "t 1", SCHEMA, time_column="at")
    append(one, row(a=1, b=2, s={"x": 3, "y": 4}))
    return one, one.branch("b") if request.param == "branch" else copy(one)


def copy(one, name="copy"):
    follow(one.uri, f"{one.uri} {name}")
    return Table.open(f"{one.uri} {name}")


def row(**values):
    kinds = {"q": pa.int64(), **{field.name: field.type for field in SCHEMA}}
    fields = [pa.field(name, kinds[name]) for name in values]
    schema = pa.schema([SCHEMA.field("at"), *fields])
    return pa.Table.from_pylist([{"at": AT, **values}], schema)


def refused(source, target, take=None):
    with pytest.raises(CommitConflict) as caught:
        merge(source, target, take=take)
    return str(caught.value)


def run_named(message):
    """Run the changes of columns that a message names."""
    commands = re.findall(r"`eventlog (columns [^`]*)`", message)
    assert commands
    for command in commands:
        done = CliRunner().invoke(build(), shlex.split(command))
        assert done.exit_code == 0, done.output


def schema_after(*tables):
    """The schema that all these logs have once each was merged into each other one."""
    for _ in tables:
        merge_all(tables)
    assert merge_all(tables) == 0
    first, *others = (t.refresh().stored_schema.columns for t in tables)
    assert all(other == first for other in others)
    rows = [sorted(map(str, scan(t).to_table().to_pylist())) for t in tables]
    assert all(one == rows[0] for one in rows)
    for t in tables:
        assert fsck(t, checksums=True).findings == ()
    return tables[0].session.head().schema


def merge_all(tables):
    pairs = [(source, target) for target in tables for source in tables if source is not target]
    return sum(merge(source, target).commits for source, target in pairs)


@pytest.mark.sample(4)
@pytest.mark.parametrize("take", ["source", "target"])
@pytest.mark.parametrize(
    ("act", "words", "what"),
    [
        ("rename_column", (("a", "c"), ("a", "d")), "the name of column '{}'"),
        ("rename_column", ((["s", "x"], "c"), (["s", "x"], "d")), "the name of field '{}'"),
        ("reorder_columns", ((["b"],), (["s"],)), "the order of columns"),
    ],
)
def test_the_chosen_name_or_order_counts_in_both(both, act, words, what, take):
    for t, given in zip(both, words, strict=True):
        getattr(t, act)(*given)
    one, two = both
    assert f"`eventlog merge {shlex.join((one.uri, two.uri))} --take source`" in refused(one, two)
    chosen, other = (one, two) if take == "source" else (two, one)
    before = chosen.refresh().stored_schema.columns
    assert merge(one, two, take=take, dry_run=True).left_out
    (left,) = merge(one, two, take=take).left_out
    assert left.root == other.uri
    assert what.format("d" if other is two else "c") in left.what
    assert schema_after(one, two).names == [column.name for column in before]
    assert one.refresh().stored_schema.columns == before


@pytest.mark.parametrize("take", ["source", "target"])
def test_the_chosen_default_counts_in_both(both, take):
    for number, t in enumerate(both, 1):
        t.add_columns([Q], {"q": {"initial": 0, "write": number}})
    one, two = both
    refused(two, one)
    (left,) = merge(two, one, take=take).left_out
    assert left.what == "the default of column 'q'"
    schema_after(one, two)
    append(one, row(a=7))
    found = scan(one, ["q"], "a = 7").to_table()["q"].to_pylist()
    assert found == [2 if take == "source" else 1]


def test_a_column_that_one_dropped_is_dropped_in_both_if_that_log_is_chosen(both):
    one, two = both
    one.drop_columns(["a"])
    two.rename_column("a", "c")
    append(two, pa.table({"at": [AT], "c": pa.array([5], pa.int8())}))
    message = refused(one, two)
    assert "--take source`" in message
    assert "--take target`" not in message
    (left,) = merge(one, two, take="source").left_out
    assert (left.what, left.root) == ("column 'c'", two.uri)
    assert schema_after(one, two).names == ["at", "b", "s"]


@pytest.mark.sample(4, verify=8)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("act", ["widen", "rename", "field", "check"])
def test_a_dropped_column_does_not_come_back_and_the_named_drop_leads_on(both, act, turned):
    one, two = both
    one.drop_columns([["s", "x"] if act == "field" else "a"])
    if act == "field":
        two.rename_column(["s", "x"], "z")
    elif act == "widen":
        two.widen_column("a", pa.int32())
    else:
        two.rename_column("a", "a new name")
    if act == "check":
        two.add_check("positive", '"a new name" > 0')
    pair = (two, one) if turned else (one, two)
    message = refused(*pair, take="source" if turned else "target")
    assert "--take" not in message
    run_named(message)
    names = [] if act == "field" else ["a"]
    assert schema_after(one, two).names == [n for n in SCHEMA.names if n not in names]


def test_each_of_two_logs_drops_what_the_other_one_changed(both):
    one, two = both
    one.drop_columns(["a"])
    one.rename_column("b", "c")
    two.drop_columns(["b"])
    two.rename_column("a", "d")
    message = refused(one, two)
    assert "--take" not in message
    run_named(message)
    assert schema_after(one, two).names == ["at", "s"]


def test_a_drop_that_one_choice_alone_resolves_is_named_before_rows(both):
    one, two = both
    for number, t in enumerate(both):
        overwrite(t, row(b=number), missing="null")
    one.drop_columns(["a"])
    two.rename_column("a", "c")
    message = refused(two, one)
    assert "--take target`" in message
    assert "--take source`" not in message
    assert len(merge(two, one, take="target").left_out) == 2
    assert schema_after(one, two).names == ["at", "b", "s"]


def test_choices_of_names_that_contradict_each_other_are_a_conflict_again(both):
    one, two = both
    three = copy(one, "three")
    one.rename_column("a", "c")
    two.rename_column("a", "d")
    merge(one, three)
    merge(two, three, take="source")
    merge(two, one, take="target")
    assert (three.refresh().schema.names[1], one.refresh().schema.names[1]) == ("d", "c")
    refused(three, one)
    merge(three, one, take="source")
    assert schema_after(one, two, three).names[1] == "d"


@pytest.mark.parametrize("within", [(), ("s",)])
def test_columns_of_two_types_are_dropped_in_both_by_the_commands_that_are_named(both, within):
    one, two = both
    for t, kind in ((one, pa.int64()), (two, pa.string())):
        t.add_columns([pa.field("q", kind)], within=within)
    two.rename_column([*within, "q"], "w")
    for take in (None, "source", "target"):
        message = refused(one, two, take)
        assert "--take" not in message
    assert "copy them into another column first" in message
    run_named(message)
    assert schema_after(one, two) == SCHEMA


@pytest.mark.sample(1)
def test_values_of_a_column_of_two_types_that_were_copied_before_stay(both):
    one, two = both
    for t, kind in ((one, pa.int64()), (two, pa.string())):
        t.add_columns([pa.field("q", kind)])
    append(one, row(q=8))
    message = refused(one, two)
    for words in (["columns", one.uri, "add", "p:int64"], ["update", one.uri, "--set", "p=q"]):
        assert CliRunner().invoke(build(), words).exit_code == 0
    run_named(message)
    assert schema_after(one, two).names == [*SCHEMA.names, "p"]
    assert scan(two, ["p"], "p IS NOT NULL").to_table()["p"].to_pylist() == [8]


@pytest.mark.parametrize("within", [(), ("s",)])
def test_two_columns_of_one_name_get_two_by_the_command_that_is_named(both, within):
    one, two = both
    one.rename_column([*within, "x"] if within else "a", "z")
    two.add_columns([pa.field("Z", pa.int8())], within=within)
    for take in (None, "source", "target"):
        message = refused(two, one, take)
    run_named(message)
    found = schema_after(one, two)
    fields = found.field("s").type if within else found
    assert {"z", "Z_2"} <= {field.name for field in fields}


def test_a_column_comes_whose_first_name_is_that_of_another_one_now(both):
    one, two = both
    one.rename_column("a", "q")
    one.rename_column(["s", "x"], "z")
    two.add_columns([Q])
    two.add_columns([pa.field("z", pa.int8())], within=["s"])
    append(two, row(q=8))
    two.rename_column("q", "p")
    two.rename_column(["s", "z"], "w")
    found = schema_after(one, two)
    assert found.names == ["at", "q", "b", "s", "p"]
    assert [field.name for field in found.field("s").type] == ["z", "y", "w"]
    assert scan(one, ["p"], "p IS NOT NULL").to_table()["p"].to_pylist() == [8]


LISTS = [pa.list_(pa.int64()), pa.list_(pa.string())]
STRUCTS = [pa.struct([("i", kind), ("j", kind)]) for kind in (pa.int64(), pa.string())]
IN_LISTS = [
    pa.list_(pa.struct([("i", kind), ("j", pa.int8())])) for kind in (pa.int8(), pa.date32())
]
MAPS = [pa.map_(pa.string(), kind) for kind in (pa.int64(), pa.string())]


@pytest.mark.sample(4, verify=10)
@pytest.mark.parametrize("name", ["q", "-q", "[q"])
@pytest.mark.parametrize("kinds", [LISTS, STRUCTS, IN_LISTS, MAPS], ids=lambda k: str(k[0])[:6])
def test_what_can_be_dropped_of_a_nested_column_of_two_types_is_named(both, kinds, name):
    one, two = both
    for t, kind in zip(both, kinds, strict=True):
        t.add_columns([pa.field(name, kind)])
    run_named(refused(one, two))
    names = [*SCHEMA.names, *([name] if kinds is IN_LISTS else [])]
    assert schema_after(one, two).names == names


def test_a_struct_of_which_each_side_dropped_the_other_fields_is_dropped_in_both(both):
    one, two = both
    one.drop_columns([["s", "x"]])
    two.drop_columns([["s", "y"]])
    for take in (None, "source", "target"):
        message = refused(one, two, take)
    run_named(message)
    assert schema_after(one, two).names == ["at", "a", "b"]
