"""Random rows written to files by other libraries, and appended: every value is what it was.

Where a library's format cannot say a value, what it writes instead stands in the test: that is its
loss, not the reader's.
"""

import math
import tempfile
from datetime import datetime
from decimal import Decimal, localcontext
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import create

from eventlog.errors import InvalidInput
from eventlog.readers import scan
from eventlog.writers import append
from eventlog.writers.files import open_rows

DAY = 86_400_000_000
# A day less than the years 0001 to 9999: DuckDB writes local times, which may lie outside.
MICROSECONDS = st.integers(-62_135_596_800_000_000 + DAY, 253_402_300_799_999_999 - DAY)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
ODD_TEXTS = ["", "NA", "null", 'a"b', "a,b", "a\nb", "a\r\nb", " a ", "\\", '"']
VALUES = {
    "at": (pa.timestamp("us", "UTC"), MICROSECONDS),
    "i64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "i8": (pa.int8(), st.integers(-128, 127)),
    "f64": (pa.float64(), st.floats(width=64)),
    "f32": (pa.float32(), st.floats(width=32)),
    "dec": (pa.decimal128(38, 9), st.decimals(-(10**28), 10**28, places=9)),
    "s": (pa.string(), TEXTS | st.sampled_from(ODD_TEXTS)),
    "d": (pa.date32(), st.integers(-719_162, 2_932_896)),
    "ts": (pa.timestamp("us", "UTC"), MICROSECONDS),
    "ntz": (pa.timestamp("us"), MICROSECONDS),
    "b": (pa.bool_(), st.booleans()),
}
SCHEMA = pa.schema([("n", pa.int64()), *((name, kind) for name, (kind, _) in VALUES.items())])


@st.composite
def tables(draw):
    """Rows of every plain type, with nulls in all columns but the event time and the number."""
    count = draw(st.integers(1, 6))
    columns = [pa.array(range(count), pa.int64())]
    for name, (kind, values) in VALUES.items():
        one = values if name == "at" else st.none() | values
        drawn = draw(st.lists(one, min_size=count, max_size=count))
        columns.append(pa.array(drawn, kind))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def shown(value):
    """A value in a form that tells -0.0 from 0.0 and is equal to itself."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value.hex()
    return value.astimezone().timestamp() if isinstance(value, datetime) and value.tzinfo else value


def values(table, instead=lambda name, value: value):
    """The rows by their number."""
    rows = table.to_pylist(maps_as_pydicts="strict")
    return {
        row["n"]: {name: shown(instead(name, value)) for name, value in row.items()} for row in rows
    }


def appended(path, schema=SCHEMA):
    """The rows of a new table that the files were appended to."""
    t = create(schema=schema, time_column="at", granularity="all")
    append(t, open_rows([str(path)], schema, "at").reader)
    return scan(t).to_table()


def pandas_frame(table):
    return table.to_pandas(types_mapper=pd.ArrowDtype)


def with_duckdb(table, path, options):
    with duckdb.connect() as connection:
        # An offset in whole minutes at all times: seconds of an offset are cut off by DuckDB.
        connection.execute("SET TimeZone = 'Etc/GMT+9'")
        connection.register("t", table)
        connection.execute(f"COPY t TO '{path}' ({options})")


def with_pyarrow_ipc(new, table, path):
    with new(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def unchanged(name, value):
    return value


def finite(name, value):
    """JSON has no NaN: Polars writes null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def finite_floats(table):
    rows = [{n: finite(n, v) for n, v in row.items()} for row in table.to_pylist()]
    return pa.Table.from_pylist(rows, table.schema)


def empty_text_as_null(name, value):
    """Pandas writes an empty text as it writes null."""
    return None if value == "" else value


