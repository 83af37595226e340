"""Write the negative vectors: small changes to golden tables, and what a reader has to do then.

    PYTHONPATH=tests .venv/bin/python tests/golden/make_negative.py

writes `negative.json`; `README.md` says what its fields mean. A change of a commit or of a root is
a list of texts to find and to put; where only what stands behind the digests is to be wrong, the
digests are made good, and are among those texts.
"""

import base64
import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from golden import (
    negative_cuts,
    negative_inline,
    negative_log,
    negative_rows,
    negative_vectors,
    reader,
)
from golden.forge import Forge

HERE = Path(__file__).parent
TABLES = HERE / "tables"
NEGATIVE = HERE / "negative.json"
TOP = 999_999_999_999
DIGEST = '"digest":"'
ZEROS = "0" * 64

REFUSE, UNSUPPORTED, OLDER, SAME = "refuse", "unsupported", "older key frame", "same"
LOST, CHAIN, FOLD, EITHER = "lost", "chain", "fold", "either"


def log_key(version: int, kind: str = "") -> str:
    """Return the key of a commit, or with `.keyframe` of a root."""
    return f"_log/{TOP - version:012d}{kind}.json"


def text_of(table: str, key: str) -> str:
    """Return the text of an object."""
    return (TABLES / table / key).read_bytes().decode()


def sealed(text: str) -> str:
    """Return an object's text with the digest at its end made good."""
    bare = text[: text.rindex("," + DIGEST)]
    return f'{bare},{DIGEST}{hashlib.sha256((bare + "}").encode()).hexdigest()}"}}'


def resealed(text: str) -> str:
    """Return a commit's text with both digests made good."""
    found = re.match(r'\{"header":(.*?,"digest":"[0-9a-f]{64}"\})', text)
    assert found, text[:100]
    return sealed('{"header":' + sealed(found[1]) + text[found.end() :])


def change(
    table: str,
    key: str,
    edits: list[tuple[str, str]],
    seal: str = "all",
    times: tuple[str, int] | None = None,
) -> dict[str, Any]:
    """Return a change of a text: the edits, and those of the digests that follow from them.

    Args:
        table: the golden table.
        key: of the object.
        edits: texts to find and to put.
        seal: which digests are made good: `all`, `whole`, `none`.
        times: a text that stands so often in the end, once after the edits.
    """
    before = after = text_of(table, key)
    for find, put in edits:
        assert after.count(find) == 1, (table, key, find, after.count(find))
        after = after.replace(find, put)
    if times is not None:
        assert after.count(times[0]) == 1
        after = after.replace(times[0], times[0] * times[1])
    if seal == "all":
        after = sealed(after) if "keyframe" in key else resealed(after)
    elif seal == "whole":
        after = sealed(after)
    pattern = re.compile(DIGEST + "([0-9a-f]{64})")
    old, new = pattern.findall(before), pattern.findall(after)
    more = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    made = {"key": key, "text": [*edits, *more]}
    return made if times is None else made | {"times": times}


def commit(
    name: str, rule: str, what: str, at: tuple[str, int], *edits: tuple[str, str], **how: Any
):
    """Return a case of one changed commit."""
    table, version = at
    changed = change(table, log_key(version), list(edits), **how)
    return case(name, rule, what, at, changed)


def root(name: str, rule: str, at: tuple[str, int, int], *edits: tuple[str, str], **how: str):
    """Return a case of a changed key frame root of the version `at[2]`, over which `at[1]` lies."""
    table, version, frame = at
    changed = change(table, log_key(frame, ".keyframe"), list(edits), **how)
    return case(name, rule, OLDER, (table, version), changed)


def case(name: str, rule: str, what: str, at: tuple[str, int], *changes: dict[str, Any]):
    """Return a case."""
    table, version = at
    fields = {"name": name, "rule": rule, "what": what, "table": table, "version": version}
    return fields | {"changes": list(changes)}


def one(table: str, version: int, pattern: str) -> str:
    """Return the first text in a commit that a pattern matches."""
    found = re.search(pattern, text_of(table, log_key(version)))
    assert found, pattern
    return found[0]


