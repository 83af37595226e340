"""The example of three logs in MERGING.md: the merges commit what its table shows."""

import re
from pathlib import Path

import msgspec
import pyarrow as pa
from golden import make

import eventlog
from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.format import codec
from eventlog.model.actions import SetOrigin
from eventlog.readers import scan
from eventlog.replication import follow, merge
from eventlog.store.memory import MemoryStore
from eventlog.writers import append

TEXT = (Path(eventlog.__file__).parent / "MERGING.md").read_text(encoding="utf-8")
FORK_POINT = 4
UNIT = {"app_id": "loader", "app_seq": 3}
ORDER = ("AB", "BC", "AC", "CA", "BA", "CB")


def rows(number):
    return pa.table([[number], [number]], schema=make.PLAIN)


def logs(clock):
    """Return the three logs before they are merged."""
    tables = {name: Table(MemoryStore(f"memory://{name}"), clock=clock) for name in "ABC"}
    store = tables["A"].session.store
    first = Table.create(store.uri, make.PLAIN, time_column="at", store=store, clock=clock)
    append(first, rows(0), app_id="loader", app_seq=2)
    for number in range(1, FORK_POINT):
        append(first, rows(number))
    tables["A"] = first
    for name in "BC":
        follow(first, tables[name], clock=clock)
    clock.advance(1000)
    append(first, rows(10))
    append(first, rows(11), **UNIT)
    append(tables["B"], rows(20))
    append(tables["C"], rows(11), **UNIT)
    return tables


def shown(origin, names):
    """Return an origin as the table shows it."""
    value = lambda given: "null" if given is None else names.get(given, given)
    parts = [f"`{n}` {value(getattr(origin, n))}" for n in ("id", "old", "version", "commit")]
    for app, rise in origin.apps.items():
        done = msgspec.json.encode(rise.done).decode()
        parts.append(f"`apps` `{app}`: `old` {value(rise.old)}, `done` {done}")
    if origin.commits is not msgspec.UNSET:
        pairs = [f"[{version},{names[commit]}]" for version, commit in origin.commits]
        parts.append(f"`commits` [{','.join(pairs)}]")
    return ", ".join(parts)


def test_the_merges_of_the_example_commit_what_the_table_shows():
    clock = ManualClock(make.START_MS, seed=1)
    tables, names, committed = logs(clock), {}, []

    def note(name, since):
        """Name the commits of a log from a version on, and return what they merged."""
        table = tables[name]
        table.refresh()
        for version in range(since, table.session.head().version + 1):
            commit, body = table.session.log.read(version)
            names[codec.sha256(body)] = here = f"{name.lower()}{version}"
            for action in (a for txn in commit.transactions for a in txn.actions):
                if isinstance(action, SetOrigin):
                    yield f"{here}: {shown(action, names)}"

    for name in "ABC":
        assert [*note(name, FORK_POINT + 1)] == []
    for source, target in ORDER:
        since = tables[target].refresh().version + 1
        merge(tables[source], tables[target], clock=clock)
        committed += note(target, since)
    example = TEXT.partition("### 16.4 ")[2].partition("### 16.5 ")[0]
    assert re.findall(r"^\| (\w) into (\w) \|", example, re.MULTILINE) == [*map(tuple, ORDER)]
    assert re.findall(r"\| ([abc]\d: `id` .+) \|$", example, re.MULTILINE) == committed
    found = {tuple(sorted(scan(t).to_table().column("n").to_pylist())) for t in tables.values()}
    assert found == {(0, 1, 2, 3, 10, 11, 20)}
