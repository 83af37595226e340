"""Python runs this as it starts: Spark's daemons load once what each of their workers needs.

A daemon forks its workers, which would otherwise take a second each to load the same modules. The
jobs of test_driver_killed.py and test_other_python.py do without, so that a module which does not
import what it uses still shows.

Spark gives its Python processes PySpark in a zip file, whose modules Python compiles each time, and
whose directory it reads again for each task. Here they have the installed PySpark, which is the
same.
"""

import gc
import sys

if any(word.startswith("pyspark.") for word in sys.orig_argv):
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(".zip")]

if "pyspark.daemon" in sys.orig_argv:
    import functools

    import boto3
    import botocore.session
    import pyarrow.parquet  # noqa: F401
    from botocore.loaders import create_loader

    if not sys.orig_argv[-1].startswith("pyspark.sql.worker."):  # those of data sources need none
        import pandas  # noqa: ICN001, F401

    import eventlog.readers.spark.workers
    import eventlog.writers.spark

    if eventlog.readers.spark.workers.has_data_sources():
        import eventlog.writers.spark.source

    # A client that is made reads the description of S3, which the next ones find then.
    botocore.session.create_loader = functools.cache(create_loader)
    boto3.client("s3", "us-east-1", aws_access_key_id="none", aws_secret_access_key="none")

    # A worker collects garbage after each task: not among these.
    gc.collect()
    gc.freeze()
