"""fsck on keyed tables: a sound one passes, and what is damaged is named."""

import json
import re

import pyarrow as pa
import pytest
from support.builders import bodies, create, events, fold_all, live, replace_object, resealed

from eventlog import compaction
from eventlog.compaction import Policy
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.writers import append, delete, overwrite, upsert

POLICY = Policy(target_bytes=4096)


@pytest.fixture(params=["1", "64"])
def table(request):
    """Bases, logs and a delete; an overwrite and a restore lie behind."""
    table = create(
        key="name",
        granularity="all",
        buckets=4,
        properties={"keyframe_commits": request.param, "bucket_bytes": "1024"},
    )
    upsert(table, events(60))
    compaction.run(table, policy=POLICY)
    overwrite(table, events(3))
    table.restore(2)
    upsert(table, events(2, first=50))
    delete(table, keys=pa.table({"name": ["row 0"]}))
    return table


def said(report):
    return " ".join(f"{finding.key} {finding.message}" for finding in report.findings)


def test_a_sound_table_passes(table):
    report = fsck(table, checksums=True)
    assert report.ok
    assert report.findings == ()
    assert report.segments == len(live(table.session.head()))
    assert scan(table).count() == 59


@pytest.mark.sample(3)
@pytest.mark.parametrize("field", ["kind", "first", "last", "level", "ordinal"])
def test_a_changed_place_is_found(table, field):
    head = table.session.head().version
    body = bodies(table.store)[head]
    place = re.search(rb'"slice":{[^}]*}', body)[0]  # of the add
    old = re.search(rf'"{field}":("?\w+"?)'.encode(), place)
    new = b'"base"' if field == "kind" else b"3" if old[1] != b"3" else b"2"
    changed = place.replace(old[0], old[0].replace(old[1], new))
    key = keys.commit_key(head)
    replace_object(table.store, key, resealed(body.replace(place, changed)))
    report = fsck(table)
    assert report.errors
    assert key in said(report)


def test_a_lost_base_is_named(table):
    base = next(s for s in live(table.session.head()) if s.slice.kind == "base")
    table.store.delete([keys.key_of(base)])
    report = fsck(table)
    assert report.errors
    assert base.id in said(report)


def test_a_changed_segment_is_named(table):
    log = next(s for s in live(table.session.head()) if s.slice.kind == "log")
    body = table.store.get(keys.key_of(log))
    replace_object(table.store, keys.key_of(log), body[:40] + bytes([body[40] ^ 1]) + body[41:])
    assert fsck(table).ok
    report = fsck(table, checksums=True)
    assert report.errors
    assert log.id in said(report)


def test_the_fold_from_the_beginning_agrees(table):
    state, _ = fold_all(table.store)[-1]
    assert {s.id: s for s in live(table.session.head())} == dict(state.segments)


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("features", [[], ["keyed"], ["keyed", "merged", "split"], ["merged"]])
def test_features_of_a_root_that_are_not_those_of_the_table_are_found(keyed, features):
    options = {"key": "name"} if keyed else {}
    table = create(properties={"keyframe_commits": "1"}, **options)
    (upsert if keyed else append)(table, events(2))
    table.write_keyframe()
    head = table.refresh()
    key, honest = keys.keyframe_key(head.version), ["keyed"] if keyed else []
    old, new = (f'"features":{json.dumps(names)}'.replace(" ", "") for names in (honest, features))
    body = table.store.get(key)
    assert old.encode() in body
    replace_object(table.store, key, resealed(body.replace(old.encode(), new.encode())))
    found = [(f.severity, f.key) for f in fsck(table).findings]
    assert found == ([] if features == honest else [("error", key)])
    assert features == honest or "differs from the folded state: features" in said(fsck(table))
    assert scan(table).count() == 2