def commits() -> list[dict[str, Any]]:
    """Cases of commits that break their form."""
    year, whole = ("year", 2), ("whole", 24)
    checked, known = ("checked", 10), '"write_features":["checks"]'
    prev = one("year", 2, r'"prev":"[0-9a-f]{64}"')
    rows = one("year", 2, r'"delta":\{"adds":\[\{"id":"\w+","chunk":"1970","epoch":1,[^[]*')
    first, second = re.findall(
        r'\{"id":"[^}]*?"tail":null\}', text_of("year", log_key(2)).split('"delta":')[1]
    )[:2]
    txn = one("year", 2, r'"transactions":\[\{"id":"\w{32}"')
    return [
        commit(
            "a byte changed",
            "R5.3",
            REFUSE,
            year,
            (
                '"operation":"append","writer":"golden@example","read',
                '"operation":"upsert","writer":"golden@example","read',
            ),
            seal="none",
        ),
        commit(
            "the header's digest", "R6.1", REFUSE, year, ('"rows":10', '"rows":11'), seal="whole"
        ),
        commit("white space", "R5.1", REFUSE, year, ('"transactions":[', '"transactions": [')),
        commit(
            "an unknown field", "R5.1", REFUSE, year, ('"features":[],', '"features":[],"more":1,')
        ),
        commit("a missing field", "R5.1", REFUSE, year, (',"info":{}', "")),
        commit(
            "fields in another order",
            "R5.1",
            REFUSE,
            year,
            ('"min_reader":1,"min_writer":1', '"min_writer":1,"min_reader":1'),
        ),
        commit(
            "a field twice",
            "R5.1",
            REFUSE,
            year,
            ('"min_reader":1,', '"min_reader":1,"min_reader":1,'),
        ),
        commit("an integer with a point", "R5.1", REFUSE, year, ('"rows":10', '"rows":10.0')),
        commit(
            "text that is escaped without need",
            "R5.1",
            REFUSE,
            ("whole", 0),
            ('"old":null,"new":"größe', '"old":null,"new":"gr\\u00f6ße'),
        ),
        commit(
            "a negative count",
            "R5.2",
            REFUSE,
            year,
            (rows, re.sub(r'"rows":\d+', '"rows":-1', rows)),
        ),
        commit(
            "a newer reader is needed",
            "R5.4",
            UNSUPPORTED,
            year,
            ('"min_reader":1', '"min_reader":2'),
        ),
        commit(
            "an unknown feature",
            "R5.4",
            UNSUPPORTED,
            year,
            ('"features":[]', '"features":["unheard"]'),
        ),
        commit(
            "a newer writer is needed", "R5.4", SAME, year, ('"min_writer":1', '"min_writer":2')
        ),
        *(
            commit(name, "R5.4", result, checked, (known, f'"write_features":{to}'))
            for name, result, to in (
                ("an unknown feature of writers", SAME, '["checks","unheard"]'),
                ("no features of writers, in a list", REFUSE, "[]"),
                ("features of writers out of order", REFUSE, '["unheard","checks"]'),
                ("a feature of writers twice", REFUSE, '["checks","checks"]'),
            )
        ),
        commit(
            "another format", "R5.4", REFUSE, year, ('"format":"eventlog"', '"format":"eventlag"')
        ),
        commit(
            "of another version than its key",
            "R3.2",
            REFUSE,
            year,
            ('"version":2,"prev"', '"version":3,"prev"'),
        ),
        commit("no previous commit", "R6.1", REFUSE, year, (prev, '"prev":null')),
        commit(
            "the key frame of the version itself",
            "R6.1",
            REFUSE,
            year,
            ('"keyframe":1', '"keyframe":2'),
        ),
        commit(
            "another state hash",
            "R9.6",
            REFUSE,
            year,
            (one("year", 2, r'"state_hash":"\w+"'), f'"state_hash":"{ZEROS}"'),
        ),
        commit(
            "another number of segments", "R9.6", REFUSE, year, ('"segments":5', '"segments":6')
        ),
        commit("other rows, without drops", "R9.6", REFUSE, year, ('"rows":10', '"rows":9')),
        commit("a state that repeats", "R6.5", REFUSE, year, ('"state":{}', '"state":{"fence":0}')),
        commit(
            "an unknown field of the state",
            "R6.5",
            REFUSE,
            year,
            ('"state":{}', '"state":{"more":1}'),
        ),
        commit(
            "an empty map in the state", "R6.5", REFUSE, year, ('"state":{}', '"state":{"pins":{}}')
        ),
        commit(
            "adds of a delta in another order",
            "R6.6",
            REFUSE,
            year,
            (f"{first},{second}", f"{second},{first}"),
        ),
        commit(
            "an add of the key frame's version",
            "R6.6",
            REFUSE,
            year,
            (rows, rows.replace('"version":2', '"version":1')),
        ),
        commit(
            "no transaction",
            "R6.1",
            REFUSE,
            year,
            (one("year", 2, r'\[\{"id".*?"info":\{\}\}\]'), "[]"),
        ),
        commit("a transaction's id", "R5.2", REFUSE, year, (txn, '"transactions":[{"id":"zz"')),
        commit(
            "a read version of the future",
            "R5.2",
            REFUSE,
            year,
            ('"read_version":1', '"read_version":2'),
        ),
        commit(
            "a read version below -1",
            "R5.2",
            REFUSE,
            year,
            ('"read_version":1', '"read_version":-2'),
        ),
        commit(
            "an unknown action",
            "R5.3",
            REFUSE,
            ("whole", 7),
            ('{"action":"renew"', '{"action":"resume"'),
        ),
        commit(
            "an upper-case hash",
            "R5.2",
            REFUSE,
            year,
            (prev, '"prev":"' + prev[8:-1].upper() + '"'),
        ),
        commit("another commit before it", "R6.2", CHAIN, year, (prev, f'"prev":"{ZEROS}"')),
        commit(
            "another table's commit",
            "R10.1",
            REFUSE,
            year,
            (one("year", 2, r'"table":"\w+"'), f'"table":"{ZEROS[:32]}"'),
        ),
        commit(
            "a summary that the fold does not arrive at",
            "R10.6",
            FOLD,
            year,
            ('"transactions":1,', '"transactions":2,'),
        ),
        commit(
            "a transaction that the delta does not follow from",
            "R10.6",
            FOLD,
            year,
            (_in_transaction(), _in_transaction().replace('"rows":', '"rows":1')),
        ),
        commit(
            "an add of no time chunk",
            "R3.2",
            REFUSE,
            year,
            (rows, rows.replace('"chunk":"1970"', '"chunk":"1970-13"')),
        ),
        commit("other rows, with drops", "R9.6", REFUSE, ("whole", 9), _totals(9)),
        case("a gap", "R6.3", REFUSE, whole, {"key": log_key(23), "absent": True}),
        case(
            "keys that do not parse",
            "R3.1",
            SAME,
            whole,
            {"key": "_log/000.json", "new": "{}"},
            {"key": "_log/999999999974.json.tmp", "new": ""},
        ),
        case("a commit cut short", "R5.3", REFUSE, whole, {"key": log_key(24), "cut": 1000}),
    ]


