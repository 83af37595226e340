"""What every workload measures with: rows of the table, budgets, child processes, CPU and memory.

A workload is a function of a `Bench`. It runs in a process of its own, hands over each row as soon
as it is known, and looks at `Bench.left_s` in every loop; the parent ends what does not end by
itself. Imports nothing of the project, so that children start quickly.
"""

# ruff: noqa: PLC0415 - what is optional or measured is imported where it is used
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
MEGABYTE = 10**6


@dataclass
class Row:
    """One line of the table.

    `values` holds a number or a text per column; `met` is None where there is no goal. A time is
    only ever compared with a time of the same row.
    """

    work: str
    values: dict
    unit: str = ""
    goal: str = ""
    met: bool | None = None
    note: str = ""
    group: str = ""


@dataclass
class Bench:
    """What a workload gets: its sizes, its folder, its time, and where its rows go."""

    group: str
    folder: Path
    limit_s: float
    quick: bool = False
    sparks: tuple[str, ...] = ()
    started: float = field(default_factory=time.monotonic)
    emit_line: Callable[[str], None] = print

    @property
    def left_s(self) -> float:
        return self.limit_s - (time.monotonic() - self.started)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def emit(self, work, values, unit="", *, goal="", met=None, note=""):
        # Small sizes prove that the measuring works; they say nothing about the goals.
        judged = None if met is None or self.quick else bool(met)
        if values.get("eventlog") == "failed":
            judged = False
        row = Row(work, values, unit, goal, judged, note, self.group)
        self.emit_line(json.dumps(asdict(row)))

    def stopped(self, work, done, wanted):
        """Say in the table that the time ran out; what was measured until then stands."""
        elapsed = time.monotonic() - self.started
        self.emit(work, {}, note=f"stopped after {elapsed:.0f} s: {done} of {wanted} done")


@dataclass
class Sample:
    """The numbers of one thing measured several times."""

    seconds: list = field(default_factory=list)
    requests: list = field(default_factory=list)
    kinds: list = field(default_factory=list)

    @property
    def ms(self) -> float | None:
        return statistics.median(self.seconds) * 1000 if self.seconds else None


def alternate(bench, actions, rounds, *, work, count=None, share_s=None, each=1):
    """Run the actions in turn, `rounds` times, and return a `Sample` for each.

    Whoever shares the machine then slows all of them alike. Where an action fails it is left
    out from there on, and the table says so.

    Args:
        bench: whose time it is.
        actions: by column name, called without arguments.
        rounds: at most so many; at least three are tried before `share_s` ends it.
        work: for the note if time runs out.
        count: returns a context manager that yields counts (`LocalServer.measure`).
        share_s: seconds of the workload's time that this may take.
        each: how often an action runs in its turn, one right after the other.
    """
    samples = {name: Sample() for name in actions}
    live = dict(actions)
    ends = time.monotonic() + min(share_s or bench.left_s, bench.left_s)
    for number in range(rounds):
        if time.monotonic() > ends and number >= 3:
            bench.stopped(work, f"{number} rounds", rounds)
            break
        for name, action in list(live.items()):
            try:
                for _ in range(each):
                    _once(action, samples[name], count)
            except Exception as error:
                del live[name]
                bench.emit(f"{work}: {name} failed", {name: "failed"}, note=short(error))
    return samples


def _once(action, sample, count):
    if count is None:
        start = time.perf_counter()
        action()
        sample.seconds.append(time.perf_counter() - start)
        return
    with count() as counts:
        start = time.perf_counter()
        action()
        seconds = time.perf_counter() - start
    sample.seconds.append(seconds)
    sample.requests.append(counts.total)
    sample.kinds.append(kinds(counts))


def kinds(counts):
    """Return counts as text, such as `2 put 1 list`."""
    names = ("get", "put", "list", "head", "delete", "post")
    return " ".join(f"{getattr(counts, n)} {n}" for n in names if getattr(counts, n)) or "none"


