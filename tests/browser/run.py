"""The page of `eventlog view` in headless Chromium: `make test-view`.

    python tests/browser/run.py                  # a small table with every state, and a large one
    python tests/browser/run.py --commits 1000   # a smaller one of the second kind

Chromium shows each page. Slider, playing, hover, keys, search, colours and widths are tried as a
person would, axe-core looks for what keeps people out, and sizes and times are measured. Anything
wrong ends the run with 1.
"""

import argparse
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright
from support.builders import add, commit, create, events
from support.keyed_tables import merged

from eventlog import Table
from eventlog.model.actions import Horizon, Replace
from eventlog.state.delta import drop_of
from eventlog.view import (
    Picture,
    chosen_versions,
    history_picture,
    page_of,
    png_of,
    still_of,
)

ROOT = Path(__file__).parents[2]
AXE = ROOT / "build" / "view" / "node_modules" / "axe-core" / "axe.min.js"
# A new profile each time, and nothing that Chromium would ask the network for.
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}
ADDS = 10  # segments an append of the large table
DAYS = [(date(2013, 1, 1) + timedelta(n)).isoformat() for n in range(365)]
MOST_BYTES_A_SEGMENT = 60
FRAMES = 10  # a second: fewer is no slider

MOVE_SLIDER = """seconds => new Promise(done => {
    const slider = document.getElementById('version'), from = performance.now();
    let frames = 0;
    const frame = () => {
        const share = (performance.now() - from) / (1000 * seconds);
        if (share > 1) return done(frames / seconds);
        frames++;
        slider.value = Number(slider.min) + Math.floor(share * (slider.max - slider.min));
        slider.dispatchEvent(new Event('input'));
        requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
})"""
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
FINDINGS = "async () => (await axe.run()).violations.map(v => `${v.id}: ${v.nodes[0].html}`)"


def small_table():
    """A table with a segment of every state at its head, and a hostile owner."""
    t = create()
    for n in range(4):
        t.append(events(8, days=2, first=8 * n))
    compact(t, "1970-01-01")
    commit(t, Horizon(t.snapshot().version), operation="vacuum")
    t.append(events(8, days=3, first=100))
    t.delete(where="value >= 51 AND at >= TIMESTAMP '1970-01-03 00:00:00'")
    t.overwrite(events(1, day=1), start="1970-01-02", end="1970-01-03")
    compact(t, "1970-01-01")
    t.claim("1970-01-01", "1970-01-02", owner="</script><script>document.title = 'broken'</script>")
    t.branch("what-if")
    return t


def large_table(commits):
    """A table of appends to random days; every 20th commit compacts the fullest day."""
    drawn, t, waiting = random.Random(2), create(), dict.fromkeys(DAYS, 0)
    for number in range(1, commits):
        if number % 20 == 0:
            day = max(waiting, key=waiting.__getitem__)
            compact(t, day)
            waiting[day] = 1
            continue
        days = drawn.choices(DAYS, k=ADDS + number % 2)
        commit(t, *(add(t, day, rows=drawn.randint(10, 5000)) for day in days))
        for day in days:
            waiting[day] += 1
    return t


def keyed_table():
    """A keyed table with bases of some buckets, and logs that count in the others."""
    t = create(key="name", buckets=4, granularity="all")
    for n in range(3):
        t.upsert(events(400, first=40 * n))
    t.commit(merged(t, t.snapshot(), "all", 0, 0, 1, 2))
    t.commit(merged(t, t.snapshot(), "all", 2, 2, 1, 3))
    t.delete(where="value < 20")
    t.upsert(events(200, first=300))
    work = t.branch("what-if")
    work.upsert(events(9))
    t.merge(work)
    work.upsert(events(9, first=9))
    return t


def compact(t, day):
    live, version = t.snapshot().segments(chunks=[day]), t.snapshot().version
    merged = add(t, day, rows=sum(s.live_rows for s in live))
    commit(t, Replace(version, 0), *map(drop_of, live), merged, operation="compact")


