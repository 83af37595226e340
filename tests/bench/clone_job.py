"""One Spark session that clones a Delta table: `clone_job.py PLAN`, a line of JSON for each step.

Delta Lake has no branches outside Databricks, and no deep clones: a shallow clone is what comes
nearest. It reads the files of its source, which a vacuum there deletes.
"""

import json
import sys
from pathlib import Path

from upsert_job import measure, session, tell
from upsert_systems import BUCKET, Delta


def main():
    plan = json.loads(sys.argv[1])
    folder = Path(plan["folder"])
    system = Delta(folder)
    spark = session(system, folder)
    root, clone = system.root("source"), f"s3a://{BUCKET}/delta/clone"

    def append(to):
        spark.range(0, 100, numPartitions=1).write.format("delta").mode("append").save(to)

    def cloned(name):
        spark.sql(f"CREATE TABLE delta.`{name}` SHALLOW CLONE delta.`{root}`")

    try:
        for _ in range(plan["appends"]):
            append(root)
        cloned(clone + "-warm")
        append(clone + "-warm")
        tell("start", version=spark.version)
        measure("clone", lambda: cloned(clone))
        for _ in range(3):
            measure("append", lambda: append(clone))
        rows = spark.read.format("delta").load(clone).count()
        assert rows == 100 * (plan["appends"] + 3), rows
        tell("end")
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
