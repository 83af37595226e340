"""The fold with every state kept: for tests that compare versions with one another."""

from eventlog.model.records import Commit
from eventlog.state import fold


def advance(
    state: fold.FullState | None, commit: Commit, commit_hash: str
) -> tuple[fold.FullState, fold.Effect]:
    """The state after a commit and the commit's effect; the state before is not changed."""
    effect = fold.effect_of(state, commit)
    live = dict(state.segments) if state else {}
    fold.apply(effect, live)
    return fold.FullState(commit.header, commit_hash, effect.meta, live), effect
