"""Python runs this as it starts: Spark's daemons load once the libraries that their workers need.

A daemon forks its workers, which would otherwise take a second each to load the same. What is
tested is not among them, so that it has to import what it uses.
"""

import sys

if "pyspark.daemon" in sys.orig_argv:
    import boto3  # noqa: F401
    import msgspec  # noqa: F401
    import pandas  # noqa: ICN001, F401
    import pyarrow.parquet  # noqa: F401
    import sqlglot  # noqa: F401
    import tenacity  # noqa: F401
