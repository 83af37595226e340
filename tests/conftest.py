"""Fixtures for every kind of test: an S3 server in this process, fresh places for tables, Spark.

A default run is deterministic: `repeatable` says how hypothesis is held to that. `distribution`
says which worker runs what, `tiers` which of the three runs has it.
"""

import functools
import gc
import itertools
import os
import sys
from pathlib import Path

import botocore.session
import pytest
from botocore.loaders import create_loader
from support import distribution, repeatable, tiers

from eventlog.inline import inline_objects
from eventlog.store.testing.local_server import LocalServer

repeatable.load_profile()

_THRESHOLD = gc.get_threshold()
_numbers = itertools.count(1)
PRELOADED = str(Path(__file__).parent / "spark" / "preloaded")
_SPARK = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.extraJavaOptions": distribution.SHORT_JVM,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # What fails shows as an exception; Spark's own log repeats it with every task.
    "spark.log.level": "OFF",
    "spark.sql.pyspark.jvmStacktrace.enabled": "false",
    # Of the server that tests/spark/test_connect.py starts in this JVM.
    "spark.connect.grpc.binding.port": "0",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    gc.disable()  # it would look at thousands of tests again and again, none of which is garbage
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    tiers.assign(items)
    distribution.put_in_order(items)


def pytest_collection_finish():
    # What is loaded by now stays: the collector need not look at it again and again.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_unconfigure():
    gc.set_threshold(*_THRESHOLD)
    gc.unfreeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    # One more than there are cores, because tests of servers and processes wait.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (cores or 1) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return distribution.scheduler(config, log)


@pytest.fixture(scope="session", autouse=True)
def service_models():
    """Parse botocore's descriptions of services once, not for each client that a test makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(botocore.session, "create_loader", functools.cache(create_loader))
        yield


@pytest.fixture(autouse=True)
def nothing_remembered():
    """No test reads bytes of segments that another one left in the cache of the process."""
    inline_objects.forget_objects()


@pytest.fixture(scope="session")
def s3():
    """A locked S3 server; the environment of the whole session leads boto3 and pyarrow to it."""
    with LocalServer() as server, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3"):
            patch.delenv(name, raising=False)
        for name, value in server.environment().items():
            patch.setenv(name, value)
        yield server


@pytest.fixture
def bucket(s3):
    """The name of a fresh bucket."""
    name = f"bucket-{next(_numbers)}"
    s3.create_bucket(name)
    return name


@pytest.fixture(params=["s3", "local"])
def root_uri(request, tmp_path):
    """The root URI of a table to be: once on S3, once in a directory."""
    if request.param == "local":
        return (tmp_path / "table").as_uri()
    return f"s3://{request.getfixturevalue('bucket')}/table"


@pytest.fixture(scope="session")
def spark(s3, tmp_path_factory):
    """A local[2,2] session: two cores, and a task that fails once is tried again."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - most tests need none

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", os.pathsep.join((PRELOADED, *filter(None, sys.path))))
        builder = SparkSession.builder.master("local[2,2]")
        for name, value in _SPARK.items():
            builder = builder.config(name, value)
        warehouse = str(tmp_path_factory.mktemp("warehouse"))
        session = builder.config("spark.sql.warehouse.dir", warehouse).getOrCreate()
        yield session
        session.stop()
