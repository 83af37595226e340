"""A soak run: real processes on a real S3 server behind a proxy that breaks things, and kills.

`python -m soak.run --minutes M [--seed N]` (with `tests` on the path) runs it, checks the history
that it leaves, prints a report, and fails on any violation. All processes end with it.
"""

import argparse
import dataclasses
import json
import random
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import boto3
from soak import journal, keyed, proxy, work
from soak.crew import Crew, environment
from soak.history import History, violations
from soak.model import units_of
from support.folds import advance

from eventlog import Table
from eventlog.errors import EventLogError
from eventlog.format import codec
from eventlog.fsck.check import fsck
from eventlog.log.spills import unpack
from eventlog.model.records import Transaction
from eventlog.readers import scan

BUCKET = "soak"
KILL_EVERY_S = (1.5, 4.0)
PROPERTIES = {"keyframe_commits": "16", "combine_after": "1", "stats_columns": "2"}
CREDENTIALS = {"access_key_id": "soak", "secret_access_key": "soak", "region": "us-east-1"}
_SHOWN = 20


@dataclass
class Outcome:
    """How a run went; `violations` is empty where all is well."""

    seed: int
    minutes: float
    requests: int
    faults: dict[str, int]
    kills: dict[str, int]
    restarts: int
    versions: int
    transactions: int
    void: int
    keyframes: int
    units: dict[str, int]
    workers: dict[str, int]
    operations: dict[str, int]
    reads: int
    vacuumed: dict[str, int]
    rows: int
    keyed: dict[str, int]
    check_s: float
    violations: list[str]

    def text(self) -> str:
        lines = [f"soak of {self.minutes:g} min, seed {self.seed}"]
        for item in dataclasses.fields(self):
            if item.name in ("seed", "minutes", "violations"):
                continue
            value = getattr(self, item.name)
            if isinstance(value, dict):
                value = ", ".join(f"{key} {number:,}" for key, number in sorted(value.items()))
            lines.append(f"  {item.name:<13} {value if isinstance(value, str) else f'{value:,}'}")
        lines += [f"  VIOLATION     {text}" for text in self.violations[:_SHOWN]]
        lines.append(f"  {len(self.violations) or 'no'} violations")
        lines.append(f"again: make soak MINUTES={self.minutes:g} SEED={self.seed}")
        return "\n".join(lines)


@contextmanager
def child(*module: str):
    """A child that ends with its standard input."""
    child = subprocess.Popen(
        [sys.executable, "-m", *module],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
        child.stdin.close()
        child.wait(30)
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def soak(minutes: float, seed: int, directory: Path) -> Outcome:
    """Run for so many minutes, then check; journals are left in `directory`."""
    with ExitStack() as stack:
        server = stack.enter_context(child("eventlog.store.testing.local_server", "--port", "0"))
        endpoint = server.stdout.readline().strip()
        direct = {"endpoint_url": endpoint, **CREDENTIALS}
        tables = _create(direct), keyed.create(f"s3://{BUCKET}/keyed", direct)
        counts, crew = _work(minutes, seed, directory, endpoint)
        return _judge(tables, directory, crew, counts, minutes, seed)


def create_bucket(options: dict[str, str]) -> None:
    """Create the bucket of a run."""
    client = boto3.client(
        "s3",
        endpoint_url=options["endpoint_url"],
        aws_access_key_id=options["access_key_id"],
        aws_secret_access_key=options["secret_access_key"],
        region_name=options["region"],
    )
    client.create_bucket(Bucket=BUCKET)
    client.close()


def _create(options: dict[str, str]) -> Table:
    create_bucket(options)
    return Table.create(
        f"s3://{BUCKET}/table",
        journal.SCHEMA,
        time_column="at",
        properties=PROPERTIES,
        storage_options=options,
    )


def _work(minutes: float, seed: int, directory: Path, upstream: str) -> tuple[dict, Crew]:
    """Let the workers work through the proxy until the time is over."""
    chance = random.Random(seed)
    crew = Crew(directory / "place.json")
    command = ("soak.proxy", "--upstream", upstream, "--seed", str(seed))
    with child(*command) as gate, ExitStack() as stack:
        where = json.loads(gate.stdout.readline())
        place = {
            "uri": f"s3://{BUCKET}/table",
            "keyed": f"s3://{BUCKET}/keyed",
            "options": {**where, **CREDENTIALS},
            "journals": str(directory),
            "seed": seed,
            "began": journal.now_ns(),
        }
        (directory / "place.json").write_text(json.dumps(place))
        stack.callback(crew.close)
        for name in work.roster():
            crew.start(name)
        end = time.monotonic() + minutes * 60
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, chance.uniform(*KILL_EVERY_S)))
            crew.look()
            crew.kill(chance.choice(crew.names()))
        crew.stop()
        gate.stdin.close()  # what is under way arrives, and nothing after it
        return json.loads(gate.stdout.read().splitlines()[-1]), crew


