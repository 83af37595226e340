"""The notebooks of examples/ run from their first cell to the last, and show what they store.

Here without IPython; `make test-notebooks` runs them in a kernel.
"""

import re

import pytest
from support.notebooks import FOLDER, code_cells, load, run_cell, shown_by, source_of, varies

NAMES = sorted(path.name for path in FOLDER.glob("*.ipynb"))
SLOW = ("any_engine.ipynb",)  # it imports every engine
_LINK = re.compile(r"\]\(([^)#\s]+)\)")
# Of IPython alone, which is not installed here.
_DISPLAY = re.compile(r"^from IPython\.display import \w+$", re.MULTILINE)


def case(name):
    """A notebook as a parameter."""
    return pytest.param(name, marks=[pytest.mark.verify] * (name in SLOW))


@pytest.mark.parametrize("name", [*map(case, NAMES)])
def test_a_notebook_runs_and_shows_what_it_stores(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    namespace = {"__name__": "__main__", "SVG": str}
    for cell in code_cells(load(name)):
        shown = run_cell(_DISPLAY.sub("", source_of(cell)), namespace)
        if varies(cell):
            assert cell["outputs"] == []
        else:
            assert shown == shown_by(cell["outputs"]), source_of(cell)


@pytest.mark.parametrize("name", NAMES)
def test_the_links_of_a_notebook_lead_somewhere(name):
    texts = [source_of(cell) for cell in load(name)["cells"] if cell["cell_type"] == "markdown"]
    links = [link for text in texts for link in _LINK.findall(text) if "://" not in link]
    assert [link for link in links if not (FOLDER / link).exists()] == []


def test_an_output_that_is_no_longer_true_is_noticed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_cell("x = 2\nprint(1)\nx + 1", {}) == "1\n3"
    assert run_cell("print('a')", {}) == "a\n"
    with pytest.raises(AssertionError, match="no table at"):
        run_cell("!eventlog show nothing", {})
