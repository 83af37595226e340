"""Tables that an earlier release wrote: their bytes and their answers do not change."""

import importlib.util
import json
from pathlib import Path

import pytest
from support import builders

from eventlog import Table
from eventlog.format import codec, keys
from eventlog.format.frames import entry_columns
from eventlog.log import spills
from eventlog.model.actions import Action
from eventlog.model.records import Meta, cut_of, pieces_in
from eventlog.store.local import LocalStore

HERE = Path(__file__).parent
EXPECTED = json.loads((HERE / "expected.json").read_text())
# What the others answer stands in vectors.json alone.
NAMES = (
    *(*EXPECTED, "whole", "rules", "keyed", "joined", "rolled", "split", "merged"),
    *(
        "conditions",
        "keyed_conditions",
        "deletion_vectors",
        "timeless",
        "timeless_keys",
        "inline",
        "inline_keys",
        "advanced",
        "stems",
    ),
)


def _make():
    spec = importlib.util.spec_from_file_location("golden_make", HERE / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def store(name):
    return LocalStore(HERE / "tables" / name)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_golden_table_answers_as_it_did(name):
    found = _make().answers(Table.open(HERE / "tables" / name), rows=name != "leaves")
    assert json.loads(json.dumps(found)) == EXPECTED[name]


def test_every_commit_and_key_frame_is_encoded_to_the_same_bytes(store):
    frames = 0
    for version, body in enumerate(builders.bodies(store)):
        assert codec.encode_commit(codec.decode_commit(body, version)) == body
        header = codec.decode_header(body[: codec.HEADER_BYTES], version)
        assert header == codec.decode_commit(body, version).header
    for found in store.list(keys.LOG_PREFIX):
        version, is_frame = keys.parse_log_key(found.key)
        if is_frame:
            body = store.get(found.key)
            assert codec.encode_keyframe(codec.decode_keyframe(body, version)) == body
            frames += 1
    assert frames


def test_the_fold_from_version_0_agrees_with_every_snapshot(store):
    builders.check_sound(store)


def test_every_key_is_one_that_the_format_knows(store):
    for found in store.list(""):
        known = (
            keys.parse_log_key(found.key)
            or keys.parse_segment_key(found.key)
            or keys.parse_vectors_key(found.key)
            or keys.parse_pack_key(found.key)
            or keys.parse_intent_key(found.key)
            or found.key.startswith("_probe/")
            or found.key == keys.frame_key(codec.sha256(store.get(found.key)))
            or found.key == keys.stem_key(codec.sha256(store.get(found.key)))
        )
        assert known, found.key


def test_the_tables_hold_what_they_are_for():
    """One of every feature: a golden table that lost one would still be green."""
    types, features = set(), set()
    for name in (*NAMES, "cut"):
        table = Table.open(HERE / "tables" / name)
        first = cut_of(table.session.head().meta)
        for version, body in [*enumerate(builders.bodies(table.store))][first:]:
            stored = codec.decode_commit(body, version)
            features |= {
                f"delta {k}" for k in ("adds", "drops", "spill") if getattr(stored.delta, k)
            }
            features |= {"txn spill" for t in stored.transactions if t.spill}
            features |= {"app" for t in stored.transactions if t.app}
            whole = spills.unpack(stored, table.session.log.spill)
            features |= {type(a).__name__ for t in whole.transactions for a in t.actions}
            features |= {*stored.header.features}
            features |= {
                "vectors in a spill" for t in stored.transactions if t.spill and t.spill.vectors
            }
            features |= {"several transactions"} if len(stored.transactions) > 1 else set()
            features |= {"published" for t in stored.transactions[1:] if t.until is not None}
            features |= {f"state {field}" for field in stored.state}
            if stored.header.keyframe is not None:
                root = table.session.log.key_frames.root(stored.header.keyframe)
                features.add(
                    "inlined" if not pieces_in(root) else "leaves" if root.leaves else "stems"
                )
                features |= {"several leaves"} if len(root.leaves) > 3 else set()
                features |= {"vectors in leaves" for leaf in root.leaves if leaf.deleted}
                features |= {"vectors inlined" for s in root.segments if s.vector}
        types |= {str(c.type)[:12] for c in table.session.head().stored_schema.columns}
        meta = table.session.head().meta
        features |= {"pending"} if meta.swept and meta.swept.pending else set()
        features |= {s.chunk for s in entry_columns.to_segments(table.session.head().entries())}
    assert {
        "leaves",
        "stems",
        "several leaves",
        "inlined",
        "app",
        "txn spill",
        "delta spill",
    } <= features
    assert {"delta adds", "delta drops", "Add", "Drop", "Fence"} <= features
    assert {"SetLayout", "SetSchema", "SetProperties", "SetGranularity"} <= features
    assert {"Replace", "Assess", "TakeClaim", "Renew", "Release", "Break"} <= features
    assert {"SetPin", "Unpin", "Horizon", "Restore", "SameSegments"} <= features
    assert {action.__name__ for action in Action.__args__} <= features
    assert {f"state {field}" for field in Meta.__struct_fields__} <= features
    assert {"several transactions", "published", "pending"} <= features
    assert {"vectors", "vectors in a spill", "vectors in leaves", "vectors inlined"} <= features
    assert {"all", "1970", "1970-02", "1969-12-31T23", "2013-01-03"} <= features
    assert len(types) >= 16


def test_the_tables_are_small_and_name_no_machine():
    files = [*HERE.glob("*.json"), *(p for p in HERE.rglob("tables/**/*") if p.is_file())]
    assert sum(path.stat().st_size for path in files) < 6_000_000
    for name in EXPECTED:
        writers = {v["writer"] for v in EXPECTED[name]["versions"]}
        assert writers == {"golden@example"}
