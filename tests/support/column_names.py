"""Column names that some layer may misread as something other than a name."""

import datetime as dt

import pyarrow as pa

PLAIN = [
    ".x", ".", "..", "a.b", ".a.b", "a[0]", "$.a", "it's", 'q"q', '"', "b`b", "`", "a,b", "a=b",
    "a/b", "a\\b", "a%20b", "%", " lead", "trail ", "two  spaces", "\u00e9", "e\u0301",
    "\U0001f600", "\u4e2d\u6587", "select", "null", "true", "NaN", "rowid", "count(*)", "*", "?",
    "{c}", "(c)", "[c]", "<c>", "@c", "#c", "$c", "&c", "a:b", ";", "--", "/*c*/", "-1", "1", "1e5",
    "0x1",
    "__index_level_0__", "_metadata", "_c0", "_op", "key", "value", "element", "list",
    "n" * 255,
]  # fmt: skip
# The names of columns that Arrow's dataset scanner adds.
SCANNER = ["__filename", "__fragment_index", "__batch_index", "__last_in_fragment"]
NAMES = [*PLAIN, *SCANNER]


def schema_of(names: list[str]) -> pa.Schema:
    """A time, `x`, a struct `a` with a field `b` that other names may resolve to, and the names."""
    first = [("at", pa.timestamp("us", tz="UTC")), ("x", pa.int64()),
             ("a", pa.struct([("b", pa.int64())]))]  # fmt: skip
    return pa.schema([*first, *[(name, pa.int64()) for name in names]])


SCHEMA = schema_of(NAMES)


def rows(day: int, names: list[str] = NAMES) -> pa.Table:
    """Three rows of one day; each named column has numbers that no other column has."""
    at = [dt.datetime(2013, 1, day, hour, tzinfo=dt.UTC) for hour in (1, 2, 3)]
    numbers = [
        [1000 * place + 10 * day + row for row in range(3)] for place in range(1, len(names) + 1)
    ]
    x = [10 * day + row for row in range(3)]
    return pa.table([at, x, [{"b": -1}] * 3, *numbers], schema=schema_of(names))


def quoted(name: str) -> str:
    """The name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'
