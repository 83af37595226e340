"""Deletes by position against a dict of positions, over every key frame and without any."""

import hypothesis.strategies as st
from hypothesis import given
from pyroaring import BitMap64
from support.builders import check_sound, commit, create, drop_of, events, live, reopen, replaced
from support.deleting import delete_rows, deleted_positions, staged_deletes

from eventlog.format.deletion_vectors import (
    decode_vector,
    encode_bitmap,
    join_bitmaps,
    positions_in_entry,
)
from eventlog.model.actions import Restore
from eventlog.model.entries import Vector
from eventlog.readers import scan
from eventlog.state.delta import add_of
from eventlog.writers import append

ROWS = 8  # of a segment
positions = st.sets(st.integers(0, ROWS - 1), min_size=1, max_size=ROWS)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append")),
        st.tuples(st.just("delete"), st.integers(0, 9), positions),
        st.tuples(st.just("drop"), st.integers(0, 9)),
        st.tuples(st.just("restore"), st.integers(0, 9)),
        st.tuples(st.just("frame")),
    ),
    max_size=10,
)


class Book:
    """A table, and for each version the names of the rows that it should have, by segment.

    A segment that keeps no row is dropped; a restored one has the vector that it had.
    """

    def __init__(self):
        self.table = create(properties={"keyframe_commits": "1000"})
        self.now, self.then, self.gone = {}, [{}], []

    def committed(self):
        self.then.append({name: {*rows} for name, rows in self.now.items()})
        assert self.table.refresh().version == len(self.then) - 1

    def append(self):
        first = ROWS * len(self.then)
        append(self.table, events(ROWS, first=first))
        (new,) = [s for s in live(self.table.refresh()) if s.id not in self.now]
        self.now[new.id] = {*range(ROWS)}
        self.committed()

    def delete(self, number, some):
        names = sorted(self.now)
        if not names:
            return
        name = names[number % len(names)]
        more = self.now[name] & some
        if not more:
            return
        if more == self.now[name]:
            self.drop(number)
            return
        delete_rows(self.table, {name: more})
        self.now[name] -= more
        self.committed()

    def drop(self, number):
        segments = live(self.table.refresh())
        if segments:
            gone = segments[number % len(segments)]
            commit(self.table, drop_of(gone))
            self.gone.append((self.table.refresh().version, gone, self.now.pop(gone.id)))
            self.committed()

    def restore(self, number):
        if self.gone:
            dropped, entry, rows = self.gone.pop(number % len(self.gone))
            commit(self.table, Restore(dropped - 1), add_of(entry))
            self.now[entry.id] = rows
            self.committed()

    def frame(self):
        self.table.refresh()
        self.table.write_keyframe()

    def check(self):
        check_sound(self.table.store)
        table = reopen(self.table.store)
        for version, expected in enumerate(self.then):
            snapshot = table.snapshot(version)
            found = {
                s.id: {*range(s.rows)} - {*deleted_positions(table, s)} for s in live(snapshot)
            }
            assert found == expected
            number = sum(map(len, expected.values()))
            assert snapshot.totals.rows == number
            assert ("vectors" in snapshot.header.features) == any(
                len(rows) < ROWS for rows in expected.values()
            )
            assert scan(table, version=version).to_table().num_rows == number


@given(steps)
def test_every_version_has_the_rows_of_the_dict(done):
    book = Book()
    book.append()
    for name, *arguments in done:
        getattr(book, name)(*arguments)
    book.check()


@given(st.lists(st.sets(st.integers(0, 2**34), min_size=1, max_size=50), min_size=1, max_size=5))
def test_the_vectors_of_an_object_are_those_that_went_in(sets):
    bitmaps = [encode_bitmap(BitMap64(one)) for one in sets]
    body, places = join_bitmaps(3, "a" * 32, bitmaps)
    for bitmap, place, one in zip(bitmaps, places, sets, strict=True):
        part, vector = (
            body[place.offset : place.offset + place.size],
            Vector(len(one), stored=place),
        )
        assert {*decode_vector(part, vector, 2**34 + 1)} == one
        assert {*positions_in_entry(Vector(len(one), bitmap), 2**34 + 1)} == one


@given(positions, positions)
def test_two_deletes_that_meet_are_united(mine, theirs):
    mine, theirs = mine - {0}, theirs - {0}
    table = create()
    append(table, events(ROWS))
    (one,) = live(table.refresh())
    if not mine or not theirs - mine:
        return
    planned = staged_deletes(table, {one.id: theirs})
    delete_rows(table, {one.id: mine})
    (shrunk,) = live(table.refresh())
    assert planned[0].hash == drop_of(one).hash != drop_of(shrunk).hash
    delete_rows(table, {one.id: theirs})
    (both,) = live(table.refresh())
    assert {*deleted_positions(table, both)} == mine | theirs
    assert replaced(both, vector=shrunk.vector) == shrunk
