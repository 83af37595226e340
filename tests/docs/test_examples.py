"""Every example of the documents is run: Python, PySpark, and the lines of the program.

One test a page, from its first example to its last: later ones use what earlier ones made. Pages
write to `s3://bucket`, which is a bucket of the tests' server here. What is not run is marked in
the page, with the reason: `<!-- skip: next "needs an AWS account" -->`. What readers need not see
is in a comment: `<!-- invisible-code-block: python … -->`.

Of the shell, blocks with lines of `eventlog` are run, in this process; a comment `# exit code 4`
says what a line is to end with, where that is not 0. In Python a comment behind a `print` starts
with what it prints.
"""

import contextlib
import re
import shlex
import sys
from pathlib import Path
from unittest import SkipTest

import boto3
import pytest
from click.testing import CliRunner
from sybil import Sybil
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser, SkipParser
from tidy.definitions import TESTS

from eventlog.cli.program import build

ROOT = TESTS.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
_EXIT = re.compile(r"#.*\bexit code (\d+)")
_SKIP = re.compile(r"<!--+\s*skip: (\w+)(.*?)--+>")


def lines_of(block):
    """The commands of a shell block: words, and the exit code that a comment asks for."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            code = _EXIT.search(line)
            yield words, int(code[1]) if code else 0


def run_shell(example):
    """Run the lines of a shell block that has any of `eventlog`."""
    commands = list(lines_of(example.parsed))
    if not any(words[0] == "eventlog" for words, _ in commands):
        return None
    for words, code in commands:
        if words[0] != "eventlog":
            return f"{shlex.join(words)}: put it into a block of its own, or mark the block"
        result = CliRunner().invoke(build(), words[1:])
        if result.exit_code != code:
            return f"{shlex.join(words)} ended with {result.exit_code}\n{result.output}"
    return None


EXAMPLES = Sybil(
    parsers=[
        SkipParser(),
        PythonCodeBlockParser(),
        *(CodeBlockParser(language, run_shell) for language in ("sh", "bash", "shell")),
    ]
)


def name_of(page):
    """The id of a page's test; those with Spark say so, for the worker that has the session."""
    text = page.read_text(encoding="utf-8")
    uses_spark = re.search(
        r"^(spark\.|df\.write|.*\b(read\(spark\b|spark\.range))", text, re.MULTILINE
    )
    name = page.relative_to(ROOT).as_posix()
    return f"{name}-with-spark" if uses_spark and "spark" not in name else name


def emptied_bucket():
    """Make the bucket of the pages, without what another page left there."""
    bucket = boto3.resource("s3").Bucket("bucket")
    with contextlib.suppress(bucket.meta.client.exceptions.BucketAlreadyOwnedByYou):
        bucket.create()
    bucket.objects.all().delete()


def printing(page):
    """A `print` for the examples of a page, which compares what the line says that it prints."""
    lines = page.read_text(encoding="utf-8").splitlines()

    def check(*values, **options):
        print(*values, **options)  # noqa: T201 - the example's own
        line = lines[sys._getframe(1).f_lineno - 1]
        said = line.partition("  # ")[2]
        printed = " ".join(map(str, values))
        assert said.startswith(printed) or not said, f"{line.strip()} printed {printed}"

    return check


def run(page, namespace):
    """Run the examples of a page; return how many were run."""
    document = EXAMPLES.parse(page)
    document.namespace.update(namespace, print=printing(page))
    count = 0
    for example in document.examples():
        with contextlib.suppress(SkipTest):
            example.evaluate()
            count += 1
    return count


def cases():
    """The pages that have examples, as parameters of a test."""
    for page in PAGES:
        if any(EXAMPLES.parse(page).examples()):
            name = name_of(page)
            yield pytest.param(page, id=name, marks=[pytest.mark.spark] * ("spark" in name))


@pytest.mark.parametrize("page", list(cases()))
def test_the_examples_of_a_page_run(page, s3, request, tmp_path, monkeypatch):
    emptied_bucket()
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "example"}
    if "spark" in request.node.name:
        namespace["spark"] = request.getfixturevalue("spark")
    assert run(page, namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_is_not_run_says_why(page):
    for action, reason in _SKIP.findall(page.read_text(encoding="utf-8")):
        assert action == "end" or len(reason.strip()) > len('"why"'), f"skip: {action} without why"


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("eventlog ls s3://bucket/nothing", "ended with 1"),
        ("eventlog ls s3://bucket/nothing  # exit code 1", None),
        ("eventlog scan s3://bucket/nothing \\\n  --count  # exit code 1", None),
        ("eventlog lsx", "ended with 2"),
        ("make demo", None),
        ("cd /tmp\neventlog ls .", "a block of its own"),
    ],
)
def test_a_shell_block_that_fails_is_noticed(block, problem, s3, tmp_path):
    emptied_bucket()
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n```sh\n{block}\n```\n", encoding="utf-8")
    if problem is None:
        run(page, {})
    else:
        with pytest.raises(AssertionError, match=problem):
            run(page, {})


def test_a_python_block_that_fails_is_noticed_at_its_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as caught:
        run(page, {})
    last = caught.traceback[-1]
    assert (Path(last.path).name, last.lineno + 1) == ("page.md", 8)


def test_a_print_that_prints_something_else_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)  # 2, as ever\nprint(1 + 1)\n```\n")
    assert run(page, {}) == 1
    page.write_text("```python\nprint(1 + 1)  # 3\n```\n")
    with pytest.raises(AssertionError, match="printed 2"):
        run(page, {})
