"""fsck: segments whose bytes stand in commits, and packs of their rows."""

import math

import msgspec
import pyarrow as pa
import pytest
from support.builders import commit, create, events, reopen
from support.damage import Damaged
from support.inline_tables import SMALL, forget

from eventlog.format import codec, keys
from eventlog.inline import pack_bytes
from eventlog.model.actions import Horizon, Restore
from eventlog.readers import scan
from eventlog.state.delta import add_of


def small(appends=20, **options):
    """A table of small appends, to be damaged."""
    table = create(properties=SMALL, **options)
    for number in range(appends):
        table.append(events(2, first=2 * number))
    damaged = Damaged.of(table.store, table.clock)
    damaged.table = table
    return damaged


def checked(damaged, **options):
    """The findings of a process that has read nothing yet: (severity, version, message)."""
    forget()
    report = damaged.fsck(**options)
    return [(one.severity, one.version, one.message) for one in report.findings]


def packs_of(damaged):
    """The packs of the newest key frame."""
    return [*damaged.table.snapshot().base.packs]


def remade(damaged, rows=None, index=None):
    """Put another pack in the place of the first one, and name it in all key frames."""
    old = packs_of(damaged)[0]
    opened = pack_bytes.open_pack(damaged.store.get(keys.pack_key(old.last, old.sha256)))
    stored = pack_bytes.pack_columns(opened)
    entries = opened.segments if index is None else index(opened.segments)
    body = pack_bytes.encode_pack(entries, [stored if rows is None else rows(stored)])
    new = msgspec.structs.replace(old, sha256=codec.sha256(body), size=len(body))
    for version in damaged.keyframes():
        damaged.forge_root(
            version,
            lambda root: msgspec.structs.replace(
                root, packs=tuple(sorted((new if p == old else p for p in root.packs), key=_order))
            ),
        )
    damaged.store.put_if_absent(keys.pack_key(new.last, new.sha256), body)
    return new


def _order(pack):
    return (pack.last, pack.sha256)


@pytest.mark.parametrize("checksums", [False, True])
def test_segments_in_commits_are_sound_without_objects(checksums):
    damaged = small()
    damaged.table.delete(where="value < 3")
    damaged.table.restore(20)
    assert damaged.keys("data/") == []
    assert checked(damaged, checksums=checksums) == []
    report = damaged.fsck(checksums=checksums)
    assert report.segments == 20
    assert [one.kind for one in report.leftovers] in ([], ["probe"])
    assert (report.checksummed > 0) is checksums


def test_a_lost_commit_takes_its_segments_along_unless_they_are_at_their_keys():
    damaged = small()
    (one,) = [s for s in damaged.table.snapshot().segments() if s.inline == 5]
    body = damaged.table.session.log.read(5)[0].transactions[0].actions[0].parquet
    damaged.store.delete([keys.commit_key(5)])
    for pack in packs_of(damaged):
        damaged.store.delete([keys.pack_key(pack.last, pack.sha256)])
    lost = [m for s, _, m in checked(damaged) if s == "error" and "live" in m]
    assert lost == [
        "a live segment is missing: neither commit 5 nor an object at this key has its bytes"
    ]
    damaged.store.put_if_absent(keys.key_of(one), body)
    assert not [m for _, _, m in checked(damaged) if "live segment" in m]


def test_the_commits_below_the_start_of_the_fold_are_asked():
    damaged = small()
    start = damaged.keyframes()[0]
    assert checked(damaged, start=start, checksums=True) == []
    damaged.store.delete([keys.commit_key(3)])
    (found,) = checked(damaged, start=start)
    assert found[0] == "error"
    assert "neither commit 3" in found[2]


def test_an_object_of_another_size_at_the_key_is_reported():
    damaged = small(3)
    (one,) = [s for s in damaged.table.snapshot().segments() if s.inline == 2]
    damaged.store.put_if_absent(keys.key_of(one), b"PAR1")
    (found,) = checked(damaged)
    assert found[0] == "warning"
    assert "programs that read files return other rows" in found[2]


def test_held_segments_are_looked_for_in_their_commits():
    damaged = small(6)
    damaged.table.pin("audit", 6)
    damaged.table.delete(where="value >= 0")
    assert checked(damaged, checksums=True) == []
    damaged.store.delete([keys.commit_key(4)])
    found = [m for _, _, m in checked(damaged) if "protects" in m]
    assert len(found) == 1
    assert "neither commit 4" in found[0]


def test_an_entry_that_names_a_commit_without_its_bytes_is_reported():
    damaged = small(4)
    table = damaged.table
    one = next(s for s in table.snapshot().segments() if s.inline == 2)
    table.delete(where="value >= 0")
    commit(table, Restore(4), msgspec.structs.replace(add_of(one), inline=3))
    found = [(s, v, m) for s, v, m in checked(damaged) if s == "error"]
    assert ("error", 3) in [(s, v) for s, v, m in found if "no add of this commit" in m]
    assert any("it restores segment" in m for _, _, m in found)


