"""Packs that no kept version needs: what a vacuum deletes of them (FORMAT.md R21.6)."""

from __future__ import annotations

from eventlog.errors import Corrupt, NotFound
from eventlog.format import keys
from eventlog.log.log import Log
from eventlog.model.records import packs_of
from eventlog.store.branching.roots import is_own


def old_packs(log: Log, horizon: int) -> dict[str, int]:
    """Return the keys and sizes of the packs that versions from the horizon on do not need.

    A LIST and, where there are packs, two GETs. A pack that is deleted too early is no loss: what
    it has stands in the commits. Where the key frame cannot be read, nothing is returned.

    Args:
        log: the log of the table.
        horizon: the version.

    Raises:
        Unavailable: the store does not answer.
    """
    listed = [row for row in log.store.list(keys.PACKS_PREFIX) if is_own(log.store, row.key)]
    packs = [(parsed, row) for row in listed if (parsed := keys.parse_pack_key(row.key))]
    if not packs:
        return {}
    try:
        kept = log.header(horizon).keyframe
        named = packs_of(None if kept is None else log.key_frames.root(kept))
    except (Corrupt, NotFound):
        return {}
    needed = {(pack.last, pack.sha256) for pack in named}
    return {
        row.key: row.size
        for parsed, row in packs
        # against packs-of-kept-versions-deleted
        if kept is not None and parsed[0] <= kept and parsed not in needed
    }
