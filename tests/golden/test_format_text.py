"""What the specification shows is so: samples stand in golden objects, hashes come out."""

import base64
import hashlib
import io
import json
import re
import zlib
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden.keyed_reader import bucket, exact
from golden.vectors import TABLES
from support.buckets import bucket_of

import eventlog
from eventlog import Table
from eventlog.format import codec, keys
from eventlog.format.frames import frame_bytes, spill_columns, stem_bytes
from eventlog.keyed import row_merging, slices
from eventlog.keyed.rule import MergeRule
from eventlog.model import entries, records
from eventlog.model.actions import Action
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Slice
from eventlog.model.records import Meta
from eventlog.model.schema import arrow_type
from eventlog.model.stats import lower_text, upper_text
from eventlog.state.small.timing import effective_time

TEXT = "\n".join(
    (Path(eventlog.__file__).parent / name).read_text(encoding="utf-8")
    for name in ("FORMAT.md", "MERGING.md")
)
SAMPLES = re.findall(r"^Sample, from `([^`\n]+)`:\n\n```json\n(.*)\n```$", TEXT, re.MULTILINE)
HASHED = re.findall(r"^\| `([{[].+)` \| `([0-9a-f]{64})` \|$", TEXT, re.MULTILINE)


def section(number):
    """The text of a section, by its number."""
    found = re.search(rf"^##+ {number} .*?(?=^##+ \d|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return found[0]


def rows(text):
    """The rows of tables, as lists of cells."""
    return [[c.strip(" `") for c in line.split("|")[1:-1]] for line in text.splitlines()]


@pytest.mark.parametrize(("place", "sample"), SAMPLES, ids=range(len(SAMPLES)))
def test_a_sample_stands_in_its_object(place, sample):
    assert sample.encode() in (TABLES / place).read_bytes()


def test_there_is_a_sample_of_every_action():
    shown = {m for _, s in SAMPLES for m in re.findall(r'^\{"action":"(\w+)"', s)}
    assert shown == {action.__struct_config__.tag for action in Action.__args__}


def test_hashes_are_those_of_the_texts_beside_them():
    assert len(HASHED) > 8
    for text, digest in HASHED:
        assert hashlib.sha256(text.encode()).hexdigest() == digest
        if text.startswith('{"id"'):
            assert msgspec.json.encode(msgspec.json.decode(text, type=entries.Segment)) == (
                text.encode()
            )


def test_the_parts_of_the_example_s_state_add_up():
    parts = re.findall(r"^\| `.+` \| `([0-9a-f]{64})` \|$", section("1.6"), re.MULTILINE)
    (total,) = re.findall(r"^\| sum mod 2\^256 \| `([0-9a-f]{64})` \|$", TEXT, re.MULTILINE)
    assert f"{sum(int(part, 16) for part in parts) % 2**256:064x}" == total
    assert TEXT.count(f'"state_hash":"{total}"') >= 2


def test_keys_and_chunks_are_those_of_the_code():
    text = section("1.3")
    for key in (
        keys.commit_key(14),
        keys.keyframe_key(7),
        keys.segment_key(4, "1970-01-02", "95752a2987a90eee2c23f1fe18cea336"),
        keys.intent_key(9, "baf692a014fbdaf55095aadab5f90c31"),
        keys.vectors_key(entries.StoredBitmap(1, "9d5eeca9d1d4fc1c0e9b969f8d9a43f9", 0, 32, "")),
    ):
        assert f"| `{key}` |" in text
    shown = [row for row in rows(section("1.4")) if len(row) == 3 and "…" in row[2]]
    assert len(shown) == 5
    for granularity, name, interval in shown:
        chunk = parse_chunk(name)
        assert (chunk.granularity, f"{chunk.start} … {chunk.end}") == (granularity, interval)


def test_the_rows_of_the_leaf_and_of_the_pending_object_are_in_their_objects():
    root = json.loads((TABLES / "whole" / keys.keyframe_key(7)).read_bytes())
    leaf = TABLES / "whole" / keys.frame_key(root["leaves"][0]["sha256"])
    first = pq.read_table(leaf).slice(0, 1).to_pylist()[0]
    shown = {row[0]: row[1] for row in rows(section("2.7.1")) if len(row) == 2}
    for name, value in first.items():
        said = value.hex() if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False)
        assert shown[name] == said
    ((place, pending),) = re.findall(
        r'from `shared/(\S+)`:\n\n```json\n"pending":(.*)\n', section("10.1.1")
    )
    assert place
    kept = TABLES / "shared" / keys.frame_key(json.loads(pending)["sha256"])
    for row in pq.read_table(kept).to_pylist():
        assert [row["key"], str(row["dropped"]), str(row["bytes"])] in rows(section("10.1.1"))


