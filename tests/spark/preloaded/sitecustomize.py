"""Python runs this as it starts: Spark's daemons load once what each of their workers needs.

A daemon forks its workers, which would otherwise take a second each to load the same modules. The
jobs of test_driver_killed.py and test_other_python.py do without, so that a module which does not
import what it uses still shows.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import boto3  # noqa: F401
    import pyarrow.parquet  # noqa: F401

    if not sys.orig_argv[-1].startswith("pyspark.sql.worker."):  # those of data sources need none
        import pandas  # noqa: ICN001, F401

    import eventlog.readers.spark.workers
    import eventlog.writers.spark

    if eventlog.readers.spark.workers.has_data_sources():
        import eventlog.writers.spark.source
