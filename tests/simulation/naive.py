"""A second fold, written from FORMAT.md without code of the first: slow, simple, on JSON.

It supports the tables of the simulation: chunks of days, hours and months, no spills.
"""

import base64
import hashlib
import json
import re
from datetime import UTC, datetime, timedelta

VALUES = ("layout", "schema", "fence", "horizon", "swept", "analysed", "clock")
DEFAULTS = dict.fromkeys(VALUES) | {"fence": 0, "horizon": 0, "clock": []}
MAPS = ("properties", "apps", "published", "claims", "pins", "replicas", "chunks", "origins")
ENTRY = (
    *("id", "chunk", "epoch", "version", "partition"),
    *("rows", "bytes", "checksum", "schema", "stats", "tail", "vector", "inline"),
)


class Void(Exception):
    """The transaction is void; has the reason."""


def need(condition, rule):
    if not condition:
        raise Void(rule)


def digest(value):
    text = value if isinstance(value, bytes) else canonical(value).encode()
    return hashlib.sha256(text).hexdigest()


def canonical(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def interval(chunk):
    """Section 1.4; ValueError if the text is not a chunk's name."""
    named = re.fullmatch(r"(\d{4})-(\d\d)(?:-(\d\d)(?:T(\d\d))?)?", chunk, re.ASCII)
    if not named:
        raise ValueError(chunk)
    year, month, day, hour = (int(part) if part else None for part in named.groups())
    start = datetime(year, month, day or 1, hour or 0, tzinfo=UTC)
    if day is None:
        end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC)
    else:
        end = start + (timedelta(days=1) if hour is None else timedelta(hours=1))
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)


def empty():
    return DEFAULTS | {name: {} for name in MAPS} | {"live": {}, "version": -1}


def small_state(state):
    """Section 2.8: `origins` is absent while it is empty."""
    small_one = {name: state[name] for name in (*VALUES, *MAPS)}
    return {n: held for n, held in small_one.items() if n != "origins" or held}


def state_hash(state):
    """R8.2."""
    total = sum(int(digest(entry), 16) for entry in state["live"].values())
    for name in VALUES:
        if state[name] != DEFAULTS[name]:
            total += int(digest([name, None, state[name]]), 16)
    for name in MAPS:
        total += sum(int(digest([name, k, v]), 16) for k, v in state[name].items())
    return f"{total % 2**256:064x}"


def fold(state, transactions, version, time):
    """Return the state after a commit, the accepted ids, and id to rule of the void ones."""
    before, accepted, void = state, [], {}
    state = state | {"version": version, "adds": [], "drops": [], "deletes": [], "touched": []}
    gone = [i for i, mark in state["published"].items() if mark["until"] < version]
    state["published"] = {i: m for i, m in state["published"].items() if i not in gone}
    for txn in transactions:
        trial = state | {name: dict(state[name]) for name in (*MAPS, "live")}
        trial |= {n: list(state[n]) for n in ("adds", "drops", "deletes", "touched")}
        try:
            need(txn["id"] not in accepted, "F1")
            judge(txn, trial, before, version, time)
        except Void as why:
            void[txn["id"]] = str(why)
        else:
            state = trial
            accepted.append(txn["id"])
    return state, accepted, void


def judge(txn, state, before, version, time):
    actions = txn["actions"]
    if txn["until"] is not None:
        ok = version <= txn["until"] <= version + 64 and txn["id"] not in state["published"]
        need(ok and may_ride(txn), "F3")
        state["published"][txn["id"]] = {"version": version, "until": txn["until"]}
    if txn["app"] is not None:
        name, seq = txn["app"]["id"], txn["app"]["seq"]
        need(name not in state["apps"] or state["apps"][name]["seq"] < seq, "F2")
        state["apps"][name] = {"seq": seq, "version": version, "time": time}
    if txn["claim"] is not None:
        held(state["claims"], txn["claim"]["id"], txn["claim"]["token"], "F8")
    for action in actions:
        small(action, state, version, time)
    dropped = []
    for drop in (a for a in actions if a["action"] == "drop"):
        entry = state["live"].pop(drop["id"], None)
        need(entry and entry["chunk"] == drop["chunk"] and digest(entry) == drop["hash"], "F5")
        need(drop["id"] not in state["touched"], "F5 touched")
        dropped.append(entry)
    state["drops"] += dropped
    deletes = [
        delete_rows(a, state, before, version) for a in actions if a["action"] == "delete_rows"
    ]
    state["deletes"] += deletes
    balance(txn, dropped)
    check_update(actions, dropped, deletes)
    for action in actions:
        if action["action"] == "add":
            add(action, state, before, actions, dropped, version)
        elif action["action"] == "unchanged":
            for entry in before["live"].values():
                start, end = interval(entry["chunk"])
                met = start < action["end"] and action["start"] < end
                need(not met or entry["version"] <= txn["read_version"], "F7")
        elif action["action"] == "same_segments":
            total = sum(int(digest(entry), 16) for entry in before["live"].values())
            same = f"{total % 2**256:064x}" == action["hash_sum"]
            earlier = len(state["adds"]) > sum(a["action"] == "add" for a in actions)
            fewer = len(state["drops"]) > len(dropped) or len(state["deletes"]) > len(deletes)
            need(same and not earlier and not fewer, "F7 same segments")


