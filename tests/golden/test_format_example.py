"""The example of FORMAT.md is a table: its text is stored, folded and read."""

import base64
import re
from pathlib import Path

from support.folds import advance

import eventlog
from eventlog import Table
from eventlog.format import codec
from eventlog.format.keys import key_of, keyframe_key
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore

_TEXT = (Path(eventlog.__file__).parent / "FORMAT.md").read_text(encoding="utf-8")
_OBJECT = re.compile(
    r"^`([^`\n]+)`(?: \(base64\))?\n\n```(json|text)\n(.*?)\n```$", re.DOTALL | re.MULTILINE
)


def _objects():
    example = _TEXT[_TEXT.index("### 14.5 An example") :]
    for key, kind, body in _OBJECT.findall(example):
        yield key, body.encode() if kind == "json" else base64.b64decode(body)


def _table():
    store = MemoryStore()
    for key, body in _objects():
        assert store.put_if_absent(key, body)
    return Table.open(store.uri, store=store)


def test_the_example_reads_as_its_text_says():
    table = _table()
    rows = scan(table).to_table().sort_by("at").to_pylist()
    assert [(str(r["at"]), r["station"], r["celsius"]) for r in rows] == [
        ("2013-01-01 00:00:30+00:00", "Kyoto", 4.0),
        ("2013-01-02 00:00:00+00:00", "Oslo", None),
    ]
    assert [table.snapshot(v).totals.rows for v in (0, 1, 2)] == [0, 3, 2]
    assert table.session.head().properties == {"user.owner": "weather"}
    assert table.session.head().meta.apps["loader"].seq == 1


def test_the_example_folds_to_its_headers_and_encodes_to_its_bytes():
    table = _table()
    state = None
    for version in range(3):
        commit, body = table.session.log.read(version)
        state, _ = advance(state, commit, codec.sha256(body))
        assert codec.encode_commit(commit) == body
        assert {s.id for s in table.snapshot(version).segments()} == set(state.segments)
    root = table.session.log.key_frames.root(2)
    assert codec.encode_keyframe(root) == dict(_objects())[keyframe_key(2)]
    assert (root.state_hash, root.commit) == (state.header.state_hash, state.commit_hash)


def test_the_example_holds_every_segment_with_its_checksum():
    objects = dict(_objects())
    for segment in _table().snapshot(1).segments():
        body = objects[key_of(segment)]
        assert (len(body), codec.sha256(body)) == (segment.bytes, segment.checksum)
