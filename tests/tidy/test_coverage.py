"""Every hazard and every scenario has tests that are marked with it, and the tables say which."""

import pytest
from tidy.coverage import README, problems, sources, table, with_tables


@pytest.fixture(scope="module")
def files():
    return sources()


def test_every_hazard_and_scenario_is_covered(files):
    assert problems(files) == []


def test_the_tables_are_those_of_the_marks(files):
    """If this fails, `make tables` regenerates them."""
    text = README.read_text(encoding="utf-8")
    assert text == with_tables(text, files)
    assert table("hazard", files) in text
    assert table("scenario", files) in text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('hazard("W10")', 'hazard("X10")', "is marked with the unknown hazard X10"),
        ('hazard("W10")', 'hazard("W9")', "no test covers hazard W10"),
        ('scenario("S1.3")', 'scenario("S1.4")', "no test covers scenario S1.3"),
        ("(place)", "(tmp_path)", "scenario S1.3 runs in one place"),
    ],
)
def test_a_mark_that_is_missing_or_wrong_is_found(old, new, said, files):
    changed = {file: text.replace(old, new) for file, text in files.items()}
    assert changed != files
    assert any(said in line for line in problems(changed))


def test_a_marked_test_that_asserts_nothing_is_found(files):
    empty = '@pytest.mark.hazard("C1")\ndef test_nothing():\n    pass\n'
    assert problems({**files, "test_new.py": empty}) == [
        "test_new.py::test_nothing asserts nothing"
    ]


def test_a_table_that_is_out_of_date_is_found(files):
    more = '@pytest.mark.hazard("C1")\ndef test_more():\n    assert True\n'
    text = README.read_text(encoding="utf-8")
    assert "test_new.py: `test_more`" in with_tables(text, {**files, "test_new.py": more})
