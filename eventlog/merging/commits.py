"""Reads the commits of one log, each once, as a merge looks at them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from eventlog.format import codec
from eventlog.log import chain, spills
from eventlog.log.log import Log
from eventlog.merging import log_acts
from eventlog.merging.log_acts import AppliedStep
from eventlog.model.records import Header
from eventlog.store.parallel import each


def steps(log: Log, first: int, last: int) -> Iterator[AppliedStep]:
    """Yield what the commits of these versions did.

    Costs one GET for each commit and each spill. If some transactions of a commit are void, or it
    may have changed segments with deletion vectors, also the requests that folding it needs.

    Raises:
        VersionNotFound: one of the versions does not exist.
        Corrupt: one of the commits breaks the format.
    """
    before: Header | None = None
    for commit, body in each(log.read, range(first, last + 1)):
        asked = log_acts.maybe_none(commit) or commit.header.changes.drops
        if before is None and asked and first:
            before = log.header(first - 1)
        whole = spills.unpack(commit, log.spill)
        taken = log_acts.taken(whole, before)
        touches = log_acts.may_touch_vectors(commit, before)
        before = commit.header
        effect = log.effect(commit) if taken is None or touches else None
        taken = effect.taken if effect is not None else taken
        yield log_acts.step_of(whole, codec.sha256(body), taken or (), effect)


class CommitReader:
    """Reads the commits of a log, each once.

    Args:
        log: the log.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._steps: list[AppliedStep] = []  # of consecutive versions

    def steps(self, first: int, last: int) -> list[AppliedStep]:
        """Return what the commits of these versions did. Costs one GET for each that is new.

        Raises:
            VersionNotFound: one of the versions does not exist.
            Corrupt: one of the commits breaks the format.
        """
        if first > last:
            return []
        known = self._steps
        low, high = (known[0].version, known[-1].version) if known else (first, first - 1)
        self._steps = [
            *steps(self._log, first, low - 1),
            *known,
            *steps(self._log, high + 1, last),
        ]
        for before, step in pairwise(self._steps):
            if step.prev != before.commit:  # against commit-of-another-log-merged
                raise chain.forked(step.version, self._log.store.uri)
        begin = first - self._steps[0].version
        return self._steps[begin : begin + last - first + 1]
