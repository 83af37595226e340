"""Writing key frames: best effort, by the writer that committed a version with a key frame due.

Two writers of one version write the same objects, and nothing that happens here affects the commit
(FORMAT.md R9.4, R9.7).
"""

from __future__ import annotations

import logging
from functools import partial
from threading import Lock

import msgspec

from eventlog.clock import Clock
from eventlog.commit.proposal import check_writable, keyframe_due
from eventlog.errors import Corrupt, EventLogError
from eventlog.format import codec, keys
from eventlog.inline import packing
from eventlog.log.log import Log
from eventlog.log.snapshot import Snapshot
from eventlog.model.records import KeyFrame
from eventlog.state import keyframe
from eventlog.state.keyframe import Frame
from eventlog.state.version import VersionState
from eventlog.store.parallel import each
from eventlog.store.retry import put_once

logger = logging.getLogger(__name__)


def write_keyframe(log: Log, clock: Clock, head: Snapshot) -> Snapshot:
    """Write the key frame of the snapshot's version, and return the snapshot over it.

    Two writers of one version write the same objects, so both may write them.

    Args:
        log: the log.
        clock: for waits between retries.
        head: the snapshot.

    Raises:
        Corrupt: the state does not add up.
        Unavailable: the store does not answer.
        UnsupportedFormat: the table requires a newer writer; nothing was written.
    """
    check_writable(head.header)
    head, frame = built(log, head)
    packs = packing.packs_at(log.store, head.base, head.delta, head.version)
    stems = {keys.stem_key(name) for name in frame.stems}
    objects = (frame.objects | packs.objects).items()
    # Stems after their leaves, and the root after all of them (R9.5).
    # against stem-before-its-leaves
    for part in ([o for o in objects if o[0] not in stems], [o for o in objects if o[0] in stems]):
        for _ in each(lambda item: put_once(log.store, clock, *item), part):
            pass
    root_key = keys.keyframe_key(head.version)
    root = msgspec.structs.replace(frame.root, packs=packs.packs)
    # against key-frame-overwritten
    put_once(log.store, clock, root_key, codec.encode_keyframe(root))
    log.key_frames.remember_written(frame._replace(root=root))
    return head.on_keyframe(root)


def built(log: Log, head: Snapshot) -> tuple[Snapshot, Frame]:
    """Return the key frame of the snapshot's version, and the snapshot to continue with.

    Args:
        log: the log.
        head: the snapshot.

    Raises:
        Corrupt: the state does not add up.
        Unavailable: the store does not answer.
    """
    head, leaves, stems = log.load_touched(head)
    frame = keyframe.build_key_frame(
        head.base,
        head.delta,
        leaves,
        stems,
        header=head.header,
        commit_hash=head.commit_hash,
        meta=head.meta,  # against key-frame-loses-state
    )
    return head, frame


class KeyFramesBeside:
    """Writes key frames while the handle goes on to commit: no append waits for one.

    Until one is written, the next commits start from the key frame before it. At most one is
    written at a time.

    Args:
        log: the log.
        clock: starts the work, and waits between retries.
    """

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._busy = Lock()
        self._written: tuple[VersionState, KeyFrame] | None = None

    def start(self, head: Snapshot) -> Snapshot:
        """Begin to write the key frame of `head` if it is due, unless one is being written.

        Returns the head over it where it is there already, else `head`.
        """
        if not keyframe_due(head.state) or not self._busy.acquire(blocking=False):
            return head
        try:
            self._clock.beside(partial(self._write, head), "eventlog-keyframe")
        except RuntimeError as error:  # no thread can be started
            self._busy.release()
            logger.warning("key frame %d could not be written: %s", head.version, error)
        return self.over(head)

    def over(self, head: Snapshot) -> Snapshot:
        """Return the head over the newest key frame that was written beside, if it may be used."""
        if self._written is None:
            return head
        before, root = self._written
        base = before.base and before.base.version
        if head.version < before.version or base != (head.base and head.base.version):
            return head
        try:
            return head.over_newer(before, root)
        except Corrupt as error:  # another log lies here now, for example
            logger.warning("key frame %d is not used: %s", before.version, error)
            self._written = None
            return head

    def _write(self, head: Snapshot) -> None:
        try:
            after = write_if_due(self._log, self._clock, head)
            if after is not head and after.base is not None:
                self._written = (head.state, after.base)
        finally:
            self._busy.release()


def on_own_keyframe(log: Log, head: Snapshot) -> Snapshot:
    """Return the head over its own key frame, if that is due and another writer has written it."""
    if not keyframe_due(head.state):
        return head
    try:
        return head.on_keyframe(log.key_frames.root(head.version))
    except EventLogError:
        return head  # not written yet, or unusable: continue with the older one


def write_if_due(log: Log, clock: Clock, head: Snapshot) -> Snapshot:
    """Write the key frame of `head` if it is due, and return the snapshot over it.

    It never raises: the commit is already accepted. If the key frame is not due or cannot be
    written, `head` is returned.
    """
    if not keyframe_due(head.state):
        return head
    try:
        return write_keyframe(log, clock, head)
    except Exception as error:  # noqa: BLE001 - the commit is accepted and must not seem failed
        logger.warning("key frame %d could not be written: %s", head.version, error)
        return head
