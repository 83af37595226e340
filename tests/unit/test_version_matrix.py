"""The table of Spark versions says yes only where tests ran and passed, and why elsewhere."""

import xml.etree.ElementTree as ET

import pytest
from spark import matrix

CASES = [
    ("batch write", ""),
    ("batch write", ""),
    ("batch write", '<skipped message="later"/>'),
    ("streaming sink", "<failure/>"),
    ("streaming sink", ""),
    ("Spark Connect", '<skipped message="no server"/>'),
    (None, ""),
    (None, """<skipped message="file">('conftest.py', 7, 'Skipped: no sources')</skipped>"""),
]


NAMES = [*"abcdefg", "test_stream_source"]  # the last one is a file


def report():
    """A report of pytest: a test of each column, and how it ended."""
    named = '<properties><property name="shows" value="{}"/></properties>'
    cases = "".join(
        f'<testcase name="tests.{name}">{named.format(column) * bool(column)}{end}</testcase>'
        for (column, end), name in zip(CASES, NAMES, strict=True)
    )
    return ET.fromstring(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")


def test_cells_come_from_tests_that_ran():
    cells = matrix.cells_of(report())
    text = matrix.table([matrix.Row("3.5.9", cells, 1.0)])
    head, _, row, *notes = text.splitlines()
    said = dict(zip(head.split(" | ")[1:], row.split(" | ")[1:], strict=True))
    assert said["batch write"] == "yes (2)"
    assert said["streaming sink"] == "**no** (1 of 2 fail)"
    assert said["Spark Connect"] == said["idempotent re-run"] == "-"
    assert "- 3.5.9, Spark Connect: no server." in notes
    assert "- 3.5.9, streaming source: no sources." in notes
    assert "- 3.5.9, idempotent re-run: no test ran." in notes
    assert not any("batch write" in note for note in notes)


def test_the_table_takes_its_place_in_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"a\n{matrix.BEGIN}old\n{matrix.END}b\n", encoding="utf-8")
    for _ in range(2):
        matrix.write_page("| new |\n", page)
        assert page.read_text(encoding="utf-8") == f"a\n{matrix.BEGIN}\n| new |\n\n{matrix.END}b\n"
    page.write_text("no place\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no place for the table"):
        matrix.write_page("", page)


def test_a_test_shows_what_its_mark_says_or_its_file():
    assert matrix.column_of("test_write.py", None) == "batch write"
    assert matrix.column_of("test_write.py", "idempotent re-run") == "idempotent re-run"
    assert matrix.column_of("test_files.py", None) is None


def test_the_page_has_a_place_for_the_table():
    page = matrix.PAGE.read_text(encoding="utf-8")
    assert matrix.BEGIN in page
    assert matrix.END in page.partition(matrix.BEGIN)[2]
