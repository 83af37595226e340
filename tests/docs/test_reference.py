"""The tables of the reference that are written by hand name what there is, with its defaults."""

import importlib.util
import re

from tidy.definitions import TESTS

from eventlog import errors, limits
from eventlog.commit.protocol import attempt
from eventlog.model import stats
from eventlog.model.properties import SETTINGS, TEXT_SETTINGS
from eventlog.query import predicate
from eventlog.query.sql import parsing, tokens
from eventlog.readers.spark.spark_options import (
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


def test_every_class_of_errors_has_its_section():
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.EventLogError)
    }
    # NotFound has a section for each of its kinds; no verb of a table raises the last two.
    apart = {"EventLogError", "NotFound", "KeyNotFound", "OutcomeUnknown"}
    assert classes - sections == apart


def test_the_page_of_commands_is_what_the_program_has():
    spec = importlib.util.spec_from_file_location("make_cli", DOCS / "make_cli.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    assert (DOCS / "cli.md").read_text(encoding="utf-8") == made.page(), "run: make cli-page"


def literals():
    """The text of the packages, with the parts of string literals joined."""
    root = TESTS.parent
    folders = ("eventlog", "readers", "writers", "compaction")
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def pieces(page):
    """The text around the values of the messages that stand first in the rows of a page."""
    for row in re.findall(r"^\| (`.*?) \|", page, re.MULTILINE):
        for message in re.findall(r"`([^`]+)`", row):
            yield from (part.strip(" :,") for part in re.split(r"'?(?:…|\d+)'?", message))


def test_messages_are_those_of_the_code():
    source = literals()
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    tables = page.partition("## InvalidInput")[2].partition("## Without an error")[0]
    quoted = {piece for piece in pieces(tables) if len(piece) > 12}
    assert len(quoted) > 20
    assert [piece for piece in sorted(quoted) if piece not in source] == []


def test_limits_are_those_of_the_code():
    page = (DOCS / "limits.md").read_text(encoding="utf-8")
    for limit in (
        f"{limits.PINS:,} pins",
        f"{limits.REPLICAS} named copies",
        f"{limits.CLAIMS:,} claims",
        f"{limits.APPS:,} app ids",
        f"{limits.ORIGINS:,} other logs",
        f"1 to {limits.NAME_CHARACTERS} printable characters",
        f"{limits.TYPE_DEPTH} levels deep",
        f"{limits.COMMIT_BYTES >> 20} MiB of a commit",
        f"{limits.ROW_BYTES >> 30} GiB of values in one row",
        f"first {stats.DEFAULT_COLUMNS} columns",
        f"{stats.TEXT_LIMIT} characters of a text",
        f"{parsing.MAX_TEXT_BYTES >> 10} KiB of SQL",
        f"{predicate.MAX_EXPRESSION_BYTES >> 20} MiB of a pyarrow expression",
        f"{tokens.MAX_NESTING} levels of parentheses",
        f"{attempt.MAX_ATTEMPTS} lost races",
    ):
        assert limit in page, limit


def test_the_glossary_has_the_words_of_the_format():
    text = (TESTS.parent / "eventlog" / "FORMAT.md").read_text(encoding="utf-8")
    table = text.partition("### 1.1 ")[2].partition("\n### ")[0]
    words = re.findall(r"^\| ([a-z][a-z ,]+) \|", table, re.MULTILINE)[1:]
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    explained = {row.strip() for row in re.findall(r"^\| ([^|]+) \|", glossary, re.MULTILINE)}
    assert len(words) > 30
    assert set(words) - explained == set()