WRITERS = {
    "pandas.parquet": (lambda t, p: pandas_frame(t).to_parquet(p), unchanged),
    "pandas.feather": (lambda t, p: pandas_frame(t).to_feather(p), unchanged),
    "pandas.csv": (lambda t, p: pandas_frame(t).to_csv(p, index=False), empty_text_as_null),
    "polars.parquet": (lambda t, p: pl.from_arrow(t).write_parquet(p), unchanged),
    "polars.csv": (lambda t, p: pl.from_arrow(t).write_csv(p), unchanged),
    "polars.ndjson": (lambda t, p: pl.from_arrow(t).write_ndjson(p), finite),
    "polars.arrow": (lambda t, p: pl.from_arrow(t).write_ipc(p), unchanged),
    "polars.arrows": (lambda t, p: pl.from_arrow(t).write_ipc_stream(p), unchanged),
    "duckdb.parquet": (lambda t, p: with_duckdb(t, p, "FORMAT parquet"), unchanged),
    "duckdb.csv": (lambda t, p: with_duckdb(t, p, "FORMAT csv"), unchanged),
    "duckdb.json.gz": (
        # It writes NaN and Infinity bare, which is no JSON and is refused.
        lambda t, p: with_duckdb(finite_floats(t), p, "FORMAT json, COMPRESSION gzip"),
        finite,
    ),
    "pyarrow.csv": (pa_csv.write_csv, unchanged),
    "pyarrow.arrow": (lambda t, p: with_pyarrow_ipc(pa.ipc.new_file, t, p), unchanged),
    "pyarrow.arrows": (lambda t, p: with_pyarrow_ipc(pa.ipc.new_stream, t, p), unchanged),
    "int96.parquet": (
        lambda t, p: pq.write_table(t, p, use_deprecated_int96_timestamps=True, row_group_size=2),
        unchanged,
    ),
}


@st.composite
def written_decimals(draw):
    """A decimal type, and numbers with digits about as many as it has, exponents included."""
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    digits = st.integers(0, 40).flatmap(lambda n: st.integers(-(10**n), 10**n))
    one = st.builds("{}e{}".format, digits, st.integers(-40, 40)) | digits.map(str)
    return pa.decimal128(precision, scale), draw(st.lists(one, min_size=1, max_size=8))


def exact(text, kind):
    """The number, or None where the type does not have it."""
    with localcontext() as context:
        context.prec = 200
        units = Decimal(text).scaleb(kind.scale)
        fits = units == units.to_integral_value() and abs(units) < 10**kind.precision
        return Decimal(text) if fits else None


def decimals_by(road, folder, texts, kind):
    """What is stored of the texts, or None where they are refused."""
    at = "2013-01-07T05:00:00Z"
    path = Path(folder) / f"a.{road}"
    if road == "csv":
        path.write_text("at,dec\n" + "".join(f"{at},{text}\n" for text in texts))
    elif road == "json":
        path.write_text("".join(f'{{"at":"{at}","dec":{text}}}\n' for text in texts))
    else:
        (text,) = texts
        path = Path(folder) / f"dec={text}" / "a.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"at\n{at}\n")
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("dec", kind)])
    try:
        return open_rows([str(path)], schema, "at").reader.read_all()["dec"].to_pylist()
    except InvalidInput:
        return None


@given(written_decimals())
def test_decimals_of_every_type_are_stored_as_written_or_refused(drawn):
    kind, texts = drawn
    known = {text: exact(text, kind) for text in texts}
    fitting = [text for text in texts if known[text] is not None]
    with tempfile.TemporaryDirectory() as folder:
        for road in ("csv", "json", "path"):
            for text in dict.fromkeys(texts):
                expected = None if known[text] is None else [known[text]]
                assert decimals_by(road, folder, [text], kind) == expected, (road, text, kind)
        for road in ("csv", "json"):
            expected = [known[text] for text in fitting]
            assert not fitting or decimals_by(road, folder, fitting, kind) == expected


PARTITIONED = {
    "polars": lambda t, p, by: pl.from_arrow(t).write_parquet(p, partition_by=by),
    "duckdb": lambda t, p, by: with_duckdb(t, p, f"FORMAT csv, PARTITION_BY ({', '.join(by)})"),
    "pandas": lambda t, p, by: pandas_frame(t).to_parquet(p, partition_cols=by),
}
COLUMNS_IN_PATHS = ["s", "i8", "f64", "dec", "d", "b", "ntz"]
IN_PATHS = st.lists(st.sampled_from(COLUMNS_IN_PATHS), min_size=1, unique=True)


@pytest.mark.sample(4, verify=8)
@pytest.mark.hazard("W3")
@pytest.mark.parametrize("name", WRITERS)
@given(tables())
def test_w3_what_other_libraries_write_is_read_exactly(name, table):
    write, instead = WRITERS[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(table, path)
        assert values(appended(path)) == values(table, instead)


@pytest.mark.hazard("W2")
@pytest.mark.parametrize("library", PARTITIONED)
@given(tables(), IN_PATHS)
def test_w2_columns_in_paths_are_read_as_other_libraries_write_them(library, table, by):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        PARTITIONED[library](table, path, by)
        assert values(appended(path)) == values(table)
