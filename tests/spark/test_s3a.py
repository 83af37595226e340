"""Engine `jvm` on S3, with the real hadoop-aws from Maven: the rows of engine `arrow`.

The download is 300 to 700 MB, once; it is kept in the folder that EVENTLOG_IVY names, or in Ivy's
own. Run by `make test-s3a`.
"""

import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from spark import programs
from support import predicates

from eventlog import Table
from eventlog.writers import append

pytestmark = [pytest.mark.maven, pytest.mark.timeout(1200)]

JOB = Path(__file__).with_name("s3a_job.py")
CACHE = os.environ.get("EVENTLOG_IVY", str(Path.home() / ".ivy2"))
TIMEOUT_S = 1000
ABSENT = re.compile(
    r"unresolved dependency|UnresolvedException|not found.*hadoop-aws|Server access"
)


def hadoop_version():
    """The version of Spark's own Hadoop."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def test_the_jvm_reads_from_s3_what_arrow_reads(s3, bucket):
    uri = f"s3://{bucket}/table"
    table = Table.create(uri, predicates.SCHEMA, time_column="ts")
    rows = predicates.rows(random.Random(7), 60)
    for first in (0, 30):
        append(table, predicates.to_arrow(rows[first : first + 30]))
    ours = programs.environment(preloaded=False)
    environment = {name: value for name, value in ours.items() if not name.startswith("AWS_")}
    command = [sys.executable, JOB, uri, json.dumps(s3.storage_options()), hadoop_version(), CACHE]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
    )
    if done.returncode and ABSENT.search(done.stderr):
        pytest.skip(
            f"########  NOT TESTED: hadoop-aws {hadoop_version()} is not in {CACHE}, and Maven "
            "cannot be reached  ########"
        )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["rows"]["jvm"] == said["rows"]["arrow"]
    assert said["rows"]["arrow"] == repr(predicates.bits(predicates.to_arrow(rows)))
    assert said["choice"] == "jvm"
    asked = [ids for ids in said["ids"].values() if "jvm" in ids]
    assert len(asked) >= 3
    for ids in asked:
        assert ids["jvm"] == ids["arrow"]
        assert 0 < len(ids["arrow"]) < 60
