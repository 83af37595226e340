"""The limits of vacuum: fence and horizon, and the pins and replicas that hold it back.

The order of the log alone decides between a pin and a horizon: the later of the two is void
(FORMAT.md "Pins, replicas, restore"). Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import UnsetType

from eventlog import limits
from eventlog.arguments import text
from eventlog.display import command
from eventlog.errors import Corrupt, InvalidInput, VersionNotFound, VersionVacuumed
from eventlog.format import keys
from eventlog.model.actions import (
    Ack,
    Attach,
    Break,
    Detach,
    Fence,
    Horizon,
    Restore,
    SetCut,
    SetPin,
    Unpin,
)
from eventlog.model.entries import Holder, Sweep
from eventlog.model.records import AppMark, LogCut, Meta, Pin, Replica, cut_of, origins_of

MAX_PINS = limits.PINS
MAX_REPLICAS = limits.REPLICAS
MAX_NAME = limits.NAME_CHARACTERS

_Held = TypeVar("_Held", Pin, Replica)


@dataclass(frozen=True, slots=True)
class Hold:
    """A pin or a replica that keeps the horizon from rising above `version`.

    Attributes:
        kind: "pin" or "replica".
        name: its name.
        version: the oldest version that it needs.
        owner: its owner.
    """

    kind: Holder
    name: str
    version: int
    owner: str


def holds(meta: Meta) -> list[Hold]:
    """Return every pin and replica with the version that it holds, the oldest version first."""
    pins = (Hold("pin", name, pin.version, pin.owner) for name, pin in meta.pins.items())
    replicas = (Hold("replica", name, r.acked, r.owner) for name, r in meta.replicas.items())
    return sorted((*pins, *replicas), key=lambda hold: (hold.version, hold.kind, hold.name))


def raise_fence(action: Fence, meta: Meta, version: int) -> Meta | str:
    """Return the small state with the fence, which only rises and never passes the log's end."""
    # against fence-falls, fence-beyond-the-log
    if action.epoch <= meta.fence or action.epoch > version:
        return f"fence {action.epoch} must be above {meta.fence} and at most {version}"
    return msgspec.structs.replace(meta, fence=action.epoch)


def raise_horizon(action: Horizon, meta: Meta, version: int) -> Meta | str:
    """Return the small state with the horizon, or why it cannot rise that far."""
    # against horizon-falls, horizon-beyond-the-head
    if action.version <= meta.horizon or action.version >= version:
        return f"horizon {action.version} must be above {meta.horizon} and below {version}"
    for hold in holds(meta):
        if hold.version < action.version:  # against horizon-passes-pins, horizon-passes-replicas
            return f"{hold.kind} {hold.name!r} of {hold.owner} holds version {hold.version}"
    return msgspec.structs.replace(meta, horizon=action.version)


def raise_cut(action: SetCut, meta: Meta, version: int) -> Meta | str:
    """Return the small state with the cut of the log, or why it cannot rise that far (R22.1).

    What holds a version holds the horizon, and so the cut.
    """
    before = 0 if isinstance(meta.cut, UnsetType) else meta.cut.whole
    # against cut-falls, cut-above-the-horizon
    if action.version <= cut_of(meta) or action.version > meta.horizon:
        return (
            f"the cut {action.version} must be above {cut_of(meta)} and at most the horizon "
            f"{meta.horizon}"
        )
    # against stubs-above-the-cut
    if not before <= action.whole <= action.version or not action.version <= action.seen < version:
        return (
            f"commits below {action.whole} cannot go, by headers up to {action.seen}: these are "
            f"versions from {before} on, on either side of the cut"
        )
    cut = LogCut(action.version, action.whole, action.seen, version)
    return msgspec.structs.replace(meta, cut=cut)


def note_sweep(sweep: Sweep, meta: Meta, version: int) -> Meta | str:
    """Return the small state with the record of a vacuum, which must be ahead of the last one."""
    last = meta.swept or Sweep(0, 0, 0)
    within = (
        last.fence <= sweep.fence <= meta.fence
        and last.horizon <= sweep.horizon <= meta.horizon
        and last.version < sweep.version < version
    )
    if not within:  # against record-goes-backwards
        return "another vacuum is further ahead, or this record is ahead of the log"
    if sweep.pending is not None:
        try:
            keys.frame_key(sweep.pending.sha256)
        except Corrupt as error:
            return error.message
    return msgspec.structs.replace(meta, swept=sweep)


