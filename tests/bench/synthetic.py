"""Tables of many made-up files over 365 days, committed through each library's own names.

No data files are written: what is measured is metadata. Statistics cover eight columns and differ
in every file, as real ones do.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import copy
import hashlib
import json
import struct
import time
from datetime import UTC, date, datetime, timedelta

import peers
import pyarrow as pa

from eventlog import Table
from eventlog.model.actions import Add
from eventlog.model.entries import ColumnStats

DAYS = 365
FIRST_DAY = date(2024, 1, 1)
COLUMNS = pa.schema(
    [
        (peers.TIME, pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
        ("user", pa.int64()),
        ("country", pa.string()),
        ("kind", pa.string()),
        ("amount", pa.float64()),
        ("score", pa.float64()),
        ("count", pa.int32()),
    ]
)
COMMIT_FILES = 5_000
SINGLES = 10  # small commits after the bulk of a table
_FIRST_SECOND = int(datetime.combine(FIRST_DAY, datetime.min.time(), UTC).timestamp())
_COUNTRIES = ("AT", "BE", "CH", "DE", "DK", "ES", "FR", "GB", "IT", "NL", "NO", "PL", "SE", "US")


def name_of(day):
    """Return the chunk of a day, which is counted from the first one."""
    return (FIRST_DAY + timedelta(days=day)).isoformat()


def day_of(number, total):
    """Return the day (0 … 364) of a file: they arrive in the order of time."""
    return number * DAYS // total


def files_of_day(day, total):
    """Return how many of `total` files are of this day."""
    return sum(1 for number in range(total) if day_of(number, total) == day)


def bounds(number, day):
    """Return (low, high) of the eight columns of a file, different in every file."""
    # Multiplication by an odd constant mod 2^32 scatters: as random as statistics need to be.
    noise = number * 2_654_435_761 % 2**32
    start = _FIRST_SECOND + day * 86_400
    first = (start + noise % 80_000) * 1_000_000 + noise % 999_983
    user = noise % 10**9
    share = noise / 2**32
    low, high = sorted((_COUNTRIES[noise % 14], _COUNTRIES[noise // 14 % 14]))
    return (
        (first, first + noise % (5 * 10**9)),
        (number * 1000, number * 1000 + 999),
        (user, user + noise % 999_999_937),
        (low, high),
        ("click", f"view {noise % 100}"),
        (share, 1000 * share + 1),
        (-share, share),
        (0, noise % 10**6),
    )


def add_of(number, day, epoch, schema):
    """Return an eventlog add action of a made-up segment."""
    digest = hashlib.sha256(number.to_bytes(8, "big")).hexdigest()
    stats = tuple(
        ColumnStats(i, _encoded(low), _encoded(high), 0)
        for i, (low, high) in enumerate(bounds(number, day), start=1)
    )
    chunk = name_of(day)
    size = 90_000 + number % 20_000
    return Add(digest[:32], chunk, epoch, 1000, size, digest, schema, stats)


def build_eventlog(root, files, deadline, store=None):
    """Build a table of `files` segments; return it, the seconds it took and the segments made."""
    started = time.monotonic()
    table = Table.create(root, COLUMNS, time_column=peers.TIME, store=store)
    done = 0
    while done < files and time.monotonic() < deadline:
        upto = min(files, done + COMMIT_FILES)
        head = table.session.head()
        adds = [
            add_of(n, day_of(n, files), head.version, head.stored_schema.id)
            for n in range(done, upto)
        ]
        table.session.log.staged.vouch(adds)
        table.commit(table.transaction("append", adds))
        done = upto
    return table, time.monotonic() - started, done


def append_one(table, number, day):
    """Commit one made-up segment."""
    head = table.session.head()
    add = add_of(number, day, head.version, head.stored_schema.id)
    table.session.log.staged.vouch([add])
    table.commit(table.transaction("append", [add]))


def append_singles(table, files, count=SINGLES):
    """Append single segments to the last day, as a job that runs all day does."""
    for number in range(files + 1_000, files + 1_000 + count):
        append_one(table, number, DAYS - 1)


def build_deltalake(root, files, deadline):
    """Build a table partitioned by day; return as `build_eventlog` does."""
    from deltalake import DeltaTable

    started = time.monotonic()
    schema = pa.schema([*COLUMNS, ("day", pa.string())])
    table = DeltaTable.create(root, schema, partition_by=["day"])
    done = 0
    while done < files and time.monotonic() < deadline:
        upto = min(files, done + COMMIT_FILES)
        actions = [delta_add(n, day_of(n, files)) for n in range(done, upto)]
        table.create_write_transaction(actions, "append", schema, partition_by=["day"])
        done = upto
    # A handle does not see what it committed: one opened anew checkpoints the newest version.
    table = DeltaTable(root)
    table.create_checkpoint()
    return table, time.monotonic() - started, done


def build_pylance(root, files, deadline):
    """Build a dataset of fragments that share the shape of one real one."""
    import lance
    from lance.fragment import FragmentMetadata, write_fragments

    started = time.monotonic()
    table = lance.write_dataset(COLUMNS.empty_table(), root)
    columns = [pa.array([None] * 10, field.type) for field in COLUMNS]
    (model,) = write_fragments(pa.table(columns, schema=COLUMNS), root)
    model = model.to_json()
    done = 0
    while done < files and time.monotonic() < deadline:
        upto = min(files, done + COMMIT_FILES)
        fragments = []
        for number in range(done, upto):
            fragment = copy.deepcopy(model)
            name = hashlib.sha256(number.to_bytes(8, "big")).hexdigest()[:50]
            fragment["files"][0]["path"] = f"{name}.lance"
            fragments.append(FragmentMetadata.from_json(json.dumps(fragment)))
        operation = lance.LanceOperation.Append(fragments)
        table = lance.LanceDataset.commit(table, operation, read_version=table.version)
        done = upto
    return table, time.monotonic() - started, done


def build_pyiceberg(root, files, deadline):
    """Build a table by real appends of one row a day, at most a thousand files."""
    started = time.monotonic()
    system = peers.Iceberg(root)
    schema = pa.schema([*COLUMNS, ("day", pa.string())])
    system.create(schema, partition="day")
    done = 0
    while done < min(files, 730) and time.monotonic() < deadline:
        days = [(FIRST_DAY + timedelta(days=d)).isoformat() for d in range(DAYS)]
        columns = [pa.array([None] * DAYS, field.type) for field in COLUMNS]
        system.append(pa.table([*columns, pa.array(days)], schema=schema))
        done += DAYS
    return system, time.monotonic() - started, done


BUILDERS = {
    "eventlog": build_eventlog,
    "deltalake": build_deltalake,
    "pylance": build_pylance,
    "pyiceberg": build_pyiceberg,
}


def delta_add(number, day):
    from deltalake.transaction import AddAction

    found = dict(zip(COLUMNS.names, bounds(number, day), strict=True))
    low, high = ({k: _json(k, v[i]) for k, v in found.items()} for i in (0, 1))
    stats = {
        "numRecords": 1000,
        "minValues": low,
        "maxValues": high,
        "nullCount": dict.fromkeys(found, 0),
    }
    day_text = (FIRST_DAY + timedelta(days=day)).isoformat()
    digest = hashlib.sha256(number.to_bytes(8, "big")).hexdigest()[:32]
    return AddAction(
        path=f"day={day_text}/{digest}.parquet",
        size=90_000 + number % 20_000,
        partition_values={"day": day_text},
        modification_time=1_717_200_000_000,
        data_change=True,
        stats=json.dumps(stats),
    )


def _json(name, value):
    if name != peers.TIME:
        return value
    return datetime.fromtimestamp(value / 10**6, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _encoded(value):
    if not isinstance(value, float):
        return value
    (bits,) = struct.unpack(">q", struct.pack(">d", value))
    return bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF
