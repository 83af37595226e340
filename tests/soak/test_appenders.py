"""The check of killed appenders finds what is planted; some kills in a directory and on S3."""

import pytest
from soak.appenders import judge, season

ROWS = [("clicks-0", 0), ("clicks-0", 1), ("clicks-0", 2), ("one", 0), ("one", 5)]
LEDGER = [
    {"ready": "one"},
    {"acked": "clicks-0", "first": 0, "count": 2, "version": 1},
    {"acked": "one", "first": 0, "count": 1, "version": 1},
]


def test_a_sound_season_has_no_violations():
    found = judge(ROWS, {"clicks-0": 2}, [LEDGER])
    assert (found.violations, found.unacknowledged, found.rows) == ([], 2, 5)
    assert "no violations" in found.text()


@pytest.mark.parametrize(
    ("rows", "mark", "lines", "said"),
    [
        (ROWS[:1] + ROWS[2:], 2, [], "has not each number up to its mark: [1]"),
        (ROWS, 1, [], "has not each number up to its mark: [2]"),
        ([*ROWS, ROWS[0]], 2, [], "('clicks-0', 0) is there 2 times"),
        ([*ROWS, ROWS[4]], 2, [], "('one', 5) is there 2 times"),
        (ROWS[:3] + ROWS[4:], 2, [], "('one', 0) was acknowledged, and is not there"),
        (ROWS, 2, [{"error": "CommitUnknown"}], "CommitUnknown"),
    ],
)
def test_what_is_wrong_is_said(rows, mark, lines, said):
    found = judge(rows, {"clicks-0": mark}, [[*LEDGER, *lines]])
    assert any(said in text for text in found.violations)
    assert "VIOLATION" in found.text()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["directory", "s3"])
def test_what_killed_processes_acknowledged_is_there_once(kind, tmp_path):
    found = season(kind, 10, "test", tmp_path)
    assert found.violations == []
    assert found.notes["acked"]