def add(action, state, before, actions, dropped, version):  # noqa: PLR0917 - F6 sees all of it
    """F6."""
    kinds = {a["action"] for a in actions}
    restored = "restore" in kinds
    again = exchanged(action, dropped) if kinds & {"restore", "origin"} else False
    need(restored or again or action["epoch"] >= state["fence"], "F6 fence")
    need(action["epoch"] < version, "F6 epoch")
    need(1 <= action["schema"] <= state["schema"]["id"], "F6 schema")
    added = {e["id"] for e in state["adds"]}
    need(action["id"] not in added, "F6 added")
    need(again or action["id"] not in before["live"], "F6 live")
    if "vector" in action:
        check_vector(action["vector"], action, state, version, restored=restored)
    entry = action | {"version": version, "partition": len(state["adds"])} | inline(action, version)
    need(
        "inline" not in action or ((restored or again) and action["inline"] < version), "F6 inline"
    )
    state["live"][action["id"]] = entry = {name: entry[name] for name in ENTRY if name in entry}
    state["adds"].append(entry)
    if again:
        state["touched"].append(action["id"])


def inline(action, version):
    """R21.1: what an entry says of bytes that its add has."""
    if "parquet" not in action:
        return {}
    body = base64.b64decode(action["parquet"])
    need(len(body) == action["bytes"] and digest(body) == action["checksum"], "F6 bytes")
    need("inline" not in action and not action["tail"], "F6 bytes")
    return {"inline": version}


def exchanged(action, dropped):
    """R20.6: whether an add is a segment that the transaction drops, with another vector."""
    return any(
        all(
            action.get(n) == old.get(n)
            for n in ENTRY
            if n not in ("version", "partition", "vector")
        )
        and action.get("vector") != old.get("vector")
        for old in dropped
    )


def delete_rows(action, state, before, version):
    """R20.3; return the entry as it was, and as it is."""
    old = before["live"].get(action["id"])
    need(old and state["live"].get(action["id"]) == old, "R20.3 live")
    need(action["id"] not in state["touched"], "R20.3 touched")
    need(old["chunk"] == action["chunk"] and digest(old) == action["hash"], "R20.3 entry")
    need(deleted(old) < action["vector"]["rows"], "R20.3 shrinks")
    check_vector(action["vector"], old, state, version, restored=False)
    given = old | {"vector": action["vector"]}
    state["live"][old["id"]] = new = {name: given[name] for name in ENTRY if name in given}
    state["touched"].append(old["id"])
    return old, new


def check_vector(vector, entry, state, version, *, restored):
    """R20.2."""
    need(1 <= vector["rows"] < entry["rows"], "R20.2 rows")
    stored = stored_in(vector)
    if stored is not None:
        need(stored["epoch"] < version, "R20.2 epoch")
        need(restored or stored["epoch"] >= state["fence"], "R20.2 fence")


def stored_in(vector):
    """Return epoch, id and place of the object that has a vector; None if the log has it."""
    return vector.get("stored")


def deleted(entry):
    """Return how many rows the vector of an entry deletes."""
    return entry["vector"]["rows"] if "vector" in entry else 0


def left(entry):
    """Return how many rows of an entry are not deleted."""
    return entry["rows"] - deleted(entry)