def medians(samples):
    """Return the median milliseconds of every sample that has one."""
    return {name: sample.ms for name, sample in samples.items() if sample.seconds}


def short(error, size=160):
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text[:size]


class Failed(Exception):
    """A child process that gave no answer."""


def child(program, *arguments, timeout_s, memory_mb=8000, env=None, python=sys.executable):
    """Run a program of this folder in a fresh process and return what it prints last, as JSON.

    Raises:
        Failed: it ended otherwise, took too long or too much memory.
    """
    command = [str(python), "-W", "ignore", str(HERE / program), *map(str, arguments)]
    with (
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        ) as process,
        watched(process, timeout_s, memory_mb) as why,
    ):
        out, err = process.communicate()
    if process.returncode != 0 or not out.strip():
        last = " ".join(err.strip().splitlines()[-1:]) or "no answer"
        reason = why[0] if why else f"exit code {process.returncode}: {last}"
        raise Failed(f"{program}: {reason}"[:300])
    return json.loads(out.strip().splitlines()[-1])


@contextmanager
def watched(process, timeout_s, memory_mb) -> Iterator[list]:
    """End the process and its children when time or memory run out; yield why, if it was so."""
    why, done = [], threading.Event()

    def watch():
        ends = time.monotonic() + timeout_s
        while not done.wait(0.5):
            if time.monotonic() > ends:
                why.append(f"stopped after {timeout_s:.0f} s")
            elif tree_rss_mb(process.pid) > memory_mb:
                why.append(f"stopped above {memory_mb} MB")
            if why:
                kill_group(process)
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield why
    finally:
        done.set()
        thread.join()
        kill_group(process)


def kill_group(process):
    """End a process that leads a session of its own, and everything that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _tree(pid):
    import psutil

    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.Error:
        return []


def tree_rss_mb(pid):
    """Return the resident memory of a process and its descendants, where it can be asked."""
    try:
        import psutil
    except ImportError:
        return 0.0
    total = 0
    for process in _tree(pid):
        try:
            total += process.memory_info().rss
        except psutil.Error:
            continue
    return total / MEGABYTE


def tree_cpu_s(pid):
    """Return the CPU seconds of a process, its descendants, and what those have waited for."""
    return sum(split_cpu_s(pid))


def split_cpu_s(pid):
    """Return the CPU seconds of `tree_cpu_s` in two parts: Java's, and all others."""
    import psutil

    java = others = 0.0
    for process in _tree(pid):
        try:
            times, name = process.cpu_times(), process.name()
        except psutil.Error:
            continue
        own, waited_for = times.user + times.system, times.children_user + times.children_system
        java += own if name == "java" else 0
        others += waited_for + (0 if name == "java" else own)
    return java, others


def peak_rss_mb():
    """Return this process's own high-water mark; `ru_maxrss` would inherit the parent's."""
    return _status_mb("VmHWM")


def rss_mb():
    """Return what is resident of this process now."""
    return _status_mb("VmRSS")


def reset_peak():
    """Set the high-water mark of this process to what is resident now (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")


def _status_mb(name):
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024 / MEGABYTE
    return 0.0


class Server:
    """An S3 server in a process of its own, with its counts asked for over a pipe.

    It is moto's (`serve.py`), or one of little processor time (`delayed.py`) if `small`.
    """

    def __init__(self, delay_ms=0, *, small=False):
        program = "delayed.py" if small else "serve.py"
        command = [sys.executable, "-W", "ignore", str(HERE / program), str(delay_ms)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._told = json.loads(self._line())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    @property
    def endpoint_url(self):
        return self._told["endpoint_url"]

    def environment(self):
        return self._told["environment"]

    def storage_options(self):
        return self._told["storage_options"]

    def counts(self):
        """Return the counts since the last call, by kind, with `total`."""
        self._process.stdin.write("counts\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self):
        line = self._process.stdout.readline()
        if not line:
            raise Failed("the S3 server did not start: pip install 'eventlog-tables[demo]'")
        return line
