"""One encoding, and nothing else: golden objects with one part changed are refused, and by whom.

Every part of a commit and of a key frame root is changed in form: turned, doubled, left out,
added, negated, written otherwise. The digests of the object fit again, and it is the newest one, so
that no later commit speaks against it. Opening the version refuses it or, where FORMAT.md "Who
checks what" says so, fsck does.
"""

import functools
import json
import logging
import re
from pathlib import Path

import pytest
from support import builders

from eventlog import Table, errors
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore

TABLES = Path(__file__).parents[1] / "golden" / "tables"
NAMES = ("kept", "leaves", "shared", "typed", "merged")
_HEX = re.compile(r"[0-9a-f]{32}(?:[0-9a-f]{32})?")


@functools.cache
def objects(name):
    """The log and the frames of a golden table, by key."""
    store = LocalStore(TABLES / name)
    return {
        row.key: store.get(row.key)
        for prefix in (keys.LOG_PREFIX, keys.FRAMES_PREFIX)
        for row in store.list(prefix)
    }


def upto(name, version, *, framed=False):
    """The golden table as it was when `version` was the newest; `framed`: with its key frame."""
    store = MemoryStore()
    for key, body in objects(name).items():
        parsed = keys.parse_log_key(key)
        if parsed is None or parsed[0] < version or parsed == (version, False):
            store.put_if_absent(key, body)
    if framed:
        key = keys.keyframe_key(version)
        store.put_if_absent(key, objects(name)[key])
    return store


def parts(value, path=()):
    """Every part of a JSON value with its path; of a long list the first and the last member."""
    yield path, value
    if isinstance(value, dict):
        for field, inner in value.items():
            yield from parts(inner, (*path, field))
    elif isinstance(value, list):
        for place in sorted({0, len(value) - 1} if value else ()):
            yield from parts(value[place], (*path, place))


def pattern(path, whole):
    """The path with names of maps and places in lists left out."""
    told, value = [], whole
    for step in path:
        open_map = told and told[-1] in MAPS
        told.append("*" if isinstance(step, int) or open_map else step)
        if isinstance(value, list) and isinstance(value[step], dict):
            told[-1] = value[step].get("action", "*")
        value = value[step]
    return ".".join(told)


MAPS = {
    "properties",
    "apps",
    "published",
    "claims",
    "pins",
    "replicas",
    "chunks",
    "info",
    "origins",
}


def changes(value):
    """(what was done, the value so changed), each of another form than the format's."""
    if isinstance(value, dict):
        yield "a field that is not of the format", {**value, "zz": None}
        if len(value) > 1:
            yield "fields turned", dict(reversed(value.items()))
        for field in value:
            yield f"without {field}", {f: v for f, v in value.items() if f != field}
    elif isinstance(value, list):
        if value:
            yield "doubled", [value[0], *value]
        if len(value) > 1 and value[0] != value[-1]:
            yield "turned", value[::-1]
        yield "null", None
    elif isinstance(value, bool):
        yield "a number", int(value)
    elif isinstance(value, int):
        yield "negative", -2 - abs(value)
        yield "past 64 bits", 2**63
        yield "a float", float(value)
        yield "text", str(value)
    elif isinstance(value, str):
        if _HEX.fullmatch(value):
            yield "other case", value.upper() if value.upper() != value else value[:-1] + "A"
            yield "cut", value[:-1]
        yield "null", None
        yield "a number", 1
    else:
        yield "a number", -2


def with_part(value, path, part):
    """The value with another part at a path."""
    if not path:
        return part
    step, *rest = path
    changed = value.copy()
    changed[step] = with_part(value[step], rest, part)
    return changed


def body_of(tree):
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":")).encode()
    return builders.resealed(text)


def opened(store, version):
    """What a reader of the newest version gets."""
    table = Table.open("", store=store)
    snapshot = table.snapshot(version)
    return snapshot.totals, snapshot.meta, builders.live(snapshot)


def changed(bodies, under=()):
    """Every change of every kind of part, once: (part, change), version, changed body."""
    seen = set()
    for version, body in bodies:
        tree = json.loads(body)
        for path, value in parts(tree):
            if path[: len(under)] != under or path[-1:] == ("digest",):
                continue
            for what, part in changes(value):
                told = (pattern(path, tree), what)
                if told not in seen:
                    seen.add(told)
                    yield told, version, body_of(with_part(tree, path, part))


# What a reader of the version leaves to the fold: what transactions say, and the header's summary
# of that.
OF_THE_FOLD = re.compile(r"transactions\b|header\.features$|header\.changes\.(rows|bytes)$")
# What is another transaction, or another table, and as good as the one that was written.
FREE = {
    ("header.time", "negative"),
    ("transactions", "doubled"),
    ("transactions.*.actions", "doubled"),
    ("transactions.*.actions", "turned"),
    ("transactions.*.actions.set_properties.changes", "turned"),
    ("transactions.*.actions.origin.apps", "without loader"),
    ("transactions.*.actions.origin.commits", "doubled"),
    ("transactions.*.actions.origin.commits", "turned"),
    ("transactions.*.actions.unchanged.end", "negative"),
    ("transactions.*.actions.unchanged.start", "negative"),
    ("transactions.*.info", "without of"),
    ("transactions.*.info", "without restored"),
    ("transactions.*.info", "without void by"),
}


@pytest.mark.sample(2, verify=3)
@pytest.mark.parametrize("name", NAMES)
def test_a_commit_of_another_form_is_refused(name, caplog):
    caplog.set_level(logging.CRITICAL)
    passed, cases = {}, 0
    for told, version, body in changed(enumerate(builders.bodies(LocalStore(TABLES / name)))):
        store, cases = upto(name, version), cases + 1
        builders.replace_object(store, keys.commit_key(version), body)
        try:
            opened(store, version)
        except (errors.Corrupt, errors.UnsupportedFormat):
            continue
        passed[told] = fsck(Table(store), objects=False).ok
    assert cases > 250
    assert [told for told in passed if not OF_THE_FOLD.match(told[0]) and told not in FREE] == []
    assert {told for told, ok in passed.items() if ok} <= FREE


# The part of a root that is not as in the others.
OWN = {
    "kept": (),
    "leaves": ("leaves",),
    "shared": ("state",),
    "typed": ("segments",),
    "merged": ("state",),
}
OTHER_TYPES = {"text", "a float", "a number", "null"}  # refused as in commits, by the same decoder


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [n if n == "leaves" else pytest.param(n, marks=pytest.mark.long) for n in NAMES]
)
def test_a_key_frame_of_another_form_changes_no_answer(name, caplog):
    caplog.set_level(logging.CRITICAL)
    roots, cases = {}, 0
    for key, body in objects(name).items():
        parsed = keys.parse_log_key(key)
        if parsed is not None and parsed[1]:
            roots[parsed[0]] = body
    truth = {version: opened(upto(name, version), version) for version in roots}
    for told, version, body in changed(roots.items(), OWN[name]):
        if told[1] in OTHER_TYPES:
            continue
        store, cases = upto(name, version, framed=True), cases + 1
        key = keys.keyframe_key(version)
        builders.replace_object(store, key, body)
        assert opened(store, version) == truth[version], told
        found = fsck(Table(store), objects=False).findings
        assert any(finding.version == version for finding in found), told
    assert cases > 20
