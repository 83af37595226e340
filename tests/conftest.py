"""Fixtures for every kind of test: an S3 server in this process, and fresh places for tables."""

import itertools

import pytest

from eventlog.local_server import LocalServer

_numbers = itertools.count(1)


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
