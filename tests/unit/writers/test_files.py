"""Files on their way in: read whole, every value as it was, or refused and nothing committed."""

import base64
import bz2
import contextlib
import decimal
import gzip
import io
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow.parquet import encryption

from eventlog import Table
from eventlog.cli.program import build
from eventlog.errors import InvalidInput
from eventlog.model.schema_text import parse_schema
from eventlog.readers import scan
from eventlog.writers import append
from eventlog.writers.files import open_rows

HOUR = datetime(2013, 1, 7, 5, tzinfo=UTC)
AT = "2013-01-07T05:00:00Z"
PLAIN = "at:timestamp, id:int64, name:string, f:float64"


@pytest.fixture
def table(tmp_path):
    def create(columns=PLAIN):
        return Table.create(tmp_path / "t", parse_schema(columns), time_column="at")

    return create


def load(table, *files, **options):
    """Append files to a table and return its rows, in the order of the files."""
    head = table.session.head()
    rows = open_rows([str(f) for f in files], head.schema, head.layout.time_column, **options)
    append(table, rows.reader)
    return scan(table).to_table().to_pylist()


def refused(table, *files, match, **options):
    """Say whether files are refused for a reason, and the table is what it was."""
    with pytest.raises(InvalidInput, match=match):
        load(table, *files, **options)
    return table.refresh().version == 0


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ------------------------------------------------------------------------------ JSON lines


WHOLE = [
    "-0",
    "0e-0",
    "15E-0",
    "1.0",
    "-20e-1",
    "0.5e1",
    "9007199254740993.0",
    "9223372036854775807",
    "-0.0",
]


def test_zero_keeps_its_sign_in_json(table, tmp_path):
    t = table("at:timestamp, f:float64, g:float32, d:decimal(5,0), l:list<float64>, s:string")
    line = f'{{"at":"{AT}","f":-0,"g":-0 ,"d":-0,"l":[-0,0,-0.0],"s":"-0 \\\\\\"-0"}}\n'
    [row] = load(t, write(tmp_path / "a.json", line))
    assert [math.copysign(1, zero) for zero in (row["f"], row["g"], *row["l"])] == [
        -1,
        -1,
        -1,
        1,
        -1,
    ]
    assert (row["d"], row["s"]) == (0, '-0 \\"-0')


FRACTIONS = [
    "4503599627370497.25",
    "9007199254740990.6",
    "0.99999999999999999999",
    "1e-400",
    "1e400",
]


@pytest.mark.parametrize("columns", ["n:int64", "n:int64, d:decimal(5,2)", "n:int64, f:float64"])
def test_json_integers_are_whole_as_they_are_written(table, tmp_path, columns):
    t = table(f"at:timestamp, {columns}, l:list<int32>")
    lines = "".join(f'{{"at":"{AT}","n":{n},"l":[1,2.0]}}\n' for n in WHOLE)
    found = load(t, write(tmp_path / "a.json", lines))
    assert [row["n"] for row in found] == [int(Decimal(n)) for n in WHOLE]
    assert all(row["l"] == [1, 2] for row in found)
    for number in FRACTIONS:
        for value in (f'"n":{number}', f'"l":[1,{number}]'):
            file = write(tmp_path / "b.json", f'{lines}{{"at":"{AT}",{value}}}\n')
            with pytest.raises(InvalidInput, match=f"line {len(WHOLE) + 1}"):
                load(t, file)
    assert t.refresh().version == 1


def json_lines(*rows):
    return "".join(json.dumps({"at": AT, **row}) + "\n" for row in rows)


@pytest.mark.hazard("W2")
def test_a_json_column_that_appears_late_is_read(table, tmp_path):
    rows = [{"id": i, "name": "x" * 200} for i in range(20_000)]
    rows[-1]["f"] = 1.5
    found = load(table(), write(tmp_path / "a.json", json_lines(*rows)))
    assert len(found) == 20_000
    assert [row["f"] for row in found if row["f"] is not None] == [1.5]
    assert [row["id"] for row in found] == list(range(20_000))


def test_an_unknown_json_field_is_refused_by_name_and_line_wherever_it_appears(table, tmp_path):
    rows = [{"id": i, "name": "x" * 200} for i in range(20_000)]
    rows[-1]["Name"] = "y"
    path = write(tmp_path / "a.json", "\n" + json_lines(*rows))
    assert refused(table(), path, match="line 20001: unknown columns 'Name'")


ALL = (
    "at:timestamp, b:bool, i8:int8, i64:int64, f32:float32, f64:float64, dec:decimal(20,3), "
    "s:string, d:date, ts:timestamp, ntz:timestamp_ntz, l:list<int16>, "
    "m:map<string, decimal(4,1)>, st:struct<x:float64, y:list<date>>, mi:map<int32, string>"
)


def test_json_is_read_by_the_types_of_the_table(table, tmp_path):
    lines = """
{"at":"2013-01-07T06:00:00+01:00","b":true,"i8":-128,"i64":9223372036854775807,"f32":1,"f64":1,"s":"é\\u00e9"}
{"at":"2013-01-07 05:00","i64":2.0,"f64":"NaN","dec":12345678901234567.125,"d":"2013-01-07"}
{"at":"2013-01-07T05:00:00Z","f64":1e-3,"dec":"-1.5","ts":"9999-12-31 23:59:59.999999","s":""}
{"at":"2013-01-07T05:00:00.000000000Z","ts":"2013-01-07T06:00:00.5+01:00","ntz":"0001-01-01","dec":7}
{"at":"2013-01-07T05:00:00Z","l":[1,null,2.0],"m":{"a":1.5,"b":null},"st":{"x":2},"mi":{"7":"z"}}
{"at":"2013-01-07T05:00:00Z","l":[],"m":{},"st":{"y":["2013-01-07",null]},"b":null}
"""
    found = load(table(ALL), write(tmp_path / "a.jsonl", lines))
    assert len(found) == 6
    assert {row["at"] for row in found} == {HOUR}
    first, second, third, fourth, fifth, sixth = found
    assert (first["b"], first["i8"], first["i64"], first["s"]) == (True, -128, 2**63 - 1, "éé")
    assert [type(first[name]) for name in ("f32", "f64")] == [float, float]
    assert (second["i64"], second["dec"]) == (2, Decimal("12345678901234567.125"))
    assert second["f64"] != second["f64"]
    assert second["d"] == date(2013, 1, 7)
    assert (third["dec"], third["f64"], third["s"]) == (Decimal("-1.500"), 0.001, "")
    assert third["ts"] == datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert fourth["ts"] == HOUR.replace(microsecond=500_000)
    assert (fourth["ntz"], fourth["dec"]) == (datetime(1, 1, 1), Decimal("7.000"))
    assert fifth["l"] == [1, None, 2]
    assert fifth["m"] == [("a", Decimal("1.5")), ("b", None)]
    assert (fifth["st"], fifth["mi"]) == ({"x": 2.0, "y": None}, [(7, "z")])
    assert (sixth["l"], sixth["m"], sixth["b"]) == ([], [], None)
    assert sixth["st"] == {"x": None, "y": [date(2013, 1, 7), None]}


@pytest.mark.hazard("W3")
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('"i64":9223372036854775808', "int64"),
        ('"i64":1.5', "int64"),
        ('"i64":9007199254740993.5', "int64"),
        ('"i64":"1"', "int64"),
        ('"i64":true', "int64"),
        ('"i64":1e400', "int64"),
        ('"i8":128', "int8"),
        ('"f64":9007199254740993', "float64"),
        ('"f64":1e400', "float64"),
        ('"f64":"1.5"', "float64"),
        ('"f32":16777217', "float"),
        ('"f32":1e300', "float"),
        ('"f64":NaN', "not one JSON object"),
        ('"dec":1.2345', "decimal"),
        ('"dec":1e30', "decimal"),
        ('"dec":"nan"', "decimal"),
        ('"dec":true', "decimal"),
        ('"b":1', "bool"),
        ('"s":1', "string"),
        ('"s":"\\ud800"', "line 2"),
        ('"d":"2013-01-07T05:00:00"', "date"),
        ('"d":15712', "date"),
        ('"ts":1357534800000', "timestamp"),
        ('"ts":"2013-01-07T05:00:00.123456789"', "timestamp"),
        ('"ntz":"2013-01-07T05:00:00+01:00"', "timestamp"),
        ('"l":[1,40000]', "int16"),
        ('"l":1', "list"),
        ('"m":{"a":1.55}', "decimal"),
        ('"m":{"a":1,"a":2}', "'a' occurs twice"),
        ('"mi":{"x":"y"}', "int32"),
        ('"st":{"x":1,"z":2}', "field 'z'"),
        ('"st":{"y":["2013-13-01"]}', "date"),
        ('"s":"a","s":"b"', "'s' occurs twice"),
        ('"s":"a" , "s" :"b"', "'s' occurs twice"),
        ('"s":"\\":","s":"b"', "'s' occurs twice"),
        ('"s":"a"}{"s":"b"', "not one JSON object"),
        ('"l":' + "[" * 100_000, "line 2"),
        ('"i64":' + "9" * 5000, "line 2"),
    ],
)
def test_json_that_does_not_fit_is_refused_with_its_line(table, tmp_path, fields, said):
    content = json_lines({}) + f'{{"at":"{AT}",{fields}}}\n' + json_lines({})
    path = write(tmp_path / "a.json", content)
    t = table(ALL)
    assert refused(t, path, match="line 2")
    assert refused(t, path, match=said)


