"""What a process keeps of a part: which rows of bases are shown, in whatever pieces they come."""

import random

import pyarrow as pa
import pytest

from eventlog.readers.keyed.applied import Applied


def pieces_of(chance, rows):
    cuts = sorted(chance.sample(range(1, rows), 3))
    return list(zip([0, *cuts], [*cuts, rows], strict=True))


@pytest.mark.parametrize("share", [0, 0.002, 0.3, 1])
def test_the_rows_that_are_shown_are_the_same_in_other_pieces(share):
    chance, number = random.Random(f"{share}"), 5000
    rows = pa.table([range(number)], ["v"])
    for _ in range(20):
        hidden = [n for n in range(number) if chance.random() < share]
        if chance.random() < 0.5:  # of some pieces all rows are shown
            hidden = [n for n in hidden if n > number // 2]
        expected = [n for n in range(number) if n not in {*hidden}]
        done, shown = Applied(), []
        for low, high in pieces_of(chance, number):
            some = pa.array([n - low for n in hidden if low <= n < high], pa.int64())
            shown += done.pass_by("base", rows.slice(low, high - low), some)["v"].to_pylist()
        assert shown == expected
        again = [
            value
            for low, high in pieces_of(chance, number)
            for value in done.shown_of("base", low, rows.slice(low, high - low))["v"].to_pylist()
        ]
        assert again == expected


def test_what_is_kept_takes_four_bytes_a_hidden_row_or_a_bit_a_row():
    rows = pa.table([range(80_000)], ["v"])
    for count, most in ((0, 0), (3, 12), (20_000, 10_000)):
        done = Applied()
        done.pass_by("base", rows, pa.array(range(count), pa.int64()))
        assert done.nbytes <= most