class Tried:
    """A page in one of Chromium's windows, and what was wrong with it."""

    def __init__(self, browser: Browser, file: Path, width: str, scheme: str) -> None:
        self.wrong: list[str] = []
        size = dict(zip(("width", "height"), WIDTHS[width], strict=True))
        # axe-core is put into the page, which its own policy would refuse.
        context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)
        self.page: Page = context.new_page()
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda sent: self.expect(sent.url.startswith("file:"), sent.url))
        self.page.goto(file.as_uri())
        self.kind = file.stem
        self.name = f"{file.stem}, {width}, {scheme}"

    def expect(self, held: bool, what: str) -> None:
        if not held:
            self.wrong.append(what)

    def text(self, where: str) -> str:
        return self.page.locator(where).text_content() or ""

    def settle(self) -> None:
        self.page.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
        )

    def slide(self) -> None:
        slider, last = (
            self.page.locator("#version"),
            int(self.page.locator("#version").input_value()),
        )
        self.page.keyboard.press("Tab")
        slider.focus()
        slider.press("ArrowLeft")
        self.settle()
        self.expect(f"Version {last - 1}" in self.text("#headline"), "ArrowLeft: one version back")
        said = slider.get_attribute("aria-valuetext") or ""
        self.expect(said.startswith(f"Version {last - 1}, "), f"the slider says {said!r}")
        slider.press("Home")
        self.settle()
        self.expect("Version 0" in self.text("#headline"), "Home: the first version")
        self.page.locator("#next").click()
        self.settle()
        self.expect("Version 1" in self.text("#live"), "a step is announced")
        self.page.locator("#play").click()
        self.page.wait_for_timeout(1500)
        self.page.locator("#play").click()
        self.settle()
        self.expect(int(slider.input_value()) > 2, "Play: versions go by")
        self.expect("Stopped" in self.text("#live"), "the end of playing is announced")
        slider.press("End")
        self.settle()

    def point(self) -> None:
        box = self.page.locator("#blocks").bounding_box()
        shown = set()
        for y in range(4, int(box["height"]), 6):
            self.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + y)
            if self.page.locator("#tip").is_visible():
                shown.add(self.text("#tip"))
        self.expect(any("State: visible" in text for text in shown), "hover shows a segment")
        if self.kind == "small":
            self.expect(any("dropped" in text for text in shown), "and a dropped one")
        if self.kind == "keyed":
            said = [text for text in shown if "merged in the others" in text]
            self.expect(bool(said), "and where a log counts")

    def press(self) -> None:
        picture = self.page.locator("#blocks")
        picture.focus()
        for key in ("End", "ArrowDown", "ArrowLeft", "Home"):
            picture.press(key)
            self.settle()
            self.expect("State: " in self.text("#live"), f"{key} announces a segment")
        self.expect(self.page.locator("#details h2").is_visible(), "a chosen segment has details")
        version = self.page.locator("#version").input_value()
        picture.press("Enter")
        self.settle()
        self.expect(self.page.locator("#version").input_value() != version, "Enter: where it began")
        picture.press("Escape")
        self.settle()
        self.expect(not self.page.locator("#details").is_visible(), "Escape closes the details")
        self.page.locator("#version").press("End")
        self.settle()

    def find(self) -> None:
        box = self.page.locator("#search")
        box.fill("compact")
        self.settle()
        self.expect("match" in self.text("#found"), "a search says how many match")
        box.press("Enter")
        self.settle()
        self.expect("by " in self.text("#details"), "Enter chooses a match")
        box.fill("no such thing")
        self.settle()
        self.expect("0 segments match" in self.text("#found"), "nothing matches")
        box.fill("")

    def look(self) -> None:
        for name in ("segments", "versions", "lanes"):
            self.page.locator(f"#{name}-table summary").click()
        self.settle()
        rows = self.page.locator("#versions-table tbody tr").count()
        self.expect(rows > 1, f"the table of versions has {rows} rows")
        self.expect(self.page.evaluate("document.title") != "broken", "a name ran as a script")
        wide = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        self.expect(wide <= 0, f"the page is {wide} pixels too wide")
        self.page.evaluate(AXE.read_text(encoding="utf-8"))
        self.wrong += self.page.evaluate(FINDINGS)
        ground = "() => getComputedStyle(document.body).backgroundColor"
        before = self.page.evaluate(ground)
        self.page.locator("#theme").click()
        self.settle()
        self.expect(self.page.evaluate(ground) != before, "the switch changes the colours")
        self.wrong += self.page.evaluate(FINDINGS)
        for name in ("segments", "versions", "lanes"):
            self.page.locator(f"#{name}-table summary").click()

    def measure(self) -> str:
        frames = self.page.evaluate(MOVE_SLIDER, 4)
        self.expect(frames >= FRAMES, f"{frames:.0f} frames a second")
        return f"first paint {self.page.evaluate(PAINTED):.0f} ms, {frames:.0f} frames a second"


