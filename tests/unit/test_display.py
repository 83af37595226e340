"""What a prompt shows of a value: text that fits, and HTML that is only text of others."""

import pytest

from eventlog.display import Described, Description, description_html, description_text
from eventlog.errors import Corrupt

HOSTILE = '<script>alert("x")</script>\x1b[31m\u202e & co'


def test_facts_and_rows_stand_in_columns():
    shown = Description(
        "Rows of a day",
        [("version", "3"), ("size", "2 rows")],
        ("name", "n"),
        [("Oslo", "1"), ("Reykjavík", "2,000")],
        frozenset({1}),
        "… 7 more rows",
    )
    assert description_text(shown).splitlines() == [
        "Rows of a day",
        "  version  3",
        "  size     2 rows",
        "  name           n",
        "  Oslo           1",
        "  Reykjavík  2,000",
        "  … 7 more rows",
    ]


def test_no_line_is_longer_than_a_hundred_characters():
    wide = Description("t" * 200, [("n", "v" * 200)], "abcde", [["x" * 90] * 5])
    lines = description_text(wide).splitlines()
    assert max(map(len, lines)) == 100
    assert lines[0].endswith("t…")
    assert lines[-1] == "  … 3 more of 5 columns"


def test_text_has_nothing_that_a_terminal_obeys():
    text = description_text(
        Description(HOSTILE, [(HOSTILE, HOSTILE)], [HOSTILE], [[HOSTILE]], left_out="\x1b")
    )
    assert not set(text) & set("\x1b\u202e")


def test_html_has_no_markup_but_its_own():
    shown = description_html(
        Description(HOSTILE, [(HOSTILE, HOSTILE)], [HOSTILE], [[HOSTILE]], left_out=HOSTILE)
    )
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;alert(&quot;x&quot;)") == 6
    assert not set(shown) & set("\x1b\u202e")


def test_html_has_no_colours_so_that_it_is_read_on_dark_and_on_light():
    shown = description_html(Description("t", [("a", "1")], ["n"], [["2"]], frozenset({0})))
    assert "color" not in shown
    assert "background" not in shown
    assert "<td class=right>2</td>" in shown


class Damaged(Described):
    def _described(self):
        raise Corrupt("layout and schema do not fit")


@pytest.mark.parametrize("show", [repr, Damaged._repr_html_])
def test_what_cannot_be_described_is_shown_with_its_error(show):
    assert "layout and schema do not fit" in show(Damaged())
