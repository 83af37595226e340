"""Runs a program in a process and an environment of its own, and reads what it answered."""

import json
import os
import pickle
import subprocess
from dataclasses import dataclass
from pathlib import Path

ENGINES = Path(__file__).parent
ROOT = ENGINES.parents[1]
WAY_SECONDS = 600  # a process, unless the environment says otherwise


@dataclass
class Answers:
    """What a process answered: the lines, and how it ended if it ended badly."""

    lines: list
    ended: str


def answers_of(script, number, asked, folder, *, home, **environment):
    """Run a program and return its answers.

    Args:
        script: the program. It is given `number`, the file of the pickled `asked`, and `folder`,
            where it writes its answers to `answers.jsonl`.
        number: of a row of a table.
        asked: what it is asked.
        folder: its own one.
        home: the directory of its environment, below the root if it is not absolute.
        environment: further variables.
    """
    plan = folder / "asked"
    plan.write_bytes(pickle.dumps(asked))
    seconds = float(os.environ.get("WAY_SECONDS", WAY_SECONDS))
    known = {k: v for k, v in os.environ.items() if k not in {"SPARK_HOME", "PYSPARK_PYTHON"}}
    paths = dict.fromkeys((ROOT, ROOT / "tests", ENGINES, script.parent))
    known |= {"PYTHONPATH": os.pathsep.join(map(str, paths)), "TZ": "UTC", "TMPDIR": str(folder)}
    command = [ROOT / home / "bin" / "python", "-P", script, str(number), plan, folder]
    with (folder / "said").open("wb") as said:
        try:
            code = subprocess.run(
                command,
                cwd=folder,
                env=known | environment,
                timeout=seconds,
                stdout=said,
                stderr=said,
            ).returncode
            ended = f"its process ended with {code}" if code else ""
        except subprocess.TimeoutExpired:
            ended = f"it was not done after {seconds:g} s"
    if ended:
        ended += ": " + (folder / "said").read_text(errors="replace")[-600:]
    told = folder / "answers.jsonl"
    lines = told.read_text(encoding="utf-8").splitlines() if told.exists() else []
    return Answers([json.loads(line) for line in lines], ended)