def test_json_without_decimals_refuses_numbers_out_of_range(table, tmp_path):
    t = table()
    for number in ("1e400", "9007199254740993", "-1e309"):
        path = write(tmp_path / "a.json", f'{{"at":"{AT}","f":{number}}}\n')
        assert refused(t, path, match="line 1")


def test_text_that_looks_like_names_is_no_second_name(table, tmp_path):
    rows = [{"name": 'a":b', "id": 1}, {"name": '"id":2', "id": 3}, {"name": '\\":'}]
    found = load(table(), write(tmp_path / "a.json", json_lines(*rows).replace('"id":', '"id" :')))
    assert [row["name"] for row in found] == ['a":b', '"id":2', '\\":']
    assert [row["id"] for row in found] == [1, 3, None]


def test_json_lines_may_be_blank_end_in_crlf_and_start_with_a_mark(table, tmp_path):
    text = "\ufeff" + json_lines({"id": 1}, {"id": 2}).replace("\n", "\r\n \r\n")
    found = load(table(), write(tmp_path / "a.json", text.rstrip()))
    assert [row["id"] for row in found] == [1, 2]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json_lines({"id": 1}, {"id": 2})[:-4], "line 2 is not one JSON object"),
        (json.dumps([{"at": AT}]), "line 1 is not one JSON object"),
        (json.dumps({"at": AT}, indent=1), "line 1 is not one JSON object"),
        (json_lines({"id": 1}).encode("utf-16"), "line 1"),
        (json_lines({"name": "é"}).replace("\\u00e9", "é").encode("latin-1"), "line 1"),
        (b"", "empty"),
        ('{"id": 1}\n', "event times are null"),
    ],
)
def test_json_that_is_cut_or_no_lines_is_refused(table, tmp_path, content, said):
    assert refused(table(), write(tmp_path / "a.json", content), match=said)


HALF_WAY = [
    "1.00000005960464477540",
    "1.0000000596046448",
    "1.00000005960464477538",
    "7e-46",
    "-0.0",
]


@pytest.mark.parametrize("text", [*HALF_WAY, "1e-400", "3.4028235677973366e38", "1e39"])
def test_floats_are_rounded_once_on_every_road(table, tmp_path, text):
    t = table("at:timestamp, f:float32, l:list<float32>, m:map<float64, float32>")
    line = f'{{"at":"{AT}","f":{text},"l":[1,null,{text},"NaN"],"m":{{"1":{text}}}}}\n'
    files = [
        write(tmp_path / "a.csv", f"at,f\n{AT},{text}\n"),
        write(tmp_path / f"f={text}" / "a.csv", f"at\n{AT}\n"),
        write(tmp_path / "a.json", line),
    ]
    exact, largest = Fraction(text), 2**128 - 2**104
    if abs(exact) > largest + 2**103:
        for file in files:
            assert refused(t, file, match="does not fit float")
        return
    by_csv, by_path, by_json = [load(t, file)[-1] for file in files]
    value = by_csv["f"]
    for near in (
        np.float32(value),
        *(np.nextafter(np.float32(value), np.float32(x)) for x in (-9, 9)),
    ):
        assert abs(Fraction(value) - exact) <= abs(Fraction(float(near)) - exact)
    found = [by_path["f"], by_json["f"], by_json["l"][2], by_json["m"][0][1]]
    assert [x.hex() for x in found] == [value.hex()] * 4


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("int8", ["1", "2", "01"]),
        ("int8", ["1", "1.0"]),
        ("float64", ["1", "1e0"]),
        ("float64", ["0.0", "-0.0"]),
        ("float32", ["NaN", "nan"]),
        ("decimal(5,2)", ["1.5", "1.50"]),
        ("bool", ["1", "true"]),
        ("date", ["2013-01-07", " 2013-01-07"]),
        ("timestamp", ["2013-01-07T05:00:00Z", "2013-01-07T06:00:00+01:00"]),
    ],
)
def test_a_json_map_whose_keys_are_the_same_value_is_refused(table, tmp_path, kind, keys):
    t = table(f"at:timestamp, m:map<{kind}, int64>, l:list<map<{kind}, int64>>")
    maps = [{}, *({key: 1} for key in keys)]
    twice = {key: number for number, key in enumerate(keys)}
    for fields in ({"m": twice}, {"l": [None, *maps, twice]}):
        path = write(tmp_path / "a.json", json_lines({"l": maps}, fields))
        assert refused(t, path, match="line 2.*two keys are the same")
    path = write(tmp_path / "b.json", json_lines({"l": maps}, *({"m": one} for one in maps)))
    assert len(load(t, path)) == len(maps) + 1


@pytest.mark.parametrize("depth", [99, 120, 300, 500, 700, 900, 5_000, 100_000])
@pytest.mark.parametrize("brackets", ["[]", ('{"a":', "}")])
def test_json_nested_too_deep_is_refused(table, tmp_path, depth, brackets):
    left, right = brackets
    nested = f"{left * depth}{'1' if len(left) > 1 else ''}{right * depth}"
    t = table("at:timestamp, x:list<int8>")
    path = write(tmp_path / "a.json", f'{{"at":"{AT}"}}\n{{"at":"{AT}","x":{nested}}}\n')
    assert refused(t, path, match=r"a\.json: line 2")


def test_json_without_a_byte_is_refused_unless_it_is_whole(table, tmp_path):
    t = table()
    assert refused(t, write(tmp_path / "a.json", ""), match="writer may have failed")
    assert load(t, write(tmp_path / "a.json.gz", gzip.compress(b""))) == []
    answer = run("append", tmp_path / "t", "-", "--format", "json", input=b"")
    assert (answer.exit_code, "producer may have failed" in answer.stderr) == (2, True)


def test_binary_values_have_no_form_in_text(table, tmp_path):
    t = table("at:timestamp, raw:binary")
    assert refused(t, write(tmp_path / "a.json", json_lines({"raw": "YWI="})), match="binary")
    assert refused(
        t, write(tmp_path / "a.csv", f"at,raw\n{AT},YWI=\n"), match="CSV cannot represent"
    )
    assert refused(t, write(tmp_path / "raw=a" / "b.csv", f"at\n{AT}\n"), match="binary")


# ------------------------------------------------------------------------------ compression


