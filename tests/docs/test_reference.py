"""The tables of the reference that are written by hand name what there is, with its defaults."""

import re

from tidy.definitions import TESTS

from eventlog.model.properties import SETTINGS, TEXT_SETTINGS
from eventlog.readers.spark.options import (
    BRANCH,
    CHANGES_NAMES,
    READ_NAMES,
    STREAM_READ_NAMES,
    WRITE_NAMES,
)
from eventlog.store.options import NAMES

DOCS = TESTS.parent / "docs"


def rows(page, heading="# "):
    """The cells of each row of the tables below a heading; the first without their backticks."""
    text = (DOCS / page).read_text(encoding="utf-8").partition(heading)[2]
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("| `")
    ]


def names(found):
    return [name for row in found for name in re.findall(r"`([^`]+)`", row[0])]


def test_every_property_is_there_with_its_bounds():
    stated = {row[0].strip("`"): row[1:3] for row in rows("api/properties.md")}
    bounds = {
        name: [f"{rule.default:,}", f"{rule.low:,} to {rule.high:,}"]
        for name, rule in SETTINGS.items()
    }
    assert {name: cells for name, cells in stated.items() if name not in TEXT_SETTINGS} == bounds
    assert set(stated) - set(bounds) == set(TEXT_SETTINGS)


def test_every_option_of_spark_is_there():
    stated = names(rows("api/spark.md", "## Options of the data source"))
    assert BRANCH in stated
    assert set(stated) - {BRANCH, "storage.<name>", "property.<name>"} == {
        *READ_NAMES,
        *CHANGES_NAMES,
        *STREAM_READ_NAMES,
        *WRITE_NAMES,
    }


def test_every_storage_option_is_there():
    assert names(rows("guides/operations.md", "## Credentials and endpoints")) == list(NAMES)
