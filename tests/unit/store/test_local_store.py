"""What is particular to a directory: durability, errors of the system, and cost."""

import contextlib
import errno
import os
import pickle
import re
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from support.builders import (
    add,
    commit,
    create,
    reopen,
)

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.compaction import vacuum
from eventlog.errors import Corrupt, InvalidInput, KeyNotFound, OutcomeUnknown, Unavailable
from eventlog.format import keys
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.store.local import LocalStore
from eventlog.store.retry import put_once
from eventlog.writers import append


@pytest.fixture
def root(tmp_path):
    return tmp_path / "table"


@pytest.fixture
def store(root):
    return LocalStore(root)


def files(root):
    return sorted(str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file())


def fail(number):
    def call(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    return call


def test_relative_root_is_refused():
    with pytest.raises(InvalidInput):
        LocalStore("a/b")


def test_no_temporary_file_stays(store, root):
    store.put_if_absent("a/b", b"1")
    store.put_if_absent("a/b", b"2")
    assert files(root) == ["a/b"]


def test_files_get_the_usual_mode(store, root):
    mask = os.umask(0o027)
    try:
        store.put_if_absent("a", b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((root / "a").stat().st_mode) == 0o640


def test_every_new_directory_and_the_content_are_synced(store, root, monkeypatch):
    synced = []
    real = os.fsync

    def fsync(descriptor):
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store.put_if_absent("a/b/c", b"x")
    directories = {str(path) for path in (root.parent, root, root / "a", root / "a/b")}
    assert directories <= set(synced)
    assert any("/.tmp/" in path for path in synced)
    assert synced[-1] == str(root / "a/b"), "the new name must be durable last"

    synced.clear()
    store.put_if_absent("a/b/d", b"x")
    assert len(synced) == 2, "a warm put syncs the file and its directory"

    synced.clear()
    LocalStore(root).put_if_absent("a/b/e", b"x")
    assert directories - {str(root.parent)} <= set(synced), "another's directory may not be durable"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("call", ["open", "write", "fsync", "link"])
def test_a_failure_before_the_name_leaves_nothing(store, root, monkeypatch, call, number):
    store.put_if_absent("dir/warm", b"x")
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail(number))
        with pytest.raises(Unavailable, match=os.strerror(number)) as caught:
            store.put_if_absent("dir/key", b"body")
    assert not isinstance(caught.value, OutcomeUnknown)
    assert "try again" in str(caught.value)
    assert files(root) == ["dir/warm"]
    assert store.put_if_absent("dir/key", b"body") is True


def test_a_failure_after_the_name_is_unknown(store, root, monkeypatch):
    store.put_if_absent("dir/warm", b"x")
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, "broken")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OutcomeUnknown):
        store.put_if_absent("dir/key", b"body")
    assert files(root) == ["dir/key", "dir/warm"]


def test_a_replayed_link_is_own_success(store, monkeypatch):
    real = os.link

    def link(*names, **places):
        real(*names, **places)
        raise FileExistsError(errno.EEXIST, "the server carried it out twice")

    monkeypatch.setattr(os, "link", link)
    assert store.put_if_absent("key", b"body") is True
    assert store.put_if_absent("key", b"other") is False
    assert store.get("key") == b"body"


@pytest.mark.hazard("W10")
@pytest.mark.parametrize("there", [False, True], ids=["new", "after another"])
def test_of_two_that_meet_right_before_the_name_one_wins(store, root, monkeypatch, there):
    """Whatever call gives an object its name, another writer's comes right before it."""
    if there:
        store.put_if_absent("log/0", b"")  # so that the directory is known
    rival, outcomes = LocalStore(root), []

    def overtaken(real):
        def call(*arguments, **options):
            monkeypatch.undo()
            outcomes.append(rival.put_if_absent("log/1", b"rival"))
            return real(*arguments, **options)

        return call

    for name in ("link", "rename", "replace"):
        monkeypatch.setattr(os, name, overtaken(getattr(os, name)))
    outcomes.append(store.put_if_absent("log/1", b"slow"))
    assert outcomes == [True, False]
    assert store.get("log/1") == rival.get("log/1") == b"rival"


def test_short_writes_are_completed(store, monkeypatch):
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, body: real(descriptor, body[:3]))
    store.put_if_absent("key", b"0123456789")
    assert store.get("key") == b"0123456789"


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_reads_that_fail_are_unavailable(store, monkeypatch, number):
    store.put_if_absent("a/key", b"body")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail(number))
        with pytest.raises(Unavailable, match="cannot read"):
            store.get("a/key")
    monkeypatch.setattr(os, "scandir", fail(number))
    with pytest.raises(Unavailable, match="cannot list"):
        list(store.list(""))
    monkeypatch.setattr(os, "unlink", fail(number))
    with pytest.raises(Unavailable, match="cannot delete"):
        store.delete(["a/key"])


