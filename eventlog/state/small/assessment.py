"""The chunk states that compaction records in the log.

A state is valid as long as its chunk is unchanged. States only save work; they decide no commit
(FORMAT.md "Replacement and compaction"; the states are those of the compaction notes for Druid).
"""

from __future__ import annotations

import msgspec

from eventlog import limits
from eventlog.errors import Corrupt, InvalidInput
from eventlog.format import keys
from eventlog.model.actions import Assess, ChunkChange
from eventlog.model.chunks import parse_chunk
from eventlog.model.entries import Analysed, ChunkState
from eventlog.model.records import Meta

MAX_STATES = limits.CHUNK_STATES  # bounded: every commit repeats those new since the key frame


def assess(action: Assess, meta: Meta, version: int) -> Meta | str:
    """Return the small state with the results of an analysis, or why they are refused."""
    if action.old != meta.analysed:  # against analysis-over-another
        return "another analysis was recorded meanwhile"
    reason = _analysed_problem(action.analysed, version) or _changes_problem(action.chunks, version)
    if reason:
        return reason
    chunks = dict(meta.chunks)
    for change in action.chunks:
        if change.state is None:
            chunks.pop(change.chunk, None)
        else:
            chunks[change.chunk] = change.state
    if len(chunks) > MAX_STATES:  # against states-without-bound
        return f"there would be more than {MAX_STATES} chunk states"
    ordered = {name: chunks[name] for name in sorted(chunks)}
    return msgspec.structs.replace(meta, chunks=ordered, analysed=action.analysed)


def is_current(state: ChunkState, version: int, segments: int) -> bool:
    """Return whether the chunk is unchanged since a state was recorded for it.

    Args:
        state: the recorded state.
        version: the greatest version of a live segment in the chunk.
        segments: the number of live segments in the chunk.
    """
    return (state.version, state.segments) == (version, segments)  # against state-counts-for-ever


def _analysed_problem(analysed: Analysed | None, version: int) -> str | None:
    if analysed is None:
        return None
    if analysed.version >= version:  # against analysis-of-the-future
        return f"version {analysed.version} cannot have been analysed yet"
    try:
        keys.frame_key(analysed.policy)
    except Corrupt:
        return "the policy of an analysis must be 64 lower-case hexadecimal digits"
    return None


def _changes_problem(changes: tuple[ChunkChange, ...], version: int) -> str | None:
    names = [change.chunk for change in changes]
    if names != sorted(set(names)):
        return "the chunks of an analysis must be in order, without duplicates"
    for change in changes:
        try:
            parse_chunk(change.chunk)
        except InvalidInput as error:
            return error.message
        # against state-of-the-future
        if change.state is not None and change.state.version >= version:
            return f"chunk {change.chunk} has a state of a version that does not exist yet"
    return None
