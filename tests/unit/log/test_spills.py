"""Deltas in objects of their own, where the commit dropped some of what it added."""

import pyarrow as pa
import pytest
from support.builders import add, check_sound, create, drop_of, events, live, reopen

from eventlog import errors
from eventlog.commit.proposal import propose
from eventlog.format import keys
from eventlog.format.frames import entry_columns, frame_bytes, spill_columns
from eventlog.log import spills
from eventlog.state import fold
from eventlog.writers import append, delete


def put(table, *transactions):
    """Commit several transactions; return what they did."""
    other = reopen(table.store)
    head, view = other.session.log.load_view(other.session.head(), transactions)
    time_ms = head.header.time + 1
    effect = fold.judge(transactions, view, time_ms)
    made = propose(
        head, transactions, effect, table_id=table.id, time_ms=time_ms, log=table.session.log
    )
    for key, body in made.objects.items():
        table.store.put_if_absent(key, body)
    assert table.store.put_if_absent(keys.commit_key(head.version + 1), made.body)
    return effect


def dropped_again(table, *ordinals):
    """A commit of three adds, of which a second transaction of it drops some."""
    append(table, events(1))
    made = table.transaction("append", [add(table) for _ in range(3)])
    head, view = table.session.log.load_view(table.session.head(), [made])
    own = fold.judge([made], view, head.header.time + 1).adds
    drops = [drop_of(own[n]) for n in ordinals]
    return put(table, made, table.transaction("drop", drops))


@pytest.mark.parametrize("ordinals", [(0,), (1,), (2,), (0, 1), (0, 1, 2)])
def test_a_commit_that_drops_what_it_added_opens_from_its_spill(monkeypatch, ordinals):
    monkeypatch.setattr(spills, "SPILL_BYTES", 1)
    table = create()
    effect = dropped_again(table, *ordinals)
    assert len(effect.accepted) == 2
    head = check_sound(table.store).session.head()
    own = [s.partition for s in live(head) if s.version == head.version]
    assert sorted(own) == [n for n in range(3) if n not in ordinals]
    # The next commit says of them what they are, and starts counting anew.
    append(reopen(table.store), events(1))
    check_sound(table.store)


def test_the_places_stand_in_a_spill_only_where_they_cannot_be_counted():
    table = create()
    dropped_again(table, 1)
    adds = live(reopen(table.store).session.head())
    version = adds[-1].version
    older, *own = sorted(adds, key=lambda s: (s.version, s.partition))
    explicit = spill_columns.to_spill([older, *own], [], version)
    assert explicit.column("partition").to_pylist() == [0, 0, 2]
    counted = spill_columns.to_spill([older, own[0]], [], version)
    assert counted.column("partition").to_pylist() == [0, None]


def changed(table, name, values):
    place = table.column_names.index(name)
    return table.set_column(place, table.field(place), pa.array(values, pa.int64()))


def test_a_spill_has_one_form_and_no_halves():
    table = create()
    dropped_again(table, 1)
    adds = sorted(live(reopen(table.store).session.head()), key=lambda s: (s.version, s.partition))
    version = adds[-1].version
    whole = spill_columns.to_spill(adds, [], version)
    assert spill_columns.from_spill(whole, version)[0] == adds
    dense = changed(whole, "partition", [0, 0, 1])  # with places that could have been counted
    assert [s.partition for s in spill_columns.from_spill(dense, version)[0]] == [0, 0, 1]
    for wrong in (
        changed(whole, "partition", [0, None, 2]),
        changed(whole, "version", [1, None, version]),
        changed(changed(whole, "version", [1, None, version]), "partition", [0, None, 2]),
    ):
        with pytest.raises(errors.Corrupt):
            spill_columns.from_spill(wrong, version)


@pytest.mark.parametrize("name", ["epoch", "rows", "bytes", "nulls_1"])
def test_a_frame_object_has_no_negative_count(name):
    table = create()
    append(table, events(1))
    entries = entry_columns.from_segments(live(table.session.head()))
    assert frame_bytes.from_parquet(frame_bytes.to_parquet(entries), 1).equals(entries)
    body = frame_bytes.to_parquet(changed(entries, name, [-1]))
    with pytest.raises(errors.Corrupt, match="negative"):
        frame_bytes.from_parquet(body, 1)


def test_drops_of_a_delete_take_one_object_for_the_transaction_and_the_delta(monkeypatch):
    monkeypatch.setattr(spills, "SPILL_BYTES", 1)
    table = create()
    append(table, events(8, days=4))
    append(table, events(8, days=4))
    table.session.write_keyframe()
    before = len([*table.store.list("_frames/")])
    assert delete(table, where="at < '1970-01-04'").dropped == 6
    assert len([*table.store.list("_frames/")]) == before + 1
    assert len(live(check_sound(table.store).session.head())) == 2