def set_pin(action: SetPin, meta: Meta, version: int, time_ms: int) -> Meta | str:
    """Return the small state with the pin, or why it cannot be set."""
    reason = _hold_problem(action.name, action.owner, action.version, meta, version)
    if reason:
        return reason
    if action.name in meta.pins:  # against pin-taken-over
        pin = meta.pins[action.name]
        return f"pin {action.name!r} is held by {pin.owner} on version {pin.version}"
    if len(meta.pins) >= MAX_PINS:
        return f"there are already {MAX_PINS} pins"
    pin = Pin(action.version, action.owner, version, time_ms)
    return msgspec.structs.replace(meta, pins=_ordered({**meta.pins, action.name: pin}))


def remove_pin(action: Unpin, meta: Meta) -> Meta | str:
    """Return the small state without the pin, which only its owner may remove."""
    pin = meta.pins.get(action.name)
    if pin is None or pin.token != action.token:
        return f"there is no pin {action.name!r} set in version {action.token}"
    if pin.owner != action.owner:  # against unpin-by-another
        return f"pin {action.name!r} belongs to {pin.owner}"
    return msgspec.structs.replace(meta, pins=_without(meta.pins, action.name))


def set_replica(action: Attach, meta: Meta, version: int) -> Meta | str:
    """Return the small state with a replica. Its token, the version, is never used again."""
    reason = _hold_problem(action.name, action.owner, action.acked, meta, version)
    if reason:
        return reason
    if action.name in meta.replicas:
        return f"replica {action.name!r} is already attached"
    if len(meta.replicas) >= MAX_REPLICAS:
        return f"there are already {MAX_REPLICAS} replicas"
    replica = Replica(action.acked, action.owner, version)
    return msgspec.structs.replace(meta, replicas=_ordered({**meta.replicas, action.name: replica}))


def note_ack(action: Ack, meta: Meta, version: int) -> Meta | str:
    """Return the small state in which the replica has acknowledged a newer version."""
    replica = meta.replicas.get(action.name)
    if replica is None or replica.token != action.token:
        return f"there is no replica {action.name!r} attached in version {action.token}"
    if not replica.acked < action.version < version:
        return (
            f"replica {action.name!r} cannot acknowledge version {action.version}: it must be "
            f"above {replica.acked} and below {version}"
        )
    moved = msgspec.structs.replace(replica, acked=action.version)
    return msgspec.structs.replace(meta, replicas=_ordered({**meta.replicas, action.name: moved}))


def remove_replica(action: Detach, meta: Meta) -> Meta | str:
    """Return the small state without the replica."""
    replica = meta.replicas.get(action.name)
    if replica is None or replica.token != action.token:
        return f"there is no replica {action.name!r} attached in version {action.token}"
    return msgspec.structs.replace(meta, replicas=_without(meta.replicas, action.name))


def break_hold(action: Break, meta: Meta) -> Meta | str:
    """Return the small state without another owner's pin, claim or replica.

    The action is void if the pin, claim or replica changed since the caller read it.
    """
    field = {"pin": "pins", "claim": "claims", "replica": "replicas"}[action.kind]
    by_name: Mapping[str, Any] = getattr(meta, field)
    target = by_name.get(action.name)
    if target is None or target.token != action.token:  # against break-of-another-token
        return f"there is no {action.kind} {action.name!r} made in version {action.token}"
    renewed = getattr(target, "renewed", 0)  # pins and replicas are never renewed
    if renewed != action.renewed:  # against break-ignores-renewal
        known = f"was renewed in version {renewed}" if renewed else "is never renewed"
        return f"{action.kind} {action.name!r} {known}"
    return msgspec.structs.replace(meta, **{field: _without(by_name, action.name)})


def check_restore(action: Restore, meta: Meta, version: int, time_ms: int) -> Meta | str:
    """Return the small state with the units of work that it notes, or why it is void (R12.3)."""
    if not isinstance(action.origin, UnsetType):
        merged = origins_of(meta).get(action.origin)
        # against state-of-a-log-that-is-not-merged
        if merged is None or (merged.version, merged.token) != (action.version, version):
            return f"version {action.version} of this origin is not merged by the transaction"
    elif not meta.horizon <= action.version < version:  # against restore-below-the-horizon
        return f"version {action.version} is below the horizon {meta.horizon}, or does not exist"
    if isinstance(action.apps, UnsetType):
        return meta
    apps = dict(meta.apps)
    for app, reset in action.apps.items():
        mark = apps.pop(app, None)
        if (None if mark is None else mark.seq) != reset.old:  # against unit-forgotten-unseen
            return f"app {app!r} has done other units of work meanwhile"
        if reset.new is not None:
            apps[app] = AppMark(reset.new, version, time_ms)
    ordered = {name: apps[name] for name in sorted(apps, key=str.encode)}
    return msgspec.structs.replace(meta, apps=ordered)


