"""The documentation: links resolve, Python blocks parse, and the first example runs."""

import ast
import re
from pathlib import Path

import pytest
from tidy.definitions import TESTS

ROOT = TESTS.parent
SPECIFICATION = [ROOT / "eventlog" / name for name in ("FORMAT.md", "MERGING.md")]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "localstack").rglob("*.md")),
    *(ROOT / "tests" / name for name in ("README.md", "golden/README.md")),
    *SPECIFICATION,
]
README_WORDS = 600  # short enough to decide in two minutes
PROSE_COLUMNS = 100
PROSE = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *SPECIFICATION,
]
_FENCE = re.compile(r"\s*(```|~~~)")
_MAY_BE_WIDE = re.compile(r"\s*(\||!\[|<!--|members: )")  # tables, pictures, comments, API options
# Words of other languages in English letters: say "again", "permanently", "except", "is to".
_ODD = re.compile(r"\b(?:anew|for\s+good|but\s+for|shall)\b")
_ENTRY = re.compile(r"^- \[\d{4}\]\(([^)]+)\) (.+)$", re.MULTILINE)
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


def test_every_decision_tells_the_accident_that_it_prevents():
    parts = ["Context", "What happens without it", "Decision", "Consequences"]
    for page in sorted((ROOT / "docs" / "decisions").glob("0*.md")):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == parts, page.name
        accident = text.partition(f"## {parts[1]}\n")[2].partition("\n## ")[0]
        assert len(re.findall(r"^\d\. ", accident, re.MULTILINE)) >= 3, page.name


def test_the_index_of_decisions_has_their_titles():
    folder = ROOT / "docs" / "decisions"
    text = (folder / "README.md").read_text(encoding="utf-8").replace("\n  ", " ")
    index = dict(_ENTRY.findall(text))
    for page in sorted(folder.glob("0*.md")):
        title = page.read_text(encoding="utf-8").splitlines()[0]
        assert title.removeprefix(f"# {page.name[:4]} ") == index[page.name]


def wide(text: str) -> list[int]:
    """The lines of prose that are too long, by number; code, tables and pictures may be."""
    fence, found = None, []
    for number, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if mark and fence in (None, mark[1]):
            fence = None if fence else mark[1]
        elif fence is None and len(line) > PROSE_COLUMNS and not _MAY_BE_WIDE.match(line):
            found.append(number)
    return found


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_as_wide_as_code(page):
    assert wide(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "page",
    [page for page in PROSE if ROOT / "eventlog" not in page.parents],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_prose_has_no_words_that_only_its_author_uses(page):
    assert _ODD.findall(page.read_text(encoding="utf-8")) == []


def test_a_line_of_prose_that_is_too_long_is_found():
    long = "x" * PROSE_COLUMNS + " x"
    assert wide(f"{long}\n```\n{long}\n```\n| {long}\n- {long}\n") == [1, 6]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= README_WORDS


def test_the_first_example_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (example,) = [block for block in _PYTHON.findall(text) if "Table.create(" in block]
    exec(example, {})
    assert (tmp_path / "weather" / "_log").is_dir()
    assert capsys.readouterr().out == "Oslo 1\n"