def _judge(  # noqa: PLR0917
    tables: tuple[Table, Table],
    directory: Path,
    crew: Crew,
    counts: dict,
    minutes: float,
    seed: int,
) -> Outcome:
    """Check what is stored and what the workers were told, past the proxy."""
    began = time.monotonic()
    table, merged = tables
    told = {path.stem: journal.read_journal(path) for path in directory.glob("*.jsonl")}
    journals = {name: lines for name, lines in told.items() if not name.startswith(keyed.NAME)}
    report = fsck(table, checksums=True)
    found = [f"fsck: {f.message} ({f.key})" for f in report.findings if f.severity == "error"]
    found += crew.problems
    log, void, rows = list[tuple[Transaction, ...]](), frozenset[tuple[int, str]](), []
    try:
        log, void = _folded(table, report.head)
        newest = scan(table, columns=["at", "n"], version=report.head)
        rows = journal.rows_in(newest.to_table())
    except EventLogError as error:
        found.append(f"the table cannot be read: {type(error).__name__}: {error}")
    found += violations(History(journals, log, void, rows))
    others = {name: lines for name, lines in told.items() if name.startswith(keyed.NAME)}
    counted = _judge_keyed(merged, others, found)
    return Outcome(
        seed=seed,
        minutes=minutes,
        requests=counts.pop("requests"),
        faults={kind: counts.get(kind, 0) for kind in proxy.RATES},
        kills=dict(crew.kills),
        restarts=crew.restarts,
        versions=report.head + 1,
        transactions=report.transactions,
        void=len(void),
        keyframes=report.keyframes,
        units=_tally(journals),
        workers=_acknowledged(told),
        operations=dict(Counter(t.operation for transactions in log for t in transactions)),
        reads=sum("read" in line for lines in journals.values() for line in lines),
        vacuumed=_vacuumed(journals),
        rows=len(rows),
        keyed=dict(counted),
        check_s=round(time.monotonic() - began, 1),
        violations=found,
    )


def _judge_keyed(table: Table, journals: dict[str, list[dict]], found: list[str]) -> Counter:
    """Check the keyed table, add what is wrong, and return what happened there."""
    report = fsck(table, checksums=True, keys=True)
    found += [f"fsck: {f.message} ({f.key})" for f in report.findings if f.severity == "error"]
    try:
        log, void = _folded(table, report.head)
        taken = [
            tuple(t for t in transactions if (version, t.id) not in void)
            for version, transactions in enumerate(log)
        ]
        rows = scan(table, ["k", "o", "v"], version=report.head).to_table().to_pylist()
    except EventLogError as error:
        found.append(f"the keyed table cannot be read: {type(error).__name__}: {error}")
        return Counter()
    wrong, counts = keyed.violations(journals, taken, table.refresh().meta.horizon, rows)
    found += wrong
    return counts


def _folded(
    table: Table, head: int
) -> tuple[list[tuple[Transaction, ...]], frozenset[tuple[int, str]]]:
    """Return the transactions of each version, and (version, id) of those that the fold refuses."""
    log, void, state = [], set[tuple[int, str]](), None
    for version in range(head + 1):
        commit, body = table.session.log.read(version)
        commit = unpack(commit, table.session.log.spill)
        state, effect = advance(state, commit, codec.sha256(body))
        log.append(commit.transactions)
        void |= {(version, transaction) for transaction in effect.void}
    return log, frozenset(void)


def _tally(journals: dict[str, list[dict]]) -> dict[str, int]:
    """Count the units by what their workers know of them in the end."""
    known: Counter = Counter()
    for unit in units_of(journals).values():
        failed = "failed" if unit.failed == unit.attempts else "unknown"
        known["acknowledged" if unit.acked else failed] += 1
        known["attempts"] += unit.attempts
    return dict(known)


def _acknowledged(journals: dict[str, list[dict]]) -> dict[str, int]:
    """Count the acknowledged units of each worker that has units."""
    units = {name: units_of({name: lines}).values() for name, lines in journals.items()}
    return {n: sum(bool(unit.acked) for unit in found) for n, found in units.items() if found}


def _vacuumed(journals: dict[str, list[dict]]) -> dict[str, int]:
    """Count the objects that vacuums deleted and lived to tell."""
    gone: Counter = Counter()
    for line in (line for lines in journals.values() for line in lines if "vacuum" in line):
        gone.update(line["vacuum"])
    return dict(gone)


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak.run", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, help="of kills, faults and work; a fresh one if none")
    parser.add_argument("--journals", type=Path, help="an empty directory to keep them in")
    options = parser.parse_args()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    sys.stderr.write(f"soak: seed {seed}\n")
    with tempfile.TemporaryDirectory(prefix="eventlog-soak-") as directory:
        outcome = soak(options.minutes, seed, options.journals or Path(directory))
    sys.stdout.write(outcome.text() + "\n")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
