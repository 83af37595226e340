"""Work on segments beside the writer: order, bounds, errors."""

import threading
from contextlib import closing

import pytest

from eventlog.staging.uploads import Uploads


def test_results_come_in_the_order_in_which_work_began():
    last = threading.Event()

    def work(number):
        if number == 0:
            assert last.wait(300)
        if number == 3:
            last.set()
        return number

    with closing(Uploads(4, 100)) as uploads:
        for number in range(4):
            uploads.add(1, work, number)
        assert uploads.under_way()
        assert uploads.results() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("most_bytes", "most", "size", "expected"),
    [(100, None, 30, 3), (100, 2, 30, 2), (100, 2, 1, 2), (100, None, 500, 1), (0, None, 0, 9)],
)
def test_what_is_under_way_is_bounded(most_bytes, most, size, expected):
    """By its bytes and its number; what is larger than the bound is under way alone."""
    running, seen, lock = [0], [0], threading.Lock()
    full = threading.Event()

    def work():
        with lock:
            running[0] += 1
            seen[0] = max(seen[0], running[0])
            if seen[0] == expected:
                full.set()
        assert full.wait(300)
        with lock:
            running[0] -= 1

    with closing(Uploads(9, most_bytes, most)) as uploads:
        for _ in range(9):
            uploads.add(size, work)
        uploads.results()
    assert seen[0] == expected


def test_an_error_is_met_by_who_waits():
    def fail():
        raise ValueError("no")

    with closing(Uploads(1, 1)) as uploads:
        uploads.add(1, fail)
        with pytest.raises(ValueError, match="no"):
            uploads.add(1, lambda: None)  # waits for room
        with pytest.raises(ValueError, match="no"):
            uploads.results()
