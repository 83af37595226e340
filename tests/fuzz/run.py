"""Fuzz every parser for so many seconds each: one process a target, a line of figures a target.

    .venv/bin/python tests/fuzz/run.py 60
    .venv/bin/python tests/fuzz/run.py 3600 --target predicate --save crashes

Guided by coverage where atheris is installed, else by the mutations alone. Exits with 1 if anything
but a refusal came out of a target, took longer than `SLOW_S`, or ended the process.
"""

import argparse
import importlib.util
import json
import mmap
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "commit",
    "keyframe",
    "intent",
    "fork",
    "keys",
    "predicate",
    "leaf",
    "schema_text",
    "opened",
    "vector",
)
SLOW_S = 10.0
MEMORY_BYTES = 8 * 2**30
_LAST_BYTES = 2**20
_GRACE_S = 120.0
_FACTS = re.compile(r"'.*'|s? ?\d[\d-]*")
_WITHOUT_ATHERIS = f"""\
{"#" * 78}
##  NOT GUIDED BY COVERAGE: atheris is not installed. Random mutations only.
##  To install it: {sys.executable} -m pip install atheris
{"#" * 78}
"""


class Tally:
    """What came of the executions, and the smallest input of each crash."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.outcomes: Counter[str] = Counter()
        self.crashes: dict[str, tuple[str, bytes]] = {}
        self.slowest = 0.0
        self.started = time.monotonic()
        # The input under way survives a process that is ended from below Python.
        with (place / "last").open("w+b") as file:
            file.truncate(_LAST_BYTES)
            self._last = mmap.mmap(file.fileno(), _LAST_BYTES)

    def run(self, name: str, body: bytes) -> None:
        from fuzz import targets  # noqa: PLC0415 - after the instrumentation

        kept = body[: _LAST_BYTES - 8]
        self._last[: 8 + len(kept)] = len(kept).to_bytes(8, "big") + kept
        before = time.monotonic()
        try:
            self.outcomes[targets.outcome(targets.TARGETS[name], body)] += 1
        except Exception as error:  # noqa: BLE001 - that none comes is what is tested
            self.outcomes["crash"] += 1
            self._crash(error, body)
        took = time.monotonic() - before
        self.slowest = max(self.slowest, took)
        if took > SLOW_S:
            self._note(f"Slow: {took:.1f} s", "", body)

    def write(self) -> None:
        """Write what there is: figures, and the crashes with their inputs."""
        told = {
            "executions": self.outcomes.total(),
            "seconds": time.monotonic() - self.started,
            "accepted": self.outcomes["accepted"],
            "outcomes": self.outcomes.most_common(),
            "slowest": self.slowest,
            "crashes": {what: [trace, body.hex()] for what, (trace, body) in self.crashes.items()},
        }
        (self.place / "told.json").write_text(json.dumps(told))

    def _crash(self, error: Exception, body: bytes) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if Path(f.filename).is_relative_to(ROOT)]
        at = own[-1] if own else frames[-1]
        text = "".join(traceback.format_exception(error))
        said = _FACTS.sub("_", str(error))[:60]
        where = f"{Path(at.filename).name}:{at.name}"
        self._note(f"{type(error).__name__} in {where}: {said}", text[-4000:], body)

    def _note(self, what: str, trace: str, body: bytes) -> None:
        known = self.crashes.get(what)
        if known is None or len(body) < len(known[1]):
            self.crashes[what] = (trace, body)
            self.write()


def fuzz_plainly(name: str, seconds: float, seed: int, tally: Tally) -> None:
    from fuzz import corpus, mutation  # noqa: PLC0415 - needs the path that main() sets

    rng, seeds = random.Random(seed), corpus.seeds(name)
    for body in seeds:
        tally.run(name, body)
    while time.monotonic() - tally.started < seconds:
        tally.run(name, mutation.mutate(name, rng.choice(seeds), rng))
    tally.write()


def fuzz_guided(name: str, seconds: float, seed: int, tally: Tally) -> None:
    """Run under atheris; its loop does not return, so the process ends within it."""
    import atheris  # noqa: PLC0415 - optional

    # The classes of pyarrow and sqlglot do not matter here, and instrumenting them costs minutes.
    with atheris.instrument_imports(include=["eventlog"]):
        from fuzz import corpus, mutation  # noqa: PLC0415

    folder = tally.place / "corpus"
    folder.mkdir()
    seeds = corpus.seeds(name)
    for number, body in enumerate(seeds):
        (folder / f"{number:04d}").write_bytes(body)
    tally.started = time.monotonic()

    def one(body: bytes) -> None:
        tally.run(name, body)
        if time.monotonic() - tally.started > seconds:
            tally.write()
            os._exit(0)

    def mutated(body: bytes, max_size: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < 0.2:
            return atheris.Mutate(body, max_size)
        # What is refused early mutates into what is refused early: half start from a real object.
        start = rng.choice(seeds) if rng.random() < 0.5 else bytes(body)
        return mutation.mutate(name, start, rng)[:max_size]

    limits = [
        f"-max_len={mutation.MAX_BYTES}",
        f"-seed={seed + 1}",
        "-timeout=60",
        "-rss_limit_mb=0",
    ]
    arguments = [sys.argv[0], *limits, f"-artifact_prefix={tally.place}/", str(folder)]
    atheris.Setup(arguments, one, custom_mutator=mutated)
    atheris.Fuzz()


def run_one(name: str, options: argparse.Namespace) -> dict:
    """Fuzz one target in a process of its own and return what it told, or why it ended."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, str(options.seconds), "--in", folder]
        command += ["--target", name, "--seed", str(options.seed)]
        command += ["--plain"] if options.plain else []
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=options.seconds + _GRACE_S
            )
            code, said = done.returncode, done.stderr
        except subprocess.TimeoutExpired:
            code, said = None, f"no end {_GRACE_S} s after its time"
        place = Path(folder)
        file = place / "told.json"
        told = json.loads(file.read_text()) if file.exists() else {"crashes": {}}
        if code != 0 or "executions" not in told:
            last = (place / "last").read_bytes() if (place / "last").exists() else bytes(8)
            body = last[8 : 8 + int.from_bytes(last[:8], "big")]
            what = "the process hangs" if code is None else f"the process ended with {code}"
            told["crashes"][what] = [said[-4000:], body.hex()]
    return {"executions": 0, "seconds": 1, "accepted": 0, "outcomes": [], "slowest": 0, **told}


