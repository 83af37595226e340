"""A default run is the same every time: what is drawn, what is read, and from where."""

import os
import subprocess
import sys

DRAWS = """
import sys
import repeatable
repeatable.load_profile()
for name in sys.argv[1:]:
    __import__(name)
from hypothesis import given, settings, strategies as st
@settings(max_examples=200)
@given(st.text(), st.integers(), st.floats())
def draw(text, number, float_):
    print(ascii((text, number, float_)))
draw()
"""


def drawn(folder, *imported):
    """What hypothesis draws in a process that has imported some modules of a folder."""
    environment = {n: v for n, v in os.environ.items() if n != "EVENTLOG_EXAMPLES"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
    command = [sys.executable, "-c", DRAWS, *imported]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_what_hypothesis_draws_does_not_depend_on_what_is_imported(tmp_path):
    constants = [*range(10**6, 10**6 + 300), *(f"constant {n}" for n in range(300))]
    (tmp_path / "many_constants.py").write_text(f"CONSTANTS = {constants!r}\n")
    alone = drawn(tmp_path)
    assert len(alone) == 200
    assert drawn(tmp_path, "many_constants") == alone
