"""Which tests `make test` leaves to `make verify`, besides those that carry the mark `verify`.

Of the tests that use the Spark session all but those marked `everyday`. Of a test that runs on S3
and in a directory one of the two, by its name: that both stores do the same is for `contract/`.
"""

import zlib

PLACES = ("s3", "directory", "local")  # values of the fixtures that say where a table lies


def leave_to_verify(items):
    """Mark the tests that `make test` leaves out."""
    for item in items:
        everyday = not uses_spark(item) or item.get_closest_marker("everyday")
        if not (everyday and is_chosen(item)):
            item.add_marker("verify")


def uses_spark(item):
    """Return whether a test uses the Spark session: by its fixture, or by the mark `spark`."""
    fixtures = getattr(item, "fixturenames", ())
    return "spark" in fixtures or item.get_closest_marker("spark") is not None


def is_chosen(item):
    """Return whether a test runs in the one of two places that `make test` has it run in."""
    given = getattr(item, "callspec", None)
    place = None if given is None else given.params.get("place", given.params.get("root_uri"))
    if place not in PLACES:
        return True
    on_s3 = zlib.crc32(item.originalname.encode()) % 2 == 0
    return on_s3 == (place == "s3")