def check_update(actions, dropped, deletes):
    """R20.5."""
    updates = [a for a in actions if a["action"] == "update"]
    if updates:
        rest = {a["action"] for a in actions}
        need(len(updates) == 1 and not rest & {"replace", "merge", "restore"}, "R20.5 alone")
        rows, paired = updates[0]["rows"], updates[0]["paired"]
        came = sum(left(a) for a in actions if a["action"] == "add")
        gone = sum(map(left, dropped)) + sum(deleted(new) - deleted(old) for old, new in deletes)
        need(1 <= rows <= gone and rows <= came, "R20.5 rows")
        need(not paired or rows == gone == came, "R20.5 pairs")


def may_ride(txn):
    """R11.1: an append, or a replacement."""
    kinds = {a["action"] for a in txn["actions"]}
    if "replace" in kinds:
        return kinds <= {"replace", "drop", "add", "release"}
    return kinds <= {"add"} and txn["claim"] is None


def balance(txn, dropped):
    """F10."""
    replaces = [a for a in txn["actions"] if a["action"] == "replace"]
    if replaces:
        need(len(replaces) == 1, "F10 twice")
        need(dropped, "F10 nothing")
        planned = replaces[0]["version"]
        need(planned <= txn["read_version"], "F10 read")
        need(all(entry["version"] <= planned for entry in dropped), "F10 late")
        need(all(a["action"] != "delete_rows" for a in txn["actions"]), "F10 deletes")
        kept = sum(left(a) for a in txn["actions"] if a["action"] == "add")
        lost = sum(map(left, dropped)) - kept
        need(lost == replaces[0]["deletes"], "F10 rows")


def held(there, name, token, rule):
    need(name in there and there[name]["token"] == token, rule)
    return there[name]


def small(a, state, version, time):  # noqa: PLR0912 - one case per action
    kind, pins, replicas, claims = a["action"], state["pins"], state["replicas"], state["claims"]
    if kind == "set_layout":
        need(version == 0, "F4")
        state["layout"] = a["layout"]
    elif kind == "set_granularity":
        need(state["layout"]["granularity"] == a["old"], "R14.4")
        state["layout"] = state["layout"] | {"granularity": a["new"]}
    elif kind == "assess":
        assess(a, state, version)
    elif kind == "set_clock":
        known = state["clock"]
        need(a["version"] == version - 1 and a["new"] == time, "R10.3")
        need(not known or known[-1]["version"] < a["version"], "R10.3 twice")
        ten_years = 3653 * 86_400_000
        need(a["new"] < a["old"] or a["new"] - a["old"] > ten_years, "R10.3 leap")
        need(len(known) < 100, "R10.3 number")
        state["clock"] = [*known, {name: a[name] for name in ("version", "old", "new")}]
    elif kind == "set_schema":
        need(state["schema"] is None, "F4: the simulation changes no schema")
        state["schema"] = a["schema"]
    elif kind == "set_properties":
        for change in a["changes"]:
            need(state["properties"].pop(change["name"], None) == change["old"], "F4")
            if change["new"] is not None:
                state["properties"][change["name"]] = change["new"]
    elif kind == "fence":
        need(state["fence"] < a["epoch"] <= version, "F4")
        state["fence"] = a["epoch"]
    elif kind == "horizon":
        need(state["horizon"] < a["version"] < version, "R12.1")
        kept = [p["version"] for p in pins.values()] + [r["acked"] for r in replicas.values()]
        need(all(v >= a["version"] for v in kept), "R12.1 held")
        state["horizon"] = a["version"]
    elif kind == "swept":
        new, old = a["sweep"], state["swept"] or {"fence": 0, "horizon": 0, "version": 0}
        need(all(old[n] <= new[n] <= state[n] for n in ("fence", "horizon")), "R12.6")
        need(old["version"] < new["version"] < version, "R12.6")
        state["swept"] = new
    elif kind in ("pin", "attach"):
        there, at = (pins, a["version"]) if kind == "pin" else (replicas, a["acked"])
        need(state["horizon"] <= at < version and a["name"] not in there, "R12.2")
        mark = {"owner": a["owner"], "token": version}
        pin = {"version": at, **mark, "time": time}
        there[a["name"]] = pin if kind == "pin" else {"acked": at, **mark}
    elif kind == "unpin":
        need(held(pins, a["name"], a["token"], "R12.2")["owner"] == a["owner"], "R12.2")
        del pins[a["name"]]
    elif kind == "ack":
        seen = held(replicas, a["name"], a["token"], "R12.2")
        need(seen["acked"] < a["version"] < version, "R12.2")
        replicas[a["name"]] = seen | {"acked": a["version"]}
    elif kind == "detach":
        held(replicas, a["name"], a["token"], "R12.2")
        del replicas[a["name"]]
    elif kind == "break":
        there = state[a["kind"] + "s"]
        seen = held(there, a["name"], a["token"], "R12.2")
        need(seen.get("renewed", 0) == a["renewed"], "R12.2 renewed")
        del there[a["name"]]
    elif kind == "origin":
        forms = (re.fullmatch("[0-9a-f]{64}", a[name], re.ASCII) for name in ("id", "commit"))
        before = state["origins"].get(a["id"], {"version": None})["version"]
        need(all(forms) and before == a["old"], "R19.1")
        need(before is None or before < a["version"], "R19.1")
        for name, rise in a["apps"].items():
            seq = state["apps"].get(name, {"seq": None})["seq"]
            need(seq == rise["old"], "R19.1")
            done = [n for run in rise["done"] for n in range(run[0], run[1] + 1)]
            need(done and done == sorted(set(done)), "R19.1")
            need(all(low <= high for low, high in rise["done"]), "R19.1")
            if seq is not None and done[0] <= seq:
                others = [o for i, o in state["origins"].items() if i != a["id"]]
                seen = a["checked"]
                need(
                    seen is not None and seen < version and all(o["token"] <= seen for o in others),
                    "R19.1",
                )
            if seq is None or seq < done[-1]:
                state["apps"][name] = {"seq": done[-1], "version": version, "time": time}
        mark = {"version": a["version"], "commit": a["commit"], "token": version}
        state["origins"][a["id"]] = mark
    elif kind == "restore":
        need(state["horizon"] <= a["version"] < version, "R12.3")
        for name, reset in a.get("apps", {}).items():
            mark = state["apps"].pop(name, {"seq": None})
            need(mark["seq"] == reset["old"], "R12.3")
            if reset["new"] is not None:
                state["apps"][name] = {"seq": reset["new"], "version": version, "time": time}
    elif kind == "claim":
        take(a, claims, version)
    elif kind == "renew":
        claims[a["id"]] = held(claims, a["id"], a["token"], "R13.5") | {"renewed": version}
    elif kind == "release":
        held(claims, a["id"], a["token"], "R13.5")
        del claims[a["id"]]
    else:  # judged above, with the segments
        judged = ("add", "drop", "unchanged", "same_segments", "replace", "delete_rows", "update")
        assert kind in judged, f"unknown action {kind}"


