"""The log as seen by an independent observer, folded commit by commit with `naive`."""

import json
import re
from dataclasses import dataclass
from itertools import combinations

from simulation import naive

SEGMENT = re.compile(
    r"data/(\d{12})/(\d{4}(?:-\d\d){1,2}(?:T\d\d)?)/([0-9a-f]{32})\.parquet", re.ASCII
)
VECTORS = re.compile(r"data/(\d{12})/vectors/([0-9a-f]{32})\.roaring", re.ASCII)
COMMIT = re.compile(r"_log/(\d{12})\.json", re.ASCII)
ROOT = re.compile(r"_log/(\d{12})\.keyframe\.json", re.ASCII)
TOP = 999_999_999_999


class Violation(AssertionError):
    """A promise was broken; names the rule and the cause."""

    def __init__(self, rule, why):
        super().__init__(f"[{rule}] {why}")
        self.rule = rule


def hold(condition, rule, why):
    if not condition:
        raise Violation(rule, why)


@dataclass(slots=True)
class Step:
    """One version: its commit and the result of the naive fold."""

    commit: dict
    hash: str
    state: dict
    accepted: list
    void: dict

    @property
    def kinds(self):
        """The actions of the accepted transactions, one after the other."""
        transactions = [t for t in self.commit["transactions"] if t["id"] in self.accepted]
        return [action["action"] for t in transactions for action in t["actions"]]


def segment_key(entry):
    return f"data/{entry['epoch']:012d}/{entry['chunk']}/{entry['id']}.parquet"


def vectors_key(vector):
    """Return the key of the object that has a vector; None if the log has it."""
    stored = naive.stored_in(vector)
    if stored is None:
        return None
    return f"data/{stored['epoch']:012d}/vectors/{stored['object']}.roaring"


def keys_of(entry):
    """Return the keys of the objects that an entry needs."""
    vectors = vectors_key(entry["vector"]) if "vector" in entry else None
    own = [] if "inline" in entry else [segment_key(entry)]
    return own + ([] if vectors is None else [vectors])


def check_claims(claims, version):
    """Two live claims must not overlap, unless both are shared (R13.1)."""
    for (first, a), (second, b) in combinations(claims.items(), 2):
        if a["kind"] == b["kind"] == "shared":
            continue
        if a["segments"] and b["segments"]:
            met = not set(a["segments"]).isdisjoint(b["segments"])
        else:
            met = max(a["start"], b["start"]) < min(a["end"], b["end"])
        hold(not met, "claims", f"version {version}: {first} and {second} both stand")


