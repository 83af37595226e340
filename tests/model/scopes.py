"""The explored scopes of the models, small and full, and the removed guards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from model.checker import Model
from model.combining import Combining
from model.commits import Commits
from model.copying import Copies
from model.cuts import Cuts
from model.leases import Leases, Worker
from model.moving import Moves
from model.vacuums import Vacuums

CALM = (0, 0, 0)


@dataclass(frozen=True)
class Scope:
    """A model, and the number of its states to visit in the full and the small scope.

    Args:
        make: builds the model.
        most: a bound on the states of the full scope; None for all reachable ones.
        small: number of states to visit by default; 0 for none.
    """

    make: Callable[[], Model]
    most: int | None
    small: int


def _vacuums(actors: str, **options):
    return lambda: Vacuums(actors.split(), name=actors.replace(" ", "+"), **options)


def _copies(actors: str, **options):
    return lambda: Copies(actors.split(), name=actors.replace(" ", "+"), **options)


def _commits(jobs: str, **options):
    return lambda: Commits(tuple(jobs.split()), name=f"commit: {jobs}", **options)


def _combining(actors: str, name: str, **options):
    return lambda: Combining(tuple(actors.split()), name=f"combining: {name}", **options)


def _moves(actors: str, **options):
    return lambda: Moves(actors.split(", "), name=f"rows: {actors}", **options)


def _cuts(actors: str, **options):
    options.pop("faults", None)
    return lambda: Cuts(actors.split(), **options)


def _leases(name: str, *workers: Worker, **options):
    return lambda: Leases(workers, name=f"claims: {name}", **options)


LAGS = ((0, 1), (1, 3))
ONE_EACH = (1, 1, 1)
NONE_LOST, CRASHES = (0, 1, 1), (0, 0, 1)
WORK, BREAK = Worker("work"), Worker("break")
SEGMENTS = (Worker("work", 1, "shared"), Worker("work", 1, "shared", (1, 2)),
            Worker("work", 2, "exclusive", (2, 3)))  # fmt: skip
SCOPES = (
    Scope(_commits("plain job job", faults=(2, 2, 1)), None, 8_000),
    Scope(_commits("plain plain plain", faults=(2, 2, 1)), None, 6_000),
    Scope(_commits("plain plain job job", faults=ONE_EACH), None, 0),
    Scope(_vacuums("append vacuum", runs=2, lags=LAGS, faults=NONE_LOST), None, 8_000),
    Scope(_vacuums("append replace vacuum", faults=NONE_LOST), None, 8_000),
    Scope(_vacuums("append replace vacuum", faults=ONE_EACH), None, 0),
    Scope(_vacuums("append twin vacuum overwrite", faults=CALM), None, 8_000),
    Scope(_vacuums("append vacuum vacuum", faults=CRASHES), None, 6_000),
    Scope(_vacuums("replace vacuum vacuum", faults=CRASHES), None, 6_000),
    Scope(_vacuums("replace vacuum pin", faults=NONE_LOST), None, 6_000),
    Scope(_vacuums("replace vacuum pin break", faults=CALM), None, 8_000),
    Scope(_vacuums("replace restore vacuum", faults=ONE_EACH, runs=2), None, 6_000),
    Scope(_vacuums("append overwrite vacuum restore", faults=CALM), None, 6_000),
    Scope(_vacuums("append overwrite vacuum read", faults=CALM), None, 6_000),
    Scope(_vacuums("shrink shrink vacuum read", faults=CALM), None, 6_000),
    Scope(_vacuums("shrink replace vacuum restore", faults=CALM), None, 6_000),
    Scope(_vacuums("shrink vacuum pin", faults=ONE_EACH, runs=2), None, 6_000),
    Scope(_leases("breaker", WORK, WORK, BREAK, faults=CRASHES), None, 6_000),
    Scope(_leases("breaker, late", WORK, WORK, BREAK, faults=NONE_LOST, tries=1), None, 0),
    Scope(
        _leases("two priorities", WORK, Worker("work", 2), BREAK, faults=(1, 0, 0), tries=1),
        None,
        6_000,
    ),
    Scope(_leases("segments", *SEGMENTS, faults=CALM, tries=1), None, 6_000),
    Scope(_combining("publish publish pass", "two"), None, 8_000),
    Scope(_copies("follow replace vacuum", faults=NONE_LOST), 100_000, 3_000),
    Scope(_copies("follow empty replace vacuum", faults=CALM), 100_000, 3_000),
    Scope(_copies("branch delete replace vacuum", faults=CALM), None, 3_000),
    Scope(_copies("follow branch shrink vacuum", faults=CALM), 100_000, 3_000),
    Scope(_copies("branch delete delete replace vacuum", faults=CALM), 200_000, 0),
    Scope(_combining("publish once once", "three"), None, 6_000),
    Scope(_moves("delete a, update ab, compact", faults=ONE_EACH), None, 6_000),
    Scope(_moves("delete ac, delete b, compact, compact", faults=CRASHES), None, 6_000),
    Scope(_moves("update a, update a, delete b, compact", faults=CRASHES), None, 6_000),
    Scope(_moves("delete az, append z, compact, update z", faults=CALM), None, 6_000),
    Scope(_moves("delete a, restore, compact, update b", faults=CRASHES), None, 6_000),
    Scope(_cuts("write write vacuum", most=8, last=3), None, 4_000),
    Scope(_cuts("sleep vacuum vacuum", most=8), 600_000, 4_000),
    Scope(_cuts("write vacuum vacuum", most=8), 600_000, 0),
    Scope(_cuts("wake vacuum vacuum", most=8), None, 4_000),
    Scope(_cuts("write frame vacuum"), None, 4_000),
)


@dataclass(frozen=True)
class Control:
    """Removed guards, the smallest scope that detects it, and a part of the violation's text."""

    off: tuple[str, ...]
    make: Callable[[], Model]
    says: str


