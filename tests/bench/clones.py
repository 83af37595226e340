"""Shallow clones of Delta Lake, beside branches: `make bench-clones`. Jars from Maven.

The requests of workload `branches` of `make bench`, where Spark writes: the same number of appends,
then a clone, and appends to it.
"""

import json
import sys
import tempfile

from harness import Server
from spark_cost import interpreter
from upserts import COMMON, LIMIT_S, steps_of

APPENDS = 200


def main():
    with tempfile.TemporaryDirectory(prefix="bench-clones-") as folder, Server() as server:
        plan = {"appends": APPENDS, "folder": folder}
        told = steps_of("clone_job.py", interpreter(COMMON), plan, server, LIMIT_S)
    for step in told:
        if step["step"] in ("clone", "append"):
            kinds = {k: step[k] for k in ("get", "put", "list", "head", "delete", "post")}
            print(
                f"{step['step']}: {step['total']} requests {json.dumps(kinds)}, "
                f"{step['bytes_written']:,} bytes written, {step['cpu_s']:.2f} s CPU"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