@pytest.mark.verify
@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        *[("csv", "gz"), ("csv", "bz2"), ("json", "zst")],
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in [("csv", "zst"), ("json", "gz"), ("json", "bz2")]
        ),
    ],
)
def test_compressed_text_is_read_whole_in_several_parts_or_refused(table, tmp_path, kind, suffix):
    if kind == "csv":
        parts = [b"at,id\n" + f"{AT},1\n".encode() * 50_000, f"{AT},2\n".encode()]
    else:
        parts = [json_lines({"id": 1}).encode() * 50_000, json_lines({"id": 2}).encode()]
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "zst": pa.Codec("zstd").compress}[suffix]
    packed = [bytes(memoryview(pack(part))) for part in parts]
    t = table()
    path = tmp_path / f"a.{kind}.{suffix}"
    for cut in (b"".join(packed)[:-2], packed[0][: len(packed[0]) // 2], packed[0] + b"junk", b""):
        assert refused(t, write(path, cut), match="cannot read")
    assert len(load(t, write(path, b"".join(packed)))) == 50_001


def test_a_compressed_parquet_file_is_refused(table, tmp_path):
    assert refused(
        table(), write(tmp_path / "a.parquet.gz", gzip.compress(b"")), match="decompress"
    )


# ------------------------------------------------------------------------------ CSV


@pytest.mark.hazard("W3")
def test_csv_nulls_and_texts_are_told_apart(table, tmp_path):
    content = (
        "at,id,name,f\n"
        f'{AT},1,,nan\n{AT},2,"",NaN\n{AT},3,NA,\n{AT},,null,inf\n'
        f'{AT},4,"nan",-Infinity\n{AT}, 5 ,a b ,-0.0\n{AT},6.0,"x, ""y""\nz",1e3\n'
    )
    found = load(table(), write(tmp_path / "a.csv", content))
    names = [None, "", "NA", "null", "nan", "a b ", 'x, "y"\nz']
    assert [row["name"] for row in found] == names
    assert [row["id"] for row in found] == [1, 2, 3, None, 4, 5, 6]
    floats = ["nan", "nan", "None", "inf", "-inf", "-0.0", "1000.0"]
    assert [str(row["f"]) for row in found] == floats


def test_csv_of_one_column_may_not_begin_with_an_empty_line(table, tmp_path):
    """An empty line is a null there; it was taken for the header, and the header for a row."""
    t = table("at:timestamp, name:string")
    path = write(tmp_path / f"at={AT[:10]}" / "a.csv", "\n\nname\nx\n\n")
    assert refused(t, path, match="empty line before its header")
    write(path, "name\nx\n\n")
    assert [row["name"] for row in load(t, path)] == ["x", None]


def test_csv_texts_that_stand_for_null_can_be_named(table, tmp_path):
    path = write(tmp_path / "a.csv", f'at,id,name\n{AT},NA,"NA"\n{AT},1,NA\n')
    assert refused(
        table(), path, match="row 1, column 'id': 'NA' does not fit int64; give --null 'NA'"
    )
    found = load(Table.open(tmp_path / "t"), path, nulls=["NA"])
    assert [(row["id"], row["name"]) for row in found] == [(None, "NA"), (1, None)]


@pytest.mark.hazard("W2")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("at,id,name\n{at},1\n", "Expected 3 columns"),
        ("at,id\n{at},1,2\n", "Expected 2 columns"),
        ("at,id,id\n{at},1,2\n", "'id' twice"),
        ("at,ID\n{at},1\n", "unknown columns: 'ID'"),
        ("at, id\n{at},1\n", "unknown columns: ' id'"),
        ("id\n1\n", "'at' is missing"),
        ('at,name\n{at},"x\n', "ends inside quotes"),
        ('at,name\n{at},"x\n{at},y\n', "ends inside quotes"),
        ('at,name\n{at},"x"y\n', "there is a quote inside a field"),
        ('at,name\n{at},5" pipe\n', "there is a quote inside a field"),
        ('at,name\n{at},"a\\"b"\n', "there is a quote inside a field"),
        ('at,name\n{at},"a\\",\\"b"\n', "there is a quote inside a field"),
        ('at,name\n{at}, "x"\n', "there is a quote inside a field"),
        ("at,id\n{at},1\n{at},12", "its last line has no line end"),
        ("at,id", "cannot read"),
        ("", "empty"),
        ("at,id\n{at},9223372036854775808\n", "row 1, column 'id'"),
        ("at,id\n{at},1\n{at},1.5\n", "row 2, column 'id'"),
        ('at,id\n{at},""\n', "row 1, column 'id'"),
        ("at,f\n{at},1e400\n", "row 1, column 'f'"),
        ("at,f\n{at},NA\n", "row 1, column 'f'"),
        ("at,id\n,1\n", "event times are null"),
        (b"at,name\n2013-01-07,\xe9\n", "UTF8"),
        ("at,name\n{at},x\n".encode("utf-16"), "cannot read"),
        ("at;id\n{at};1\n", "separated by commas"),
        ("at;id;price\n{at};1;1,5\n", "Expected 1 columns.*separated by commas"),
    ],
)
def test_csv_that_is_cut_or_does_not_fit_is_refused(table, tmp_path, content, said):
    if isinstance(content, str):
        content = content.replace("{at}", AT)
    assert refused(table(), write(tmp_path / "a.csv", content), match=said)


def test_csv_decimals_dates_and_times_are_exact(table, tmp_path):
    columns = (
        "at:timestamp, dec:decimal(38,10), d:date, ts:timestamp, ntz:timestamp_ntz, b:bool, "
        "f:float32"
    )
    content = (
        "at,dec,d,ts,ntz,b,f\n"
        f"{AT},1234567890123456789012345678.0123456789,9999-12-31,2013-01-07 06:00:00+01,"
        "0001-01-01 00:00:00.000001,True,0.1\n"
        f"{AT},1.50,1582-10-04,2013-01-07 05:00:00,2013-01-07,false,1\n"
    )
    first, second = load(table(columns), write(tmp_path / "a.csv", content))
    assert first["dec"] == Decimal("1234567890123456789012345678.0123456789")
    assert (first["d"], first["ts"]) == (date(9999, 12, 31), HOUR)
    assert first["ntz"] == datetime(1, 1, 1, microsecond=1)
    assert (first["b"], second["b"]) == (True, False)
    assert (second["d"], second["ts"]) == (date(1582, 10, 4), HOUR)
    assert abs(first["f"] - 0.1) < 1e-8
    t = Table.open(tmp_path / "t")
    for column, text in (("dec", "1.00000000001"), ("d", "2013-01-07 05:00:00"), ("b", "yes")):
        path = write(tmp_path / "b.csv", f"at,{column}\n{AT},{text}\n")
        with pytest.raises(InvalidInput, match=f"row 1, column '{column}'"):
            load(t, path)


@pytest.mark.parametrize("text", ["0xFF", "+-1", "1e2", "--1", "1_0", "\uff11", "128", "-129", "x"])
def test_csv_integers_are_decimal_digits_only(table, tmp_path, text):
    t = table("at:timestamp, i8:int8")
    assert refused(t, write(tmp_path / "a.csv", f"at,i8\n{AT},{text}\n"), match="row 1")
    whole = write(tmp_path / "b.csv", f"at,i8\n{AT},+1\n{AT},-1.00\n{AT}, 7. \n{AT},-0\n")
    assert [row["i8"] for row in load(t, whole)] == [1, -1, 7, 0]


DECIMALS = {
    "1e3": "1000", "1.5E-3": "0.0015", "-12.5e+1": "-125", ".5": "0.5", "7.": "7", "+00.10": "0.1",
    "0e999": "0", "0.00000000000000000000000000000000000000000000000": "0",
    "100000000000000000000000000000e-20": "1000000000", "1e27": "1" + "0" * 27,
}  # fmt: skip
NO_DECIMALS = [
    "1e999999999", "-1e-999999999", "1e-11", "1e-77", "1e-300", "1e28", "nan", "e5",
    ".", "1e", "inf", "1,5", "0x1", "1_0", "\uff11", "1e99999", "1e-38", "1e-39", "9" * 39,
]  # fmt: skip


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_decimals_of_any_exponent_are_exact_or_refused(table, tmp_path, kind):
    t = table("at:timestamp, dec:decimal(38,10)")

    def path(*texts):
        lines = [f"{AT},{x}" if kind == "csv" else f'{{"at":"{AT}","dec":"{x}"}}' for x in texts]
        head = ["at,dec"] if kind == "csv" else []
        return write(tmp_path / f"a.{kind}", "\n".join([*head, *lines, ""]))

    for text in NO_DECIMALS:
        shown = f'"{text}"' if "," in text and kind == "csv" else text
        assert refused(t, path(shown), match="column 'dec'"), text
    with decimal.localcontext() as ambient:  # reaches no value
        ambient.prec, ambient.Emax, ambient.Emin = 2, 3, -3
        found = load(t, path(*DECIMALS))
    assert [row["dec"] for row in found] == [Decimal(value) for value in DECIMALS.values()]


LARGE_DECIMALS = [
    ("123456789012345678901234567890", "38,18"), ("7", "38,38"), ("1" + "0" * 20, "38,18"),
    ("9" * 38, "38,1"), ("9" * 38, "38,38"), ("-17", "38,37"), ("9" * 20 + ".5", "20,1"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), LARGE_DECIMALS)
@pytest.mark.parametrize("road", ["csv", "json", "json text", "path"])
def test_decimals_with_more_digits_than_their_column_are_refused(table, tmp_path, road, text, kind):
    t = table(f"at:timestamp, dec:decimal({kind})")
    name, content = {
        "csv": ("a.csv", f"at,dec\n{AT},{text}\n"),
        "json": ("a.json", f'{{"at":"{AT}","dec":{text}}}\n'),
        "json text": ("a.json", f'{{"at":"{AT}","dec":"{text}"}}\n'),
        "path": (f"dec={text}/a.csv", f"at\n{AT}\n"),
    }[road]
    assert refused(t, write(tmp_path / name, content), match="dec.*does not fit")


def test_an_empty_line_of_a_csv_of_one_column_is_a_null(table, tmp_path):
    t = table("at:timestamp, id:int64")
    path = write(tmp_path / "id=1" / "a.csv", f"at\n{AT}\n\n{AT}\n")
    assert refused(t, path, match="event times are null")
    assert len(load(t, write(path, f"at\n{AT}\n{AT}\n"))) == 2


def test_csv_forms_that_are_whole(table, tmp_path):
    t = table()
    body = f'at,id,name\r\n{AT},1,"a\r\nb"\r\n\r\n{AT},2,c\r\n'
    assert [row["id"] for row in load(t, write(tmp_path / "a.csv", "\ufeff" + body))] == [1, 2]
    load(t, write(tmp_path / "b.csv", "at,id,name\n"))
    assert t.refresh().version == 1
    later = write(tmp_path / "c.csv", f"name,at\nz,{AT}\n")
    found = load(t, tmp_path / "a.csv", later)
    assert [(row["id"], row["name"]) for row in found][-3:] == [
        (1, "a\r\nb"),
        (2, "c"),
        (None, "z"),
    ]