def test_the_stem_is_that_of_the_root_above_it():
    text = section("2.9.1")
    (said,) = re.findall(r'^"stems":(.*)$', text, re.MULTILINE)
    (shown,) = re.findall(r"decompresses to:\n\n```json\n(.*)\n```", text)
    first = json.loads(said)[0]
    body = (TABLES / "stems" / keys.stem_key(first["sha256"])).read_bytes()
    assert codec.encode_leaves(stem_bytes.from_stem(body)) == shown.encode()
    assert len(json.loads(shown)) == first["leaves"]


def test_the_entries_of_the_leaf_add_up():
    root = json.loads((TABLES / "whole" / keys.keyframe_key(7)).read_bytes())
    leaf = root["leaves"][0]
    hashes = [row[2] for row in rows(section("2.7.1")) if len(row) == 3 and len(row[2]) == 64]
    table = pq.read_table(TABLES / "whole" / keys.frame_key(leaf["sha256"]))
    assert hashes[:-1] == [one.hex() for one in table.column("hash").to_pylist()]
    assert hashes[-1] == leaf["hash_sum"]
    assert f"{sum(int(one, 16) for one in hashes[:-1]) % 2**256:064x}" == leaf["hash_sum"]


def test_the_digests_are_those_of_the_example():
    body = re.search(rf"^`{keys.commit_key(2)}`\n\n```json\n(.*)\n```$", TEXT, re.MULTILINE)[1]
    header = re.search(r'^\{"header":(.*?,"digest":"\w{64}"\})', body)[1]
    shown = {row[0]: row[2:] for row in rows(section("1.6")) if len(row) == 4}
    for name, text in (("header", header), ("commit", body)):
        hashed = text[: text.rindex(',"digest":"')] + "}"
        digest = hashlib.sha256(hashed.encode()).hexdigest()
        assert shown[name] == [str(len(hashed.encode())), digest]
        assert text.endswith(f'"digest":"{digest}"}}')


def test_the_rows_of_the_spill_stand_for_what_the_text_says():
    commit = json.loads((TABLES / "whole" / keys.commit_key(5)).read_bytes())
    spill = commit["delta"]["spill"]
    body = (TABLES / "whole" / keys.frame_key(spill["sha256"])).read_bytes()
    adds, *_ = spill_columns.from_spill(
        frame_bytes.from_parquet(body, spill["adds"], spilled=True), 5
    )
    shown = [row for row in rows(section("2.7.2")) if len(row) == 6 and row[0] == "false"]
    stored = pq.read_table(io.BytesIO(body)).to_pylist()
    for row, raw, add in zip(shown, stored, adds, strict=True):
        as_stored = ["null" if raw[n] is None else str(raw[n]) for n in ("version", "partition")]
        said = [f"{add.id[:8]}…", *as_stored, str(add.version), str(add.partition)]
        assert row[1:] == said


def test_the_parts_of_the_tail_have_their_checksums():
    text = section("2.10")
    (place,) = re.findall(r"^`(whole/data/\S+)`", text, re.MULTILINE)
    body = (TABLES / place).read_bytes()
    (size,) = re.findall(r'"tail":\{"size":(\d+)', text)
    (digest,) = re.findall(r'"tail":\{"size":\d+,"sha256":"(\w+)"', text)
    tail = body[-int(size) :]
    assert hashlib.sha256(tail).hexdigest() == digest
    parts = [(*map(int, r[0].split(" … ")), r[1]) for r in rows(text) if " … " in "".join(r)]
    assert (parts[0][0], parts[-1][1]) == (0, len(body) - len(tail))
    assert all(before[1] == after[0] for before, after in pairwise(parts))
    for start, end, checksum in parts:
        assert zlib.crc32(body[start:end]).to_bytes(4, "little").hex() == checksum
    assert "".join(part[2] for part in parts) == tail[: 4 * len(parts)].hex()


