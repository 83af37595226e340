"""The contract of the storage port, held by every adapter and every wrapper."""

import itertools
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

import boto3
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from pyarrow.fs import FileType
from support import repeatable

from eventlog.clock import SystemClock
from eventlog.errors import InvalidInput, KeyNotFound
from eventlog.format import codec, keys
from eventlog.model.records import Fork
from eventlog.store.branching.branch import BranchStore
from eventlog.store.local import LocalStore
from eventlog.store.memory import MemoryStore
from eventlog.store.port import HINTS, ObjectInfo
from eventlog.store.s3.adapter import S3Store
from eventlog.store.testing.wrappers import CountingStore, FaultyStore, PrefixedStore

_MAKERS = {
    "memory": lambda place: MemoryStore(),
    "memory-named": lambda place: MemoryStore(f"memory://{place('name')}"),
    "local": lambda place: LocalStore(place("path") / "new" / "ro ot"),
    "s3": lambda place: S3Store(f"s3://{place('bucket')}/some prefix/tä+ble"),
    "s3-bucket-root": lambda place: S3Store(f"s3://{place('bucket')}"),
    "counting": lambda place: CountingStore(MemoryStore()),
    "faulty": lambda place: FaultyStore(MemoryStore()),
    "prefixed-memory": lambda place: PrefixedStore(_crowded(MemoryStore()), "in/ner"),
    "prefixed-local": lambda place: PrefixedStore(_crowded(LocalStore(place("path"))), "in/ner"),
    "branch-memory": lambda place: _branch(MemoryStore(), "audit"),
    "branch-local": lambda place: _branch(LocalStore(place("path")), "audit"),
    "branch-s3": lambda place: _branch(S3Store(f"s3://{place('bucket')}/t"), "audit"),
    "branch-of-a-branch": lambda place: _branch(_branch(MemoryStore(), "audit"), "2"),
    "prefixed-s3": lambda place: PrefixedStore(
        _crowded(S3Store(f"s3://{place('bucket')}")), "in/ner"
    ),
}


# A branch of a branch stands for those elsewhere.
_LONG = ("branch-memory", "branch-local", "branch-s3")


@pytest.fixture(
    params=[pytest.param(n, marks=[pytest.mark.long] if n in _LONG else []) for n in _MAKERS]
)
def store(request, tmp_path):
    def place(kind):
        if kind == "path":
            return tmp_path
        return request.node.name if kind == "name" else request.getfixturevalue("bucket")

    return _MAKERS[request.param](place)


def test_creates_and_reads(store):
    assert store.put_if_absent("a/b/c.json", b"content") is True
    assert store.get("a/b/c.json") == b"content"
    assert _raw_get(store, "a/b/c.json") == b"content"


def test_reads_what_others_wrote(store):
    _raw_put(store, "_log/0.json", b"theirs")
    assert store.get("_log/0.json") == b"theirs"
    assert store.put_if_absent("_log/0.json", b"ours") is False
    assert list(store.list("_log/")) == [ObjectInfo("_log/0.json", 6)]


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (0, 4, b"0123"),
        (4, None, b"456789"),
        (4, 3, b"456"),
        (8, 100, b"89"),
        (9, 1, b"9"),
        (3, 0, b""),
        (0, 0, b""),
        (10, None, b""),
        (10, 5, b""),
        (1000, 5, b""),
        (1000, None, b""),
    ],
)
def test_ranges(store, start, length, expected):
    store.put_if_absent("key", b"0123456789")
    assert store.get("key", start=start, length=length) == expected


@pytest.mark.parametrize("bounds", [{}, {"length": 0}, {"length": 9}, {"start": 3}])
def test_missing_key_is_not_found_whatever_the_range(store, bounds):
    store.put_if_absent("dir/object", b"x")
    for key in ("none", "dir", "dir/none", "dir/object/below"):
        with pytest.raises(KeyNotFound) as caught:
            store.get(key, **bounds)
        assert caught.value.key is not None
        assert caught.value.key.endswith(key)


def test_negative_range_is_refused(store):
    store.put_if_absent("key", b"x")
    with pytest.raises(InvalidInput):
        store.get("key", start=-1)
    with pytest.raises(InvalidInput):
        store.get("key", length=-1)


def test_empty_object(store):
    assert store.put_if_absent("empty", b"") is True
    assert store.put_if_absent("empty", b"x") is False
    assert store.get("empty") == b""
    assert store.get("empty", start=0, length=10) == b""
    assert list(store.list("")) == [ObjectInfo("empty", 0)]


