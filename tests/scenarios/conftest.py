"""Where a scenario runs: every one against an S3 server and against a directory."""

import pytest


@pytest.fixture(params=["s3", "directory"])
def place(request, tmp_path):
    """The root URI of a table to be."""
    if request.param == "directory":
        return (tmp_path / "table").as_uri()
    return f"s3://{request.getfixturevalue('bucket')}/table"
