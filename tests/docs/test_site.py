"""The site builds, strictly: every link and anchor leads somewhere, every page is in a menu.

Its search finds the page that a newcomer looks for: the site's own script is asked, by Node.
"""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tidy.definitions import TESTS

ROOT = TESTS.parent
_spec = importlib.util.spec_from_file_location("make_site", ROOT / "docs" / "make_site.py")
make_site = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = make_site
_spec.loader.exec_module(make_site)

_absent = importlib.util.find_spec("zensical") is None
NODE = shutil.which("node")
# What newcomers type, and the page that has the answer.
LOOKED_FOR = {
    "add column": "guides/schema-evolution",
    "athena": "guides/engine-matrix",
    "backup": "guides/replication",
    "benchmark": "figures",
    "branch": "guides/branches",
    "change data feed": "guides/keyed",
    "compaction": "guides/compaction",
    "concurrent writers": "concepts/combining",
    "cost": "cost",
    "credentials": "guides/operations",
    "csv": "guides/shell",
    "delete row": "guides/changing-rows",
    "delta lake": "coming-from",
    "duckdb": "guides/engines",
    "duplicate rows": "guides/python",
    "erase rows": "guides/erasure",
    "exactly once": "guides/python",
    "granularity": "guides/choosing",
    "install": "getting-started",
    "kafka": "guides/appender",
    "lambda": "guides/lambda",
    "hudi": "coming-from",
    "limits": "limits",
    "faq": "faq",
    "gdpr": "guides/erasure",
    "migrate": "coming-from",
    "minio": "stores",
    "monitor": "guides/monitoring",
    "parquet folder": "coming-from",
    "partition": "guides/choosing",
    "permissions": "policies",
    "polars": "guides/engines",
    "price": "cost",
    "prometheus": "guides/monitoring",
    "rename column": "guides/schema-evolution",
    "restore": "guides/operations",
    "schema change": "guides/schema-evolution",
    "schema evolution": "guides/schema-evolution",
    "small files": "guides/compaction",
    "snowflake": "guides/engine-matrix",
    "spark jar": "guides/platforms",
    "stores": "stores",
    "streaming": "guides/streaming",
    "time travel": "guides/python",
    "trino": "guides/engine-matrix",
    "undo a load": "guides/operations",
    "update rows": "guides/changing-rows",
    "upsert": "guides/keyed",
    "vacuum": "guides/operations",
    "which version": "guides/history",
    "wrong file appended": "guides/operations",
}
BUILT = (pytest.mark.docs, pytest.mark.skipif(_absent, reason=make_site.MISSING))