@pytest.mark.parametrize("kind", [bytes, memoryview, pa.py_buffer])
def test_large_object_from_any_buffer(store, kind):
    content = bytes(range(256)) * (5 * 2**20 // 256)
    assert store.put_if_absent("large", kind(content)) is True
    assert store.get("large") == content
    assert store.get("large", start=2**20, length=300) == content[2**20 : 2**20 + 300]


def test_second_put_is_refused_and_changes_nothing(store):
    store.put_if_absent("key", b"first")
    assert store.put_if_absent("key", b"second, longer") is False
    assert store.put_if_absent("key", b"first") is False
    assert _raw_get(store, "key") == b"first"


def test_hint_is_replaced(store):
    for hint in HINTS:
        store.put_hint(hint, b"first, longer")
        store.put_hint(hint, b"second")
        assert store.get(hint) == b"second"
        assert _raw_get(store, hint) == b"second"
        assert list(store.list(hint)) == [ObjectInfo(hint, 6)]
        assert store.put_if_absent(hint, b"third") is False
    assert _keys(store.list("_delta_log/")) == [HINTS[0]]


@pytest.mark.parametrize(
    "key",
    [
        *("_delta_log/00000000000000000007.json", "_log/000000000007.json", "metadata/v7.json"),
        *("x_delta_log/_last_checkpoint", "_last_checkpoint", "metadata/version-hint.text/x", ""),
    ],
)
def test_no_other_key_is_replaced(store, key):
    if key:
        store.put_if_absent(key, b"first")
    with pytest.raises(InvalidInput):
        store.put_hint(key, b"second")
    assert [store.get(row.key) for row in store.list("")] == ([b"first"] if key else [])


_COMMIT = "_log/999999999992.json"


def test_a_commit_is_replaced(store):
    store.put_if_absent(_COMMIT, b"the whole commit")
    assert store.replace(_COMMIT, b"the whole commit", b"a stub") is True
    assert store.get(_COMMIT) == _raw_get(store, _COMMIT) == b"a stub"
    assert list(store.list("_log/")) == [ObjectInfo(_COMMIT, 6)]
    assert store.put_if_absent(_COMMIT, b"late") is False
    assert store.replace(_COMMIT, b"the whole commit", b"a stub") is True  # once more
    assert store.get(_COMMIT) == b"a stub"


def test_what_has_other_bytes_is_not_replaced(store):
    assert store.replace(_COMMIT, b"the whole commit", b"a stub") is False
    assert list(store.list("_log/")) == []
    store.put_if_absent(_COMMIT, b"another commit")
    assert store.replace(_COMMIT, b"the whole commit", b"a stub") is False
    assert store.get(_COMMIT) == b"another commit"


@pytest.mark.parametrize(
    "key",
    [
        *("_log/999999999992.keyframe.json", "_log/7.json", "_frames/999999999992.json", ""),
        *("data/000000000001/all/a.parquet", "_starts/7.json", "x_log/999999999992.json", *HINTS),
    ],
)
def test_nothing_but_commits_is_replaced(store, key):
    if key:
        store.put_if_absent(key, b"first")
    with pytest.raises(InvalidInput):
        store.replace(key, b"first", b"second")
    assert [store.get(row.key) for row in store.list("")] == ([b"first"] if key else [])


def test_a_reader_beside_a_replacement_gets_old_or_new_bytes(store):
    old, new = b"c" * 30_000, b"s" * 500
    store.put_if_absent(_COMMIT, old)
    with ThreadPoolExecutor(8) as pool:
        replaced = [pool.submit(store.replace, _COMMIT, old, new) for _ in range(3)]
        reads = [pool.submit(store.get, _COMMIT) for _ in range(12)]
    assert any(task.result() for task in replaced)
    assert {task.result() for task in reads} <= {old, new}
    assert store.get(_COMMIT) == new


def test_readers_of_a_hint_get_one_writers_bytes(store):
    bodies = {
        bytes([letter]) * size for letter, size in zip(b"abcd", (9, 900, 9_000, 90), strict=True)
    }
    store.put_hint(HINTS[0], b"a" * 9)
    with ThreadPoolExecutor(8) as pool:
        writes = [pool.submit(store.put_hint, HINTS[0], body) for body in sorted(bodies) * 3]
        reads = [pool.submit(store.get, HINTS[0]) for _ in range(12)]
    assert [task.result() for task in writes] == [None] * 12
    assert {task.result() for task in reads} <= bodies
    assert store.get(HINTS[0]) in bodies


_ORDERED = sorted(
    [
        *("a", "a b", "a+b", "a-b", "a.b", "a&<b>", "a=b,c", "aa", "b"),
        *("d/x", "d/y/z", "d/y.z", "d/y0", "d.d", "d0", "d-/q", "Z", "_log/1", "~"),
        *("é", "e\u0301", "日本/語", "\uffee", "\U0001d11e", "data/2013-01-07T05/0.parquet"),
    ],
    key=str.encode,
)


def test_lists_in_utf8_byte_order(store):
    _fill(store, reversed(_ORDERED))
    assert _keys(store.list("")) == _ORDERED
    assert all(row.size == 1 for row in store.list(""))


def test_lists_by_prefix_after_and_limit(store):
    _fill(store, _ORDERED)
    prefixes = ["", "a", "d", "d/", "d/y", "d/y/", "_log/", "日", "none", "none/", "d/y/z", "~"]
    bounds = ["", "a", "a.", "d", "d/", "d/y", "d/y/z", "d/y/zz", "d0", "é", "\U0010ffff", "_"]
    for prefix, after in itertools.product(prefixes, bounds):
        expected = [
            key for key in _ORDERED if key.startswith(prefix) and key.encode() > after.encode()
        ]
        assert _keys(store.list(prefix, after=after)) == expected, (prefix, after)
    for limit in (0, 1, 3, 1000):
        assert _keys(store.list("", limit=limit)) == _ORDERED[:limit]
        after_d = [key for key in _ORDERED if key > "d"]
        assert _keys(store.list("", after="d", limit=limit)) == after_d[:limit]


def test_missing_root_lists_empty(store):
    assert list(store.list("")) == []
    assert list(store.list("data/", after="data/0", limit=4)) == []


def test_bad_list_arguments_are_refused(store):
    for arguments in ({"prefix": "/a"}, {"prefix": "a//b"}, {"prefix": "../"}, {"prefix": "a%"}):
        with pytest.raises(InvalidInput):
            list(store.list(**arguments))
    with pytest.raises(InvalidInput):
        list(store.list("", limit=-1))


def test_listing_goes_on_past_pages_and_deletes(store):
    keys = [f"p/{number:05d}" for number in range(1100)]
    for key in keys:
        _raw_put(store, key, b"")
    rows = store.list("p/")
    first = next(rows)
    store.delete([keys[1020], keys[1090]])
    seen = [first.key, *_keys(rows)]
    survivors = [key for key in keys if key not in (keys[1020], keys[1090])]
    assert [key for key in seen if key in survivors] == survivors
    assert _keys(store.list("p/", limit=1050)) == survivors[:1050]
    store.delete(keys)
    assert list(store.list("")) == []


def test_delete(store):
    _fill(store, ["a", "b/c", "b/d", "é +&"])
    store.delete(iter(["a", "missing", "b/c", "b/missing/deep", "é +&"]))
    assert _keys(store.list("")) == ["b/d"]
    store.delete([])
    with pytest.raises(KeyNotFound):
        store.get("a")
    assert store.put_if_absent("a", b"again") is True


@pytest.mark.parametrize(
    "key",
    [
        *("", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a\\b", "a%2e", "a\nb"),
        *("a\x00", "a\x7f", "\ud800", "a\uffff", ".tmp/a", "x" * 1025, "é" * 600),
    ],
)
def test_keys_that_are_not_plain_are_refused(store, key):
    for call in (
        lambda: store.get(key),
        lambda: store.put_if_absent(key, b"x"),
        lambda: store.delete([key]),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert list(store.list("")) == []


def test_pickled_copy_sees_the_same_objects(store):
    store.put_if_absent("key", b"content")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.uri == store.uri
    assert copy.get("key") == b"content"
    assert copy.put_if_absent("other", b"from the copy") is True
    assert store.get("other") == b"from the copy"


def test_of_16_racing_writers_exactly_one_creates(store):
    rounds, writers = (6 if repeatable.EXAMPLES else 2), 16
    barrier = threading.Barrier(writers, timeout=240)

    def write(number):
        outcomes = []
        for turn in range(rounds):
            barrier.wait()
            body = f"{number}:".encode() * 20_000
            outcomes.append(store.put_if_absent(f"_log/{turn}", body))
        return outcomes

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(writers) as pool:
            outcomes = list(pool.map(write, range(writers)))
    finally:
        sys.setswitchinterval(interval)
    for turn in range(rounds):
        winners = [number for number in range(writers) if outcomes[number][turn]]
        assert len(winners) == 1
        assert store.get(f"_log/{turn}") == f"{winners[0]}:".encode() * 20_000


def test_filesystem_reads_parquet(store):
    table = pa.table({"x": range(200_000), "y": [str(n * 7919) for n in range(200_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=20_000)
    store.put_if_absent("data/0/part 1.parquet", sink.getvalue())
    filesystem, root = store.filesystem()
    path = f"{root}/data/0/part 1.parquet"

    assert pq.read_table(path, filesystem=filesystem).equals(table)
    scanned = ds.dataset([path], filesystem=filesystem, format="parquet")
    assert scanned.count_rows(filter=ds.field("x") > 150_000) == 49_999
    with filesystem.open_input_file(path) as file:
        assert file.size() == sink.getvalue().size
        file.seek(-4, 2)
        assert file.read() == b"PAR1"


def test_filesystem_says_what_is_there(store):
    store.put_if_absent("a/b", b"12345")
    filesystem, root = store.filesystem()
    found = filesystem.get_file_info([f"{root}/a/b", f"{root}/a", f"{root}/none"])
    assert [row.type for row in found] == [FileType.File, FileType.Directory, FileType.NotFound]
    assert found[0].size == 5
    with pytest.raises(FileNotFoundError):
        filesystem.open_input_file(f"{root}/none")
    with filesystem.open_input_stream(f"{root}/a/b") as stream:
        assert stream.read() == b"12345"


def test_store_time_is_near_the_local_time_if_known(store):
    store.put_if_absent("a", b"")
    told = store.now_ms()
    assert told is None or abs(told - SystemClock().now_ms()) < 5_000


def _crowded(store):
    """Surround the part under the prefix with keys that are none of its business."""
    for key in ("in/ne", "in/ner.x", "in/ner0", "in/nes/a", "zzz"):
        store.put_if_absent(key, b"not yours")
    return store


def _branch(parent, name):
    """A branch that forks at version 0 and sees none of its parent's objects."""
    fork = Fork("eventlog", 1, "a" * 32, "b" * 32, name, 0, "c" * 64, 0)
    parent.put_if_absent(f"{keys.branch_root(name)}/{keys.FORK_KEY}", codec.encode_fork(fork))
    for key in (keys.commit_key(1), keys.keyframe_key(9), "_log/0", "_intents/1", "_frames/1.x"):
        parent.put_if_absent(key, b"not yours")
    for key in ("data/000000000000/x", "data/000000000001/y", "_branches/other/z", "a", "d/y/z"):
        parent.put_if_absent(key, b"not yours")
    return BranchStore(parent, name, fork)


def _fill(store, keys):
    for key in keys:
        assert store.put_if_absent(key, b"x") is True


def _keys(rows):
    return [row.key for row in rows]


def _place(store, key):
    """Return the innermost adapter and the key there."""
    while not isinstance(store, MemoryStore | LocalStore | S3Store):
        if isinstance(store, BranchStore):
            store, key = store.place(key)
            continue
        key = store._prefix + key if isinstance(store, PrefixedStore) else key
        store = store.inner
    return store, key


def _raw_put(store, key, body):
    adapter, key = _place(store, key)
    if isinstance(adapter, MemoryStore):
        adapter.put_if_absent(key, body)
    elif isinstance(adapter, LocalStore):
        path = Path(unquote(urlsplit(adapter.uri).path)) / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    else:
        bucket, _, prefix = adapter.uri.removeprefix("s3://").partition("/")
        name = f"{prefix}/{key}" if prefix else key
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].put_object(bucket, name, body)


def _raw_get(store, key):
    adapter, key = _place(store, key)
    if isinstance(adapter, MemoryStore):
        return adapter._shelf.objects[key]
    if isinstance(adapter, LocalStore):
        return (Path(unquote(urlsplit(adapter.uri).path)) / key).read_bytes()
    bucket, _, prefix = adapter.uri.removeprefix("s3://").partition("/")
    name = f"{prefix}/{key}" if prefix else key
    return boto3.client("s3").get_object(Bucket=bucket, Key=name)["Body"].read()
