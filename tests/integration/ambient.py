"""A program for `test_ambient`: round trips of every kind, and what they left and answered.

Run in a process of its own, once as usual and once in an unusual one: another decimal context,
locale, zone, umask, hash seed and environment. Prints the same JSON in both.
"""

import contextlib
import datetime as dt
import decimal
import hashlib
import io
import json
import locale
import os
import sys
import threading
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from eventlog import Table
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.compaction import run
from eventlog.readers import scan
from eventlog.writers import append, overwrite

ROOT = Path(sys.argv[1])
SCHEMA = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(20, 4)),
        ("tiny", pa.decimal128(38, 38)),
        ("name", pa.string()),
        ("number", pa.float64()),
        ("day", pa.date32()),
        ("local", pa.timestamp("us")),
        ("tags", pa.list_(pa.decimal128(30, 10))),
    ]
)
PREDICATES = [
    "price = 1234567.8912",
    "price < 1234567.8913 AND price > 1234567.8911",
    "price IN (1234567.8912, -9999999999999999.9999)",
    "price = 9999999999999999.9999",
    "tiny = 0.00000000000000000000000000000000000001",
    "tiny > 0.12345678901234567890123456789012345677",
    "number = 1.5",
    "number >= 1e300",
    "name LIKE '\u0131%' OR lower(name) = 'istanbul'",
    "day = DATE '2013-01-02'",
    "at >= '2013-01-02' AND at < '2013-01-03'",
    "local = TIMESTAMP '2013-03-31 02:30:00'",
]


def unusual() -> None:
    """Set what a program may have set before it calls this one."""
    traps = [decimal.Inexact, decimal.Rounded, decimal.FloatOperation, decimal.Subnormal]
    context = decimal.Context(prec=6, Emin=-3, Emax=9, traps=traps)
    decimal.setcontext(context)
    decimal.DefaultContext.prec, decimal.DefaultContext.traps = 6, dict(context.traps)
    threading.Thread(target=lambda: None).start()
    for name in ("de_DE.UTF-8", "tr_TR.UTF-8", "C"):
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)
            break
    os.umask(0o077)


def rows(day: int) -> pa.Table:
    """Four rows of one day."""
    at = [dt.datetime(2013, 1, day, hour, 30, tzinfo=dt.UTC) for hour in (0, 5, 12, 23)]
    prices = ["1234567.8912", f"{day}.0001", "-9999999999999999.9999", "9999999999999999.9999"]
    tiny = ["0." + "0" * 37 + "1", "0.12345678901234567890123456789012345678", None, "-0.5"]
    columns = [
        at,
        [Decimal(price) for price in prices],
        [None if value is None else Decimal(value) for value in tiny],
        ["İstanbul", "\u0131stanbul", "istanbul", "ΑΣ " + "é" * 40],
        [1.5, -0.0, 1e300, 5e-324],
        [dt.date(2013, 1, day)] * 4,
        [dt.datetime(2013, 3, 31, 2, 30)] * 3 + [dt.datetime(1883, 11, 18, 12, 3, 58)],
        [[Decimal("12345678901234567890.0123456789"), None], [], None, [Decimal("0E-10")]],
    ]
    arrays = [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def answers(table: Table) -> dict[str, object]:
    """What the table says: all rows, and counts and rows of filters of either kind."""
    found: dict[str, object] = {"all": shown(scan(table).to_table())}
    for where in PREDICATES:
        found[where] = shown(scan(table, where=where).to_table())
    for value in ("1234567.8912", "9999999999999999.9999"):
        exact = pa.scalar(value).cast(pa.decimal128(20, 4))
        found[f"arrow {value}"] = shown(scan(table, where=pc.field("price") == exact).to_table())
    return found


def shown(found: pa.Table) -> list[str]:
    """Every value as Arrow prints it, without a `Decimal` in between."""
    columns = [[str(value) for value in column] for column in found.columns]
    return sorted(ascii(row) for row in zip(*columns, strict=True))


def invoked(*arguments: str) -> str:
    """What the program prints."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="\n")
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        build().main(list(arguments))
    out.flush()
    return out.buffer.getvalue().decode()


def main() -> None:
    """Write, read, compact, and print what came of it."""
    ROOT.mkdir()
    uri = (ROOT / "table").as_uri()
    parts = [rows(day) for day in (1, 2, 3)]
    if len(sys.argv) > 2:
        unusual()
    clock = ManualClock(1_600_000_000_000, seed=1)
    table = Table.create(uri, SCHEMA, time_column="at", order_by="price", clock=clock)
    for part in [*parts, *parts]:
        append(table, part)
    overwrite(table, parts[0].slice(1), start="2013-01-01", end=dt.date(2013, 1, 2))
    text = pa.table({"at": ["2013-01-04T01:00:00", "2013-01-04T14:00:00+09:00"]})
    append(table, text)
    found = {"before": answers(table)}
    run(table)
    found["after"] = answers(table)
    for words in (["--format", "csv", "--columns", "at,price,name"], ["--format", "json"]):
        found[words[1]] = invoked("scan", uri, *words)
    found["show"] = invoked("show", uri, "--json").replace(ROOT.name, "")
    log = sorted((ROOT / "table").rglob("*"))
    found["objects"] = {
        str(path.relative_to(ROOT)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in log
        if path.is_file()
    }
    sys.stdout.buffer.write(json.dumps(found, sort_keys=True).encode())


if __name__ == "__main__":
    main()
