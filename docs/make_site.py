"""The documentation as a site: lays its pages out in build/pages, and has Zensical build them.

    python docs/make_site.py build      into build/site; a link that leads nowhere is an error
    python docs/make_site.py serve      shows it on localhost, and follows changes

Pages lie where a reader of the repository looks for them, and their links work there. Here they get
the places of `docs/mkdocs.yml`, and their links follow. Needs the extra `docs`; only the standard
library is used before that is known. Why Zensical: docs/decisions/0026-docs-site.md.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build"
# Source -> page, of those that do not lie in docs/.
ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "eventlog/FORMAT.md": "format.md",
    "eventlog/MERGING.md": "merging.md",
    "localstack/README.md": "localstack.md",
    "localstack/policies/README.md": "policies.md",
    "tests/README.md": "tests.md",
}
# Left out of the site's search: they mention everything, and explain nothing that a guide does not.
UNSEARCHED = ("changelog.md", "tests.md")
# What the site needs to know of a page, and readers of the repository need not see.
HEADS = {
    "index.md": "hide: [navigation, toc]",
    **dict.fromkeys(UNSEARCHED, "search: {exclude: true}"),
}
COPIED = (".png", ".svg", ".css")
MISSING = "the site needs the extra docs: .venv/bin/python -m pip install -e '.[docs]'"
DECISIONS = "          # the pages of docs/decisions\n"
# What the API reference says it could not do; Zensical's own strictness does not look at that.
COMPLAINT = re.compile(r"^.*(?:mkdocstrings|griffe|autorefs)\b.*$", re.MULTILINE)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^ *(```|~~~)")
# What only the tests of the examples read.
_UNSEEN = re.compile(
    r"^<!--+ *(?:invisible-code-block:|skip:).*?--+>\n\n?", re.MULTILINE | re.DOTALL
)
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


class Wrong(Exception):
    """The site cannot be built as it stands; the message says what to change."""


def layout() -> dict[Path, Path]:
    """Return all sources and where each goes, relative to the repository and to the pages."""
    docs = ROOT / "docs"
    places = {}
    for path in sorted(docs.rglob("*")):
        if path.suffix in (".md", *COPIED):
            page = path.relative_to(docs)
            index = page.name == "README.md"  # what a folder of the repository shows
            places[path.relative_to(ROOT)] = page.with_name("index.md") if index else page
    return places | {Path(source): Path(page) for source, page in ELSEWHERE.items()}


def moved(text: str, source: Path, places: dict[Path, Path]) -> str:
    """Return a page with its links led to where the pages lie now.

    What lies in the repository and is no page becomes plain text.

    Raises:
        Wrong: a link leads nowhere.
    """
    here = places[source].parent

    def link(match: re.Match[str]) -> str:
        picture, shown, target, anchor = match.groups(default="")
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        aim = Path(os.path.normpath(source.parent / target))
        if aim in places:
            there = Path(os.path.relpath(places[aim], here)).as_posix()
            return f"{picture}[{shown}]({there}{anchor})"
        if (ROOT / aim).exists() and not picture:
            return shown
        raise Wrong(f"{source}: the link to {target} leads nowhere")

    lines, fenced = [], False
    for line in text.splitlines(keepends=True):
        fenced ^= bool(_FENCE.match(line))
        lines.append(line if fenced else _LINK.sub(link, line))
    return "".join(lines)


def page_of(text: str, source: Path, places: dict[Path, Path]) -> str:
    """Return a document as a page of the site.

    Raises:
        Wrong: a link leads nowhere.
    """
    head = HEADS.get(places[source].as_posix())
    return (f"---\n{head}\n---\n\n" if head else "") + moved(_UNSEEN.sub("", text), source, places)


def titles(folder: Path, places: dict[Path, Path]) -> Iterator[tuple[str, Path]]:
    """Yield the title and the page of each document in a folder; an index comes first."""
    chosen = [path for path in places if path.parent == folder and path.suffix == ".md"]
    for path in sorted(chosen, key=lambda path: (path.stem not in ("README", "index"), path)):
        title = _TITLE.search((ROOT / path).read_text(encoding="utf-8"))
        yield (title[1] if title else path.stem), places[path]


def config(places: dict[Path, Path]) -> str:
    """Return `docs/mkdocs.yml` with its two gaps filled."""
    text = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    entries = "".join(
        f"          - {title!r}: {page.as_posix()}\n"
        for title, page in titles(Path("docs/decisions"), places)
    )
    return text.replace("@ROOT@", ROOT.as_posix()).replace(DECISIONS, entries)


def lay_out(out: Path) -> None:
    """Write the configuration and all pages below `out`; what has not changed is not touched.

    Raises:
        Wrong: a link leads nowhere, or a page is in no menu.
    """
    places = layout()
    menu = config(places)
    lost = [page for page in places.values() if page.suffix == ".md" and f": {page}\n" not in menu]
    if lost:
        raise Wrong(f"in no menu of docs/mkdocs.yml: {', '.join(map(str, lost))}")
    written = {out / "mkdocs.yml": menu.encode()}
    for source, page in places.items():
        body = (ROOT / source).read_bytes()
        if source.suffix == ".md":
            body = page_of(body.decode(), source, places).encode()
        written[out / "pages" / page] = body
    for path, body in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != body:
            path.write_bytes(body)
    for path in (out / "pages").rglob("*"):
        if path.is_file() and path not in written:
            path.unlink()


def build(out: Path) -> None:
    """Build the site in `out/site`.

    Raises:
        Wrong: the message has what was wrong.
    """
    lay_out(out)
    shutil.rmtree(out / "site", ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(  # noqa: S603 - our own words
        command, cwd=out, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode or COMPLAINT.search(done.stdout):
        raise Wrong(done.stdout)


def serve(out: Path, address: str) -> None:
    """Show the site until Ctrl-C; changed pages are laid out again within a second."""
    lay_out(out)
    command = [sys.executable, "-m", "zensical", "serve", "--dev-addr", address]
    with subprocess.Popen(command, cwd=out) as server:  # noqa: S603 - our own words
        try:
            while server.poll() is None:
                time.sleep(1)
                try:
                    lay_out(out)
                except Wrong as error:
                    print(error)
        except KeyboardInterrupt:
            server.terminate()


def main() -> int:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(description="The documentation as a site.")
    parser.add_argument("verb", choices=("build", "serve"))
    parser.add_argument("--address", default="localhost:8000")
    given = parser.parse_args()
    if importlib.util.find_spec("zensical") is None:
        print(MISSING, file=sys.stderr)
        return 1
    try:
        build(OUT) if given.verb == "build" else serve(OUT, given.address)
    except Wrong as error:
        print(error, file=sys.stderr)
        return 1
    if given.verb == "build":
        print(f"the site: {OUT / 'site' / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