@pytest.mark.parametrize("quoted", [False, True])
def test_csv_over_many_blocks_and_rows_too_long_for_one(table, tmp_path, quoted):
    mark = '"' if quoted else ""
    text = mark + "x" * 997 + ('"",\n' if quoted else "") + mark
    lines = "".join(f"{AT},{i},{text}\n" for i in range(6_000))
    t = table()
    found = load(t, write(tmp_path / "a.csv", "at,id,name\n" + lines))
    assert [row["id"] for row in found] == list(range(6_000))
    assert {len(row["name"]) for row in found} == {1000 if quoted else 997}
    long = write(tmp_path / "b.csv", f"at,name\n{AT},{mark}{'x' * 9_000_000}{mark}\n")
    with pytest.raises(InvalidInput, match="longer than"):
        load(t, long)
    bad = write(tmp_path / "c.csv", f'at,id,name\n{lines}{AT},1,"x"y\n')
    with pytest.raises(InvalidInput, match="there is a quote inside a field"):
        load(t, bad)
    assert t.refresh().version == 1


FEW = (("x", 3000), ("x", 2**22 - 100), ("\n", 0), ('\n""', 2**21))


@pytest.mark.sample(0, verify=2)
@pytest.mark.parametrize(
    ("fill", "before"),
    [
        pytest.param(fill, before, marks=[] if (fill, before) in FEW else pytest.mark.long)
        for fill in ("x", '""', "\n", '\n""')
        for before in (0, 3000, 2**21, 2**22 - 100)
    ],
)
def test_the_longest_row_of_a_csv_is_as_long_wherever_it_begins(table, tmp_path, fill, before):
    first = f"{AT},{'y' * before}\n" if before else ""

    def sized(size):
        start, end = f'{AT},"', '"\n'
        room = size - len(start) - len(end)
        text = fill * (room // len(fill))
        return first + start + text + "x" * (room - len(text)) + end + f"{AT},z\n"

    t = table()
    load(t, write(tmp_path / "a.csv", "at,name\n" + sized(2**22)))
    assert t.refresh().totals.rows == 2 + bool(before)
    for size in (2**22 + 1, 5 * 2**20):
        with pytest.raises(InvalidInput, match="a row is longer than 4,194,304 bytes"):
            load(t, write(tmp_path / "b.csv", "at,name\n" + sized(size)))


@pytest.mark.parametrize("breaks", ["\r\n", "\r\r\n", "\n\r", "\r"])
def test_line_ends_inside_quotes_stay_where_blocks_meet(table, tmp_path, breaks):
    for shift in range(len(breaks)):
        # Arrow reads four MiB at once.
        before = f'at,name\r\n{AT},"' + "x" * (4 * 2**20 - 300 - shift) + f'"\r\n{AT},"'
        name = breaks * 300 + "end"
        file = write(tmp_path / f"{shift}.csv", f'{before}{name}"\r\n{AT},\r\n')
        found = load(table("at:timestamp, name:string"), file)
        assert [row["name"] for row in found[1:]] == [name, None]
        shutil.rmtree(tmp_path / "t")


def test_a_nul_byte_in_csv_is_refused(table, tmp_path):
    """Arrow looks for quotes up to the first one in each eight bytes."""
    t = table()
    for name in ("a\0b", '"a\0b"'):
        assert refused(t, write(tmp_path / "a.csv", f"at,name\n{AT},{name}\n"), match="NUL")


BARE_RETURNS = [
    f"at,name\n{AT},a\rb\n",
    f"at,name\n{AT},a\n{AT},b\r\r\n",
    f"name,at\n\rz,{AT}\n",
    f"at,name\r{AT},a\r",
    f'at,name\r{AT},"a"\r',
    f'at,name\n{AT},"a\rb"\n{AT},a\r"b"\n',
    f'at,name\n{AT},"a"\r{AT},b\n',
    f'at,name\n{AT},"a"\n{AT},b\r',
]


@pytest.mark.parametrize("content", BARE_RETURNS)
@pytest.mark.parametrize("block", [1, 3, 2**20])
def test_a_bare_carriage_return_outside_of_quotes_is_refused(table, tmp_path, content, block):
    t = table()
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def feed():
        with path.open("wb", buffering=0) as pipe, contextlib.suppress(BrokenPipeError):
            for start in range(0, len(content), block):
                pipe.write(content[start : start + block].encode())

    thread = threading.Thread(target=feed)
    thread.start()
    assert refused(t, path, match="carriage return", file_format="csv")
    thread.join()


@pytest.mark.parametrize("padding", [0, 2**22 - 40, 2**22 - 39, 2**22 - 38, 2**22 - 37])
def test_carriage_returns_in_quotes_and_before_line_feeds_are_kept(table, tmp_path, padding):
    t = table()
    filler = f"{AT},{'x' * 1000}\r\n" * (padding // 1000)
    texts = ["a\rb", "\r", "\r\r\n", "\n\r", 'x"\r"y', ""]
    lines = "".join(f'{AT},"{text.replace(chr(34), 2 * chr(34))}"\r\n' for text in texts)
    path = write(tmp_path / "a.csv", f"at,name\r\n{filler}{lines * 2}")
    found = load(t, path)
    assert [row["name"] for row in found][-2 * len(texts) :] == texts * 2


# ------------------------------------------------------------------------------ Arrow IPC

IDS = pa.schema([("at", pa.timestamp("us", "UTC")), ("id", pa.int32())])


def ids(*numbers):
    return pa.table([[HOUR] * len(numbers), list(numbers)], schema=IDS)


def arrow(form, *tables):
    sink = io.BytesIO()
    with getattr(pa.ipc, f"new_{form}")(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("suffix", ["arrow", "arrows", "feather"])
def test_both_forms_of_arrow_files_are_read(table, tmp_path, form, suffix):
    path = write(tmp_path / f"a.{suffix}", arrow(form, ids(1, 2), ids(3)))
    assert [row["id"] for row in load(table(), path)] == [1, 2, 3]


@pytest.mark.hazard("W2")
@pytest.mark.parametrize("form", ["file", "stream"])
def test_an_arrow_file_that_is_cut_anywhere_is_refused(table, tmp_path, form):
    # The last rows end in the very bytes of an end-of-stream marker.
    whole = arrow(form, ids(1, 2), ids(-1, 0))
    t = table()
    for length in range(0, len(whole), 4 if form == "stream" else 16):
        assert refused(t, write(tmp_path / "a.arrow", whole[:length]), match=r"a\.arrow")
    assert refused(t, write(tmp_path / "a.arrow", whole[:-1]), match=r"a\.arrow")


def test_a_damaged_arrow_file_is_refused_where_its_values_would_be_other_bytes(table, tmp_path):
    rows = pa.table({"at": [HOUR] * 3, "name": ["aa", "bb", "cc"]})
    whole = arrow("file", rows)
    offsets = b"".join(n.to_bytes(4, "little") for n in (0, 2, 4, 6))
    assert whole.count(offsets) == 1
    for wrong in (2**30, -1):
        broken = offsets[:8] + wrong.to_bytes(4, "little", signed=True) + offsets[12:]
        path = write(tmp_path / "a.arrow", whole.replace(offsets, broken))
        assert refused(table(), path, match="cannot read")
        shutil.rmtree(tmp_path / "t")


def test_a_second_stream_behind_the_first_is_refused(table, tmp_path):
    twice = arrow("stream", ids(1)) + arrow("stream", ids(2))
    assert refused(table(), write(tmp_path / "a.arrows", twice), match="bytes follow")


# ------------------------------------------------------------------------------ Parquet


@pytest.mark.hazard("W3")
@pytest.mark.parametrize("flag", [True, False])
def test_int96_times_are_exact_or_refused(table, tmp_path, flag):
    times = [datetime(1, 1, 1), HOUR.replace(tzinfo=None), datetime(9999, 12, 31, 23, 59, 59, 1)]
    rows = pa.table(
        {
            "at": pa.array(times, pa.timestamp("us")),
            "nested": [[{"x": t}] for t in times],
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(rows, path, use_deprecated_int96_timestamps=flag, row_group_size=2)
    t = table("at:timestamp, nested:list<struct<x:timestamp_ntz>>")
    found = sorted(load(t, path), key=lambda row: row["at"])
    assert [row["at"].replace(tzinfo=None) for row in found] == times
    assert [row["nested"] for row in found] == [[{"x": t}] for t in times]
    for nanoseconds, fits in ((10**18 + 1000, True), (10**18 + 1, False), (-1, False)):
        odd = {"at": pa.array([0, nanoseconds], pa.timestamp("ns"))}
        pq.write_table(pa.table(odd), path, use_deprecated_int96_timestamps=flag)
        if fits:
            load(t, path)
        else:
            with pytest.raises(InvalidInput, match=r"microsecond|do not fit"):
                load(t, path)


@pytest.mark.verify
def test_views_that_share_their_text_are_written_out_within_bounds(tmp_path):
    """Beside a file that spells its texts in another way: a gigabyte of which 1 MiB is stored."""
    text = pa.array(["x" * 2**20]).cast(pa.string_view())
    _, views, *held = text.buffers()
    shared = pa.py_buffer(views.to_pybytes() * 300)
    many = pa.Array.from_buffers(pa.string_view(), 300, [None, shared, *held])
    times = pa.array([0] * 300, pa.timestamp("us"))
    for name, values in (("a", many), ("b", pa.array(["y"] * 300))):
        rows = pa.table({"at": times, "text": values})
        with pa.ipc.new_file(tmp_path / f"{name}.arrow", rows.schema) as file:
            file.write_table(rows)
    wanted = pa.schema([("at", pa.timestamp("us", "UTC")), ("text", pa.string())])
    rows = open_rows([str(tmp_path / "a.arrow"), str(tmp_path / "b.arrow")], wanted, "at").reader
    sizes = [(batch.num_rows, batch.nbytes) for batch in rows]
    assert sum(count for count, _ in sizes) == 600
    assert max(size for _, size in sizes) < 2**28 + 2**20


@pytest.mark.parametrize("form", ["parquet", "arrow", "arrows"])
def test_a_column_whose_name_is_no_utf_8_is_refused_by_its_file(form, table, tmp_path):
    t = table("at:timestamp, price:int64")
    rows = pa.table({"at": [HOUR], "price": [1]})
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        pq.write_table(rows, path, store_schema=False)
    else:
        make = pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream
        with make(path, rows.schema) as file:
            file.write_table(rows)
    path.write_bytes(path.read_bytes().replace(b"price", b"pr\xefce"))
    assert refused(t, path, match=rf"cannot read {path}: .*utf-8")


def test_files_whose_lists_hold_nothing_are_read_together(table, tmp_path):
    t = table("at:timestamp, x:list<int64>")
    rows = pa.table({"at": [HOUR], "x": pa.array([[None, None]], pa.list_(pa.null()))})
    for name in "ab":
        pq.write_table(rows, tmp_path / f"{name}.parquet")
    found = load(t, tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert [row["x"] for row in found] == [[None, None]] * 2


@pytest.mark.parametrize(
    ("item", "held"),
    [(pa.decimal128(5, 2), pa.decimal128(5, 2)), (pa.string_view(), pa.string())],
    ids=["decimals", "views"],
)
def test_lists_without_offsets_are_read_from_arrow_files(item, held, tmp_path):
    """Of no values at all the file has no offsets; Arrow takes one from what follows."""
    t = Table.create(
        tmp_path / "t",
        pa.schema(
            [
                ("at", pa.timestamp("us", "UTC")),
                ("v", pa.list_(pa.list_(held))),
                ("z", pa.int64()),
            ]
        ),
        time_column="at",
    )
    rows = pa.table(
        {
            "at": [HOUR, HOUR],
            "v": pa.array([[], None], pa.list_(pa.list_(item))),
            "z": [2**40, 2**41],
        }
    )
    with pa.ipc.new_stream(tmp_path / "a.arrows", rows.schema) as file:
        file.write_table(rows)
    found = load(t, tmp_path / "a.arrows")
    assert sorted(row["z"] for row in found) == [2**40, 2**41]
    assert {str(row["v"]) for row in found} == {"[]", "None"}


def test_a_parquet_file_with_an_encrypted_column_is_refused(table, tmp_path):
    """Its footer is plain; asked for what the column is like, Arrow would end the process."""

    class Kms(encryption.KmsClient):
        def wrap_key(self, key, _name):
            return base64.b64encode(key)

        def unwrap_key(self, key, _name):
            return base64.b64decode(key)

    t = table("at:timestamp, id:int64")
    path = tmp_path / "a.parquet"
    properties = encryption.CryptoFactory(lambda _: Kms()).file_encryption_properties(
        encryption.KmsConnectionConfig(),
        encryption.EncryptionConfiguration(
            footer_key="f", column_keys={"k": ["id"]}, plaintext_footer=True
        ),
    )
    rows = pa.table({"at": [HOUR], "id": [1]})
    pq.write_table(rows, path, encryption_properties=properties)
    assert refused(t, path, match=rf"cannot read {path}: .*[Dd]ecrypt")


def test_a_file_that_only_others_can_read_is_refused_with_what_to_do(tmp_path):
    """A null list of a fixed size, as DuckDB writes it."""
    path = tmp_path / "rows.parquet"
    duckdb.execute(
        "COPY (SELECT TIMESTAMP '2020-01-01' AS at, CASE WHEN i % 2 = 1 THEN array_value(i, 3) END "
        f"AS v FROM range(10) r(i)) TO '{path}' (FORMAT parquet)"
    )
    wanted = pa.schema([("at", pa.timestamp("us", "UTC")), ("v", pa.list_(pa.int64()))])
    with pytest.raises(InvalidInput, match="rewrite it with that as Arrow"):
        open_rows([str(path)], wanted, "at").reader.read_all()


@pytest.mark.parametrize(
    ("day", "nanoseconds", "fits"),
    [
        (2440588 + 106751991, 0, True),
        (2440588 + 106751992, 0, False),
        (2440588 + 213503982, 29 * 10**12, False),  # wraps around to 1970
        (-1, 0, False),
        (2440588 - 5000 * 366, 0, True),
        (2440588, 2**63 - 808, True),
    ],
)
def test_int96_times_that_wrap_around_are_refused(table, tmp_path, day, nanoseconds, fits):
    path = tmp_path / "a.parquet"
    rows = pa.table({"at": [AT], "x": pa.array([1], pa.timestamp("us"))})
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(rows, path, use_deprecated_int96_timestamps=True, **plain)
    one, other = struct.pack("<qi", 1000, 2440588), struct.pack("<qi", nanoseconds, day)
    assert path.read_bytes().count(one) == 1
    write(path, path.read_bytes().replace(one, other))
    t = table("at:timestamp, x:timestamp_ntz")
    if not fits:
        assert refused(t, path, match="outside 290,000 years")
        return
    append(t, open_rows([str(path)], t.session.head().schema, "at").reader)
    (found,) = scan(t, columns=["x"]).to_table().column("x").cast(pa.int64()).to_pylist()
    assert found == (day - 2440588) * 86_400_000_000 + nanoseconds // 1000


def test_dictionaries_inside_of_lists_are_read_across_row_groups(table, tmp_path):
    coded = pa.list_(pa.dictionary(pa.int32(), pa.string()))
    names = [[f"n{n % 3}", None, f"{n}"] if n % 5 else None for n in range(13)]
    path = tmp_path / "a.parquet"
    times = pa.array([datetime(2013, 1, 7, 5, n) for n in range(13)], pa.timestamp("us"))
    rows = pa.table({"at": times, "l": pa.array(names, coded)})
    pq.write_table(rows, path, row_group_size=4, use_deprecated_int96_timestamps=True)
    found = load(table("at:timestamp, l:list<string>"), path)
    assert [row["l"] for row in sorted(found, key=lambda row: row["at"])] == names


@pytest.mark.hazard("W3")
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_times_of_every_unit_are_exact(table, tmp_path, unit, zone):
    step = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = pa.array([0, 1357534800 * step, -(10**9) * step], pa.timestamp(unit, zone))
    pq.write_table(pa.table({"at": times}), tmp_path / "a.parquet")
    write(tmp_path / "a.arrow", arrow("file", pa.table({"at": times})))
    t = table("at:timestamp")
    load(t, tmp_path / "a.parquet")
    found = load(t, tmp_path / "a.arrow")
    expected = [datetime.fromtimestamp(s, tz=UTC) for s in (-(10**9), 0, 1357534800)]
    assert sorted(row["at"] for row in found) == sorted(expected * 2)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1], pa.uint64()), "int64"),
        (pa.array([1], pa.time32("s")), "int64"),
        (pa.array([1], pa.time64("us")), "int64"),
        (pa.array([1], pa.duration("us")), "int64"),
        (pa.array([10**39], pa.decimal256(40, 0)), "decimal(38,0)"),
        (pa.array([2**53 + 1], pa.int64()), "float64"),
        (pa.array([1.5], pa.float64()), "float32"),
        (pa.array([b"x"], pa.binary(1)), "string"),
        (pa.array(["1"]), "int64"),
    ],
)
def test_types_that_would_lose_are_refused(table, tmp_path, values, kind):
    pq.write_table(pa.table({"at": [HOUR], "x": values}), tmp_path / "a.parquet")
    assert refused(table(f"at:timestamp, x:{kind}"), tmp_path / "a.parquet", match="'x' has type")


def test_dictionaries_half_floats_and_wide_decimals_are_read(table, tmp_path):
    rows = pa.table(
        {
            "at": [HOUR] * 3,
            "name": pa.array(["a", None, "a"]).dictionary_encode(),
            "f": pa.array([1.5, None, float("nan")], pa.float32()).cast(pa.float16()),
            "dec": pa.array([Decimal("1.5"), None, Decimal(-2)], pa.decimal256(20, 1)),
        }
    )
    write(tmp_path / "a.arrow", arrow("file", rows))
    pq.write_table(rows, tmp_path / "a.parquet")
    t = table("at:timestamp, name:string, f:float64, dec:decimal(30,2)")
    for path in (tmp_path / "a.arrow", tmp_path / "a.parquet"):
        found = load(t, path)[-3:]
        assert [row["name"] for row in found] == ["a", None, "a"]
        assert [str(row["f"]) for row in found] == ["1.5", "None", "nan"]
        assert [row["dec"] for row in found] == [Decimal("1.5"), None, Decimal(-2)]


def test_parquet_that_is_cut_damaged_or_empty_is_refused(table, tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(ids(*range(1000)), path, row_group_size=100, write_page_checksum=True)
    whole = path.read_bytes()
    t = table()
    for length in (0, 4, 100, len(whole) // 2, len(whole) - 1):
        assert refused(t, write(path, whole[:length]), match="cannot read")
    assert refused(t, write(path, whole + b"more"), match="cannot read")
    damaged = bytearray(whole)
    damaged[len(whole) // 3] ^= 1
    assert refused(t, write(path, damaged), match="cannot read")
    assert len(load(t, write(path, whole))) == 1000


@pytest.mark.parametrize(
    ("writer", "old"),
    [
        ({"org.apache.spark.legacyDateTime": ""}, True),
        ({"org.apache.spark.version": "2.4.8"}, True),
        ({"org.apache.spark.sql.parquet.row.metadata": "{}"}, True),
        ({"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""}, True),
        ({"writer.date.proleptic": "false"}, True),
        ({"writer.date.proleptic": "true"}, False),
        ({"org.apache.spark.version": "3.5.0"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_days_of_another_calendar_are_refused(table, tmp_path, writer, old):
    t = table("at:timestamp, d:date")
    for day in (date(1900, 1, 1), date(1500, 1, 1)):
        rows = pa.table({"at": [HOUR] * 2, "d": [date(2013, 1, 1), day]})
        with pq.ParquetWriter(tmp_path / "a.parquet", rows.schema, store_schema=False) as file:
            file.write_table(rows)
            file.add_key_value_metadata(writer)
        if old and day.year == 1500:
            with pytest.raises(InvalidInput, match="calendar"):
                load(t, tmp_path / "a.parquet")
        else:
            assert load(t, tmp_path / "a.parquet")[-1]["d"] == day


@pytest.mark.parametrize(("version", "old"), [("3.0.3", True), ("3.1.0", False)])
def test_int96_times_of_another_calendar_are_refused(table, tmp_path, version, old):
    t = table("at:timestamp, b:timestamp")
    rows = pa.table({"at": [HOUR], "b": [datetime(1500, 1, 1, tzinfo=UTC)]})
    with pq.ParquetWriter(
        tmp_path / "a.parquet", rows.schema, use_deprecated_int96_timestamps=True
    ) as file:
        file.write_table(rows)
        file.add_key_value_metadata({"org.apache.spark.version": version})
    if old:
        assert refused(t, tmp_path / "a.parquet", match="calendar")
    else:
        assert load(t, tmp_path / "a.parquet")[0]["b"] == rows["b"][0].as_py()


def test_json_in_hive_paths_takes_their_values_where_it_says_none(table, tmp_path):
    t = table("at:timestamp, name:string, id:int64, day:date")
    folder = tmp_path / "in" / "name=Oslo" / "id=7" / "day=2013-01-07"
    lines = ["", ',"name":null', ',"name":"Oslo","id":7', ',"day":"2013-01-07"']
    write(folder / "a.json", "".join(f'{{"at":"{AT}"{line}}}\n' for line in lines))
    for row in load(t, tmp_path / "in"):
        assert (row["name"], row["id"], row["day"]) == ("Oslo", 7, date(2013, 1, 7))
    write(folder / "b.json", f'{{"at":"{AT}","id":8}}\n')
    with pytest.raises(InvalidInput, match="'id' in the file has another value"):
        load(t, tmp_path / "in")


def test_json_that_duckdb_partitioned_is_read(table, tmp_path):
    t = table("at:timestamp, name:string, id:int64")
    query = f"SELECT '{AT}' AS at, 'n' || (i % 3) AS name, i AS id FROM range(30) r(i)"
    duckdb.sql(f"COPY ({query}) TO '{tmp_path}/in' (FORMAT json, PARTITION_BY (name))")
    rows = load(t, tmp_path / "in")
    assert sorted((row["id"], row["name"]) for row in rows) == [(i, f"n{i % 3}") for i in range(30)]


def test_texts_of_event_times_may_be_of_several_arrow_types(table, tmp_path):
    t = table("at:timestamp")
    text = pa.array([AT])
    kinds = [
        text,
        text.cast(pa.large_string()),
        text.cast(pa.string_view()),
        text.dictionary_encode(),
    ]
    for number, column in enumerate([*kinds, pa.array([], pa.null())]):
        pq.write_table(pa.table({"at": column}), tmp_path / f"{number}.parquet")
    assert [row["at"] for row in load(t, *sorted(tmp_path.glob("*.parquet")))] == [HOUR] * 4
    pq.write_table(pa.table({"at": [HOUR]}), tmp_path / "times.parquet")
    with pytest.raises(InvalidInput, match="text in some of the files and times in others"):
        load(t, tmp_path / "1.parquet", tmp_path / "times.parquet")


def test_not_a_number_in_a_path_agrees_with_itself(table, tmp_path):
    t = table("at:timestamp, f:float64")
    write(tmp_path / "in" / "f=NaN" / "a.json", f'{{"at":"{AT}"}}\n{{"at":"{AT}","f":"NaN"}}\n')
    assert all(math.isnan(row["f"]) for row in load(t, tmp_path / "in"))


@pytest.mark.parametrize("later", [f"at,name,id\n{AT},b,1\n", f"at,other\n{AT},b\n"])
def test_a_file_that_changes_between_two_looks_is_refused(table, tmp_path, later):
    t = table()
    files = [write(tmp_path / f"{n}.csv", f"at,name\n{AT},{n}\n") for n in "ab"]
    head = t.session.head()
    reader = open_rows([str(f) for f in files], head.schema, head.layout.time_column).reader
    write(files[1], later)
    with pytest.raises(InvalidInput, match=r"changed since|unknown columns: 'other'"):
        append(t, reader)
    assert t.refresh().version == 0


def test_an_arrow_file_that_changes_after_its_rows_were_checked_changes_no_row(table, tmp_path):
    t = table("at:timestamp, name:string")
    rows = pa.table({"at": [HOUR] * 2000, "name": [f"v{n:06}" for n in range(2000)]})
    path = tmp_path / "a.arrow"
    with pa.ipc.new_file(path, rows.schema) as file:
        file.write_table(rows, max_chunksize=1000)
    head = t.session.head()
    reader = open_rows([str(path)], head.schema, head.layout.time_column).reader

    def meanwhile():
        yield reader.read_next_batch()
        place = path.read_bytes().index(b"v000007")
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"\xff")
        yield from reader

    append(t, pa.RecordBatchReader.from_batches(reader.schema, meanwhile()))
    assert sorted(scan(t).to_table()["name"].to_pylist()) == rows["name"].to_pylist()


def test_files_of_different_columns_and_types_are_united_by_the_types_of_the_table(table, tmp_path):
    t = table()
    parts = [
        {"id": pa.array([1], pa.int8())},
        {"id": pa.array([2**40]), "f": pa.array([0.5], pa.float32())},
        {"name": pa.array(["x"]).dictionary_encode(), "f": pa.array([3], pa.int16())},
        {"name": pa.array(["y"], pa.large_string())},
    ]
    for number, part in enumerate(parts):
        pq.write_table(pa.table({"at": [HOUR], **part}), tmp_path / f"{number}.parquet")
    rows = open_rows(
        [str(tmp_path / f"{n}.parquet") for n in range(4)], t.session.head().schema, "at", None
    )
    assert rows.total == 4
    append(t, rows.reader)
    found = [(r["id"], r["name"], r["f"]) for r in scan(t).to_table().to_pylist()]
    assert found == [(1, None, None), (2**40, None, 0.5), (None, "x", 3.0), (None, "y", None)]


def test_one_file_of_many_that_does_not_fit_is_named(table, tmp_path):
    t = table()
    pq.write_table(pa.table({"at": [HOUR], "f": [0.5]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"at": [HOUR], "f": [2**53 + 1]}), tmp_path / "b.parquet")
    assert refused(
        t, tmp_path / "a.parquet", tmp_path / "b.parquet", match=r"b\.parquet: column 'f'"
    )
    pq.write_table(pa.table({"at": [HOUR], "TITLE": ["x"]}), tmp_path / "b.parquet")
    assert refused(
        t, tmp_path / "a.parquet", tmp_path / "b.parquet", match=r"b\.parquet: unknown.*'TITLE'"
    )


# ------------------------------------------------------------------------------ folders


def csv_of(*numbers):
    return "at,id\n" + "".join(f"{AT},{n}\n" for n in numbers)


@pytest.mark.hazard("W2")
def test_columns_in_paths_are_read_with_the_types_of_the_table(table, tmp_path):
    t = table("at:timestamp, id:int64, name:string, d:date, x:decimal(5,2), f:float64")
    root = tmp_path / "in"
    write(root / "name=a%2Fb%25 c+d/d=2013-01-07/x=1.5/1.csv", csv_of(1))
    write(root / "name=é%3D/d=9999-12-31/x=-0.25/2.csv", csv_of(2))
    null = "__HIVE_DEFAULT_PARTITION__"
    write(root / f"name=/d={null}/x={null}/more/3.csv", csv_of(3, 4))
    write(root / f"name=%5F{null[1:]}/d={null}/x=0/5.csv", csv_of(5))  # as DuckDB writes the text
    found = load(t, root)
    values = {row["id"]: (row["name"], row["d"], row["x"], row["f"]) for row in found}
    assert values == {
        1: ("a/b% c+d", date(2013, 1, 7), Decimal("1.50"), None),
        2: ("é=", date(9999, 12, 31), Decimal("-0.25"), None),
        3: ("", None, None, None),
        4: ("", None, None, None),
        5: (null, None, Decimal(0), None),
    }


def test_a_path_counts_also_where_a_part_of_it_is_given(table, tmp_path, monkeypatch):
    t = table()
    path = write(tmp_path / "in" / "run=5" / "name=Oslo" / "part" / "1.csv", csv_of(1))
    for given in (path, path.parent, path.parent.parent):
        assert load(t, given)[-1]["name"] == "Oslo"
    monkeypatch.chdir(path.parent)
    assert load(t, "1.csv")[-1]["name"] == "Oslo"
    refused_now = pytest.raises(InvalidInput, match="'run'")
    with refused_now:
        load(t, tmp_path / "in")


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("in/Name=Oslo/1.csv", csv_of(1), "names a column 'Name'"),
        ("in/id=one/1.csv", f"at\n{AT}\n", "id=one"),
        ("in/id=/1.csv", f"at\n{AT}\n", "id="),
        ("in/id=2/1.csv", csv_of(2, 1), "in the file has another value"),
        ("in/id=2/1.csv", csv_of(2, ""), "in the file has another value"),
        ("in/id=2/id=3/1.csv", f"at\n{AT}\n", "twice"),
        ("in/name=%FF/1.csv", csv_of(1), "UTF-8"),
        ("in/at=2013-01-08/1.csv", csv_of(1), "in the file has another value"),
        ("in/at=noon/1.csv", "id\n1\n", "at=noon"),
    ],
)
def test_paths_that_do_not_fit_are_refused(table, tmp_path, path, content, said):
    write(tmp_path / path, content)
    assert refused(table(), tmp_path / "in", match=said)


def test_a_path_that_agrees_with_its_file_is_read(table, tmp_path):
    t = table()
    write(tmp_path / "in" / "id=2" / "1.csv", csv_of(2, 2))
    write(tmp_path / "in" / "id=__HIVE_DEFAULT_PARTITION__" / "1.csv", csv_of("", ""))
    assert sorted(str(row["id"]) for row in load(t, tmp_path / "in")) == ["2", "2", "None", "None"]


def test_paths_of_one_folder_that_say_different_columns_are_refused(table, tmp_path):
    write(tmp_path / "in" / "name=Oslo" / "1.csv", csv_of(1))
    write(tmp_path / "in" / "2.csv", csv_of(2))
    assert refused(table(), tmp_path / "in", match="do not name the same columns")


def test_markers_that_hold_no_rows_are_left_out(table, tmp_path):
    root = tmp_path / "in"
    for number in (1, 2):
        write(root / f"{number}.csv", csv_of(number))
        write(root / f".{number}.csv.crc", b"x")
    for name in ("_SUCCESS", "._SUCCESS.crc", ".DS_Store", "_metadata", "_common_metadata"):
        write(root / name, b"")
    write(root / "0.csv", b"")  # as Spark leaves one for a task without rows
    assert [row["id"] for row in load(table(), root)] == [1, 2]


@pytest.mark.hazard("W2")
@pytest.mark.parametrize(
    "name",
    [
        "_temporary/0/task/3.csv", "sub/_temporary/x", ".hoodie/x",
        "_log/1.json", "_spark_metadata/0", "_started_1", ".3.csv.Xa1", ".hidden/3.csv", "_3.csv",
        "3.parquet", "3.json", "3.tmp", "3.csv.crdownload", "README", "3.csv",
    ],
)  # fmt: skip
def test_a_folder_that_may_be_unfinished_or_mixed_is_refused(table, tmp_path, name):
    write(tmp_path / "in" / "1.csv", csv_of(1))
    write(tmp_path / "in" / name, b"")
    t = table()
    assert refused(
        t, tmp_path / "in", match="in/" + ("sub/" if "sub" in name else Path(name).parts[0])
    )


@pytest.mark.parametrize("given", ["t", "t/data", "t/data/day=1", "t/data/day=1/1.parquet", "."])
@pytest.mark.parametrize(
    ("marker", "way"),
    [
        ("_delta_log/0.json", r"append\(t, DeltaTable\('.*/t'\)\)"),
        ("metadata/0-f0.metadata.json", r"append\(t, table.scan\(\).to_arrow_batch_reader\(\)\)"),
    ],
    ids=["Delta", "Iceberg"],
)
def test_files_of_delta_and_iceberg_are_refused_with_the_way_that_reads_their_rows(
    table, tmp_path, given, marker, way
):
    source = tmp_path / "in"
    pq.write_table(pa.table({"id": [1]}), write(source / "t/data/day=1/1.parquet", b""))
    write(source / "t" / ".tmp/1.parquet", b"")
    write(source / "t" / marker, b"{}")
    assert refused(table(), source / given, match=f"/t is an? .*{way}")


def test_a_folder_that_is_called_metadata_may_have_data_files(table, tmp_path):
    write(tmp_path / "in" / "metadata" / "1.csv", csv_of(1))
    assert [row["id"] for row in load(table(), tmp_path / "in")] == [1]


def test_what_lies_in_a_folder_twice_or_behind_links(table, tmp_path):
    t = table()
    path = write(tmp_path / "elsewhere" / "1.csv", csv_of(1))
    root = tmp_path / "in"
    write(root / "2.csv", csv_of(2))
    (root / "linked").symlink_to(path.parent)
    assert sorted(row["id"] for row in load(t, root)) == [1, 2]
    hard = tmp_path / "hard" / "3.csv"
    hard.parent.mkdir()
    hard.hardlink_to(path)
    for given in ((root, path), (path, path), (path, hard), (hard.parent, root)):
        with pytest.raises(InvalidInput, match="given twice"):
            load(t, *given)
    (root / "loop").symlink_to(root)
    with pytest.raises(InvalidInput, match="link into itself"):
        load(t, root)
    (root / "loop").unlink()
    (root / "gone.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(InvalidInput, match=r"gone\.csv"):
        load(t, root)


def test_a_folder_without_rows(table, tmp_path):
    t = table()
    (tmp_path / "in").mkdir()
    assert refused(t, tmp_path / "in", match="no data files")
    write(tmp_path / "in" / "1.json", b"")
    assert refused(t, tmp_path / "in", match="empty")
    write(tmp_path / "in" / "_SUCCESS", b"")
    assert load(t, tmp_path / "in") == []


def zstd(content):
    return pa.Codec("zstd").compress(content, asbytes=True)


@pytest.mark.parametrize(
    ("ending", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress), ("zst", zstd)]
)
def test_an_empty_part_may_be_compressed(table, tmp_path, ending, compress):
    """Spark writes one for a first partition without rows."""
    t = table("at:timestamp, id:int64")
    rows = {"csv": f"at,id\n{AT},1\n", "json": f'{{"at":"{AT}","id":1}}\n'}
    for number, (kind, content) in enumerate(rows.items(), start=1):
        folder = tmp_path / kind
        empty = write(folder / f"part-0.{kind}.{ending}", compress(b""))
        assert len(compress(b"")) > 0
        write(folder / f"part-1.{kind}.{ending}", compress(content.encode()))
        if kind == "csv":
            assert refused(t, folder, match=r"part-0.*[Ee]mpty")
        write(folder / "_SUCCESS", b"")
        assert len(load(t, folder)) == number
        cut = compress(content.encode())[:-6]
        assert write(empty, cut)
        with pytest.raises(InvalidInput, match="part-0"):
            load(t, folder)


# ------------------------------------------------------------------------------ joined files


def several_forms(numbers):
    """The same rows in the forms of files that end in a footer."""
    rows = ids(*numbers)
    polars = pl.from_arrow(rows)

    def parquet(**options):
        sink = io.BytesIO()
        pq.write_table(rows, sink, **options)
        return sink.getvalue()

    def by_polars(write_rows):
        sink = io.BytesIO()
        write_rows(sink)
        return sink.getvalue()

    return {
        "plain.parquet": parquet(),
        "index.parquet": parquet(write_page_index=True, row_group_size=7),
        "polars.parquet": by_polars(lambda sink: polars.write_parquet(sink, row_group_size=7)),
        "plain.arrow": arrow("file", rows),
        "polars.arrow": by_polars(polars.write_ipc),
    }


FOOTERS = sorted(several_forms([1]))


@pytest.mark.parametrize("form", FOOTERS)
@pytest.mark.parametrize("sizes", [(4, 4), (100, 1), (1, 100), (0, 4), (4, 0), (3, 200, 5)])
def test_files_joined_to_one_are_refused(table, tmp_path, form, sizes):
    t = table()
    parts = [several_forms(range(n))[form] for n in sizes]
    assert refused(t, write(tmp_path / form, b"".join(parts)), match="joined")
    for number, part in enumerate(parts):
        write(tmp_path / "in" / f"{number}-{form}", part)
    assert len(load(t, tmp_path / "in")) == sum(sizes)


def test_a_file_of_rows_that_hold_files_is_read(table, tmp_path):
    t = table("at:timestamp, b:binary")
    for form in FOOTERS:
        held = pa.table({"at": [HOUR] * 2, "b": [several_forms(range(50))[form]] * 2})
        held = held.cast(pa.schema([IDS.field("at"), pa.field("b", pa.binary())]))
        path = tmp_path / f"holds-{form}.parquet"
        pq.write_table(held, path, compression="none", write_page_index=True)
        load(t, path, write(tmp_path / f"{form}.parquet", path.read_bytes()))
    assert scan(t).count() == 4 * len(FOOTERS)


# ------------------------------------------------------------------------------ odd names


NAMES = ["é", "a b", "\udcff", "%", "日本"]


@pytest.mark.parametrize("kind", ["csv", "json", "csv.gz", "parquet", "arrow"])
def test_files_of_any_name_are_read(table, tmp_path, kind):
    content = {
        "csv": csv_of(1).encode(),
        "json": json_lines({"id": 1}).encode(),
        "csv.gz": gzip.compress(csv_of(1).encode()),
        "parquet": several_forms([1])["plain.parquet"],
        "arrow": several_forms([1])["plain.arrow"],
    }[kind]
    paths = [write(tmp_path / name / f"{name}.{kind}", content) for name in NAMES]
    t = table()
    assert [row["id"] for row in load(t, *paths)] == [1] * len(NAMES)
    assert len(load(t, paths[2])) == len(NAMES) + 1


# ------------------------------------------------------------------------------ by the program


def run(*arguments, **options):
    return CliRunner().invoke(build(), [str(a) for a in arguments], **options)


UNIT = ("--app-id", "job", "--app-seq", "1")


@pytest.mark.verify
@pytest.mark.hazard("W2")
def test_half_a_stream_is_refused_and_the_job_may_come_again(table, tmp_path):
    t = table()
    whole = arrow("stream", ids(*range(5000)), ids(*range(5000)))
    half = arrow("stream", ids(*range(5000)))[:-8]
    call = ("append", tmp_path / "t", "-", *UNIT)
    process = subprocess.run(
        [sys.executable, "-m", "eventlog.cli", *call],
        input=half,
        capture_output=True,
        timeout=240,
    )
    assert (process.returncode, b"may have failed half-way" in process.stderr) == (2, True)
    for content in (half, whole[:-8], whole[:-100], whole + whole, b""):
        answer = run(*call, input=content)
        assert (answer.exit_code, "standard input" in answer.stderr) == (2, True), answer
        assert t.refresh().version == 0
    answer = run(*call, "--rows", 10_000, input=whole)
    assert answer.exit_code == 0, answer.stderr
    assert scan(t, version=t.refresh().version).count() == 10_000


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_text_on_standard_input_is_whole_or_refused(table, tmp_path, kind):
    t = table()
    text = (csv_of(1, 2) if kind == "csv" else json_lines({"id": 1}, {"id": 2})).encode()
    call = ("append", tmp_path / "t", "-", "--format", kind)
    for content in (text[:-1] if kind == "csv" else text[:-3], text[:-3]):
        assert run(*call, input=content).exit_code == 2
    assert t.refresh().version == 0
    assert run(*call, input=text).exit_code == 0
    assert scan(t, version=t.refresh().version).count() == 2


def test_a_named_pipe_is_read_once_and_whole(table, tmp_path):
    t = table()
    os.mkfifo(tmp_path / "pipe")
    feed = threading.Thread(target=lambda: (tmp_path / "pipe").write_text(csv_of(1, 2)))
    feed.start()
    found = load(t, tmp_path / "pipe", file_format="csv")
    feed.join()
    assert [row["id"] for row in found] == [1, 2]
    with pytest.raises(InvalidInput, match="pipe"):
        load(t, tmp_path / "pipe")


@pytest.mark.parametrize("kind", ["csv", "json", "parquet", "arrow"])
@pytest.mark.parametrize("several", [False, True])
def test_a_number_of_rows_can_be_demanded(table, tmp_path, kind, several):
    t = table()
    folder = tmp_path / "in"
    folder.mkdir()
    for part in ("a", "b")[: 1 + several]:
        path = folder / f"{part}.{kind}"
        if kind == "parquet":
            pq.write_table(ids(1, 2), path)
        else:
            write(path, {"csv": csv_of(1, 2), "json": json_lines({}, {})}.get(kind) or
                  arrow("stream", ids(1, 2)))  # fmt: skip
    rows = 4 if several else 2
    for wrong in (0, rows - 1, rows + 1):
        answer = run("append", tmp_path / "t", folder, "--rows", wrong, *UNIT)
        assert (answer.exit_code, f"{wrong} were expected" in answer.stderr) == (2, True)
        assert t.refresh().version == 0
    for _ in range(2):
        assert run("append", tmp_path / "t", folder, "--rows", rows, *UNIT).exit_code == 0
    assert t.refresh().version == 1
    assert scan(t).count() == rows


def test_the_program_refuses_with_a_usage_error_and_commits_nothing(table, tmp_path):
    t = table()
    bad = write(tmp_path / "a.json", json_lines({"id": 1}, {"other": 2}))
    assert run("append", tmp_path / "t", bad, *UNIT).exit_code == 2
    assert t.refresh().version == 0
    write(bad, json_lines({"id": 1}, {"id": 2}))
    assert run("append", tmp_path / "t", bad, *UNIT).exit_code == 0
    assert scan(t, version=t.refresh().version).count() == 2
    answer = run("append", tmp_path / "t", bad, "--null", "NA")
    assert (answer.exit_code, "for CSV only" in answer.stderr) == (2, True)


def test_rows_that_are_none_are_told_from_rows_that_are_there(table, tmp_path):
    t = table()
    answer = run("append", tmp_path / "t", write(tmp_path / "a.csv", "at,id\n"))
    assert (answer.exit_code, answer.output) == (
        0,
        "nothing was committed: the input has no rows\n",
    )
    rows = write(tmp_path / "b.csv", csv_of(1))
    assert run("append", tmp_path / "t", rows, *UNIT).exit_code == 0
    again = run("append", tmp_path / "t", rows, *UNIT)
    assert again.exit_code == 0
    assert "has been at sequence 1 since version 1" in again.output
    assert t.refresh().version == 1


@pytest.mark.verify
def test_standard_input_that_is_closed_is_refused(table, tmp_path):
    t = table()
    code = "import sys; sys.stdin = None; from eventlog.cli import main; main()"
    call = [sys.executable, "-c", code, "append", str(tmp_path / "t"), "-"]
    process = subprocess.run(call, capture_output=True, timeout=240)
    assert (process.returncode, b"standard input is closed" in process.stderr) == (2, True)
    assert t.refresh().version == 0


@pytest.mark.parametrize("given", ["frame", "table", "stream", "parquet", "arrow"])
def test_an_index_that_pandas_keeps_out_of_the_rows_is_not_lost(table, tmp_path, given):
    """pandas hands over a range as metadata only; the column of its name would be null."""
    t = table()
    frame = pd.DataFrame({"at": [HOUR, HOUR]}, index=pd.RangeIndex(5, 7, name="id"))
    rows = pa.Table.from_pandas(frame)
    assert rows.column_names == ["at"]
    frame.to_parquet(tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as sink:
        sink.write_table(rows)
    ways = {
        "frame": lambda: append(t, frame),
        "table": lambda: append(t, rows),
        "stream": lambda: append(t, rows.to_reader()),
        "parquet": lambda: load(t, tmp_path / "a.parquet"),
        "arrow": lambda: load(t, tmp_path / "a.arrow"),
    }
    with pytest.raises(InvalidInput, match=r"'id' is the index .*frame.reset_index\(\)"):
        ways[given]()
    assert t.refresh().version == 0
    both = frame.assign(id=[1, 2])
    with pytest.raises(InvalidInput, match=r"'id' is a column .* and also its index, .*: drop"):
        append(t, both)
    append(t, frame.reset_index())
    assert scan(t).to_table().column("id").to_pylist() == [5, 6]


def test_the_index_of_a_frame_is_named(table):
    frame = pd.DataFrame({"at": [HOUR, HOUR], "id": [1, 2]}).iloc[1:]
    frame = pa.Table.from_pandas(frame, preserve_index=True)
    with pytest.raises(InvalidInput, match=r"__index_level_0__.*reset_index\(drop=True\)"):
        append(table(), frame)


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_the_index_in_a_file_is_named_with_the_way_to_write_none(form, tmp_path, table):
    frame = pd.DataFrame({"at": [HOUR, HOUR], "id": [1, 2]})
    frame = frame[frame.id > 1]
    path = tmp_path / f"rows.{form}"
    getattr(frame, f"to_{form}")(path)
    with pytest.raises(InvalidInput, match=rf"to_{form}\(path, index=False\)"):
        load(table(), path)
