"""Any name that a table accepts works everywhere: none becomes an expression, a path, or a list."""

import datetime as dt
import io
import itertools

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support.builders import create
from support.column_names import PLAIN, SCANNER, SCHEMA, quoted, rows, schema_of

from eventlog import Table, errors
from eventlog.cli.program import build
from eventlog.compaction import run
from eventlog.format import keys
from eventlog.readers import count, scan
from eventlog.writers import append, overwrite

KINDS = {"plain": PLAIN, "scanner": SCANNER}
LONG = {("plain", "created"), ("scanner", "created"), ("scanner", "added")}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(made, id="-".join(made), marks=[pytest.mark.long] * (made in LONG))
        for made in itertools.product(KINDS, ("created", "added", "compacted"))
    ],
)
def made(request):
    """Many names in one table: from the start, added to a segment that lacks them, or compacted.

    Those of Arrow's scanner are in tables of their own, which are read in another way.
    """
    kind, how = request.param
    names = KINDS[kind]
    schema = schema_of(names)
    if how == "created":
        t = create(schema=schema)
    else:
        t = create(schema=pa.schema([schema.field("at"), schema.field("x")]))
        append(t, rows(9, names).select(["at", "x"]))
        t.add_columns(schema)
    for day in (1, 2):
        append(t, rows(day, names))
    if how == "compacted":
        t.set_granularity("month")
        run(t)
    return names, t


def test_all_columns_come_back_under_their_names(made):
    names, t = made
    found = scan(t, where="at < '2013-01-03'").to_table()
    assert found.schema.names == schema_of(names).names
    wanted = [*rows(1, names).to_pylist(), *rows(2, names).to_pylist()]
    assert found.sort_by("x").to_pylist() == wanted
    for shape in (scan(t).to_pandas(), scan(t).to_polars()):
        assert list(shape.columns) == found.schema.names


@pytest.mark.verify
@pytest.mark.hazard("W8")
def test_one_column_is_read_and_filtered_by_its_name(made):
    names, t = made
    for name in names:
        column = rows(1, names).column(name).to_pylist()
        for where in (f"{quoted(name)} = {column[1]}", pc.field(name) == column[1]):
            assert scan(t, [name], where).to_table().to_pydict() == {name: [column[1]]}
        assert scan(t, ["x"], where).to_table().to_pydict() == {"x": [11]}
        assert count(t, f"{quoted(name)} >= {column[0]} AND {quoted(name)} <= {column[2]}") == 3


@pytest.mark.verify
@pytest.mark.hazard("W8")
def test_duckdb_reads_and_filters_by_each(made):
    names, t = made
    relation = scan(t).to_duckdb(duckdb.connect())
    for name in names:
        wanted = rows(1, names).column(name)[1].as_py()
        text = f"SELECT {quoted(name)}, x FROM t WHERE {quoted(name)} = {wanted}"
        assert relation.query("t", text).fetchall() == [(wanted, 11)]


@pytest.mark.hazard("W8")
@pytest.mark.parametrize("name", [*SCANNER, ".x", "a.b", "a,b", " lead", "3", '"', "[c]", "*"])
def test_rows_are_sorted_cut_and_bounded_by_each(name):
    kind = pa.timestamp("us", tz="UTC")
    decoys = [(other, pa.int64()) for other in ("x", "a", "b") if other != name]
    schema = pa.schema([pa.field(name, kind), *decoys])
    at = [dt.datetime(2013, 1, day, tzinfo=dt.UTC) for day in (2, 1, 3, 2)]
    part = pa.table([at, *[[3, 2, 1, 0]] * len(decoys)], schema=schema)
    setting = {"stats_columns": f"[{pa_json(name)}]"}
    t = create(
        schema=schema, time_column=name, order_by=[name], granularity="month", properties=setting
    )
    append(t, part)
    assert scan(t, [name]).to_table().column(0).to_pylist() == sorted(at)
    assert scan(t, [decoys[0][0]], f"{quoted(name)} < '2013-01-02'").to_table().num_rows == 1
    assert scan(t, where=f"{quoted(name)} < '2013-01-01'").plan.pruning.read == 0
    assert len(t.snapshot().segments()[0].stats) == 1
    overwrite(t, part.slice(0, 1), start="2013-01-01", end="2013-02-01")
    assert count(t) == 1


@pytest.mark.parametrize("name", [*SCANNER, ".x", "a.b", "a[0]", "element", "key"], ids=ascii)
def test_fields_of_structs_may_be_called_so_too(name):
    kind = pa.struct([(name, pa.int64()), ("f", pa.float64())])
    schema = pa.schema([SCHEMA.field("at"), (name, kind), ("x", pa.list_(kind))])
    t = create(schema=schema)
    value = {name: 5, "f": 0.5}
    part = pa.table([rows(1).column("at"), [value] * 3, [[value, None]] * 3], schema=schema)
    append(t, part)
    append(t, part)
    t.set_granularity("month")
    run(t)
    assert scan(t, [name]).to_table().to_pydict() == {name: [value] * 6}
    assert scan(t, ["x"]).to_table().to_pydict() == {"x": [[value, None]] * 6}


