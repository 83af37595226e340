"""Citations of the specification in code and tests exist: rules by number, sections by name.

The specification is two documents, FORMAT.md and MERGING.md, whose rules and sections have numbers
of one series.
"""

import re
from functools import cache

import pytest
from tidy.definitions import TESTS

ROOT = TESTS.parent
PAGES = ("FORMAT.md", "MERGING.md")
TEXTS = {name: (ROOT / "eventlog" / name).read_text(encoding="utf-8") for name in PAGES}
FORMAT = "\n".join(TEXTS.values())
FOLDERS = ("eventlog", "readers", "writers", "compaction", "pyspark_eventlog", "tests", "docs")
# Rules as the specification numbers them; those of the fold are F1 and so on.
STATED = re.compile(r"\*\*(R\d+\.\d+|F\d+)\*\*")
CITED = re.compile(r"\bR\d+\.\d+\b")
OF_THE_FOLD = re.compile(r"\((F\d+)\)|\bby (F\d+)\b|\brules? ([A-Z]\d+)\b")
SECTION = re.compile(r"(?:FORMAT|MERGING)\.md,?\s+\"([^\"]+)\"")
IN_PAGE = re.compile(r"(FORMAT|MERGING)\.md,?\s+((?:R\d+\.\d+(?:, | and | to )?)+)")
NUMBERED = re.compile(
    r"(?:(?:FORMAT|MERGING)\.md,?\s+section|\bsection)\s+(\d+(?:\.\d+)*)"
    r"(?:\s+of\s+(?:FORMAT|MERGING)\.md)?"
)


@cache
def stated(text):
    """The rules that a text states."""
    return frozenset(STATED.findall(text))


@cache
def headings(text):
    """The names that sections and their parts have."""
    return set(re.findall(r"^#{2,4} (?:\d+(?:\.\d+)* )?(.+)$", text, re.MULTILINE))


@cache
def numbers(text):
    """The numbers of sections and of their parts."""
    return set(re.findall(r"^#{2,4} (\d+(?:\.\d+)*) ", text, re.MULTILINE))


def unknown(source, text=FORMAT):
    """The citations in a source that the specification does not have."""
    rules, sections = stated(text), headings(text)
    cited = CITED.findall(source) + ["".join(found) for found in OF_THE_FOLD.findall(source)]
    found = [rule for rule in cited if rule not in rules]
    found += [
        n for n in (" ".join(m.split()) for m in SECTION.findall(source)) if n not in sections
    ]
    found += [
        f"{name}.md {rule}"
        for name, several in IN_PAGE.findall(source)
        for rule in CITED.findall(several)
        if rule in rules and rule not in stated(TEXTS[f"{name}.md"])
    ]
    return found + [f"section {n}" for n in NUMBERED.findall(source) if n not in numbers(text)]


def sources():
    return sorted(
        path
        for folder in FOLDERS
        for kind in ("*.py", "*.md")
        for path in (ROOT / folder).rglob(kind)
        if path.name not in ("test_citations.py", *PAGES)
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_cited_is_there(folder):
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in sources()
        if path.relative_to(ROOT).parts[0] == folder
        and (found := unknown(path.read_text(encoding="utf-8")))
    }
    assert wrong == {}


def test_what_the_root_pages_cite_is_there():
    for path in ROOT.glob("*.md"):
        assert unknown(path.read_text(encoding="utf-8")) == [], path.name


def test_what_the_specification_cites_of_itself_is_there():
    rules = set(STATED.findall(FORMAT))
    assert [rule for rule in re.findall(r"\b(?:R\d+\.|F)\d+\b", FORMAT) if rule not in rules] == []
    assert set(re.findall(r"\bsections? (\d+(?:\.\d+)*)", FORMAT)) <= numbers(FORMAT)


def test_each_rule_and_each_title_of_the_specification_is_there_once():
    for stated in (STATED.findall(FORMAT), re.findall(r"^#+ (.+)$", FORMAT, re.MULTILINE)):
        assert [one for one in stated if stated.count(one) > 1] == []
    assert len(STATED.findall(FORMAT)) > 70


def test_sections_are_numbered_in_order():
    given = [
        tuple(map(int, n.split(".")))
        for n in re.findall(r"^#{2,4} ([\d.]+) ", FORMAT, re.MULTILINE)
    ]
    assert given == sorted(set(given))


@pytest.mark.parametrize(
    "source",
    [
        "see R99.1",
        "(F77)",
        'FORMAT.md "Shelves"',
        'FORMAT.md\n"Key\nshelves"',
        "FORMAT.md section 99",
        "FORMAT.md R19.5",
        "FORMAT.md R6.1, R17.2",
    ],
)
def test_a_citation_of_nothing_is_found(source):
    assert unknown(source)
    assert not unknown('FORMAT.md R6.1, (F3), FORMAT.md "Key\n    frames", FORMAT.md section 5.6')
