"""Write the negative vectors: small changes to golden tables, and what a reader has to do then.

    .venv/bin/python tests/golden/make_negative.py

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

HERE = Path(__file__).parent
TABLES = HERE / "tables"
NEGATIVE = HERE / "negative.json"
TOP = 999_999_999_999
DIGEST = '"digest":"'
ZEROS = "0" * 64

REFUSE, UNSUPPORTED, OLDER, SAME = "refuse", "unsupported", "older key frame", "same"
LOST, CHAIN, FOLD = "lost", "chain", "fold"


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


def change(table: str, key: str, edits: list[tuple[str, str]], seal: str = "all") -> dict[str, Any]:
    """Return a change of a text: the edits, and those of the digests that follow from them."""
    before = after = text_of(table, key)
    for find, put in edits:
        assert after.count(find) == 1, (table, key, find, after.count(find))
        after = after.replace(find, put)
    if seal == "all":
        after = sealed(after) if "keyframe" in key else resealed(after)
    elif seal == "whole":
        after = sealed(after)
    pattern = re.compile(DIGEST + "([0-9a-f]{64})")
    old, new = pattern.findall(before), pattern.findall(after)
    more = [(a, b) for a, b in zip(old, new, strict=True) if a != b]
    return {"key": key, "text": [*edits, *more]}


def commit(
    name: str, rule: str, what: str, at: tuple[str, int], *edits: tuple[str, str], **how: str
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
            ('"features":[]', '"features":["keyed"]'),
        ),
        commit(
            "a newer writer is needed", "R5.4", SAME, year, ('"min_writer":1', '"min_writer":2')
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
            CHAIN,
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
            "a root with an unknown feature", "R5.4", at, ('"features":[]', '"features":["keyed"]')
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
            "another body of the probe", "R2.3", SAME, at, {"key": "_probe/" + "0" * 32, "new": "x"}
        ),
    ]


def main() -> int:
    """Write the cases, one a line."""
    lines = [
        json.dumps(one, separators=(",", ":"), ensure_ascii=False)
        for one in [*commits(), *frames(), *objects()]
    ]
    NEGATIVE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