def test_the_vectors_are_in_their_commits_and_the_bitmaps_of_these_parts():
    text = section("2.11")
    shown = re.findall(r'^("vector":.*)$', text, re.MULTILINE)
    for version, sample in zip((3, 2), shown, strict=True):
        assert sample in (TABLES / "deletion_vectors" / keys.commit_key(version)).read_text()
    inline, stored = (json.loads(sample.partition(":")[2]) for sample in shown)
    parts = [row for row in rows(text) if len(row) == 2 and re.match("[0-9a-f]{4}", row[0])]
    found = "".join(re.sub("[^0-9a-f]", "", row[0]) for row in parts)
    assert base64.b64decode(inline["bitmap"]).hex() == found
    (place,) = re.findall(r"`(deletion_vectors/data/\S+)`", text)
    at = stored["stored"]
    bitmap = (TABLES / place).read_bytes()[at["offset"] :][: at["size"]]
    assert hashlib.sha256(bitmap).hexdigest() == at["hash"]
    assert place.removeprefix("deletion_vectors/") == keys.vectors_key(entries.StoredBitmap(**at))


def test_effective_times_are_those_of_the_table():
    table = Table.open(TABLES / "clocks")
    clock = table.session.head().meta.clock
    assert msgspec.json.encode(clock).decode() in section("4.2")
    shown = [row for row in rows(section("4.2")) if len(row) == 3 and row[0].isdigit()]
    assert [int(row[0]) for row in shown] == list(range(table.session.head().version + 1))
    for version, stamped, worth in (map(int, row) for row in shown):
        assert table.session.log.header(version).time == stamped
        assert effective_time(clock, version, stamped) == worth


def test_bounds_are_those_of_the_code():
    shown = [row for row in rows(section("3")) if len(row) == 3]
    floats = [row for row in shown if re.fullmatch("[0-9a-f]{16}", row[1])]
    assert len(floats) == 8
    for value, pattern, bound in floats:
        bits = int.from_bytes(bytes.fromhex(pattern), "big", signed=True)
        assert float(value) + 0.0 == float(value)
        assert int(bound) == (bits if bits >= 0 else bits ^ 0x7FFF_FFFF_FFFF_FFFF)
    texts = list(re.findall(r"^\| `(.+)` \| `(.+)` \| (.+) \|$", section("3"), re.MULTILINE))
    texts = [row for row in texts if not re.fullmatch("[0-9a-f]{16}", row[1])]
    known = [[json.loads(f'"{cell}"') for cell in row[:2]] + [row[2]] for row in texts[-5:]]
    for value, low, high in known:
        top = upper_text(value)
        assert lower_text(value) == low
        assert high == ("null" if top is None else f"`{json.dumps(top)[1:-1]}`")


def test_tables_of_fields_have_the_fields_of_the_structs():
    for number, struct in {
        "2.1": records.Commit,
        "2.2": records.Header,
        "2.3": records.Transaction,
        "2.5": records.DeltaRecord,
        "2.6": entries.Segment,
        "2.11": entries.StoredBitmap,
        "2.7.2": entries.Spill,
        "2.8": Meta,
        "2.9": records.KeyFrame,
        "7": records.Start,
        "6.1": records.Fork,
    }.items():
        names = [name for row in rows(section(number)) if row for name in _names(row[0])]
        order = [name for name in names if name in struct.__struct_fields__]
        assert tuple(dict.fromkeys(order)) == struct.__struct_fields__, number


def test_the_section_of_an_action_names_its_fields_in_order():
    sections = re.findall(r"^### \d+\.\d+ .*?(?=^### |^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    for action in Action.__args__:
        tag = action.__struct_config__.tag
        (own,) = [s for s in sections if f"`{tag}`" in s.split("\n")[0]]
        samples = re.findall(rf'^{{"action":"{tag}".*', own, re.MULTILINE)
        shown = [list(json.loads(sample)) for sample in samples]
        fields = zip(action.__struct_fields__, _defaults(action), strict=True)
        always = [name for name, default in fields if default is not msgspec.UNSET]
        assert ["action", *always] in shown
        order = ["action", *action.__struct_fields__]
        assert {name for names in shown for name in names} == {*order}, tag
        assert all(names == [n for n in order if n in names] for names in shown), tag
        named = set(re.findall(r"`(\w+)`", own))
        assert named >= set(action.__struct_fields__), tag


def test_the_forms_of_actions_have_the_fields_of_the_structs():
    forms = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section("2.3.1"), re.MULTILINE))
    for action in Action.__args__:
        form = re.sub(r"\([^()]*\)", "", forms[action.__struct_config__.tag])
        named = [name for name in re.findall(r"`(\w+)`", form) if name in action.__struct_fields__]
        assert tuple(dict.fromkeys(named)) == action.__struct_fields__, action