def _control(off: str, build, *args, says: str, **options) -> Control:
    guards = tuple(off.split())
    options = {"faults": CALM, **options}
    return Control(guards, build(*args, off=guards, **options), says)


LOST = "data loss at a version that was not given up"
FORKED = "a branch reads object"
GONE = "is gone, and live at a version"
TWICE = "took effect 2 times"
TOLD = "was told that nothing was committed, and it was"
HIGH = Worker("work", 2)
COMBINE = ("publish publish pass", "small")
CONTROLS = (
    _control("look_when_unclear", _commits, "plain plain", says=TOLD, faults=(1, 0, 0)),
    _control("look_when_refused", _commits, "plain plain", says=TOLD, faults=(1, 1, 0)),
    _control("absent_is_open", _commits, "plain plain", says=TOLD, faults=(0, 1, 0)),
    _control("same_id", _commits, "plain plain", says=TOLD, faults=(1, 1, 0)),
    _control("look_before_retry", _commits, "plain plain", says=TOLD, faults=(1, 1, 0)),
    _control("unclear_is_no_success", _commits, "plain", says="not in the log", faults=(1, 0, 0)),
    _control("app_sequence", _commits, "job job", says=TWICE),
    _control("marks_in_key_frames", _commits, "job job plain", says=TWICE, frames=2),
    _control("add_fenced", _vacuums, "append vacuum", says=GONE),
    _control("vector_fenced", _vacuums, "shrink vacuum", says=GONE),
    _control("vectors_live", _vacuums, "shrink vacuum", says=GONE),
    _control("restage_id", _vacuums, "append vacuum", says=GONE),
    _control("live_after_fence", _vacuums, "append vacuum", says=GONE),
    _control("live_at_head", _vacuums, "append vacuum", says=GONE, runs=2, lags=((0, 1), (1, 2))),
    _control("epoch_below_fence", _vacuums, "append vacuum", says=GONE),
    _control("fence_settled", _vacuums, "append vacuum", says=GONE, faults=(1, 0, 0)),
    _control("horizon_committed", _vacuums, "replace vacuum", says=GONE),
    _control("dropped_after_horizon", _vacuums, "replace vacuum", says=GONE, lags=((0, 2),)),
    _control(
        "pending_kept", _vacuums, "overwrite vacuum", says=GONE, runs=2, lags=((3, 9), (0, 9))
    ),
    _control(
        "last_drop", _vacuums, "replace restore replace vacuum", says=GONE, runs=2, lags=((0, 3),)
    ),
    _control("horizon_pins", _vacuums, "pin replace vacuum", says=GONE),
    _control("pin_above_horizon", _vacuums, "pin replace vacuum", says=GONE),
    _control("restore_above_horizon", _vacuums, "replace restore vacuum", says=GONE),
    _control("add_once", _vacuums, "append twin", says="live twice"),
    _control("live_is_done", _vacuums, "append twin vacuum", says="live twice"),
    _control("horizon_replicas", _copies, "follow replace vacuum", says=LOST),
    _control("copied_first", _copies, "follow replace vacuum", says=LOST),
    _control("pin_above_horizon", _copies, "follow replace vacuum", says=LOST),
    _control("horizon_pins", _copies, "branch replace vacuum", says=GONE),
    _control("pin_first", _copies, "branch replace vacuum", says=FORKED),
    _control("unpin_last", _copies, "branch delete replace vacuum", says=FORKED),
    _control("claim_held", _leases, "held", WORK, HIGH, says="a claim that was lost"),
    _control("claim_token", _leases, "token", WORK, HIGH, BREAK, says="a claim that is lost"),
    _control("break_renewal", _leases, "renewal", WORK, BREAK, says="not as it was seen"),
    _control("claim_conflict", _leases, "conflict", WORK, HIGH, says="stood in the way"),
    _control("claim_priority", _leases, "priority", WORK, WORK, says="stood in the way"),
    _control("claim_revokes", _leases, "revoked", WORK, HIGH, says="two conflicting claims"),
    _control("void_is_told", _leases, "told", WORK, HIGH, says="and it is void"),
    _control("published_once", _combining, "publish publish", "small", says=TWICE, tries=1),
    _control("marks_kept", _combining, "publish publish", "small", says=TWICE, tries=1),
    _control("marks_in_key_frames", _combining, *COMBINE, says=TWICE, tries=1, frames=2),
    _control("window", _combining, *COMBINE, says="after its window", tries=1),
    _control("one_form", _combining, "publish publish", "small", says=TWICE, tries=1),
    _control("window_over", _combining, "publish once once pass", "small", says=TWICE, passing=1),
    _control("commits_of_window", _combining, *COMBINE, says="told that its window", tries=1),
    _control("slots_stay", _cuts, "sleep vacuum", says="where nobody looks"),
    _control("stub_has_the_hash", _cuts, "wake vacuum", says="committed twice", most=8),
    _control("cut_first", _cuts, "write vacuum", says="has no commit"),
    _control("cut_rises", _cuts, "write vacuum vacuum", says="which is gone", most=8),
    _control("frames_in_use", _cuts, "write vacuum", says="which is gone"),
    _control("commits_beside", _cuts, "write write vacuum", says="which is gone", most=8, last=3),
    _control("frames_above", _cuts, "write vacuum", says="which is gone", most=8),
    _control("ascending", _cuts, "write vacuum", says="whole for ever"),
    _control("entry_named", _moves, "delete a, delete b", says="shows again"),
    _control("vectors_united", _moves, "delete a, delete b", says="shows again"),
    _control("moved_followed", _moves, "delete a, compact", says="finds no row"),
    _control(
        "arrivals_ignored", _moves, "delete az, append z, delete b", says="came after it began"
    ),
    _control("deletes_translated", _moves, "delete a, compact", says="nobody is in the way"),
    _control("deletes_translated rows_counted", _moves, "delete a, compact", says="shows again"),
    _control(
        "before_marked", _moves, "delete a, delete b, compact", says="in the way", segments=("abc",)
    ),
    _control(
        "before_marked rows_counted",
        _moves,
        "delete a, delete b, compact",
        says="is hidden",
        segments=("abc",),
    ),
    _control("newest_named", _moves, "delete a, compact", says="nobody is in the way"),
    _control("came_back", _moves, "delete a, restore, compact", says="in the way"),
    _control("rows_read_again", _moves, "update a, update a", says="an update is lost"),
    _control("same_segments", _moves, "delete a, restore, append z", says="shows again"),
    _control(
        "void_left_out listed_is_not_enough", _combining, *COMBINE, tries=1, says="not in the log"
    ),
)
