"""A client of Spark Connect: run by test_connect.py in a process of its own.

    python connect_job.py <sc://…> <JSON of places> [light]

A place is a table's root and storage options. Prints what it found as JSON. `light`: as from
`pyspark-client`, which has neither py4j nor PySpark's classic half.
"""

import json
import sys
from contextlib import contextmanager

ABSENT = ("py4j", "pyspark.core")


class Absent:
    """Finds none of what `pyspark-client` lacks."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith(ABSENT):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@contextmanager
def client():
    """A session at the first argument's server, and the second argument's value.

    Prints as JSON what the block puts into the third, a dict, and what was loaded that a light
    client lacks.
    """
    url, given, *light = sys.argv[1:]
    if light:
        sys.meta_path.insert(0, Absent())
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after Absent

    spark, said = SparkSession.builder.remote(url).getOrCreate(), {}
    yield spark, json.loads(given), said
    spark.stop()
    said["loaded"] = sorted(name for name in sys.modules if name.startswith(ABSENT))
    sys.stdout.write(json.dumps(said) + "\n")


def save_and_read(spark, uri, storage):
    """Write by both ways, read by both and by both engines, now and then: the ids by the way."""
    from eventlog.readers.spark import choose_engine, read  # noqa: PLC0415 - after Absent
    from eventlog.writers.spark import append  # noqa: PLC0415

    times = "timestamp_seconds(1357516800 + id * 8640) as ts"
    rows = spark.range(0, 60, 1, 2).selectExpr("id", times, "concat('name-', id) as `a.name`")
    once = {"app_id": "job", "app_seq": 1, "storage_options": storage}
    first = [append(uri, rows.where("id < 40"), time_column="ts", **once) for _ in range(2)]
    options = {f"storage.{name}": value for name, value in storage.items()}
    rest = rows.where("id >= 40")
    rest.write.format("eventlog").mode("append").options(**options).save(uri)
    loaded = spark.read.format("eventlog").options(**options)
    found = {"source": ids(loaded.load(uri))}
    found["source, version 1"] = ids(loaded.option("version", "1").load(uri))
    for engine in ("arrow", "jvm", "auto") if uri.startswith("file") else ("arrow", "auto"):
        ask = {"engine": engine, "storage_options": storage}
        found[engine] = ids(read(spark, uri, **ask))
        found[f"{engine}, version 1"] = ids(read(spark, uri, version=1, **ask))
        few = read(spark, uri, ["id", "a.name"], "id < 15", **ask)
        found[f"{engine}, few"] = ids(few)
    choice = choose_engine(spark, uri, storage_options=storage)
    return {"first": first, "ids": found, "choice": choice.engine}


def upsert_and_read(spark, uri, storage):
    """Upsert and delete by both ways, and read by both: names by the way, and by id."""
    from eventlog.readers.spark import read  # noqa: PLC0415 - after Absent
    from eventlog.writers.spark import delete, upsert  # noqa: PLC0415

    times = "timestamp_seconds(1357516800 + id) as ts"

    def rows(first, end, name):
        return spark.range(first, end, 1, 2).selectExpr("id", times, f"'{name}' as name")

    keyed = {"time_column": "ts", "key": "id", "buckets": 4}
    upsert(uri, rows(0, 20, "old"), **keyed, storage_options=storage)
    options = {f"storage.{name}": value for name, value in storage.items()}
    feed = rows(10, 30, "new").selectExpr("*", "if(id < 12, 'd', 'u') as _op")
    feed.write.format("eventlog").mode("append").options(**options).save(uri)
    delete(uri, spark.range(28, 30), storage_options=storage)
    frames = {
        "source": spark.read.format("eventlog").options(**options).load(uri),
        "function": read(spark, uri, storage_options=storage),
        "version 2": read(spark, uri, version=2, storage_options=storage),
    }
    return {way: sorted((r.id, r.name) for r in frame.collect()) for way, frame in frames.items()}


def call_functions(spark, uri, storage):
    """What the functions of SQL return of a table, and the changes as a frame."""
    from eventlog.readers.spark import activate, read_changes  # noqa: PLC0415 - after Absent

    activate(spark)
    given = ", ".join(f"'{name}', '{value}'" for name, value in storage.items())
    place = f"'{uri}', storage => map({given})"
    calls = {"history": place, "segments": place, "changes": f"{place}, start => 1"}
    counts = {
        name: spark.sql(f"SELECT * FROM eventlog_{name}({call})").count()
        for name, call in calls.items()
    }
    frame = read_changes(spark, uri, 1, storage_options=storage)
    return counts | {"frame": frame.count()}


def ids(frame):
    return sorted(row.id for row in frame.collect())


def main():
    with client() as (spark, places, said):
        said["places"] = {
            uri: save_and_read(spark, uri, storage) for uri, storage in places.items()
        }
        said["calls"] = {
            uri: call_functions(spark, uri, storage) for uri, storage in places.items()
        }
        said["keyed"] = {
            uri: upsert_and_read(spark, f"{uri}-keyed", storage) for uri, storage in places.items()
        }


if __name__ == "__main__":
    main()
