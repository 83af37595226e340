"""Asks one engine everything, in a process and an environment of its own.

    python tests/engines/ask.py WAY PLAN FOLDER

WAY is the number of a row of the matrix. PLAN is the pickled list of places with their questions.
In FOLDER each answer gets a file, and `answers.jsonl` a line: what was answered, or the error.
"""

import importlib.metadata
import json
import pickle
import resource
import sys
import warnings
from pathlib import Path

import pyarrow as pa
from readings import WAYS


def main():
    """Ask; the files say the rest."""
    number, plan, folder = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    way = WAYS[number]
    with (folder / "answers.jsonl").open("w", encoding="utf-8") as told:
        for place, questions in pickle.loads(plan.read_bytes()):
            for question in questions:
                file = folder / f"{place.version}.{questions.index(question)}.arrow"
                line = _asked(
                    way, place, question, file.with_stem(f"{Path(place.path).name}.{file.stem}")
                )
                told.write(json.dumps(line) + "\n")
                told.flush()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        version = importlib.metadata.version(way.package)
        told.write(json.dumps({"version": version, "peak_kb": peak}) + "\n")


def _asked(way, place, question, file):
    try:
        answer = way.ask(place, question)
    except Exception as error:  # noqa: BLE001 - each engine has its own
        return {"error": type(error).__name__, "text": str(error)}
    except BaseException as error:  # a panic of Rust's, which is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return {"error": type(error).__name__, "text": str(error)}
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, answer.schema) as writer:
        writer.write_table(answer)
    return {"file": file.name}


if __name__ == "__main__":
    main()
