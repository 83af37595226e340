"""The history checker: compares the actors' calls and answers with the store at the end.

No I/O: values in, a `Violation` out. It does not use production code to decide.
"""

import json
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
from simulation import naive
from simulation.ledger import COMMIT, ROOT, TOP, Ledger, hold


@dataclass(slots=True)
class Call:
    """One transaction that was passed to `Table.commit`, perhaps repeatedly, and the answer.

    `began` and `ended` are ticks of one counter over all actors; `ended` is None until there is an
    answer. `answer` is acknowledged, failed or unknown.
    """

    actor: str
    kind: str
    id: str
    app: tuple | None
    began: int
    ended: int | None = None
    answer: str = "unknown"
    version: int | None = None


@dataclass(slots=True)
class Look:
    """A snapshot that a session read; `entries` is None if only its version was read."""

    session: str
    version: int
    began: int
    ended: int
    fresh: bool = False  # of the newest version, from a store without stale LISTs
    entries: dict | None = None


@dataclass(slots=True)
class Fetch:
    """A fetch of the segments of one version; `horizon` is the horizon at that time."""

    session: str
    version: int
    missing: list
    horizon: int


@dataclass(slots=True)
class Record:
    """All calls and answers of the actors of one run."""

    calls: list[Call] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    fetches: list[Fetch] = field(default_factory=list)
    found: list[tuple] = field(default_factory=list)  # (transaction id, reported version)


def read_log(objects):
    """Fold the commits among the objects.

    Raises:
        Violation: there is a gap, or `Ledger` finds one.
    """
    versions = {TOP - int(m[1]): k for k in objects if (m := COMMIT.fullmatch(k))}
    hold(sorted(versions) == list(range(len(versions))), "log", f"a gap in {sorted(versions)}")
    ledger = Ledger()
    for version in range(len(versions)):
        ledger.advance(objects[versions[version]])
    return ledger


def check(record, objects, ledger=None):
    """Check all promises.

    Args:
        record: the actors' calls and answers.
        objects: key to bytes of everything in the store at the end.
        ledger: the fold of these commits, if it exists already.

    Raises:
        Violation: naming the rule.
    """
    stored = {TOP - int(m[1]): k for k in objects if (m := COMMIT.fullmatch(k))}
    if ledger is None or [objects.get(stored.get(v)) for v in range(len(stored))] != ledger.bodies:
        ledger = read_log(objects)
    check_answers(record.calls, ledger)
    check_real_time(placed(record.calls, ledger))
    check_looks(record, ledger)
    check_roots(objects, ledger)
    lost = sorted(ledger.needed() - objects.keys())
    hold(not lost, "loss", f"missing, and not given up: {lost}")


def placed(calls, ledger):
    """Return (began, ended or None, version) of each transaction that took effect.

    If several actors passed one, it began with the first call and ended with the first answer.
    """
    found = {}
    for call in calls:
        if call.id in ledger.accepted:
            began, ended, version = found.get(call.id, (call.began, None, ledger.accepted[call.id]))
            ends = [end for end in (ended, call.ended if told(call) else None) if end is not None]
            found[call.id] = min(began, call.began), min(ends, default=None), version
    return list(found.values())


def told(call):
    return call.answer == "acknowledged"


def check_answers(calls, ledger):
    """Acknowledged: in the log once. Failed: never in the log. Unknown: at most once.

    A task that is delivered to several actors is one transaction in several forms: one of them may
    be refused because another one was committed.
    """
    delivered = Counter(call.id for call in calls)
    refused = Counter(call.id for call in calls if call.answer == "failed")
    for call in calls:
        at = ledger.accepted.get(call.id)
        if call.answer == "failed" and refused[call.id] == delivered[call.id]:
            hold(at is None, "failed", f"{call} was refused, and is version {at}")
        if not told(call):
            continue
        if at is None:
            unit = ledger.units.get(call.app)
            done = unit is not None and unit <= call.version
            hold(done, "acknowledged", f"{call} is in no version")
        else:
            hold(call.version == at, "acknowledged", f"{call} is version {at}")


def check_real_time(placed):
    """A transaction acknowledged before another one began has the lower version.

    Args:
        placed: (began, ended or None, version) of each transaction that took effect.
    """
    ended = sorted((e, v) for _, e, v in placed if e is not None)
    highest = [-1]
    for _, version in ended:
        highest.append(max(highest[-1], version))
    for began, _, version in placed:
        before = highest[bisect_left(ended, (began,))]
        hold(before < version, "real time", f"version {version} began after {before} was told")


def check_looks(record, ledger):
    """Readers see exactly one version, unchanged; sessions never go backwards."""
    last = {}
    acknowledged = sorted((c.ended, c.version) for c in record.calls if told(c) and c.ended)
    for look in record.looks:
        hold(look.version < len(ledger.steps), "read", f"{look} is of no version")
        hold(last.get(look.session, -1) <= look.version, "session", f"{look} goes backwards")
        last[look.session] = look.version
        if look.entries is not None:
            live = ledger.steps[look.version].state["live"]
            hold(look.entries == live, "read", f"{look.session} misread version {look.version}")
        if look.fresh:
            due = [v for ended, v in acknowledged if ended < look.began]
            hold(max(due, default=0) <= look.version, "fresh", f"{look} is behind {due}")
    for fetch in record.fetches:
        kept = fetch.missing and fetch.version >= fetch.horizon
        hold(not kept, "loss", f"{fetch} found objects missing above the horizon")
    for transaction, version in record.found:
        at = ledger.accepted.get(transaction)
        hold(version == at, "found", f"{transaction} was said to be in {version}: it is in {at}")


def check_roots(objects, ledger):
    """Key frames agree with the log."""
    for key, body in objects.items():
        match = ROOT.fullmatch(key)
        if not match:
            continue
        root, version = json.loads(body), TOP - int(match[1])
        step = ledger.steps[version]
        small = naive.small_state(step.state)
        hold(root["state"] == small, "key frame", f"small state of key frame {version}")
        hold(root["commit"] == step.hash, "key frame", f"commit of key frame {version}")
        live = step.state["live"]
        leaves = [*root["leaves"], *leaves_of_stems(objects, root)]
        if leaves:
            found = [i for leaf in leaves for i in ids_of(objects, leaf)]
            hold(sorted(found) == sorted(live), "key frame", f"leaves of key frame {version}")
        else:
            entries = {entry["id"]: entry for entry in root["segments"]}
            hold(entries == live, "key frame", f"entries of key frame {version}")


def leaves_of_stems(objects, root):
    """What the stems of a root say of their leaves; their hashes must match their names."""
    for stem in root.get("stems", []):
        body = objects[f"_frames/{stem['sha256']}.json.zst"]
        hold(naive.digest(body) == stem["sha256"], "key frame", f"stem {stem['sha256']}")
        with pa.CompressedInputStream(pa.BufferReader(body), "zstd") as stream:
            yield from json.loads(stream.read())


def ids_of(objects, leaf):
    """The segments in a leaf's object, whose hash must match its name."""
    body = objects[f"_frames/{leaf['sha256']}.parquet"]
    hold(naive.digest(body) == leaf["sha256"], "key frame", f"leaf {leaf['sha256']}")
    return [i.hex() for i in pq.read_table(BytesIO(body)).column("id").to_pylist()]
