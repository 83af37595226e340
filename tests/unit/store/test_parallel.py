"""Work on several items at once: answers in order, bounds, errors and ends."""

import os
import threading

import pytest
from support import own_threads

from eventlog.store import parallel


def test_answers_come_in_order_whichever_is_ready_first():
    last = threading.Event()

    def work(item):
        if item == 0:
            assert last.wait(300)
        if item == 7:
            last.set()
        return item

    assert list(parallel.each(work, range(8), count=8)) == list(range(8))


@pytest.mark.parametrize("window", [1, 4, 16])
def test_no_more_is_read_ahead_than_the_window(window):
    begun = []
    with parallel.threads() as pool:
        answers = parallel.read_ahead(pool, range(50), begun.append, window=window)
        for taken, _ in enumerate(answers):
            assert len(begun) <= taken + window


def test_what_is_under_way_weighs_no_more_than_it_may():
    begun = []
    with parallel.threads() as pool:
        answers = parallel.read_ahead(
            pool, [30, 30, 50, 200, 10], begun.append, weigh=lambda size: size, most=100
        )
        next(answers)
        assert sum(begun) <= 30 + 100
        next(answers)
        next(answers)
        assert 10 not in begun  # what is larger than the bound is under way alone
        assert len(list(answers)) == 2


def test_an_error_comes_in_the_place_of_its_answer_and_what_waits_is_cancelled():
    begun, go = [], threading.Event()

    def work(item):
        begun.append(item)
        if item == 2:
            raise ValueError(item)
        if item > 2:
            assert go.wait(300)
        return item

    taken = []
    with own_threads.none_left(), parallel.threads(1) as pool:
        answers = parallel.read_ahead(pool, range(16), work)
        with pytest.raises(ValueError, match="2"):
            taken.extend(answers)
        go.set()
    assert len(begun) <= 4  # with one thread, at most the next one had begun


def test_who_stops_early_leaves_no_thread_behind():
    with own_threads.none_left():
        answers = parallel.each(lambda item: item, range(100))
        assert next(answers) == 0
        answers.close()


def test_items_that_come_from_threads_end_with_the_reading_of_them():
    with own_threads.none_left(), parallel.threads() as pool:
        items = parallel.each(lambda item: item, range(100))
        answers = parallel.read_ahead(pool, items, lambda item: item)
        assert next(answers) == 0
        answers.close()
        assert next(items, None) is None


def test_one_item_needs_no_thread():
    mine = threading.current_thread()
    assert list(parallel.each(lambda _: threading.current_thread(), [0])) == [mine]
    assert list(parallel.each(lambda _: None, [])) == []


def test_threads_are_used_again_and_have_nothing_left_to_do():
    go, ended = threading.Event(), []

    def work(item):
        assert go.wait(300)
        ended.append(item)
        return threading.current_thread()

    parallel.end_idle_threads()
    with parallel.threads() as pool:
        first = pool.submit(work, 0)
        for item in range(1, 100):
            pool.submit(work, item)
        go.set()
    assert 0 in ended
    assert len(ended) == len({*ended})
    done = len(ended)
    with parallel.threads() as pool:
        again = {pool.submit(threading.current_thread).result() for _ in range(20)}
    assert len(ended) == done  # what had not begun was cancelled
    assert first.result() in threading.enumerate()
    assert all(thread.name.startswith("eventlog-read") for thread in again)
    parallel.end_idle_threads()
    assert first.result() not in threading.enumerate()


def test_two_readers_at_once_share_no_threads():
    with parallel.threads() as one, parallel.threads() as other:
        assert one is not other


def test_a_reader_that_ends_in_one_of_its_own_threads_does_not_wait_for_itself():
    with own_threads.none_left():
        context = parallel.threads()
        pool = context.__enter__()
        pool.submit(context.__exit__, None, None, None).result(300)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_has_threads_of_its_own():
    assert list(parallel.each(str, range(8)))  # which leaves threads
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if list(parallel.each(str, range(3))) == ["0", "1", "2"] else 1
        finally:
            os._exit(code)
    for _ in range(6000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        threading.Event().wait(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child waits for threads that it does not have")
    assert os.waitstatus_to_exitcode(status) == 0