def check_kept(meta: Meta, head: int, version: int, table: str, held: int = 0) -> None:
    """Check that a version exists and is not below the horizon.

    Args:
        meta: the newest known small state.
        head: the newest known version.
        version: the requested version.
        table: the root URI, for the error.
        held: in a branch the oldest version that its parent keeps for it.

    Raises:
        Corrupt: the horizon is above the newest version, where no action raises it (R12.1).
        VersionNotFound: it does not exist yet.
        VersionVacuumed: it is below the horizon, or the parent need not have it any more.
    """
    if version > head:
        raise VersionNotFound(
            f"the table has no version {version}: the newest is {head}",
            table=table,
            version=version,
        )
    _check_horizon(meta, head, table)
    if version < meta.horizon:
        raise VersionVacuumed(
            f"version {version} was vacuumed: only versions from {meta.horizon} on can be read. "
            "What a pin holds, and what is younger than the property retention_hours, stays",
            table=table,
            version=version,
        )
    if version < held:
        raise VersionVacuumed(
            f"version {version} is older than the branch: its parent keeps the versions from "
            f"{held} on for it, and may have vacuumed the others. Older versions are the parent's",
            table=table,
            version=version,
        )


def check_marks(meta: Meta, head: int, table: str) -> None:
    """Check that actions can have set the fence, the horizon, and the last vacuum's record.

    Args:
        meta: the small state at the head.
        head: the newest version.
        table: the root URI, for the error.

    Raises:
        Corrupt: the horizon is above the newest version, a pin or a replica (R12.1, R12.2), the
            fence is above the newest version (F4), or the record is ahead of them (R12.6).
    """
    _check_horizon(meta, head, table)
    last, problem = meta.swept, None
    for hold in holds(meta)[:1]:
        if hold.version < meta.horizon:  # against horizon-above-a-hold-believed
            problem = (
                f"the horizon is {meta.horizon}, above version {hold.version} that {hold.kind} "
                f"{hold.name!r} of {hold.owner} holds"
            )
    if meta.fence > head:  # against fence-above-the-head-believed
        problem = f"the fence is {meta.fence}, above the newest version {head}"
    # against record-ahead-of-the-head-believed
    if last is not None and (
        last.fence > meta.fence or last.horizon > meta.horizon or last.version >= head
    ):
        problem = (
            f"the last vacuum's record is of version {last.version}, fence {last.fence} and "
            f"horizon {last.horizon}, ahead of the table"
        )
    if problem is not None:
        raise Corrupt(
            f"{problem}, which no action can have set: run {command('fsck', table)}",
            table=table,
            version=head,
        )


def _check_horizon(meta: Meta, head: int, table: str) -> None:
    if meta.horizon > head:
        raise Corrupt(
            f"the horizon is {meta.horizon}, above the newest version {head}, where no action "
            f"raises it: run {command('fsck', table)}",
            table=table,
            version=head,
        )


def check_names(*names: str) -> None:
    """Check the names of pins, replicas and their owners before anything is sent.

    Raises:
        InvalidInput: a name is empty or too long.
    """
    for name in names:
        text(name, "a name, and its owner,", most=MAX_NAME)


def pin_of(meta: Meta, name: str) -> Pin:
    """Return the pin with this name.

    Raises:
        InvalidInput: there is none.
    """
    check_names(name)
    if name not in meta.pins:
        known = ", ".join(repr(n) for n in list(meta.pins)[:10]) or "none"
        raise InvalidInput(f"there is no pin {name!r}; pins: {known}")
    return meta.pins[name]


def _hold_problem(name: str, owner: str, kept: int, meta: Meta, version: int) -> str | None:
    """Return why a version cannot be held under this name, if it cannot."""
    if any(not 1 <= len(text) <= MAX_NAME for text in (name, owner)):
        return f"a name and its owner must have 1 to {MAX_NAME} characters"
    if not meta.horizon <= kept < version:  # against pin-below-the-horizon
        return f"version {kept} is below the horizon {meta.horizon}, or does not exist yet"
    return None


def _ordered(held: Mapping[str, _Held]) -> dict[str, _Held]:
    return {name: held[name] for name in sorted(held, key=str.encode)}


def _without(held: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {n: value for n, value in held.items() if n != name}