def assess(a, state, version):
    """R14.6."""
    need(a["old"] == state["analysed"], "R14.6 old")
    names, new = [one["chunk"] for one in a["chunks"]], a["analysed"]
    need(names == sorted(set(names)), "R14.6 order")
    if new is not None:
        need(new["version"] < version, "R14.6 version")
        need(re.fullmatch("[0-9a-f]{64}", new["policy"], re.ASCII), "R14.6 policy")
    for one in a["chunks"]:
        try:
            interval(one["chunk"])
        except ValueError:
            need(False, "R14.6 name")
        if one["state"] is None:
            state["chunks"].pop(one["chunk"], None)
        else:
            need(one["state"]["version"] < version, "R14.6 state")
            state["chunks"][one["chunk"]] = one["state"]
    need(len(state["chunks"]) <= 500, "R14.6 number")
    state["analysed"] = new


SCOPE = ("group", "start", "end", "segments", "kind")


def take(a, claims, version):
    if any(all(c[name] == a[name] for name in SCOPE) for c in claims.values()):
        return
    need(a["id"] not in claims and a["start"] < a["end"], "R13.4")
    for name, claim in list(claims.items()):
        if claim["kind"] == a["kind"] == "shared":
            continue
        if claim["segments"] and a["segments"]:
            met = set(claim["segments"]) & set(a["segments"])
        else:
            met = claim["start"] < a["end"] and a["start"] < claim["end"]
        if met:
            need(claim["priority"] < a["priority"], "R13.2")
            del claims[name]
    fields = ("start", "end", "segments", "kind", "priority", "group", "owner")
    claims[a["id"]] = {n: a[n] for n in fields} | {"token": version, "renewed": version}
