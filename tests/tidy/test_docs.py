"""The documentation: links resolve, Python blocks parse, and the first example runs."""

import ast
import re
from pathlib import Path

import pytest
from tidy.definitions import TESTS

ROOT = TESTS.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "localstack").rglob("*.md")),
    *(ROOT / "tests" / name for name in ("README.md", "golden/README.md")),
    ROOT / "eventlog" / "FORMAT.md",
]
README_WORDS = 600  # short enough to decide in two minutes
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def lost(page: Path, text: str) -> list[str]:
    """The relative links of a page that do not resolve."""
    links = [link for link in _LINK.findall(text) if "://" not in link]
    return [link for link in links if not (page.parent / link).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere_and_python_is_python(page):
    text = page.read_text(encoding="utf-8")
    assert lost(page, text) == []
    for block in _PYTHON.findall(text):
        ast.parse(block)


def test_a_link_that_leads_nowhere_is_found():
    page = ROOT / "README.md"
    assert lost(page, "[a](docs/nothing.md) [b](eventlog/FORMAT.md#x)") == ["docs/nothing.md"]


def test_the_index_of_decisions_has_each_of_them_once():
    folder = ROOT / "docs" / "decisions"
    index = _LINK.findall((folder / "README.md").read_text(encoding="utf-8"))
    pages = sorted(path.name for path in folder.glob("*.md") if path.name != "README.md")
    assert sorted(link for link in index if "/" not in link) == pages


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= README_WORDS


def test_the_first_example_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = [block for block in _PYTHON.findall(text) if "Table.create(" in block]
    exec(example, {})
    assert (tmp_path / "weather" / "_log").is_dir()
    said = capsys.readouterr().out
    assert "Kyoto" in said
    assert "Oslo" not in said
    assert said.splitlines()[-1] == "1"
