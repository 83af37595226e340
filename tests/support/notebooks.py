"""The notebooks of examples/: their cells, what they show, and a light way to run them.

A cell tagged `varies` shows times, sizes or ids: nothing of it is stored or compared.
"""

import ast
import contextlib
import io
import json
import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from eventlog.cli.program import build

FOLDER = Path(__file__).parents[2] / "examples"
VARIES = "varies"
_SHELL = re.compile(r"^!eventlog (.+)$")


def code_cells(notebook):
    """The cells of a parsed notebook that have code."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def source_of(cell):
    """The text of a cell."""
    return "".join(cell["source"])


def varies(cell):
    """Whether what the cell shows differs from run to run."""
    return VARIES in cell["metadata"].get("tags", ())


def shown_by(outputs):
    """The text that outputs of a cell show: what was printed, then the value, as plain text.

    A program that the kernel starts prints to a terminal, where lines end in two characters.
    """
    printed = "".join("".join(o["text"]) for o in outputs if o.get("name") == "stdout")
    values = [o["data"]["text/plain"] for o in outputs if o["output_type"] == "execute_result"]
    return printed.replace("\r\n", "\n") + "".join("".join(value) for value in values)


def load(name):
    """The notebook of this name, parsed."""
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def run_cell(source, namespace):
    """Run a cell without IPython, and return the text that it shows; `!eventlog` runs here."""
    command = _SHELL.match(source)
    if command:
        result = CliRunner().invoke(build(), shlex.split(command[1]))
        assert result.exit_code == 0, result.output
        return result.output
    body = ast.parse(source).body
    value = body.pop() if isinstance(body[-1], ast.Expr) and not source.endswith(";") else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), namespace)
        shown = value and eval(compile(ast.Expression(value.value), "<cell>", "eval"), namespace)
    return printed.getvalue() + ("" if shown is None else repr(shown))
