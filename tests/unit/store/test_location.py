"""From locations to stores, and the conformance probe."""

from pathlib import Path

import pytest

from eventlog.errors import InvalidInput, OutcomeUnknown
from eventlog.format.keys import parse_log_key, parse_segment_key
from eventlog.store.local import LocalStore
from eventlog.store.location import open_store, probe
from eventlog.store.memory import MemoryStore
from eventlog.store.s3.adapter import S3Store
from eventlog.store.testing.wrappers import Fault, FaultyStore

TOKEN = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("location", "kind", "uri"),
    [
        ("s3://bucket/a/b", S3Store, "s3://bucket/a/b"),
        ("s3://bucket/a/b/", S3Store, "s3://bucket/a/b"),
        ("s3://bucket", S3Store, "s3://bucket"),
        ("s3://bucket/", S3Store, "s3://bucket"),
        ("s3a://bucket/a", S3Store, "s3://bucket/a"),
        ("file:///tmp/a%20b", LocalStore, "file:///tmp/a%20b"),
        ("file:/tmp/a", LocalStore, "file:///tmp/a"),
        ("file://localhost/tmp/a/", LocalStore, "file:///tmp/a"),
        ("/tmp/a b", LocalStore, "file:///tmp/a%20b"),
        ("/tmp/x/../a", LocalStore, "file:///tmp/a"),
        (Path("/tmp/a"), LocalStore, "file:///tmp/a"),
        ("/tmp/odd:/a", LocalStore, "file:///tmp/odd%3A/a"),
        ("memory://name", MemoryStore, "memory://name"),
    ],
)
def test_forms(location, kind, uri):
    store = open_store(location)
    assert isinstance(store, kind)
    assert store.uri == uri
    assert open_store(store.uri).uri == uri


def test_relative_and_home_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert open_store("tables/a").uri == (tmp_path / "tables/a").as_uri()
    assert open_store("~/a").uri == (tmp_path / "home/a").as_uri()


@pytest.mark.parametrize(
    "location",
    [
        *("", "gs://bucket/a", "http://host/a", "abfss://c@a/b", b"/tmp/a", "/tmp/\0"),
        *("s3://", "s3:///a", "s3://key:hidden@bucket/a", "s3://bucket/a//b", "s3://bucket/../a"),
        *("file://host/a", "file:///a?hidden", "memory://", "s3:/bucket/a"),
    ],
)
def test_other_locations_are_refused(location):
    with pytest.raises(InvalidInput) as caught:
        open_store(location)
    assert "key:hidden" not in str(caught.value)


def test_an_unknown_scheme_names_the_known_forms():
    with pytest.raises(InvalidInput, match=r"s3://bucket/prefix.*file:///.*memory://"):
        open_store("gs://bucket/a")


@pytest.mark.parametrize("location", ["s3://bucket/a", "/tmp/a", "memory://a"])
def test_options_are_checked_for_every_store(location):
    with pytest.raises(InvalidInput, match="unknown"):
        open_store(location, {"colour": "red"})


def test_memory_stores_of_one_name_are_one():
    open_store("memory://shared-by-name").put_if_absent("key", b"x")
    assert open_store("memory://shared-by-name").get("key") == b"x"
    assert list(open_store("memory://another").list("")) == []


def test_probe_passes_and_leaves_what_readers_ignore(root_uri):
    store = open_store(root_uri)
    probe(store, TOKEN)
    (left,) = store.list("")
    assert left.key == f"_probe/{TOKEN}"
    assert parse_log_key(left.key) is None
    assert parse_segment_key(left.key) is None
    assert list(store.list("_log/")) == []
    probe(store, TOKEN)


class Overwriting(MemoryStore):
    """What rclone and others do: answer 200 and overwrite."""

    says = True

    def put_if_absent(self, key, body):
        self.delete([key])
        super().put_if_absent(key, body)
        return self.says


class Lying(Overwriting):
    """Says that it refused, and overwrites all the same."""

    says = False


class Generous(MemoryStore):
    """Keeps the first object, and tells everybody that they created it."""

    def put_if_absent(self, key, body):
        super().put_if_absent(key, body)
        return True


@pytest.mark.hazard("W10")
@pytest.mark.parametrize(
    "store", [Overwriting(), Lying(), Generous()], ids=lambda s: type(s).__name__
)
def test_probe_refuses_a_store_that_ignores_preconditions(store):
    with pytest.raises(InvalidInput, match=r"ignores preconditions.*would lose commits"):
        probe(store, TOKEN)


@pytest.mark.parametrize("occurrence", [1, 2])
def test_probe_says_nothing_about_a_store_that_does_not_answer(occurrence):
    store = FaultyStore(MemoryStore(), [Fault("put", "lost_response", occurrence=occurrence)])
    with pytest.raises(OutcomeUnknown):
        probe(store, TOKEN)
    probe(store, TOKEN)
