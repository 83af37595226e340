"""The notebooks of examples/ in a kernel: `make test-notebooks`.

    python tests/docs/run_notebooks.py            # ends with 1 unless each shows what it stores
    python tests/docs/run_notebooks.py --write    # store what they show

The kernel is this interpreter's, and finds the program `eventlog` on the path.
"""

import argparse
import sys
import tempfile
import time

import nbformat
from nbclient import NotebookClient
from support.notebooks import FOLDER, code_cells, shown_by, source_of, varies
from traitlets.config import Config


def storable(outputs):
    """Return the outputs of a cell without what differs between runs, and without pictures."""
    kept = []
    for output in outputs:
        if output["output_type"] == "execute_result":
            kinds = {kind: output["data"][kind] for kind in output["data"] if "image" not in kind}
            output |= {"data": kinds, "execution_count": None}
        elif output["output_type"] == "stream":
            output["text"] = output["text"].replace("\r\n", "\n")
            if kept and kept[-1].get("name") == output["name"]:  # parts, as they came
                kept[-1]["text"] += output["text"]
                continue
        kept.append(output)
    return kept


def differences(path, write):
    """Run a notebook; return the cells that show something else than they store, as texts."""
    notebook = nbformat.read(path, as_version=4)
    stored = {cell["id"]: shown_by(cell["outputs"]) for cell in code_cells(notebook)}
    with tempfile.TemporaryDirectory() as place:  # of sockets: the kernel opens no port
        config = Config({"ConnectionFileMixin": {"transport": "ipc", "ip": f"{place}/kernel"}})
        NotebookClient(notebook, config=config, timeout=120).execute()
    wrong = []
    for cell in code_cells(notebook):
        shown = shown_by(cell["outputs"])
        if not varies(cell) and shown != stored[cell["id"]]:
            wrong.append(f"{path.name}: {source_of(cell)}\nshows\n{shown}")
        cell["execution_count"] = None
        cell["metadata"].pop("execution", None)
        cell["outputs"] = [] if varies(cell) else storable(cell["outputs"])
    if write:
        notebook["metadata"]["language_info"] = {"name": "python"}
        nbformat.write(notebook, path)
    return [] if write else wrong


def main():
    """Run all notebooks; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="store what they show")
    given = parser.parse_args()
    wrong = []
    for path in sorted(FOLDER.glob("*.ipynb")):
        started = time.monotonic()
        found = differences(path, given.write)
        print(f"{path.name}: {'wrong' if found else 'right'}, {time.monotonic() - started:.1f} s")
        wrong += found
    print("\n\n".join(wrong), file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
