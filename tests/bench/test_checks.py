"""What the benchmark checks with is seen to find what it looks for."""

import numpy as np
from bench.ids import BLOCK, block, misplaced
from bench.tries import TryCounter
from support import builders

from eventlog.store.memory import MemoryStore


def ids(*blocks):
    return np.concatenate([block(*one).column("id").to_numpy() for one in blocks])


def test_lost_doubled_and_strange_rows_are_counted():
    whole = ids((0, 0), (0, 1), (1, 0))

    assert misplaced(whole, {0: (2, []), 1: (1, [])}) == (0, 0)
    assert misplaced(whole[1:], {0: (2, []), 1: (1, [])}) == (1, 0)
    assert misplaced(np.append(whole, whole[:3]), {0: (2, []), 1: (1, [])}) == (0, 3)
    assert misplaced(whole, {0: (2, [])}) == (0, BLOCK)


def test_an_append_that_raised_may_be_there_or_not():
    assert misplaced(ids((0, 0), (0, 1)), {0: (2, [1])}) == (0, 0)
    assert misplaced(ids((0, 0)), {0: (2, [1])}) == (0, 0)
    assert misplaced(ids((0, 0), (0, 1), (0, 1)), {0: (2, [1])}) == (0, BLOCK)


def test_a_lost_race_is_a_try():
    builders.create(store := MemoryStore(), properties={"combine_after": "0"})
    counter = TryCounter(store)
    late = builders.reopen(counter)
    late.session.head()
    builders.commit(other := builders.reopen(store, seed=2), builders.add(other))

    builders.commit(late, builders.add(late))
    builders.commit(late, builders.add(late), operation="compact")

    assert counter.tries("append") == [2]
    assert counter.tries("compact") == [1]


def test_a_window_that_an_append_is_published_for_is_a_try():
    builders.create(store := MemoryStore(), properties={"combine_after": "1"})
    counter = TryCounter(store)
    late = builders.reopen(counter)
    late.session.head()
    builders.commit(other := builders.reopen(store, seed=2), builders.add(other))

    builders.commit(late, builders.add(late))

    assert counter.tries("append") == [2]
    counter.forget()
    assert counter.tries("append") == []