def test_a_key_that_needs_a_directory_where_an_object_is(store):
    store.put_if_absent("a/b", b"x")
    with pytest.raises(InvalidInput, match="other objects under"):
        store.put_if_absent("a", b"x")
    with pytest.raises(InvalidInput, match="under another object"):
        store.put_if_absent("a/b/c", b"x")
    with pytest.raises(KeyNotFound):
        store.get("a")
    store.delete(["a", "a/b/c"])
    assert store.get("a/b") == b"x"


@pytest.mark.parametrize("gone", ["a", ".tmp", "."])
def test_directories_that_somebody_removed_are_made_again(store, root, gone):
    store.put_if_absent("a/b", b"x")
    store.delete(["a/b"])
    for path in sorted((root / gone).rglob("*"), reverse=True):
        path.rmdir()
    (root / gone).rmdir()
    assert store.put_if_absent("a/b", b"again") is True
    assert store.get("a/b") == b"again"


def test_names_that_no_key_can_have_are_not_listed(store, root):
    store.put_if_absent("key", b"x")
    (root / ".tmp" / "left").write_bytes(b"by a crash")
    (Path(os.fsdecode(os.fsencode(root) + b"/\xff"))).write_bytes(b"")
    assert [row.key for row in store.list("")] == ["key"]
    assert list(store.list(".tmp/")) == []


