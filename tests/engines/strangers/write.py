"""Does all writes of a program, in a process and an environment of its own.

    python tests/engines/strangers/write.py PROGRAM TARGETS FOLDER

TARGETS is the pickled target of each write, by its name. In FOLDER `answers.jsonl` gets the version
of the program, and a line for each write: its error, if it had one. The process ends with an error
where a write could not be tried: what it needs was not there, or the test has a mistake.
"""

import importlib.metadata
import json
import pickle
import sys
import warnings
from pathlib import Path

from foreign_writes import PROGRAMS, NotPrepared
from outcomes import NOT_REFUSALS


def main():
    """Write; the file says the rest."""
    program, targets, folder = PROGRAMS[int(sys.argv[1])], Path(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    with (folder / "answers.jsonl").open("w", encoding="utf-8") as told:
        told.write(json.dumps({"version": importlib.metadata.version(program.package)}) + "\n")
        for name, target in pickle.loads(targets.read_bytes()).items():
            line = {}
            try:
                program.writes[name](target)
            except NotPrepared:
                raise
            except Exception as error:
                if type(error).__name__ in NOT_REFUSALS:
                    raise
                line = {"error": type(error).__name__, "text": str(error)}
            told.write(json.dumps(line) + "\n")
            told.flush()


if __name__ == "__main__":
    main()
