"""Puts the checkpoints of a Delta log, and the hint that names the newest one.

The hint is the only object of a Delta log that is replaced.
"""

from __future__ import annotations

import pyarrow as pa

from eventlog.log.snapshot import Snapshot
from eventlog.publishing.delta.delta_listing import has_checkpoint, list_delta, named_checkpoint
from eventlog.publishing.delta.delta_plan import other_object
from eventlog.publishing.delta.delta_versions import DeltaVersions
from eventlog.publishing.delta.translation import checkpoints, delta_commits
from eventlog.session.session import Session
from eventlog.store.retry import retrying


class CheckpointPublisher:
    """The checkpoints of one table.

    Args:
        session: of the table.
        described: its versions.
    """

    def __init__(self, session: Session, described: DeltaVersions) -> None:
        self._session, self._store = session, session.store
        self._described = described
        self._put = retrying(session.clock)

    def put_checkpoint(self, snapshot: Snapshot) -> None:
        """Put the checkpoint of a version, and let the hint name it.

        Raises:
            Corrupt: there is another one.
        """
        rows = self._described.expected_rows(snapshot)
        body, key = (
            checkpoints.checkpoint_bytes(rows),
            delta_commits.checkpoint_key(snapshot.version),
        )
        if not self._put(self._store.put_if_absent, key, body):
            body = self._store.get(key)
            if not same_state(checkpoints.described_rows(body), rows):
                raise other_object(self._session.uri, key, snapshot.version, body)
        if snapshot.version <= named_checkpoint(self._store):  # against hint-of-an-older-checkpoint
            return
        named = checkpoints.hint(snapshot.version, rows.num_rows, len(body))
        self._put(self._store.put_hint, checkpoints.HINT_KEY, named)
        # A vacuum deletes checkpoints after it has put a hint, which this one may have replaced.
        if not has_checkpoint(self._store, snapshot.version):  # against hint-after-a-vacuum
            self.mend_hint()

    def mend_hint(self) -> None:
        """Let the hint name the newest checkpoint if the one that it names is gone.

        Two GETs if it is there; else a LIST of the Delta log, and a checkpoint is put again.
        """
        if named_checkpoint(self._store) >= 0:
            return
        listing = list_delta(self._store)
        # against hint-that-nothing-mends
        there = max(listing.checkpoints or listing.commits[-1:], default=None)
        if there is not None:
            self.put_checkpoint(self._session.snapshot(there))


def same_state(there: pa.Table, expected: pa.Table) -> bool:
    """Return whether two checkpoints describe the same state, whatever order their rows have."""
    return sorted(map(repr, there.to_pylist())) == sorted(map(repr, expected.to_pylist()))
