"""Arrays as other programs hand them over, of every layout that Arrow's validation accepts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("layouts.py")


@pytest.mark.verify
@pytest.mark.hazard("W3")
def test_w3_no_layout_of_an_array_ends_the_process_that_appends_it():
    """Arrow's Java library, which Spark 3.5 has, omits the offsets of an empty map."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, (last, done.stderr[-3000:])
    assert int(last[0]) > 200
