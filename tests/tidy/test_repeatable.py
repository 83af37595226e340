"""A default run is deterministic: hypothesis, randomness and timing."""

import os
import subprocess
import sys

import pytest
from tidy.chance import ALLOWED, findings
from tidy.definitions import TESTS, functions

DRAWS = """
import sys
from support import repeatable
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
    """The values that hypothesis draws in a process that has imported some modules of a folder."""
    environment = {n: v for n, v in os.environ.items() if n != "EVENTLOG_EXAMPLES"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
    command = [sys.executable, "-c", DRAWS, *imported]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.verify
def test_what_hypothesis_draws_does_not_depend_on_what_is_imported(tmp_path):
    constants = [*range(10**6, 10**6 + 300), *(f"constant {n}" for n in range(300))]
    (tmp_path / "many_constants.py").write_text(f"CONSTANTS = {constants!r}\n")
    alone = drawn(tmp_path)
    assert len(alone) == 200
    assert drawn(tmp_path, "many_constants") == alone


FILES = sorted(
    str(path.relative_to(TESTS))
    for path in TESTS.rglob("*.py")
    if path.name.startswith("test_") or path.name == "conftest.py" or path.parent == TESTS
)
# Not part of a default run.
LONG = ("bench/", "integration/test_lambda_localstack.py")
HELPERS = {
    "support/racers.py": "its deadline is for a hang",
    "support/workloads.py": "a long run's length",
}


@pytest.mark.parametrize("file", [f for f in FILES if not f.startswith(LONG) and f not in HELPERS])
def test_nothing_depends_on_chance_or_speed(file):
    assert findings(file, (TESTS / file).read_text(encoding="utf-8")) == []


def test_what_is_allowed_is_there():
    for allowed in ALLOWED:
        file, name = allowed.split("::")
        assert name in functions(file), allowed


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def test(): x = random.random()", "random.random draws"),
        ("def test(): x = random.Random()", "random.Random draws"),
        ("SEED = random.SystemRandom().randrange(9)", "random.SystemRandom draws"),
        ("class Test:\n  def test(self): np.random.default_rng()", "default_rng draws"),
        ("NAME = uuid.uuid4().hex", "uuid.uuid4 draws"),
        ("def test():\n  began = time.monotonic()", ":2 (test): time.monotonic measures"),
        ("def test(): time.sleep(0.1)", "time.sleep may be too short"),
        ("def test(): subprocess.run(x, timeout=60)", "run waits 60 s only"),
        ("def test(): thread.join(10)", "join waits 10 s only"),
        ("def test(): Barrier(4, timeout=20)", "Barrier waits 20 s only"),
        ("@settings(deadline=None)\ndef test(): ...", "deadline is the profile's"),
    ],
)
def test_what_depends_on_chance_or_speed_is_found(source, said):
    (found,) = findings("unit/test_x.py", source)
    assert said in found


@pytest.mark.parametrize(
    "source",
    [
        "draw = random.Random(5).random()",
        "rng = np.random.default_rng(5)",
        "def test(random): random.shuffle(order)",
        "def test(): never.wait(0.01)\n",
        "def test(): process.wait(240); ', '.join(names)",
        "@settings(max_examples=5)\ndef test(): ...",
    ],
)
def test_what_is_the_same_every_time_is_not_reported(source):
    assert findings("unit/test_x.py", source) == []