def test_a_dotted_name_is_not_a_field_of_a_struct():
    schema = pa.schema([SCHEMA.field("at"), ("a", pa.struct([("b", pa.float64())])),
                        ("a.b", pa.int64()), (".a.b", pa.int64()), (".x", pa.int64()),
                        ("x", pa.int64())])  # fmt: skip
    part = pa.table([rows(1).column("at"), [{"b": float("nan")}] * 3, [3, 2, 1], [4, 5, 6],
                     [9, 8, 7], [1, 2, 3]], schema=schema)  # fmt: skip
    t = create(schema=schema, order_by=[".x"])
    append(t, part)
    for name in ("a.b", ".a.b", ".x", "x"):
        wanted = part.sort_by("x").column(name).to_pylist()[::-1]
        assert scan(t, [name]).to_table().column(0).to_pylist() == wanted
        assert count(t, pc.field(name) == wanted[0]) == 1
    assert scan(t, ["a", "x"]).to_table().column("x").to_pylist() == [3, 2, 1]
    assert count(t, pc.field("a", "b").is_nan()) == 3
    (segment,) = t.snapshot().segments()
    footer = pq.read_metadata(io.BytesIO(t.store.get(keys.key_of(segment)))).row_group(0)
    bounded = [footer.column(n).is_stats_set for n in range(footer.num_columns)]
    # Those of floats leave NaN out, and engines prune by them: field b of a has none.
    assert bounded == [True, False, False, True, True, True]


@pytest.mark.parametrize("name", ["", "a\x00b", "tab\t", "line\n", "\x7f", "\u200b", "x" * 256])
def test_what_cannot_be_a_name_is_refused_at_once(name):
    t = create()
    kinds = [pa.int64(), pa.list_(pa.struct([("ok", pa.int8()), (name, pa.int8())]))]
    for field in (pa.field(name, kinds[0]), pa.field("ok", kinds[1])):
        wanted = pa.schema([*t.session.head().schema, field])
        with pytest.raises(errors.InvalidInput, match="is not a valid name for"):
            create(schema=wanted)
        with pytest.raises(errors.InvalidInput, match="is not a valid name for"):
            t.add_columns(wanted)
    assert t.refresh().version == 0


@pytest.mark.parametrize("names", [("a", "a"), ("a", "A"), ("é", "É")])
def test_a_field_that_occurs_twice_is_refused_at_once(names):
    for kind in (pa.struct([(n, pa.int8()) for n in names]),):
        coded = pa.dictionary(pa.int8(), kind)
        for wanted in (kind, pa.list_(kind), pa.map_(pa.string(), kind), coded, pa.list_(coded)):
            with pytest.raises(errors.InvalidInput, match="occurs twice"):
                create(schema=pa.schema([SCHEMA.field("at"), ("s", wanted)]))
    with pytest.raises(errors.InvalidInput, match="occurs twice"):
        create(schema=pa.schema([SCHEMA.field("at"), *[(n, pa.int8()) for n in names]]))


@pytest.mark.parametrize("kind", [pa.list_(pa.int8()), pa.map_(pa.int8(), pa.int8()),
                                  pa.struct([("a", pa.int8())])], ids=str)  # fmt: skip
def test_rows_are_not_sorted_by_what_has_no_order(kind):
    schema = pa.schema([SCHEMA.field("at"), ("s", kind)])
    with pytest.raises(errors.InvalidInput, match="order_by names column 's'"):
        create(schema=schema, order_by="s")


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False]),
        *[
            pa.array([1, 0], kind)
            for kind in ("int8", "int16", "int32", "int64", "float", "double")
        ],
        pa.array(["b", "a"]),
        pa.array([b"b", b"a"]),
        *[pa.array([1, 0], kind) for kind in (pa.date32(), pa.timestamp("us"))],
        pa.array([1, 0], pa.decimal128(38, 5)),
    ],
    ids=lambda values: str(values.type),
)
def test_rows_are_sorted_by_any_other_column(values):
    schema = pa.schema([SCHEMA.field("at"), ("s", values.type)])
    t = create(schema=schema, order_by="s")
    given = pa.concat_arrays([pa.nulls(1, values.type), values])
    append(t, pa.table([rows(1).column("at"), given], schema=schema))
    found = scan(t, ["s"]).to_table().column(0)
    assert found.to_pylist() == [*reversed(values.to_pylist()), None]


def test_the_program_takes_names_as_a_json_list(tmp_path):
    uri = (tmp_path / "t").as_uri()
    t = Table.create(uri, SCHEMA, time_column="at")
    append(t, rows(1))
    for name in ("a,b", " lead", "[c]", '"', ".x", "__filename"):
        words = ["scan", uri, "--format", "csv", "--columns", f"[{pa_json(name)}]"]
        answer = CliRunner().invoke(build(), words)
        assert answer.exit_code == 0, answer.output
        found = pa_csv.read_csv(io.BytesIO(answer.stdout_bytes))
        assert found.to_pydict() == {name: rows(1).column(name).to_pylist()}


def test_polars_and_pandas_frames_bring_the_names():
    for shape in (pl.from_arrow(rows(1)), rows(1).to_pandas()):
        t = create(schema=SCHEMA)
        append(t, shape)
        assert scan(t).to_table().to_pylist() == rows(1).to_pylist()


def pa_json(name: str) -> str:
    """The name as a JSON text."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_a_table_of_before_that_is_sorted_by_a_nested_column_takes_rows(monkeypatch):
    """Older releases created it, and could not append to it."""
    monkeypatch.setattr("eventlog.table.creation.check_order", lambda *_: None)
    schema = pa.schema([SCHEMA.field("at"), ("s", pa.list_(pa.int64())), ("x", pa.int64())])
    t = create(schema=schema, order_by=["s", "x"])
    part = pa.table([rows(1).column("at"), [[1], [2], None], [3, 2, 1]], schema=schema)
    append(t, part)
    append(t, part)
    run(t)
    assert sorted(scan(t, ["x"]).to_table().column(0).to_pylist()) == [1, 1, 2, 2, 3, 3]