def special(path, kind):
    """Make a named pipe or a socket."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, {"pipe": stat.S_IFIFO, "socket": stat.S_IFSOCK}[kind] | 0o600)


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_what_is_no_file_is_listed_and_named(store, root, kind):
    store.put_if_absent("a", b"x")
    special(root / "b", kind)
    assert [(row.key, row.size) for row in store.list("")] == [("a", 1), ("b", 0)]
    there, base = store.filesystem()
    for read in (lambda: store.get("b"), lambda: there.open_input_file(f"{base}/b")):
        with pytest.raises(Corrupt, match=r"not a file: `rm .*/b`") as caught:
            read()
        assert caught.value.key == "b"
    with pytest.raises(InvalidInput, match="other objects"):
        store.put_if_absent("b", b"x")
    store.delete(["b"])
    assert store.put_if_absent("b", b"x")


SEPARATE = {"inline_bytes": "0"}  # segments are objects


def table_of_two_versions(root):
    rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    table = Table.create(str(root), rows.schema, time_column="at", properties={"inline_bytes": "0"})
    append(table, rows)
    append(table, rows)
    return table


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_newest_commit_that_is_no_file_is_no_older_table(root, kind):
    table = table_of_two_versions(root)
    head = root / keys.commit_key(2)
    head.unlink()
    special(head, kind)
    report = fsck(Table(table.store))
    assert [f.key for f in report.findings if "not a file: `rm" in f.message] == [
        keys.commit_key(2)
    ]
    for read in (lambda uri: Table.open(uri).refresh(), scan):
        with pytest.raises(Corrupt, match="not a file"):
            read(str(root))


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_segment_that_is_no_file_is_lost(root, kind):
    table = table_of_two_versions(root)
    key = keys.key_of(table.session.head().segments()[0])
    (root / key).unlink()
    special(root / key, kind)
    assert [f.key for f in fsck(table, checksums=True).findings] == [key]
    with pytest.raises(Corrupt, match="not a file"):
        scan(str(root)).to_table()


@pytest.mark.hazard("W12")
def test_w12_an_audit_goes_on_at_links_and_names_each(root, tmp_path):
    table = table_of_two_versions(root)
    first, second = sorted(map(keys.key_of, table.session.head().segments()))
    links = {
        "_branches": None,
        "_frames/x": None,
        "_intents/README": None,
        "_log/README": None,
        "_log/a": None,
        "_probe/x": None,
        "_starts/README": None,
        "data/000000000000": "data/000000000000.json",
        second: None,
    }
    for place, beside in links.items():
        link = root / place
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_dir():
            link.rename(tmp_path / "away")
        link.unlink(missing_ok=True)
        link.symlink_to(tmp_path)
        if beside:
            (root / beside).write_bytes(b"")
    report = fsck(table, checksums=True)
    named = [f for f in report.findings if re.search("symbolic link.*`rm .*`", f.message)]
    assert [f.key for f in named] == sorted(links)
    missing = [f.key for f in report.findings if f.message == "a live segment is missing"]
    assert missing == [first, second]
    assert "foreign" in {left.kind for left in report.leftovers if left.place == "data/"}


def test_a_limited_listing_reads_only_the_directories_it_needs(store, monkeypatch):
    for number in range(30):
        store.put_if_absent(f"data/{number:02d}/x", b"")
    opened = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: opened.append(path) or real(path))
    rows = store.list("data/", after="data/10/x", limit=2)
    assert opened == []
    assert [row.key for row in rows] == ["data/11/x", "data/12/x"]
    # data/, the directory of the bound itself, and the two that hold the answer
    assert len(opened) == 4
    opened.clear()
    assert [row.key for row in store.list("data/2", after="data/29/")] == ["data/29/x"]
    assert len(opened) == 2


def test_a_used_temporary_name_is_not_reused(root):
    twin = LocalStore(root, ManualClock(seed=1))
    twin.put_if_absent("warm", b"")
    name = pickle.loads(pickle.dumps(twin._clock)).random_id()
    (root / ".tmp" / name).write_bytes(b"of a writer with the same seed")
    assert twin.put_if_absent("key", b"mine") is True
    assert twin.get("key") == b"mine"
    assert (root / ".tmp" / name).read_bytes() == b"of a writer with the same seed"


# What a file system may say where it cannot give a file a second name.
LINKLESS = ["EPERM", "EOPNOTSUPP", "ENOTSUP", "ENOSYS", "EMLINK", "EXDEV"]


@pytest.fixture(params=LINKLESS)
def linkless(request, monkeypatch):
    refuse = fail(getattr(errno, request.param))
    return lambda: monkeypatch.setattr(os, "link", refuse)


def test_a_file_system_without_hard_links_is_told_as_such(store, root, linkless):
    store.put_if_absent("warm", b"")
    linkless()
    with pytest.raises(InvalidInput, match=r"one local file system with hard links") as caught:
        store.put_if_absent("key", b"x")
    assert str(root) in str(caught.value)
    assert "try again" not in str(caught.value)
    assert [row.key for row in store.list("")] == ["warm"]
    assert list((root / ".tmp").iterdir()) == []


def test_without_hard_links_no_table_is_created_or_written(root, linkless):
    table = create(LocalStore(root))
    linkless()
    with pytest.raises(InvalidInput, match="hard links"):
        commit(table, add(table))
    with pytest.raises(InvalidInput, match="hard links"):
        create(LocalStore(root / "another"))
    assert reopen(LocalStore(root)).session.head().version == 0


NOW = {"retention": timedelta(0), "staging": timedelta(0)}


# Where a link stands, what it refers to there, and a key that leads over it.
LINKS = {
    "above": ("data", "data", "data/e/x"),
    "between": ("data/e", "data/e", "data/e/x"),
    "branch": ("_branches/b", "data", "_branches/b/e/x"),
    "object": ("data/e/x", "data/e/x", "data/e/x"),
    "nothing": ("data/e/x", "data/e/none", "data/e/x"),
    "loop": ("data/e/x", "data/e/x/y", "data/e/x"),
    "own": ("data/e", "../own/e", "data/e/x"),
}


@pytest.mark.hazard("W12")
@pytest.mark.parametrize("where", LINKS)
def test_w12_no_link_below_the_root_is_followed(store, root, tmp_path, where):
    place, to, key = LINKS[where]
    outside = LocalStore(tmp_path / "outside")
    outside.put_if_absent("data/e/x", b"another's")
    store.put_if_absent("own/e/x", b"its own")
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (root / place).symlink_to(tmp_path / "outside" / to if where != "own" else to)
    before = files(tmp_path / "outside")
    there, base = store.filesystem()
    attempts = [
        lambda: store.get(key),
        lambda: store.put_if_absent(key, b"mine"),
        lambda: list(store.list("")),
        lambda: list(store.list(key[:-1])),
        lambda: there.open_input_file(f"{base}/{key}"),
        lambda: there.get_file_info([f"{base}/{key}"]),
    ]
    if where not in ("object", "nothing", "loop"):
        attempts.append(lambda: store.delete([key]))
    for attempt in attempts:
        with pytest.raises(InvalidInput, match=r"symbolic link.*`rm .*`") as caught:
            attempt()
        assert caught.value.key == place
    if place == key:
        store.delete([key])  # the link itself is below the root
        assert not os.path.lexists(root / place)
    assert files(tmp_path / "outside") == before
    assert outside.get("data/e/x") == b"another's"


@pytest.mark.hazard("W12")
def test_w12_temporary_files_stay_below_the_root(store, root, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    root.mkdir()
    (root / ".tmp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="symbolic link"):
        store.put_if_absent("key", b"x")
    assert files(tmp_path / "elsewhere") == []


@pytest.mark.hazard("W12")
def test_w12_a_link_that_comes_between_two_calls_leads_nowhere(store, root, tmp_path, monkeypatch):
    """Whenever the directory is exchanged for a link, what is outside is neither read nor gone."""
    outside = LocalStore(tmp_path / "outside")
    outside.put_if_absent("data/e/x", b"another's")
    calls = {
        "get": lambda: store.get("data/e/x"),
        "put": lambda: store.put_if_absent("data/e/y", b"mine"),
        "delete": lambda: store.delete(["data/e/x"]),
        "list": lambda: [(row.key, row.size) for row in store.list("data/")],
    }
    for call in calls.values():
        for moment in range(20):
            store.put_if_absent("data/e/x", b"own")
            seen = []

            def spied(real, seen=seen, moment=moment):
                def spy(*arguments, **options):
                    if len(seen) == moment:
                        (root / "data").rename(root / "away")
                        (root / "data").symlink_to(tmp_path / "outside" / "data")
                    seen.append(real)
                    return real(*arguments, **options)

                return spy

            with monkeypatch.context() as patch:
                for name in ("open", "stat", "unlink", "link", "mkdir", "scandir"):
                    patch.setattr(os, name, spied(getattr(os, name)))
                with contextlib.suppress(InvalidInput, KeyNotFound):
                    assert call() in (b"own", True, None, [("data/e/x", 3)])
            if (root / "away").exists():
                (root / "data").unlink()
                (root / "away").rename(root / "data")
            store.delete(["data/e/y"])
            assert files(tmp_path / "outside") == ["data/e/x"]


@pytest.mark.hazard("W12")
@pytest.mark.parametrize(
    "place", ["README", "999999999999", f"{10**12 - 12:012d}/{'ab' * 16}.json"]
)
def test_w12_a_link_below_the_intents_stops_no_writer(tmp_path, place):
    """Combining is optional: a link that is not followed is no reason to give up a commit."""
    root = tmp_path / "table"
    rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    properties = {"combine_after": "1"}
    table = Table.create(str(root), rows.schema, time_column="at", properties=properties)
    link = root / "_intents" / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(tmp_path)

    def appended(_):
        own = Table.open(str(root))
        return [append(own, rows) for _ in range(3)]

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(appended, range(4)))) == 4
    assert scan(table, version=table.refresh().version).count() == 12
    assert link.is_symlink()


@pytest.mark.hazard("W12")
def test_w12_the_root_itself_may_be_a_link(root, tmp_path):
    (tmp_path / "real").mkdir()
    root.symlink_to(tmp_path / "real")
    store = LocalStore(root)
    assert store.put_if_absent("a/b", b"x") is True
    assert [row.key for row in store.list("")] == ["a/b"]
    there, base = store.filesystem()
    with there.open_input_file(f"{base}/a/b") as file:
        assert file.read() == store.get("a/b") == b"x"
    store.delete(["a/b"])
    assert files(tmp_path / "real") == []


@pytest.mark.hazard("W12")
@pytest.mark.parametrize("place", ["data", "data/000000000000"])
def test_w12_a_vacuum_deletes_nothing_of_another_table(tmp_path, place):
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    victim, table = (
        Table.create(
            str(tmp_path / name), schema, time_column="at", properties={"inline_bytes": "0"}
        )
        for name in ("victim", "t")
    )
    rows = pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))})
    for each in (victim, table):
        append(each, rows)
    shutil.rmtree(tmp_path / "t" / place)
    (tmp_path / "t" / place).symlink_to(tmp_path / "victim" / place)
    with contextlib.suppress(InvalidInput):
        append(table, rows)
        vacuum(table, dry_run=False, **NOW)
    with pytest.raises(InvalidInput, match="symbolic link"):
        vacuum(table, dry_run=False, full=True, **NOW)
    assert scan(victim).to_table() == rows
    with pytest.raises(InvalidInput, match="symbolic link"):
        scan(table).to_table()


def test_a_put_whose_temporary_file_is_deleted_is_written_again(store):
    link, deleted = os.link, []

    def delete_first(*args, **options):
        if not deleted:
            deleted.extend(store.temporary_files())
            store.delete_temporary(deleted)
        link(*args, **options)

    with mock.patch("os.link", delete_first):
        put_once(store, ManualClock(0), "a/b", b"body")
    assert [(one.size, one.sha256) for one in deleted] == [(4, sha256(b"body").hexdigest())]
    assert store.get("a/b") == b"body"
    assert store.temporary_files() == []
    store.delete_temporary(deleted)
