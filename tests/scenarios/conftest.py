"""Where a scenario runs: every one against an S3 server and against a directory."""

import subprocess
import sys

import pytest

from eventlog.store.options import parse_options
from eventlog.store.s3.clients import clients_for


@pytest.fixture(params=["s3", "directory"])
def place(request, tmp_path):
    """The root URI of a table to be."""
    if request.param == "directory":
        return (tmp_path / "table").as_uri()
    return f"s3://{request.getfixturevalue('bucket')}/table"


@pytest.fixture(scope="session")
def second_server(s3):
    """Another S3 server, in a process of its own; the options that lead to it."""
    command = [sys.executable, "-m", "eventlog.store.testing.local_server", "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        endpoint = run.stdout.readline().split()[-1]
        yield {"endpoint_url": endpoint}
        run.terminate()
        run.communicate(timeout=300)


@pytest.fixture(
    params=["across", *(pytest.param(n, marks=pytest.mark.long) for n in ("bucket", "directory"))]
)
def far(request, place, tmp_path):
    """The root of a copy, and its options: in another bucket, or in a directory.

    `across`: on another server if the source is on one, else in a bucket.
    """
    if request.param == "directory":
        return (tmp_path / "copy").as_uri(), {}
    name = request.getfixturevalue("bucket") + "-far"
    if request.param == "bucket" or not place.startswith("s3"):
        request.getfixturevalue("s3").create_bucket(name)
        return f"s3://{name}/copy", {}
    options = request.getfixturevalue("second_server")
    clients_for(parse_options(options)).write.create_bucket(Bucket=name)
    return f"s3://{name}/copy", options