def show(name: str, told: dict, save: Path | None, *, all_outcomes: bool) -> None:
    rate = told["executions"] / max(told["seconds"], 1e-9)
    sys.stdout.write(
        f"{name:12} {told['executions']:>9,} executions {rate:>8,.0f}/s "
        f"{len(told['outcomes']):>4} outcomes {told['accepted']:>9,} accepted "
        f"slowest {told['slowest']:.2f} s {len(told['crashes']):>3} crashes\n"
    )
    for number, (what, (trace, body)) in enumerate(told["crashes"].items()):
        sys.stdout.write(f"    CRASH {what}\n")
        if save is not None:
            save.mkdir(parents=True, exist_ok=True)
            (save / f"{name}-{number}").write_bytes(bytes.fromhex(body))
            (save / f"{name}-{number}.txt").write_text(f"{what}\n{trace}")
            sys.stdout.write(f"      input saved as {save / f'{name}-{number}'}\n")
    for said, count in told["outcomes"] if all_outcomes else ():
        sys.stdout.write(f"    {count:>9,} {said}\n")
    sys.stdout.flush()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("seconds", type=float, help="for each target")
    parser.add_argument(
        "--target", action="append", choices=NAMES, help="only this one; repeatable"
    )
    parser.add_argument("--save", type=Path, help="folder for the inputs that crashed")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--plain", action="store_true", help="without atheris in any case")
    parser.add_argument("--outcomes", action="store_true", help="list them all")
    parser.add_argument("--in", dest="place", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    guided = not options.plain and importlib.util.find_spec("atheris") is not None
    if options.place is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        run = fuzz_guided if guided else fuzz_plainly
        run(options.target[0], options.seconds, options.seed, Tally(options.place))
        return 0
    if not guided:
        sys.stdout.write(_WITHOUT_ATHERIS)
    crashes = 0
    wanted = options.target or NAMES
    with ThreadPoolExecutor(options.jobs) as pool:
        for name, told in zip(wanted, pool.map(lambda n: run_one(n, options), wanted), strict=True):
            show(name, told, options.save, all_outcomes=options.outcomes)
            crashes += len(told["crashes"])
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