def made(table, name, folder):
    began = time.perf_counter()
    picture = history_picture(table)
    read_s, page = time.perf_counter() - began, page_of(picture).encode()
    file = Path(folder) / f"{name}.html"
    file.write_bytes(page)
    commits, segments = len(picture.times), len(picture.blocks)
    print(
        f"{name}: {commits:,} commits, {segments:,} segments: read in {read_s:.1f} s, "
        f"{len(page) / 1e6:.2f} MB"
    )
    return file, len(page), picture


def wrong_with_still(browser: Browser, picture: Picture) -> list[str]:
    """Show a still in Chromium, and compare its PNG: both have the size that it is drawn in."""
    still = still_of(picture, chosen_versions(picture, 6))
    page = browser.new_page()
    page.set_content(still)
    box = page.locator("svg").bounding_box()
    titles = page.locator("svg text", has_text=re.compile(r"^Version \d")).count()
    page.close()
    png = png_of(still)
    size = struct.unpack(">II", png[16:24])
    print(f"still: {len(still) / 1e3:.0f} kB of SVG, {len(png) / 1e3:.0f} kB of PNG")
    found = [] if titles == 6 else [f"still: {titles} versions"]
    if not png.startswith(b"\x89PNG") or size != (2 * box["width"], 2 * box["height"]):
        found.append(f"still: a PNG of {size}, of {box}")
    return found


def wrong_with_live(browser: Browser, folder: str) -> list[str]:
    """Append to a table while Chromium shows its live page, then interrupt the program."""
    uri, wrong = f"{folder}/live", list[str]()
    table = Table.create(uri, "at timestamp, city string", time_column="at")
    rows = [{"at": "2013-01-07T05:00:00Z", "city": "Oslo"}]
    table.append(rows)
    command = [sys.executable, "-P", "-m", "eventlog", "view", uri, "--serve", "--port", "0"]
    context = browser.new_context(bypass_csp=True)  # for axe-core
    page = context.new_page()
    page.on("pageerror", lambda error: wrong.append(f"live: {error}"))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        page.goto(program.stdout.readline().split()[0])
        if uri in page.content():
            wrong.append("live: the page has a path of the machine")
        newest = "document.getElementById('headline').textContent.startsWith('Version %d ')"
        table.append(rows)
        page.wait_for_function(newest % 2, timeout=20_000)
        page.locator("#version").press("ArrowLeft")
        table.append([{"at": "2013-01-06T05:00:00Z", "city": "Oslo"}])  # a chunk before the first
        page.wait_for_function("document.getElementById('version').max === '3'", timeout=20_000)
        if not page.evaluate(newest % 1):
            wrong.append("live: it does not stay at a version that was chosen")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        wrong += (f"live: {finding}" for finding in page.evaluate(FINDINGS))
        program.send_signal(signal.SIGINT)
        if program.wait(timeout=20):
            wrong.append(f"live: the program ends with {program.returncode}")
    state = "document.getElementById('following').textContent.startsWith('Not live')"
    page.wait_for_function(state, timeout=20_000)
    context.close()
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000, help="of the large table")
    commits, wrong = parser.parse_args().commits, []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        small, least, few = made(small_table(), "small", folder)
        large, most, many = made(large_table(commits), "large", folder)
        keyed, _, _ = made(keyed_table(), "keyed", folder)
        size = (most - least) / (len(many.blocks) - len(few.blocks))  # without the scripts
        if size > MOST_BYTES_A_SEGMENT:
            wrong.append(f"large: {size:.0f} bytes a segment")
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=[*ARGUMENTS])
        wrong += wrong_with_still(browser, many)
        wrong += wrong_with_live(browser, folder)
        for file, width, scheme in (
            *((small, width, scheme) for width in WIDTHS for scheme in ("light", "dark")),
            *(
                (keyed, width, scheme)
                for width, scheme in zip(WIDTHS, ("dark", "light"), strict=True)
            ),
            (large, "desktop", "light"),
        ):
            tried = Tried(browser, file, width, scheme)
            for act in (tried.slide, tried.point, tried.press, tried.find, tried.look):
                act()
            print(f"{tried.name}: {tried.measure()}")
            wrong += (f"{tried.name}: {what}" for what in tried.wrong)
        browser.close()
    for what in wrong:
        print(what, file=sys.stderr)
    print(f"{len(wrong)} findings")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