class Ledger:
    """All versions so far, each checked when it is added."""

    def __init__(self):
        self.steps = []
        self.bodies = []
        self.accepted = {}  # transaction id -> version
        self.last_live = {}  # key of an object that is not live -> the last version that needs it
        self._live = set()
        self.units = {}  # (app id, sequence) -> version

    @property
    def head(self):
        return self.steps[-1].state

    def advance(self, body):
        """Add the next commit.

        Raises:
            Violation: it does not follow the chain, differs from the fold of its transactions, or
                repeats an effect.
        """
        commit = json.loads(body)
        header, version = commit["header"], len(self.steps)
        before = self.steps[-1] if self.steps else None
        hold(header["version"] == version, "log", f"version {header['version']} at {version}")
        hold(header["prev"] == (before and before.hash), "chain", f"prev of version {version}")
        if before:
            grew = header["time"] > before.commit["header"]["time"]
            hold(grew, "time", f"the time of version {version} does not grow")
        state = before.state if before else naive.empty()
        txns = commit["transactions"]
        hold(all(t["spill"] is None for t in txns), "log", "a spill in a small table")
        after, accepted, void = naive.fold(state, txns, version, header["time"])
        hold(not void, "void", f"version {version} holds void transactions: {void}")
        self._check_effects(txns, accepted, version, state)
        check_claims(after["claims"], version)
        step = Step(commit, naive.digest(body), after, accepted, void)
        self.steps.append(step)
        self.bodies.append(body)
        self._check_header(step, version)
        live = {key for entry in after["live"].values() for key in keys_of(entry)}
        self.last_live.update(dict.fromkeys(self._live - live, version - 1))
        self._live = live

    def dead(self, key):
        """Return whether an object may be deleted now (R12.4)."""
        match = SEGMENT.fullmatch(key) or VECTORS.fullmatch(key)
        if not match or int(match[1]) >= self.head["fence"] or key in self._live:
            return False
        return self.last_live.get(key, -1) < self.head["horizon"]

    def needed(self):
        """Return the keys of all objects that are live in a version from the horizon on."""
        kept = (self.steps[-1], *self.steps[self.head["horizon"] :])
        entries = (entry for step in kept for entry in step.state["live"].values())
        return {key for entry in entries for key in keys_of(entry)}

    def _check_effects(self, txns, accepted, version, before):
        """Check that each transaction and each unit takes effect once, and work has its claim.

        The claim must have existed before the commit: a token is the version of the claim's commit,
        which cannot be known earlier.
        """
        for txn in txns:
            if txn["id"] not in accepted:
                continue
            if txn.get("claim"):
                claim = before["claims"].get(txn["claim"]["id"])
                stood = claim is not None and claim["token"] == txn["claim"]["token"]
                hold(stood, "claim", f"version {version} worked under a claim that was gone: {txn}")
            first = self.accepted.setdefault(txn["id"], version)
            hold(first == version, "once", f"{txn['id']} took effect in {first} and {version}")
            if txn["app"]:
                unit = txn["app"]["id"], txn["app"]["seq"]
                hold(unit not in self.units, "unit", f"unit {unit} took effect twice")
                self.units[unit] = version

    def _check_header(self, step, version):
        header, state = step.commit["header"], step.state
        live = state["live"].values()
        totals = {"segments": len(live)}
        totals |= {"rows": sum(map(naive.left, live)), "bytes": sum(e["bytes"] for e in live)}
        deleted = sum(map(naive.deleted, live))
        totals |= {"deleted": deleted} if deleted else {}
        inline = sum("inline" in entry for entry in live)
        totals |= {"inline": inline} if inline else {}
        hold(header["totals"] == totals, "header", f"totals of version {version}")
        named = [name in header["features"] for name in ("inline", "vectors")]
        hold(named == [inline > 0, deleted > 0], "header", f"features of version {version}")
        found = naive.state_hash(state)
        hold(header["state_hash"] == found, "header", f"state hash of version {version}")
        changes = {"transactions": len(step.accepted)}
        changes |= {"adds": len(state["adds"]), "drops": len(state["drops"])}
        changes |= {"vectors": len(state["deletes"])}
        said = {name: header["changes"].get(name, 0) for name in changes}
        hold(said == changes, "header", f"changes of version {version}: {said}, not {changes}")
        start = header["keyframe"]
        hold(start is None or start < version, "header", f"key frame of version {version}")
        base = naive.empty() if start is None else self.steps[start].state
        self._check_delta(step, base, version)
        patch = {n: state[n] for n in naive.VALUES if state[n] != base[n]}
        for name in naive.MAPS:
            there, was = state[name], base[name]
            new = {k: there.get(k) for k in there.keys() | was.keys() if there.get(k) != was.get(k)}
            patch |= {name: new} if new else {}
        hold(step.commit["state"] == patch, "delta", f"small state of version {version}")

    def _check_delta(self, step, base, version):
        delta, live = step.commit["delta"], step.state["live"]
        adds = [e for i, e in live.items() if base["live"].get(i) != e]
        drops = {i for i, e in base["live"].items() if live.get(i) != e}
        key = lambda e: (e["version"], e["partition"])
        hold(delta["adds"] == sorted(adds, key=key), "delta", f"adds of version {version}")
        hold({d["id"] for d in delta["drops"]} == drops, "delta", f"drops of version {version}")