@pytest.mark.parametrize("damage", ["missing", "short", "flipped", "none"])
def test_missing_and_damaged_packs_are_warnings(damage):
    damaged = small()
    pack = packs_of(damaged)[0]
    key = keys.pack_key(pack.last, pack.sha256)
    body = damaged.store.get(key)
    if damage == "missing":
        damaged.store.delete([key])
    elif damage != "none":
        damaged.replace(key, body[:-1] if damage == "short" else body[:-1] + b"2")
    found = checked(damaged)
    assert len(found) == (damage != "none")
    assert all(s == "warning" and "readers go to the commits" in m for s, _, m in found)
    forget()
    report = damaged.fsck(repair=True)
    assert report.ok
    assert damaged.store.get(key) == body or damage in ("short", "flipped")
    assert [r.done for r in report.repairs] == {"missing": [True], "none": []}.get(damage, [False])
    forget()
    assert scan(reopen(damaged.store)).count() == 40


def test_all_packs_are_written_again_byte_for_byte():
    damaged = small(60)
    damaged.table.delete(where="name LIKE '%7'")
    damaged.table.write_keyframe()
    before = {key: damaged.store.get(key) for key in damaged.keys("_packs/")}
    damaged.store.delete(list(before))
    forget()
    report = damaged.fsck(repair=True)
    assert (report.ok, report.warnings) == (True, 0)
    assert {key: damaged.store.get(key) for key in damaged.keys("_packs/")} == before


def test_a_key_frame_that_is_written_again_names_the_same_packs():
    damaged = small(60)
    for version in damaged.keyframes():
        body = damaged.store.get(keys.keyframe_key(version))
        damaged.store.delete([keys.keyframe_key(version), *damaged.keys("_packs/")])
        forget()
        assert damaged.fsck(repair=True).ok
        assert damaged.store.get(keys.keyframe_key(version)) == body


def test_packs_of_other_rows_are_found_with_checksums():
    damaged = small()

    def other(rows):
        place = rows.schema.get_field_index("value")
        return rows.set_column(place, rows.schema.field(place), pa.array([9.0] * rows.num_rows))

    remade(damaged, rows=other)
    assert checked(damaged) == []
    found = checked(damaged, checksums=True)
    assert {s for s, _, _ in found} == {"error"}
    assert all("other rows of segment" in m and "scans return them" in m for _, _, m in found)


def test_values_that_are_not_equal_to_themselves_are_the_same_rows():
    table = create(properties=SMALL)
    for number in range(9):
        rows = events(2, first=2 * number)
        table.append(rows.set_column(2, "value", pa.array([math.nan, -0.0])))
    damaged = Damaged.of(table.store, table.clock)
    assert checked(damaged, checksums=True) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda e: (e[0]._replace(id="ab" * 16), *e[1:]),
        lambda e: (e[0]._replace(inline=e[1].inline), *e[1:]),
        lambda e: (e[0]._replace(bytes=e[0].bytes + 1), *e[1:]),
        lambda e: (e[0]._replace(rows=1), e[1]._replace(rows=3), *e[2:]),
    ],
)
def test_packs_with_another_index_are_errors(change):
    damaged = small()
    remade(damaged, index=change)
    found = checked(damaged)
    assert {s for s, _, _ in found} == {"error"}


def test_packs_that_no_key_frame_names_are_left_over():
    damaged = small()
    damaged.store.put_if_absent(keys.pack_key(8, "ab" * 32), b"x")
    damaged.store.put_if_absent("_packs/foreign", b"x")
    found = [
        (one.place, one.kind, one.objects)
        for one in damaged.fsck().leftovers
        if one.place == "_packs/"
    ]
    assert found == [("_packs/", "foreign", 1), ("_packs/", "unnamed", 1)]
    start = damaged.keyframes()[-1]
    assert "earlier" in [one.kind for one in damaged.fsck(start=start).leftovers]


def test_packs_that_a_vacuum_may_delete_are_not_missed():
    damaged = small(60)
    table = damaged.table
    table.delete(where="value < 10")
    table.write_keyframe()
    table.append(events(1, first=500))
    commit(table, Horizon(62))
    named = {keys.pack_key(p.last, p.sha256) for p in packs_of(damaged)}
    damaged.store.delete([key for key in damaged.keys("_packs/") if key not in named])
    assert checked(damaged) == []
    damaged.store.delete(sorted(named)[:1])
    assert [s for s, _, _ in checked(damaged)] == ["warning"]
