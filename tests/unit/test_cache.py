"""The bounded cache: what stays, what goes, and what it weighs."""

from eventlog.cache import Cache


def test_what_was_used_longest_ago_goes():
    cache = Cache(3)
    for key in "abc":
        cache.put(key, key.upper())
    assert cache.get("a") == "A"
    cache.put("d", "D")
    assert [key for key in "abcd" if key in cache] == ["a", "c", "d"]
    assert cache.get("b") is None


def test_a_look_is_no_use():
    cache = Cache(2)
    cache.put("a", 1)
    cache.put("b", 2)
    assert "a" in cache
    cache.put("c", 3)
    assert "a" not in cache


def test_a_bound_on_what_values_weigh():
    dropped = []
    cache = Cache(10, weigh=len, dropped=dropped.append)
    cache.put("a", "xxxx")
    cache.put("b", "xxxx")
    cache.put("a", "xxxxxx")  # in the place of the one before: ten in all
    assert dropped == []
    cache.put("c", "x")
    assert dropped == ["b"]
    assert cache.get("a") == "xxxxxx"


def test_the_newest_stays_whatever_it_weighs():
    dropped = []
    cache = Cache(10, weigh=len, dropped=dropped.append)
    cache.put("a", "x")
    cache.put("b", "x" * 99)
    assert (dropped, "b" in cache) == (["a"], True)
    cache.put("c", "x")
    assert dropped == ["a", "b"]


def test_what_is_given_up_weighs_nothing():
    dropped = []
    cache = Cache(2, dropped=dropped.append)
    for key in "ab":
        cache.put(key, key)
    cache.forget("a")
    cache.forget("never there")
    cache.put("c", "c")
    assert ([key for key in "abc" if key in cache], dropped) == (["b", "c"], [])


def test_what_is_cleared_weighs_nothing():
    dropped = []
    cache = Cache(10, weigh=len, dropped=dropped.append)
    cache.put("a", "xxxxxx")
    cache.clear()
    assert "a" not in cache
    cache.put("b", "xxxxxx")
    cache.put("c", "xxxx")
    assert ("b" in cache, "c" in cache, dropped) == (True, True, [])