def needs_docs(test):
    """Mark a test that builds the site."""
    for mark in BUILT:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site of this repository."""
    out = tmp_path_factory.mktemp("build")
    make_site.build(out)
    return out / "site"


@pytest.mark.verify
@needs_docs
def test_the_site_builds_and_has_every_page(site):
    pages = [page for page in make_site.layout().values() if page.suffix == ".md"]
    assert [page for page in pages if not (site / page.with_suffix(".html")).is_file()] == []


@pytest.mark.verify
@needs_docs
def test_the_reference_has_the_docstrings(site):
    text = (site / "api" / "table.html").read_text(encoding="utf-8")
    for name in ("eventlog.Table.create", "eventlog.Table.pin", "eventlog.Snapshot.segments"):
        assert f'id="{name}"' in text
    assert "Create a table and return a handle to it" in text


@needs_docs
def test_pages_fetch_nothing_from_elsewhere(site):
    fetched = re.compile(r"""<(?:script|link|img)\b[^>]*(?:src|href)=["']?(https?://[^"' >]+)""")
    outside = {
        address
        for page in site.rglob("*.html")
        for address in fetched.findall(page.read_text(encoding="utf-8"))
    }
    assert outside == set()


@pytest.mark.skipif(
    NODE is None, reason="the site's search is a script: it needs Node.js (apt-get install nodejs)"
)
@needs_docs
def test_the_search_finds_the_page_that_a_newcomer_looks_for(site):
    script = Path(__file__).with_name("ask_search.js")
    done = subprocess.run(
        [NODE, script, site], input=json.dumps([*LOOKED_FOR]), capture_output=True, text=True
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    pages = {query: [place.partition(".html")[0] for place in found[query]] for query in LOOKED_FOR}
    wrong = {query: pages[query][:3] for query in pages if pages[query][:1] != [LOOKED_FOR[query]]}
    assert wrong == {}


@needs_docs
def test_the_search_leaves_out_the_pages_that_mention_everything(site):
    index = json.loads((site / "search.json").read_text(encoding="utf-8"))
    pages = {item["location"].partition("#")[0] for item in index["items"]}
    assert {"limits.html", "format.html"} < pages
    assert pages.isdisjoint(Path(page).with_suffix(".html").name for page in make_site.UNSEARCHED)


def copied(tmp_path, monkeypatch, **pages):
    """Lead the module to a small repository with these pages."""
    (tmp_path / "docs").mkdir()
    for name, text in pages.items():
        (tmp_path / "docs" / f"{name}.md").write_text(text)
    menu = "".join(f"  - {name}.md: {name}.md\n" for name in pages)
    (tmp_path / "docs" / "mkdocs.yml").write_text(
        f"site_name: x\ndocs_dir: pages\nsite_dir: site\nnav:\n{menu}plugins:\n  - mkdocstrings\n"
    )
    monkeypatch.setattr(make_site, "ROOT", tmp_path)
    monkeypatch.setattr(make_site, "ELSEWHERE", {})


@pytest.mark.verify
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[x](nothing.md)", "leads nowhere"),
        ("![x](../README.md)", "leads nowhere"),
        pytest.param("[x](index.md#nothing)", "anchor does not exist", marks=BUILT),
        pytest.param("[x][nothing.at.all]", "unresolved", marks=BUILT),
    ],
)
def test_a_broken_link_is_an_error(text, problem, tmp_path, monkeypatch):
    copied(tmp_path, monkeypatch, index=f"# A page\n\n{text}\n")
    (tmp_path / "README.md").write_text("read me")
    with pytest.raises(make_site.Wrong, match=problem):
        make_site.build(tmp_path / "build")


def test_a_page_in_no_menu_is_an_error(tmp_path, monkeypatch):
    copied(tmp_path, monkeypatch, index="# A page\n")
    (tmp_path / "docs" / "other.md").write_text("# Another\n")
    with pytest.raises(make_site.Wrong, match=r"in no menu.*other\.md"):
        make_site.lay_out(tmp_path / "build")


def test_links_follow_their_pages(tmp_path, monkeypatch):
    copied(tmp_path, monkeypatch, index="# A page\n")
    (tmp_path / "docs" / "guides").mkdir()
    source = tmp_path / "docs" / "guides" / "a.md"
    source.write_text("[up](../index.md#x) [code](../../Makefile) `[a](b)`\n```\n[a](b)\n```\n")
    (tmp_path / "Makefile").write_text("")
    text = make_site.moved(
        source.read_text().replace("`[a](b)`", ""),
        source.relative_to(tmp_path),
        make_site.layout(),
    )
    assert text == "[up](../index.md#x) code \n```\n[a](b)\n```\n"


def test_what_only_tests_read_is_not_published(tmp_path, monkeypatch):
    unseen = (
        '<!-- invisible-code-block: python\nx = 1\n-->\n\n<!-- skip: next "no -- account" -->\n'
    )
    copied(tmp_path, monkeypatch, a=f"# A page\n\n{unseen}```sh\nls\n```\n\n<!-- kept -->\n")
    make_site.lay_out(tmp_path / "build")
    page = (tmp_path / "build" / "pages" / "a.md").read_text()
    assert page == "# A page\n\n```sh\nls\n```\n\n<!-- kept -->\n"


def test_decisions_enter_the_menu_by_themselves(tmp_path, monkeypatch):
    copied(tmp_path, monkeypatch, index="# A page\n")
    with (tmp_path / "docs" / "mkdocs.yml").open("a") as config:
        config.write(f"  - Why:\n      - Decisions:\n{make_site.DECISIONS}")
    (tmp_path / "docs" / "decisions").mkdir()
    for name, title in {"b": "It's b", "README": "All"}.items():
        (tmp_path / "docs" / "decisions" / f"{name}.md").write_text(f"# {title}\n")
    make_site.lay_out(tmp_path / "build")
    menu = (tmp_path / "build" / "mkdocs.yml").read_text()
    assert menu.endswith(
        "          - 'All': decisions/index.md\n          - \"It's b\": decisions/b.md\n"
    )