def _in_transaction() -> str:
    text = text_of("year", log_key(2))
    found = re.search(r'"action":"add","id":"\w+","chunk":"\w+","epoch":1,"rows":', text)
    assert found
    return found[0]


def _totals(version: int) -> tuple[str, str]:
    said = one("whole", version, r'"totals":\{"segments":\d+,"rows":')
    return said, said + "1"


def frames() -> list[dict[str, Any]]:
    """Cases of key frames, over which a reader steps, and of spills, without which it cannot."""
    at = ("whole", 14, 7)
    leaves = json.loads(text_of("whole", log_key(7, ".keyframe")))["leaves"]
    key = f"_frames/{leaves[0]['sha256']}.parquet"
    body = (TABLES / "whole" / key).read_bytes()
    state_hash = re.search(r'"state_hash":"\w+"', text_of("whole", log_key(7, ".keyframe")))[0]
    first = json.dumps(leaves[0], separators=(",", ":"), ensure_ascii=False)
    second = json.dumps(leaves[1], separators=(",", ":"), ensure_ascii=False)
    spills = re.findall(r'"spill":\{"sha256":"(\w+)"', text_of("whole", log_key(5)))
    gone = {"key": log_key(7, ".keyframe"), "absent": True}
    return [
        case("no root", "R9.6", OLDER, at[:2], gone),
        case(
            "no key frame at all",
            "R9.6",
            OLDER,
            ("whole", 24),
            gone,
            {"key": log_key(15, ".keyframe"), "absent": True},
            {"key": log_key(23, ".keyframe"), "absent": True},
        ),
        root(
            "a byte of a root changed",
            "R9.6",
            at,
            ('"min_reader":1', '"min_reader":0'),
            seal="none",
        ),
        root("a root for a newer reader", "R5.4", at, ('"min_reader":1', '"min_reader":2')),
        root(
            "a root with an unknown feature",
            "R5.4",
            at,
            ('"features":[]', '"features":["unheard"]'),
        ),
        root(
            "a root of another table",
            "R9.6",
            at,
            (
                re.search(r'"table":"\w+"', text_of("whole", log_key(7, ".keyframe")))[0],
                f'"table":"{ZEROS[:32]}"',
            ),
        ),
        root("a root of another state", "R9.6", at, (state_hash, f'"state_hash":"{ZEROS}"')),
        root("leaves in another order", "R9.1", at, (f"{first},{second}", f"{second},{first}")),
        root(
            "a leaf that begins elsewhere",
            "R9.6",
            at,
            (leaves[0]["first"], leaves[0]["first"][:-4] + "0000"),
        ),
        root("bounds of a leaf that are too narrow", "R9.6", at, _narrower(leaves[0])),
        root("other nulls of a leaf", "R9.6", at, _more_nulls(leaves[0])),
        root("another sum of a leaf", "R9.6", at, (leaves[0]["hash_sum"], ZEROS)),
        case("no leaf", "R9.6", OLDER, at[:2], {"key": key, "absent": True}),
        case(
            "a byte of a leaf changed",
            "R9.6",
            OLDER,
            at[:2],
            {"key": key, "at": len(body) // 2, "hex": "00ff00"},
        ),
        false_hash(key, body, leaves[0]),
        case(
            "no spill of a delta",
            "R6.4",
            REFUSE,
            ("whole", 5),
            {"key": f"_frames/{spills[1]}.parquet", "absent": True},
        ),
        case(
            "a byte of a spill changed",
            "R6.4",
            REFUSE,
            ("whole", 5),
            {"key": f"_frames/{spills[1]}.parquet", "at": 200, "hex": "00ff00"},
        ),
        case(
            "no spill of a transaction",
            "R6.4",
            FOLD,
            ("whole", 5),
            {"key": f"_frames/{spills[0]}.parquet", "absent": True},
        ),
    ]


def _narrower(leaf: dict[str, Any]) -> tuple[str, str]:
    column, low, high, nulls = leaf["stats"][0]
    return (
        f'"stats":[[{column},{low},{high},{nulls}]',
        f'"stats":[[{column},{low + 1},{high},{nulls}]',
    )


def _more_nulls(leaf: dict[str, Any]) -> tuple[str, str]:
    column, low, high, nulls = leaf["stats"][0]
    said = f"[[{column},{low},{high},"
    return f"{said}{nulls}]", f"{said}{nulls + 1}]"


def false_hash(key: str, body: bytes, leaf: dict[str, Any]) -> dict[str, Any]:
    """Return a leaf with an entry whose bounds are not those of its hash, named as it should be."""
    table = pq.read_table(pa.BufferReader(body))
    at = table.column_names.index("max_1")
    lows, highs = (table.column(name).to_pylist() for name in ("min_1", "max_1"))
    inner = next(
        n
        for n, high in enumerate(highs)
        if high < leaf["stats"][0][2] and high > lows[n] and lows[n] > leaf["stats"][0][1]
    )
    highs[inner] = lows[inner]
    sink = pa.BufferOutputStream()
    wrong = table.set_column(at, table.field(at), pa.array(highs, pa.int64()))
    pq.write_table(wrong, sink, compression="zstd", store_schema=False, write_statistics=False)
    made = bytes(sink.getvalue())
    name = hashlib.sha256(made).hexdigest()
    edits = [(leaf["sha256"], name), (f'"size":{leaf["size"]},', f'"size":{len(made)},')]
    return case(
        "an entry of a leaf with another hash",
        "R9.8",
        OLDER,
        ("whole", 14),
        change("whole", log_key(7, ".keyframe"), edits),
        {"key": f"_frames/{name}.parquet", "base64": base64.b64encode(made).decode()},
    )


def limits() -> list[dict[str, Any]]:
    """Cases at the bounds of the format."""
    year, info = ("year", 2), ('"info":{}', '"info":{"x":"~"}')
    text = text_of(*_of(year))
    writer = '"changes":{"operation":"append","writer":"golden@example'
    header = (writer, writer + "~")
    room = 2048 - text.index(',"state":')
    fill = 8 * 2**20 - len(text) - len('"x":""')
    nested = ("rules", 7)
    return [
        commit("a header of 2,048 bytes", "R6.1", SAME, year, header, times=("~", room)),
        commit("a header of 2,049 bytes", "R6.1", REFUSE, year, header, times=("~", room + 1)),
        commit("a commit of 8 MiB", "R5.3", SAME, year, info, times=("~", fill)),
        commit("a commit of one byte more", "R5.3", REFUSE, year, info, times=("~", fill + 1)),
        commit(
            "41 arrays and objects inside one another",
            "R5.3",
            REFUSE,
            nested,
            ('{"id":9,"type":"int64"}', '{"id":9,"type":{"list":"int64"}}'),
        ),
        commit(
            "a type that is a number",
            "R5.2",
            REFUSE,
            nested,
            ('"type":{"list":"int64"}', '"type":5'),
        ),
        commit(
            "a newer reader is needed for what is not canonical",
            "R5.4",
            UNSUPPORTED,
            year,
            ('"min_reader":1', '"min_reader":2, "more":1.5'),
        ),
        case("no first commit", "R3.1", REFUSE, year, {"key": log_key(0), "absent": True}),
    ]


def _of(at: tuple[str, int]) -> tuple[str, str]:
    return at[0], log_key(at[1])


def deltas() -> list[dict[str, Any]]:
    """Cases of drops of a delta, of its spill, and of the state beside it."""
    at = ("whole", 10)
    drops = re.findall(r'\{"action":"drop"[^}]*\}', text_of(*_of(at)).split('"delta":')[1])
    one, two = (json.loads(drop) for drop in drops[:2])
    known = ("shared", 13)
    names = one_of(known, r'"published":\{("\w{32}":null),("\w{32}":\{[^}]*\}),("\w{32}":null)\}')
    first, middle, last = names.groups()
    moved = one["id"][:-1] + ("1" if one["id"][-1] == "0" else "0")
    other = one["hash"], f"{int(one['hash'], 16) + 1:064x}"
    less = two["hash"], f"{int(two['hash'], 16) - 1:064x}"
    drop = f'"id":"{one["id"]}","chunk":"{one["chunk"]}'
    return [
        commit(
            "drops of a delta in another order",
            "R6.6",
            REFUSE,
            at,
            (f"{drops[0]},{drops[1]}", f"{drops[1]},{drops[0]}"),
        ),
        commit("another id in a drop", "R6.6", REFUSE, at, (one["id"], moved)),
        commit("another chunk in a drop", "R6.6", EITHER, at, (drop, drop[:-3])),
        commit("drops that name nothing", "R6.6", EITHER, at, other, less),
        commit(
            "names of the state in another order",
            "R6.5",
            REFUSE,
            known,
            (f"{first},{middle},{last}", f"{last},{middle},{first}"),
        ),
        commit(
            "a null for a name that is not there",
            "R6.5",
            REFUSE,
            ("year", 2),
            ('"state":{}', '"state":{"pins":{"x":null}}'),
        ),
        spilled("a spilled add with half a place", REFUSE, "rules", 4, [(-1, "partition", None)]),
        spilled(
            "a spilled add that is counted beside one that is not",
            REFUSE,
            "rules",
            4,
            [(-1, "partition", None), (-1, "version", None)],
        ),
        spilled(
            "spilled adds that are not counted",
            SAME,
            "whole",
            5,
            [(n - 4, name, n if name == "partition" else 5) for n in range(4) for name in PLACE],
        ),
    ]


PLACE = ("version", "partition")


def one_of(at: tuple[str, int], pattern: str) -> re.Match[str]:
    """Return the first place in a commit that a pattern matches."""
    found = re.search(pattern, text_of(*_of(at)))
    assert found, pattern
    return found


def spilled(
    name: str, what: str, table: str, version: int, cells: list[tuple[int, str, int | None]]
) -> dict[str, Any]:
    """Return a case of a delta's spill with other values in some rows of its adds."""
    said = json.loads(text_of(table, log_key(version)))["delta"]["spill"]
    body = (TABLES / table / "_frames" / f"{said['sha256']}.parquet").read_bytes()
    rows = pq.read_table(pa.BufferReader(body))
    for row, column, value in cells:
        place = rows.column_names.index(column)
        values = rows.column(column).to_pylist()
        values[said["adds"] + row if row < 0 else row] = value
        rows = rows.set_column(place, rows.field(place), pa.array(values, pa.int64()))
    made, edits = stored_again(rows, said)
    return case(
        name,
        "R6.4",
        what,
        (table, version),
        change(table, log_key(version), edits),
        made,
    )


def stored_again(rows: pa.Table, said: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    """Return a frame object of these rows as a change, and the edits of what names it."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", store_schema=False, write_statistics=False)
    body = bytes(sink.getvalue())
    name = hashlib.sha256(body).hexdigest()
    made = {"key": f"_frames/{name}.parquet", "base64": base64.b64encode(body).decode()}
    named = f'"sha256":"{said["sha256"]}","size":'
    return made, [(f"{named}{said['size']},", f'"sha256":"{name}","size":{len(body)},')]


def histories() -> list[dict[str, Any]]:
    """Cases that a fold of the log notices, or one of a log of two tables."""
    year, at = ("year", 2), ("rules", 10)
    table = one("year", 2, r'"table":"\w+"')
    other = [(table, f'"table":"{ZEROS[:32]}"')]
    times = [one("year", version, r'"time":\d+') for version in (1, 2)]
    action = one(
        "rules", 10, r'"operation":"change","writer":"[^"]+","read_version".*?"version":9,"old":\d+'
    )
    clock = json.loads(text_of(*_of(at)))["state"]["clock"]
    wrong = [clock[0] | {"old": clock[0]["old"] + 1}]
    old_text, new_text = ('"clock":' + compact(c) for c in (clock, wrong))
    state_hash = one("rules", 10, r'"state_hash":"\w+"')
    total = int(state_hash[14:-1], 16)
    for sign, value in ((-1, clock), (1, wrong)):
        text = compact(["clock", None, value]).encode()
        total += sign * int(hashlib.sha256(text).hexdigest(), 16)
    later = [log_key(version) for version in (11, 12, 13)] + [log_key(13, ".keyframe")]
    return [
        case(
            "another table's commit and key frame",
            "R6.2",
            CHAIN,
            year,
            change("year", log_key(2), other),
            change("year", log_key(1, ".keyframe"), other),
        ),
        commit("a time that does not grow", "R10.2", FOLD, year, (times[1], times[0])),
        case(
            "a clock set from a time that it did not have",
            "R10.2",
            FOLD,
            at,
            *({"key": key, "absent": True} for key in later),
            change(
                "rules",
                log_key(10),
                [
                    (action, action[: action.rindex(":") + 1] + str(wrong[0]["old"])),
                    (old_text, new_text),
                    (state_hash, f'"state_hash":"{total % 2**256:064x}"'),
                ],
            ),
        ),
        commit(
            "a claim that is no id",
            "F8",
            FOLD,
            year,
            ('"claim":null', '"claim":{"id":"zz","token":1}'),
        ),
        commit("an add that is no id", "F6", FOLD, year, _no_id()),
    ]


def _no_id() -> tuple[str, str]:
    said = _in_transaction()
    return said, re.sub(r'"id":"\w+"', '"id":"zz"', said)


def compact(value: Any) -> str:
    """Return a value as canonical JSON."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def own_roots() -> list[dict[str, Any]]:
    """Cases of a key frame of the head itself."""
    at = ("rules", 13, 13)
    text = text_of("rules", log_key(13, ".keyframe"))
    said = {name: re.search(rf'"{name}":"?\w+"?', text)[0] for name in ("commit", "time")}
    later = f"{said['time'][:-1]}{(int(said['time'][-1]) + 1) % 10}"
    edit = (said["time"] + ',"totals"', later + ',"totals"')
    return [
        root("a root of another commit", "R9.6", at, (said["commit"], f'"commit":"{ZEROS}"')),
        root("a root of another time", "R9.6", at, edit),
    ]


def objects() -> list[dict[str, Any]]:
    """Cases of segments and of other objects."""
    at = ("whole", 24)
    tables = TABLES / "whole"
    data = sorted(p for p in (tables / "data").rglob("*.parquet") if "000000000004" in str(p))
    key = str(data[0].relative_to(tables))
    intent = str(min((tables / "_intents").rglob("*.json")).relative_to(tables))
    return [
        case("no segment", "R7.7", LOST, at, {"key": key, "absent": True}),
        case("a byte of a segment changed", "R7.7", LOST, at, {"key": key, "at": 30, "hex": "ff"}),
        case("a segment cut short", "R7.7", LOST, at, {"key": key, "cut": 900}),
        case("a damaged intent", "R11.2", SAME, at, {"key": intent, "cut": 100}),
        case(
            "no pending object", "R12.9", SAME, ("shared", 14), {"key": _pending(), "absent": True}
        ),
        case(
            "another body of the probe", "R2.3", SAME, at, {"key": "_probe/" + "0" * 32, "new": "x"}
        ),
    ]


def _pending() -> str:
    """Return the key of the newest object that a vacuum of `shared` left."""
    for version in (14, 13):
        found = re.search(r'"pending":\{"sha256":"(\w+)"', text_of("shared", log_key(version)))
        if found:
            return f"_frames/{found[1]}.parquet"
    raise AssertionError


def keyed() -> list[dict[str, Any]]:
    """Cases of keyed tables."""
    name = "keyed"
    at, first, plain = (name, 6), (name, 1), ("year", 2)
    add = text_of(name, log_key(6)).split('"delta":')[1]
    placed = re.search(r'"slice":\{"kind":"log",[^}]*"low":6[^}]*\}', add)[0]
    beside = one("year", 2, r'"stats":[^}]*"tail":null\}\],"drops"')
    known = '"features":["keyed"]'

    def entry_with(change: str, what: str, rule: str, put: str) -> dict[str, Any]:
        return commit(change, rule, what, at, (placed, put))

    no_span = placed.replace('"low":6,"high":6', '"low":null,"high":null')
    return [
        commit("another feature", "R5.4", UNSUPPORTED, first, (known, '"features":["keyed","x"]')),
        with_features("a keyed table without its feature", "R15.1", at),
        commit(
            "the feature of keyed tables without a key",
            "R15.1",
            FOLD,
            plain,
            ('"features":[]', known),
        ),
        entry_with("a slice that is null", REFUSE, "R5.1", '"slice":null'),
        entry_with("an entry whose slice has no versions", REFUSE, "R15.3", no_span),
        entry_with(
            "a slice of an unknown kind", REFUSE, "R15.3", placed.replace('"log"', '"redo"')
        ),
        entry_with(
            "a slice of other buckets", REFUSE, "R9.6", placed.replace('"first":0', '"first":1')
        ),
        commit(
            "a null for a slice without a key",
            "R5.1",
            REFUSE,
            plain,
            (beside, beside.replace('"tail":null}', '"tail":null,"slice":null}')),
        ),
        case(
            "no log segment",
            "R7.7",
            LOST,
            (name, _last(name)),
            {"key": _live_segment(name), "absent": True},
        ),
    ]


def split() -> list[dict[str, Any]]:
    """Cases of tables whose buckets were split."""
    name = "split"
    first, at = (name, 6), (name, 9)
    placed = re.search(
        r'"slice":\{"kind":"log",[^}]*"low":9[^}]*\}',
        text_of(name, log_key(9)).split('"delta":')[1],
    )[0]
    one_split = '"buckets":6,"splits":1'

    def entry_with(change: str, rule: str, what: str, put: str) -> dict[str, Any]:
        return commit(change, rule, what, at, (placed, put))

    return [
        with_features("a split without its feature", "R15.15", first, "keyed"),
        commit("splits of a layout that are null", "R5.1", REFUSE, first,
               (one_split, '"buckets":6,"splits":null')),
        commit("splits of a layout that are 0", "R5.2", REFUSE, first,
               (one_split, '"buckets":6,"splits":0')),
        commit("splits of a layout that were not made", "R10.6", REFUSE, first,
               (one_split, '"buckets":6,"splits":2')),
        entry_with("splits of a slice that are 0", "R5.2", REFUSE,
                   placed.replace('"splits":1', '"splits":0')),
        entry_with("splits of a slice that are 13", "R5.2", REFUSE,
                   placed.replace('"splits":1', '"splits":13')),
        entry_with("a slice of before the split", "R9.6", REFUSE,
                   placed.replace(',"splits":1', "")),
    ]  # fmt: skip


def with_features(name: str, rule: str, at: tuple[str, int], *features: str) -> dict[str, Any]:
    """Return a case of a newest version with other features: no commit follows it."""
    edit = negative_log.set_in("header", "features", to=[*features])
    return Forge(*at).cut().edit(edit).case(name, rule, FOLD)


def without_checks() -> dict[str, Any]:
    """Return a case of a newest version with checks, whose header does not name them."""

    def edit(made: dict[str, Any]) -> None:
        del made["header"]["write_features"]

    return Forge("checked", 11).cut().edit(edit).case("checks without their feature", "R7.13", FOLD)


def without_origins(made: dict[str, Any]) -> None:
    """Take the origins out of a root, whose parts still add up to its own state hash."""
    total = int(made["state_hash"], 16) - reader.state_sum(made["state"])
    del made["state"]["origins"]
    total += reader.state_sum(made["state"])
    made["state_hash"] = f"{total % reader.PRIME:064x}"


def merged() -> list[dict[str, Any]]:
    """Cases of tables that have origins."""
    at, bare, framed = ("merged", 2), ("merged", 1), ("merged", 4, 3)
    loader = '"loader":{"old":3,"done":[[2,2]]}'
    other = '"other":{"old":null,"done":[[5,7]]}'
    entry = one("merged", 2, r'"origins":\{"1a[^}]*\}')
    return [
        with_features("origins without their feature", "R19.2", at),
        without_checks(),
        with_features("the feature of origins without any", "R19.2", bare, "merged"),
        commit(
            "apps of an origin out of order",
            "R5.1",
            REFUSE,
            at,
            (f"{loader},{other}", f"{other},{loader}"),
        ),
        commit(
            "a negative version of an origin",
            "R5.2",
            REFUSE,
            at,
            (entry, entry.replace(":7,", ":-7,")),
        ),
        Forge(*framed[:2])
        .edit_root(framed[2], without_origins)
        .case("no origins in a key frame", "R9.6", OLDER),
        root(
            "an empty map of origins",
            "R5.1",
            ("year", 2, 1),
            ('"clock":[]}', '"clock":[],"origins":{}}'),
        ),
    ]


def _last(name: str) -> int:
    """Return the newest version of a table."""
    logs = (TABLES / name / "_log").glob("????????????.json")
    return TOP - int(min(path.name for path in logs).removesuffix(".json"))


def _live_segment(name: str) -> str:
    """Return the key of a segment that is live in the newest version."""
    text = text_of(name, log_key(_last(name))).split('"delta":')[1]
    found = re.search(r'"id":"(\w+)","chunk":"(\w+)","epoch":(\d+)', text)
    assert found
    return f"data/{int(found[3]):012d}/{found[2]}/{found[1]}.parquet"


def main() -> int:
    """Write the cases, one a line."""
    lines = [
        json.dumps(one, separators=(",", ":"), ensure_ascii=False)
        for one in [
            *(*commits(), *limits(), *deltas(), *histories()),
            *(*frames(), *own_roots(), *objects(), *keyed(), *split(), *merged()),
            *(*negative_log.all_cases(), *negative_rows.all_cases()),
            *negative_vectors.all_cases(),
            *negative_inline.all_cases(),
            *negative_cuts.all_cases(),
        ]
    ]
    NEGATIVE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
