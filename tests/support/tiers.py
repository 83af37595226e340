"""Which tests a run leaves to a longer one, besides those marked `verify` and `long`.

`make test` leaves to `make verify` the tests that use the Spark session, except those marked
`everyday`, and of a test marked `sample(n)` all parameter sets but n. `make verify` leaves to
`make test-long`, of a test marked `sample(n, verify=m)`, all but m.

A test that runs on S3 and in a directory does so in `make test-long`. In the other runs it has one
of the two places, by its name: that both stores do the same is for `contract/`.
"""

import zlib
from collections import defaultdict

PLACES = ("s3", "directory", "local")  # values of the fixtures that say where a table lies


def assign(items):
    """Mark the tests that a run leaves to a longer one: `verify` or `long`."""
    sampled = defaultdict(list)
    for item in items:
        if not is_in_its_place(item):
            item.add_marker("long")
            continue
        if item.get_closest_marker("sample") and not is_left_out(item):
            sampled[item.nodeid.split("[")[0]].append(item)
        if uses_spark(item) and not item.get_closest_marker("everyday"):
            item.add_marker("verify")
    for cases in sampled.values():
        left, long = beyond_sample(cases)
        for item in left:
            item.add_marker("verify")
        for item in long:
            item.add_marker("long")


def beyond_sample(cases):
    """Return the cases of one test that its mark leaves to `make verify`, and to `make test-long`.

    The choice depends on the ids alone, and on no order, so that it has values of every parameter.
    """
    mark = cases[0].get_closest_marker("sample")
    (count,) = mark.args
    most = mark.kwargs.get("verify", len(cases))
    ordered = sorted(cases, key=lambda item: _number(item.nodeid))
    return ordered[count:most], ordered[most:]


def is_left_out(item):
    """Return whether a mark of its own leaves a test out of `make test`."""
    return any(item.get_closest_marker(name) for name in ("verify", "long"))


def uses_spark(item):
    """Return whether a test uses the Spark session: by its fixture, or by the mark `spark`."""
    fixtures = getattr(item, "fixturenames", ())
    return "spark" in fixtures or item.get_closest_marker("spark") is not None


def is_in_its_place(item):
    """Return whether the test has the one place, of two, that it has in a default run."""
    given = getattr(item, "callspec", None)
    place = None if given is None else given.params.get("place", given.params.get("root_uri"))
    if place not in PLACES:
        return True
    on_s3 = _number(item.originalname) % 2 == 0
    return on_s3 == (place == "s3")


def _number(text):
    return zlib.crc32(text.encode())