def _defaults(struct):
    """The defaults of all fields; those of the first ones may have none."""
    missing = len(struct.__struct_fields__) - len(struct.__struct_defaults__)
    return [None] * missing + list(struct.__struct_defaults__)


def test_buckets_are_those_of_the_table():
    shown = [row for row in rows(section("5.3")) if len(row) == 5 and row[2].isdigit()]
    assert len(shown) == 18
    for types, value, hashed, of_16, of_32 in shown:
        kinds = types.split(", ")
        texts = [""] if value == "(empty)" else value.split(", ")
        key = [_scalar(kind, text) for kind, text in zip(kinds, texts, strict=True)]
        assert [bucket_of(key, 2**n) for n in (4, 5)] == [int(of_16), int(of_32)]
        assert bucket_of(key, 2**30) == int(hashed) % 2**30
        plain = [_plain(kind, scalar) for kind, scalar in zip(kinds, key, strict=True)]
        assert bucket(plain, kinds, 2**31) == int(hashed) % 2**31


def test_buckets_after_splits_are_those_of_the_table():
    shown = [row for row in rows(section("5.4")) if len(row) == 8 and row[2].isdigit()]
    assert len(shown) == 5
    for kind, text, hashed, *numbers, remainder in shown:
        key = [_scalar(kind, text)]
        found = [bucket_of(key, 3 * 2**n, n) for n in range(4)]
        assert found == [int(number) for number in numbers]
        assert found == [bucket([_plain(kind, key[0])], [kind], 3 * 2**n, n) for n in range(4)]
        assert bucket_of(key, 2**30) == int(hashed) % 2**30
        assert bucket_of(key, 24) == int(remainder)


def _scalar(kind, text):
    if kind == "binary":
        return pa.scalar(bytes.fromhex(text))
    values = pa.array([text.removesuffix("Z")])
    zone = None if kind.startswith("timestamp_ntz") else "UTC"
    if kind.startswith("timestamp"):
        return values.cast(pa.timestamp("us")).cast(pa.timestamp("us", zone))[0]
    return values.cast(arrow_type(kind))[0]


def _plain(kind, scalar):
    return exact(pa.chunked_array([pa.array([scalar.as_py()], scalar.type)]), kind)[0]


def test_what_counts_in_slices_is_that_of_the_table():
    shown = [row for row in rows(section("5.5")) if len(row) == 6 and row[4].isdigit()]
    assert len(shown) == 6
    spread = lambda text: [int(n) for n in text.split(" … ")]
    segments = {}
    for name, kind, buckets, versions, level, _ in shown:
        place = Slice(kind, *spread(buckets), *spread(versions), int(level))
        segments[name] = entries.Segment(name, "all", 0, 9, 0, 1, 1, "", 1, slice=place)
    counting = {name: [] for name in segments}
    for run in slices.runs(segments.values()):
        for one in run.segments:
            counting[one.id] += range(run.first, run.last + 1)
    assert {row[0]: [int(n) for n in row[5].split(",")] for row in shown} == counting


@pytest.mark.parametrize(
    ("text", "seen"), [row for row in rows(section("5.7")) if len(row) == 2 and ";" in row[0]]
)
def test_rows_of_a_key_become_what_the_text_says(text, seen):
    partial = "x=" in text
    rule = {"kind": "partial", "order": None} if partial else {"kind": "last", "order": "o"}
    made = []
    for part in text.split("; "):
        row = {"k": 1, "_op": "d" if part.startswith("delete") else "u"}
        for word in part.removeprefix("delete").split():
            name, equals, value = word.partition("=")
            row |= {name: None if value == "null" else int(value)} if equals else {"v": name}
        made.append(row)
    kinds = {"k": "int64", "o": "int64", "x": "int64", "y": "int64", "v": "string", "_op": "string"}
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in kinds.items()])
    given = pa.Table.from_pylist(made, schema=schema)
    found = row_merging.visible(
        given, MergeRule(("k",), 1, functions={}, orders={}, **rule)
    ).to_pylist()
    expected = [seen.split(":")[0].split()[0]] if not partial else seen.split()
    if expected == ["none"]:
        assert found == []
    elif partial:
        assert [f"{n}={found[0][n] or 'null'}" for n in ("x", "y")] == expected
    else:
        assert [found[0]["v"]] == expected


def _names(cell):
    return [part.strip(" `") for part in cell.split(",")]
