"""The history of a table with its branches and merges, for `log --graph`: nodes and their parents.

Needs the extra `cli`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from eventlog.log.history import HistoryEntry
from eventlog.model.actions import SetOrigin
from eventlog.session.tags import tag_versions
from eventlog.table.table import Table

# The root of a log, and a version that is its own.
GraphName: TypeAlias = "tuple[str, int]"
MAIN = "main"  # no tag and no branch is called so


@dataclass(frozen=True, slots=True)
class GraphLog:
    """The log of a table, or of a branch of it.

    Attributes:
        name: `main`, or the name of the branch, with those of the branches above it.
        table: the table or the branch.
        parent: the log that it forks from; None of the first one.
        fork: the last version that it has in common with that; -1 of the first one.
    """

    name: str
    table: Table
    parent: GraphLog | None = None
    fork: int = -1

    def owner(self, version: int) -> GraphName:
        """Return the name of a version: that of the log that has committed it."""
        log = self
        while log.parent is not None and version <= log.fork:
            log = log.parent
        return log.table.uri, version


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One version of one of the logs.

    Attributes:
        name: its name.
        entry: the version.
        table: the table or the branch.
        parents: the version before it, and those that it merged.
        labels: the names of branches and tags that are at it.
    """

    name: GraphName
    entry: HistoryEntry
    table: Table
    parents: Sequence[GraphName]
    labels: Sequence[str] = field(default=())


def graph_nodes(table: Table, limit: int | None) -> tuple[GraphName, list[GraphNode]]:
    """Return the newest versions of a table and its branches, each before its parents.

    Reads the headers of so many versions of each log, and the commits of merges.

    Args:
        table: the table, or a branch.
        limit: the largest number of versions; None: all.

    Returns:
        The name of the table's newest version, and the nodes.

    Raises:
        Corrupt: a log does not add up.
        Unavailable: the store does not answer.
    """
    above = "/".join(fork.name for fork in reversed(table.store.forks))
    logs = list(_logs(GraphLog(above or MAIN, table)))
    nodes = {node.name: node for log in logs for node in _nodes_of(log, logs, limit)}
    ordered = [nodes[name] for name in _in_order(nodes)]
    return logs[0].owner(table.session.head().version), ordered[:limit]


def _logs(log: GraphLog) -> Iterator[GraphLog]:
    """Yield a log and those of its branches that can be read."""
    yield log
    for branch in log.table.branches():
        if branch.fork is None or branch.head is None or branch.damage is not None:
            continue  # `eventlog branches` shows what is wrong
        opened = Table.open("", branch=branch.name, store=log.table.store, clock=log.table.clock)
        name = f"{log.name}/{branch.name}" if log.table.store.forks else branch.name
        yield from _logs(GraphLog(name, opened, log, branch.fork))


def _nodes_of(log: GraphLog, logs: Sequence[GraphLog], limit: int | None) -> Iterator[GraphNode]:
    """Yield the versions that a log has of its own, newest first."""
    head = log.table.session.head()
    labels: dict[int, list[str]] = {head.version: [log.name]}
    for tag, version in sorted(tag_versions(head.meta).items()):
        labels.setdefault(version, []).append(f"tag {tag}")
    after = None if log.parent is None else log.fork
    for entry in log.table.history(limit=limit, after=after):
        name = log.table.uri, entry.version
        parents = [log.owner(entry.version - 1)] if entry.version else []
        yield GraphNode(
            name,
            entry,
            log.table,
            [*parents, *_merged_by(log, logs, entry)],
            labels.get(entry.version, ()),
        )


def _merged_by(log: GraphLog, logs: Sequence[GraphLog], entry: HistoryEntry) -> Iterator[GraphName]:
    """Yield the versions of other logs that a version merged."""
    if entry.operation != "merge" and entry.transactions == 1:
        return
    commit, _ = log.table.session.log.read_below(entry.version)
    for transaction in log.table.session.log.taken(commit):
        for action in transaction.actions:
            if isinstance(action, SetOrigin):
                found = (o for o in logs if o is not log and _has(o, action.version, action.commit))
                yield from (other.owner(action.version) for other in list(found)[:1])


def _has(log: GraphLog, version: int, commit: str) -> bool:
    """Return whether a log has a commit of its own, by its version and hash."""
    head = log.table.session.head()
    if not log.fork < version <= head.version:
        return False
    return log.table.session.log.hash_at(head, version) == commit


def _in_order(nodes: Mapping[GraphName, GraphNode]) -> Iterator[GraphName]:
    """Yield nodes by time, the latest first, but each before its parents."""
    children = Counter(parent for node in nodes.values() for parent in node.parents)
    ready = [(-node.entry.time.timestamp(), name) for name, node in nodes.items()]
    ready = [(rank, name) for rank, name in ready if not children[name]]
    heapify(ready)
    while ready:
        name = heappop(ready)[1]
        yield name
        for parent in nodes[name].parents:
            children[parent] -= 1
            if parent in nodes and not children[parent]:
                heappush(ready, (-nodes[parent].entry.time.timestamp(), parent))
