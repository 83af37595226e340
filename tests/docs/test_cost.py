"""The dollars of docs/cost.md follow from its counts and from the prices that the package has."""

import re

import pytest
from bench import costing, costs
from bench.costing import OPERATIONS, PAGE, PATTERNS, SYSTEMS, Requests

from eventlog.monitoring.prices import DAYS_A_MONTH, S3_STANDARD

TEXT = PAGE.read_text(encoding="utf-8")


def test_every_dollar_of_the_tables_is_computed_from_the_counts():
    found = costing.counts_of(TEXT)
    assert all(found[name].keys() == set(OPERATIONS) for name in SYSTEMS)
    assert costing.written(TEXT, found) == TEXT


def test_the_prices_are_those_of_the_package():
    million = 1_000_000
    assert f"(writes) | ${S3_STANDARD.write * million:.2f} |" in TEXT
    assert f"(reads) | ${S3_STANDARD.read * million:.2f} |" in TEXT
    assert f"for a month | ${S3_STANDARD.stored} |" in TEXT
    assert f"of {S3_STANDARD.date}," in TEXT
    gib_100 = S3_STANDARD.storage(100 * 2**30, DAYS_A_MONTH)
    assert f"100 GiB are ${gib_100:.2f} a month" in TEXT


def test_the_formula_is_the_one_that_is_used():
    numbers = re.search(r"= ([\d.]+) . writes .* ([\d.]+) . reads", TEXT)
    writes, reads = map(float, numbers.groups())
    assert costing.dollars(Requests(1e6, 0)) == pytest.approx(writes)
    assert costing.dollars(Requests(0, 1e6)) == pytest.approx(reads)


def test_a_month_is_the_sum_of_its_operations():
    found = {operation: Requests(1, 0) for operation in OPERATIONS}
    hourly = PATTERNS[0]
    a_day = 24 + 24 + 10
    assert costing.month_dollars(hourly, found) == pytest.approx(a_day * DAYS_A_MONTH * 5e-6)
    assert costing.month_dollars(hourly, found | {OPERATIONS[-1]: None}) is None


def test_other_prices_or_counts_make_another_page():
    found = costing.counts_of(TEXT)
    found["eventlog"] |= {OPERATIONS[0]: Requests(3, 0)}
    assert costing.written(TEXT, found) != TEXT


def test_small_and_large_amounts_have_digits_that_count():
    assert [costing.amount(n) for n in (0.014, 12.345, 1234.5)] == ["$0.01", "$12.35", "$1,234"]


@pytest.mark.parametrize(
    ("operation", "measure"),
    [
        ("append of 100 rows", costs.append),
        pytest.param("query of a day, by a new program", costs.query, marks=pytest.mark.verify),
        pytest.param(
            "… in turn, after a refresh", costs.append_after_refresh, marks=pytest.mark.verify
        ),
    ],
)
def test_eventlog_still_sends_what_the_page_counts(operation, measure, s3, monkeypatch):
    bucket = f"costs-{OPERATIONS.index(operation)}"
    s3.create_bucket(bucket)
    monkeypatch.setattr(costs, "BUCKET", bucket)
    monkeypatch.setattr(costs, "DAYS", 13)
    counted = costing.counts_of(TEXT)["eventlog"][operation]
    now = measure(costs.Place(s3, "eventlog", 20))
    # The page's means have more key frames in them, and fewer first appends of handles.
    assert now.writes == pytest.approx(counted.writes, abs=0.15)
    assert now.reads == pytest.approx(counted.reads, abs=0.25)
