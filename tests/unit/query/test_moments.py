"""Times in arguments: taken where they can mean one moment only, else refused with the forms."""

import datetime as dt
import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from support.builders import create, events, row_names

from eventlog import Ms, errors
from eventlog.cli.program import build
from eventlog.model.chunks import MAX_MS, MIN_MS
from eventlog.query.moments import LEAST_MS, MOST_MS, to_ms
from eventlog.readers import scan
from eventlog.writers import append, overwrite

JANUARY = 1_357_534_800_000  # 2013-01-07T05:00:00Z
MIDNIGHT = JANUARY - 5 * 3_600_000
TOKYO = dt.timezone(dt.timedelta(hours=9))

AMBIGUOUS = [
    "2013", "20130201", "1357534800", "1357534800000", "2013-01", "2013-W02-1", "20130107T050000",
    "20130107T05", "13-01-07", "07.01.2013", "01/07/2013", "2013-1-7", "", " ", "now", "today",
    "\u0662\u0660\u0661\u0663-01-07", "2013-01-07T05:00:00 Europe/Oslo", "05:00", "0", "-1",
    0, 1, -1, 2013, 20130201, 1357534800, 201301070500, 1357534800000000, LEAST_MS - 1, MOST_MS,
    -LEAST_MS + 1, True, False, 1357534800.0, 1357534800000.0, float("nan"), float("inf"),
    np.float64(1357534800000), np.int64(1357534800), np.bool_(True),
    dt.datetime(2013, 1, 7), dt.time(5), dt.timedelta(days=1), pd.NaT,
    pd.Timestamp("2013-01-07"), pd.Period("2013-01"),
    np.datetime64("NaT"), np.timedelta64(1, "D"), b"2013-01-07", [JANUARY], {}, ..., Ms,
    Ms(MAX_MS + 1), Ms(MIN_MS - 1), "0001-01-01T00:00+14:00", "10000-01-01",
    np.datetime64("10000-01-01"), np.datetime64(10**17, "Y"), np.datetime64(-1, "Y") - 5000,
]  # fmt: skip

CLEAR = [
    (dt.datetime(2013, 1, 7, 5, tzinfo=dt.UTC), JANUARY),
    (dt.datetime(2013, 1, 7, 14, tzinfo=TOKYO), JANUARY),
    (dt.datetime(2013, 1, 7, 5, 0, 0, 999, tzinfo=dt.UTC), JANUARY),
    (dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC), -1),
    (pd.Timestamp("2013-01-07T05:00", tz="UTC"), JANUARY),
    (pd.Timestamp("2013-01-07T14:00:00.000000999", tz="Asia/Tokyo"), JANUARY),
    (dt.date(2013, 1, 7), MIDNIGHT),
    ("2013-01-07", MIDNIGHT),
    ("2013-01-07T05", JANUARY),
    ("2013-01-07T05:00", JANUARY),
    ("2013-01-07 05:00:00", JANUARY),
    ("2013-01-07T05:00:00Z", JANUARY),
    ("2013-01-07T05:00:00.000999Z", JANUARY),
    ("2013-01-07T14:00:00+09:00", JANUARY),
    ("0001-01-01", MIN_MS),
    (np.datetime64("2013-01-07T05"), JANUARY),
    (np.datetime64("2013-01-07T05:00:00.000000001", "ns"), JANUARY),
    (np.datetime64("2013-01-07"), MIDNIGHT),
    (np.datetime64("2013-01"), MIDNIGHT - 6 * 86_400_000),
    (np.datetime64("2013"), MIDNIGHT - 6 * 86_400_000),
    (JANUARY, JANUARY),
    (np.int64(JANUARY), JANUARY),
    (LEAST_MS, LEAST_MS),
    (-JANUARY, -JANUARY),
    (MOST_MS - 1, MOST_MS - 1),
    (Ms(0), 0),
    (Ms(MAX_MS), MAX_MS),
]


@pytest.mark.parametrize(("when", "wanted"), CLEAR, ids=lambda value: repr(value)[:50])
def test_a_time_that_is_clear_is_taken(when, wanted):
    found = to_ms(when)
    assert (found, type(found)) == (wanted, int)


@pytest.mark.hazard("W7")
@pytest.mark.parametrize("when", AMBIGUOUS, ids=lambda value: repr(value)[:50])
def test_a_time_that_could_be_another_is_refused_wherever_it_is_given(when):
    table = create()
    append(table, events(3, days=3))
    for wrong in (
        lambda: overwrite(table, events(1), start=when),
        lambda: overwrite(table, events(1), end=when),
        lambda: table.snapshot(timestamp=when),
        lambda: scan(table, timestamp=when),
        lambda: table.claim(when),
        lambda: table.claim(end=when),
    ):
        with pytest.raises(errors.InvalidInput):
            wrong()
    assert table.refresh().version == 1
    assert row_names(table) == ["row 0", "row 1", "row 2"]


BETWEEN = [
    "2013-01-07T00:00:00.000900Z",
    dt.datetime(2013, 1, 7, microsecond=1, tzinfo=dt.UTC),
    np.datetime64("2013-01-07T00:00:00.000000001"),
]


@pytest.mark.parametrize("when", BETWEEN, ids=str)
def test_a_bound_of_rows_is_not_rounded(when):
    table = create()
    append(table, events(3, days=3))
    for wrong in (
        lambda: overwrite(table, events(0), start=when),
        lambda: overwrite(table, events(0), end=when),
        lambda: table.claim(when),
        lambda: table.claim(end=when),
    ):
        with pytest.raises(errors.InvalidInput, match="between two milliseconds"):
            wrong()
    assert table.refresh().version == 1
    assert to_ms(when) == to_ms("2013-01-07")  # of versions, the newest that was there


@pytest.mark.parametrize("when", ["20130201", 20130201, 1357534800.0])
def test_the_refusal_names_the_forms_that_are_taken(when):
    with pytest.raises(errors.InvalidInput, match=r"2013-01-07T05:00:00Z.*milliseconds"):
        to_ms(when)


def test_the_program_and_spark_read_times_likewise(tmp_path):
    uri = (tmp_path / "t").as_uri()
    create_args = ["create", uri, "--schema", "at:timestamp", "--time-column", "at"]
    assert CliRunner().invoke(build(), create_args).exit_code == 0
    for when in ("2013", "20130201", "1357534800000"):
        answer = CliRunner().invoke(build(), ["show", uri, "--timestamp", when])
        assert (answer.exit_code, "is not a time" in answer.output) == (2, True)
    answer = CliRunner().invoke(build(), ["show", uri, "--timestamp", "2213-01-07", "--json"])
    assert json.loads(answer.stdout)["version"] == 0
