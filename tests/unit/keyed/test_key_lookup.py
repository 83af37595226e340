"""Which rows have which keys, however the rows are sorted, and in whatever pieces they come."""

import random

import pyarrow as pa
import pytest

from eventlog.keyed import key_lookup

# What becomes of the number of a key, and its type.
KINDS = {
    "int64": (lambda number: number - 50, pa.int64()),
    "int8": (lambda number: number - 50, pa.int8()),
    "timestamp": (lambda number: number * 1_000_003, pa.timestamp("us", "UTC")),
    "date": (lambda number: number, pa.date32()),
    "string": (lambda number: f"é{number:03}", pa.string()),
    "binary": (lambda number: bytes([number]), pa.binary()),
    "decimal": (lambda number: number, pa.decimal128(9, 0)),
}


def in_pieces(chance, values, kind):
    """A column in up to three pieces."""
    array, cut = pa.array(values, kind), sorted(chance.choices(range(len(values) + 1), k=2))
    pieces = [array[: cut[0]], array[cut[0] : cut[1]], array[cut[1] :]]
    return pa.chunked_array(pieces, kind)


def numbers_of(chance, parts):
    """Numbers of keys: parts that are sorted, of which some have a key in common or twice."""
    choose = chance.choice([lambda count: chance.choices(range(30), k=count), range_sample(chance)])
    return [number for _ in range(parts) for number in sorted(choose(chance.randrange(25)))]


def range_sample(chance):
    return lambda count: chance.sample(range(100), count)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("parts", [1, 2, 9, 70])
def test_rows_are_found_by_their_keys_in_any_order(name, parts):
    chance, (value_of, kind) = random.Random(f"{name} {parts}"), KINDS[name]
    for _ in range(20):
        numbers = numbers_of(chance, parts)
        if chance.random() < 0.3:
            chance.shuffle(numbers)
        wanted = chance.sample(range(100), chance.randrange(30))
        column = in_pieces(chance, [value_of(n) for n in numbers], kind)
        rows = pa.table([column, range(len(numbers))], ["k", "at"])
        keys = pa.table([pa.array([value_of(n) for n in wanted], kind)], ["k"])
        found = key_lookup.rows_with(rows, keys, ["k"])
        places = [place for place, number in enumerate(numbers) if number in wanted]
        assert found.to_pylist() == places
        rest = key_lookup.without_rows(rows, found).column("at").to_pylist()
        assert rest == [place for place in range(len(numbers)) if place not in places]


def test_rows_are_found_by_keys_of_two_columns():
    chance = random.Random(1)
    for _ in range(50):
        pairs = [(n % 7, str(n % 5)) for n in numbers_of(chance, 3)]
        wanted = sorted({(chance.randrange(7), str(chance.randrange(5))) for _ in range(9)})
        rows, keys = (
            pa.table([pa.array([p[0] for p in of], pa.int32()), [p[1] for p in of]], ["a", "b"])
            for of in ([*pairs, (0, "x")], wanted)
        )
        found = key_lookup.rows_with(rows, keys, ["a", "b"]).to_pylist()
        assert found == [place for place, pair in enumerate(pairs) if pair in wanted]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("parts", [1, 2, 70])
def test_each_key_comes_once_and_shared_keys_are_told(name, parts):
    chance, (value_of, kind) = random.Random(f"{name} {parts}"), KINDS[name]
    for _ in range(20):
        numbers = numbers_of(chance, parts)
        rows = pa.table([in_pieces(chance, [value_of(n) for n in numbers], kind)], ["k"])
        keys = key_lookup.distinct(rows, ["k"]).column("k").to_pylist()
        assert len(keys) == len(set(keys))
        assert set(keys) == set(rows.column("k").to_pylist())
        shared = key_lookup.shared(rows, ["k"])
        several = [place for place, number in enumerate(numbers) if numbers.count(number) > 1]
        assert shared is None or shared.to_pylist() == several
        assert shared is not None or parts == 70


def test_without_rows_and_without_keys_nothing_is_found():
    none = pa.table([pa.array([], pa.int64())], ["k"])
    some = pa.table([pa.array([1, 2], pa.int64())], ["k"])
    for rows, keys in ((none, some), (some, none), (none, none)):
        found = key_lookup.rows_with(rows, keys, ["k"])
        assert found.to_pylist() == []
        assert key_lookup.without_rows(rows, found) == rows
    assert key_lookup.distinct(none, ["k"]) == none
    assert key_lookup.shared(none, ["k"]).to_pylist() == []
