"""Death, or a lost answer, at every store call of what changes columns."""

from functools import cache

import pyarrow as pa
import pytest
from support.builders import create, fold_all
from support.crashes import ENDS, HOWS, MortalStore, Past, fresh

from eventlog import errors
from eventlog.fsck.check import fsck
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, merge, overwrite

pytestmark = pytest.mark.usefixtures("in_turn")

MOST = 40
AT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("at", AT),
        pa.field("name", pa.string(), nullable=False),
        ("n", pa.int8()),
        ("day", pa.date32()),
        ("s", pa.struct([("a", pa.int8()), ("b", pa.string())])),
    ]
)
JOB = {"app_id": "job", "app_seq": 1}
WIDE = pa.table(
    {
        "at": pa.array([0], AT),
        "name": ["z"],
        "n": [1000],
        "day": pa.array([1], pa.date32()),
        "s": [{"a": 1, "b": "x"}],
        "more": [1],
    }
)


@cache
def past(keyframe_commits):
    """A table of two segments."""
    store = MemoryStore()
    properties = {"keyframe_commits": keyframe_commits, "combine_after": "1"}
    table = create(store, schema=SCHEMA, properties=properties)
    for name in "ab":
        row = {"at": 0, "name": name, "n": 1, "day": None, "s": {"a": 1, "b": "x"}}
        append(table, pa.Table.from_pylist([row], schema=SCHEMA))
    return Past({found.key: store.get(found.key) for found in store.list("")}, (*fold_all(store),))


def state(table, version=None):
    """The columns of a table and its rows."""
    snapshot = table.refresh() if version is None else table.snapshot(version)
    rows = scan(table, version=snapshot.version).to_table()
    return str(snapshot.stored_schema.columns), sorted(rows.to_pylist(), key=str)


# The change; and what a call says that finds it done. None: it returns the version.
OPERATIONS = {
    "add": (lambda t: t.add_columns([pa.field("x", pa.int8())], {"x": 5}), None),
    "add a field": (lambda t: t.add_columns([pa.field("c", pa.int8())], within="s"), None),
    "drop": (lambda t: t.drop_columns(["n", ["s", "a"]]), "no column 'n'"),
    "rename": (lambda t: t.rename_column("n", "number"), "no column 'n'"),
    "widen": (lambda t: t.widen_column("n", pa.int64()), None),
    "widen a date": (lambda t: t.widen_column("day", pa.timestamp("us")), None),
    "reorder": (lambda t: t.reorder_columns(["s", "n"]), None),
    "relax": (lambda t: t.relax_columns(["name"]), None),
    "append": (lambda t: append(t, WIDE, evolve=True, **JOB), None),
    "overwrite": (lambda t: overwrite(t, WIDE, where="name > 'a'", evolve=True, **JOB), None),
    "merge": (lambda t: merge(t, WIDE, "name", evolve=True, **JOB), None),
}  # fmt: skip
CASES = [(name, "64", "before") for name in OPERATIONS] + [
    (name, "64", "lost") for name in OPERATIONS
]
LONG = [(name, every, how) for name in OPERATIONS for every in ("64", "1") for how in HOWS]
RUNS = [
    *CASES,
    *(pytest.param(*case, marks=pytest.mark.long) for case in LONG if case not in CASES),
]


def once_more(act, table, done):
    """Repeat a call; where it was done before, it may say that there is nothing to do."""
    said = None
    try:
        act(table)
    except errors.InvalidInput as error:
        said = str(error)
    assert said is None or (done is not None and done in said)


@pytest.mark.sample(4, verify=10)
@pytest.mark.parametrize(("name", "keyframe_commits", "how"), RUNS)
def test_a_change_of_columns_that_dies_is_made_whole_or_not_at_all(name, keyframe_commits, how):
    act, done = OPERATIONS[name]
    before = past(keyframe_commits)
    old = state(fresh(before.store(), 50))
    whole = fresh(before.store(), 60)
    first = whole.session.head().version
    act(whole)
    versions = [state(whole, v) for v in range(first, whole.session.head().version + 1)]
    assert versions[0] == old
    for at in range(1, MOST):
        store = before.store()
        mortal = MortalStore(store, at, how)
        try:
            act(fresh(mortal, 100))
        except ENDS:
            assert mortal.calls >= at
        assert state(fresh(store, 150)) in versions
        once_more(act, fresh(store, 200), done)
        assert state(fresh(store, 300)) == versions[-1]
        if mortal.calls < at:
            break
    assert mortal.calls < at
    assert at > 2
    assert fsck(fresh(store, 400), checksums=True).errors == 0
