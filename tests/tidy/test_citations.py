"""Whatever code and tests cite of FORMAT.md is there: rules by number, sections by name."""

import re

import pytest
from tidy.definitions import TESTS

ROOT = TESTS.parent
FORMAT = (ROOT / "eventlog" / "FORMAT.md").read_text(encoding="utf-8")
FOLDERS = ("eventlog", "readers", "writers", "compaction", "pyspark_eventlog", "tests")
# Rules as FORMAT.md numbers them; those of the fold are F1 and so on.
STATED = re.compile(r"\*\*(R\d+\.\d+|F\d+)\*\*")
CITED = re.compile(r"\bR\d+\.\d+\b")
OF_THE_FOLD = re.compile(r"\((F\d+)\)|\bby (F\d+)\b|\brules? ([A-Z]\d+)\b")
SECTION = re.compile(r"FORMAT\.md,?\s+\"([^\"]+)\"")
NUMBERED = re.compile(r"FORMAT\.md,?\s+section\s+(\d+)")


def headings(text):
    """The names that sections and their parts have."""
    named = re.findall(r"^#{2,3} (?:\d+ )?(.+)$", text, re.MULTILINE)
    return {*named, *re.findall(r"^\*\*([A-Z][^*]+)\*\*", text, re.MULTILINE)}


def unknown(source, text=FORMAT):
    """What a source cites of a specification that does not have it."""
    rules, sections = set(STATED.findall(text)), headings(text)
    cited = CITED.findall(source) + ["".join(found) for found in OF_THE_FOLD.findall(source)]
    found = [rule for rule in cited if rule not in rules]
    found += [
        n for n in (" ".join(m.split()) for m in SECTION.findall(source)) if n not in sections
    ]
    numbers = set(re.findall(r"^## (\d+) ", text, re.MULTILINE))
    return found + [f"section {n}" for n in NUMBERED.findall(source) if n not in numbers]


def sources():
    return sorted(
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "test_citations.py"
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


def test_what_the_specification_cites_of_itself_is_there():
    rules = set(STATED.findall(FORMAT))
    assert [rule for rule in CITED.findall(FORMAT) if rule not in rules] == []
    numbers = set(re.findall(r"^## (\d+) ", FORMAT, re.MULTILINE))
    assert set(re.findall(r"\bsections? (\d+)", FORMAT)) <= numbers
    stated = STATED.findall(FORMAT)
    assert len(stated) == len(set(stated)) > 60


@pytest.mark.parametrize(
    "source",
    [
        "see R99.1",
        "(F77)",
        'FORMAT.md "Shelves"',
        'FORMAT.md\n"Key\nshelves"',
        "FORMAT.md section 99",
    ],
)
def test_a_citation_of_nothing_is_found(source):
    assert unknown(source)
    assert not unknown('FORMAT.md R6.1, (F3), FORMAT.md "Key\n    frames", FORMAT.md section 11')
