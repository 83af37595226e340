"""What a commit appended: known from the commit alone where all its transactions took effect."""

from __future__ import annotations

from eventlog.log import spills
from eventlog.log.log import Log
from eventlog.model.records import Commit
from eventlog.state.appends import Appends, appends


def read_appends(log: Log, commit: Commit) -> Appends:
    """Return what a commit appended. No request, but one for each spill.

    If one of its transactions is void, the commit is folded onto the version before it, which has
    to be read for that.

    Args:
        log: the log.
        commit: the commit.

    Raises:
        Corrupt: a spill, or the version before, cannot be read.
        Unavailable: the store does not answer.
    """
    if commit.header.changes.transactions == len(commit.transactions):
        taken = spills.unpack(commit, log.spill).transactions
    else:
        taken = log.effect(commit).taken
    return appends(commit.header.version, taken, commit.header.time)
