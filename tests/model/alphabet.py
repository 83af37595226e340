"""Commits that try every rule of the fold on a state, on both sides of every bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from model import rules


def transactions(state: rules.State) -> Iterator[tuple[rules.Txn, ...]]:
    """Commits that try every rule on a state, on both sides of every bound."""
    for action in _actions(state):
        yield (rules.Txn(1, (action,), read=state.version - 1),)
    yield from _marks(state)
    yield from _pairs(state)
    yield from _rewrites(state)
    yield from _deletes(state)


def _bounds(*values: int) -> list[int]:
    return sorted({n for value in values for n in (value - 1, value, value + 1) if n >= 0})


def _actions(s: rules.State) -> Iterator[object]:
    now = s.version + 1
    yield rules.SetLayout()
    yield from (rules.Add(90, 1, epoch) for epoch in _bounds(s.fence, now))
    for entry in sorted(s.live)[:3]:
        yield rules.Add(entry.seg, entry.chunk, max(s.fence, entry.epoch))
        yield rules.Drop(entry)
        yield rules.Drop(entry._replace(version=entry.version + 1))
        yield rules.Unchanged(entry.chunk, entry.chunk + 1)
        yield rules.Unchanged(entry.chunk + 1, entry.chunk + 2)
    yield rules.Drop(rules.Entry(91, 0, 0, 1, 0))
    yield from (rules.Fence(n) for n in _bounds(s.fence, now))
    held = [p.version for p in s.pins] + [r.acked for r in s.replicas]
    yield from (rules.Horizon(n) for n in _bounds(s.horizon, now, *held))
    yield from (rules.Restore(n) for n in _bounds(s.horizon, now))
    last = s.swept or rules.Sweep(0, 0, 0)
    for fence in _bounds(last.fence, s.fence):
        yield rules.Swept(rules.Sweep(fence, s.horizon, s.version))
    for horizon in _bounds(last.horizon, s.horizon):
        yield rules.Swept(rules.Sweep(s.fence, horizon, s.version, ((0, 0, 1),)))
    for version in _bounds(last.version, now):
        yield rules.Swept(rules.Sweep(s.fence, s.horizon, version))
    yield from _holds(s, now)
    yield from _claims(s, now)
    yield from (rules.SetGranularity(old, "month") for old in ("hour", "day"))
    yield from _assessments(s, now)


def _assessments(s: rules.State, now: int) -> Iterator[object]:
    for old in dict.fromkeys((s.analysed, None, (1, 7))):
        yield rules.Assess(old, (s.version, 7))
        yield rules.Assess(old, None)
    yield from (rules.Assess(s.analysed, (version, 7)) for version in _bounds(now))
    yield rules.Assess(s.analysed, (s.version, -1))
    for version in (*_bounds(now), None):
        yield rules.Assess(s.analysed, s.analysed, ((0, version),))
    noted = ((0, 0), (2, s.version))
    for chunks in (noted, noted[::-1], (noted[0], (0, None)), ((rules.NAMELESS + 5, 0),)):
        yield rules.Assess(s.analysed, (s.version, 7), chunks)


def _holds(s: rules.State, now: int) -> Iterator[object]:
    for version in _bounds(s.horizon, now):
        yield rules.SetPin("new", version, "me")
        yield rules.Attach("new", version, "me")
    for name, version, owner, token in [*sorted(s.pins)[:2], ("none", 0, "me", 0)]:
        yield rules.SetPin(name, max(version, s.horizon), "me")
        for seen in (token, token + 1):
            yield rules.Break("pin", name, seen)
            yield from (rules.Unpin(name, o, seen) for o in (owner, "stranger"))
    for name, acked, _, token in [*sorted(s.replicas)[:2], ("none", 0, "me", 0)]:
        yield rules.Attach(name, s.version, "me")
        for seen in (token, token + 1):
            yield rules.Break("replica", name, seen)
            yield rules.Detach(name, seen)
            yield from (rules.Ack(name, seen, v) for v in _bounds(acked, now))


def _claims(s: rules.State, now: int) -> Iterator[object]:
    there = [(c.id, c.token, c.renewed) for c in sorted(s.claims)[:2]]
    for claim_id, token, renewed in [*there, (80, 0, 0)]:
        for seen in (token, token + 1):
            yield rules.Renew(claim_id, seen)
            yield rules.Release(claim_id, seen)
            yield from (rules.Break("claim", claim_id, seen, r) for r in (renewed, renewed + 1))
    for priority in (0, 1, 2, 3):
        for kind in ("exclusive", "shared"):
            for segments in ((), (1,), (2, 3)):
                yield rules.TakeClaim(81, 0, 1, segments, kind, priority, "new")
        yield rules.TakeClaim(81, 1, 2, (), "exclusive", priority, "new")
    for claim in sorted(s.claims)[:2]:
        for group in (claim.group, "new"):
            yield rules.TakeClaim(82, claim.start, claim.end, claim.segments, claim.kind, 0, group)
        yield rules.TakeClaim(claim.id, 5, 6, (), "shared", 9, "new")
    yield rules.TakeClaim(81, 1, 1, (), "exclusive", 1, "new")
    yield rules.TakeClaim(81, 0, 1, (3, 2), "exclusive", 1, "new")
    yield rules.TakeClaim(81, 0, 1, (), "exclusive", 1, "")


def _marks(s: rules.State) -> Iterator[tuple[rules.Txn, ...]]:
    """What a transaction carries besides its actions: app, window, claim."""
    now, add = s.version + 1, rules.Add(90, 0, s.version)
    for until in _bounds(now, now + rules.WINDOW):
        yield (rules.Txn(1, (add,), until=until),)
    yield (rules.Txn(1, (rules.Fence(now),), until=now),)
    for txn_id, _, until in sorted(s.published)[:2]:
        yield from ((rules.Txn(txn_id, (), until=u),) for u in _bounds(until))
        yield (rules.Txn(txn_id, (add,)),)
    for name, seq, _ in [*sorted(s.apps), ("new", 0, 0)]:
        yield from ((rules.Txn(1, (add,), app=(name, n)),) for n in _bounds(seq))
    for claim_id, token in [(c.id, c.token) for c in sorted(s.claims)[:2]] + [(80, 0)]:
        for seen in (token, token + 1):
            yield (rules.Txn(1, (add,), claim=(claim_id, seen)),)
            yield (rules.Txn(1, (add,), claim=(claim_id, seen), until=now),)


def _pairs(s: rules.State) -> Iterator[tuple[rules.Txn, ...]]:
    """Transactions of one commit that see each other, and actions of one transaction that do."""
    now, add = s.version + 1, rules.Add(90, 0, s.version)
    first = rules.Txn(1, (add,))
    yield (first, first)
    yield (rules.Txn(1), rules.Txn(1))
    yield (first, rules.Txn(2, (add,)))
    yield (first, rules.Txn(2, (rules.Unchanged(0, 1),)))
    yield (first, rules.Txn(2, (rules.Drop(rules.Entry(90, 0, s.version, now, 0)),)))
    yield (first, rules.Txn(2, (rules.Drop(rules.Entry(90, 0, s.version, now, 1)),)))
    yield (rules.Txn(1, (add, add)),)
    yield (rules.Txn(1, (add, rules.Add(92, 0, s.version))), rules.Txn(2, (rules.Add(93, 0, 0),)))
    yield (rules.Txn(1, (rules.Fence(now), add)),)
    yield (rules.Txn(1, (rules.Fence(now),)), rules.Txn(2, (add,)))
    yield (rules.Txn(1, (rules.Fence(now), rules.Restore(s.version), add)),)
    yield (rules.Txn(1, (rules.Restore(s.version), rules.Add(90, 0, now))),)
    yield (rules.Txn(1, (rules.SetPin("new", s.horizon, "me"), rules.Horizon(s.version))),)
    yield (rules.Txn(1, (rules.Horizon(s.version), rules.SetPin("new", s.horizon, "me"))),)
    yield (rules.Txn(1, app=("new", 3)), rules.Txn(2, app=("new", 3)), rules.Txn(3, app=("new", 4)))
    yield (rules.Txn(1, (add,), until=now), rules.Txn(1, (add,), until=now))
    take = rules.TakeClaim(81, 7, 8, (), "exclusive", 1, "new")
    yield (rules.Txn(1, (take,)), rules.Txn(2, (), claim=(81, now)))
    yield (rules.Txn(1, (take, rules.Release(81, now))), rules.Txn(2, (), claim=(81, now)))
    yield (rules.Txn(1, (take,)), rules.Txn(2, (rules.Break("claim", 81, now, now),)))
    for entry in sorted(s.live)[:1]:
        drop, again = rules.Drop(entry), rules.Add(entry.seg, entry.chunk, s.version)
        yield (rules.Txn(1, (drop, drop)),)
        yield (rules.Txn(1, (drop,)), rules.Txn(2, (drop,)))
        yield (rules.Txn(1, (drop,)), rules.Txn(2, (again,)))
        yield (rules.Txn(1, (drop, again)),)
        yield (rules.Txn(1, (drop, rules.Fence(now + 1))), rules.Txn(2, (drop,)))


def _deletes(s: rules.State) -> Iterator[tuple[rules.Txn, ...]]:
    """Vectors that grow and that do not, and what else touches their segments in the commit."""
    now, add = s.version + 1, rules.Add(90, 0, s.version, 3)
    for vector in [rules.Vector(e, 1) for e in _bounds(s.fence, now)] + [
        rules.Vector(s.version, rows) for rows in _bounds(3)
    ]:
        grown = rules.Add(90, 0, s.version, 3, vector)
        yield (rules.Txn(1, (grown,)),)
        yield (rules.Txn(1, (rules.Restore(s.version), grown)),)
    yield (rules.Txn(1, (rules.DeleteRows(rules.Entry(91, 0, 0, 1, 0, 4), _of(s, 1)),)),)
    mine = rules.Entry(90, 0, s.version, now, 0, 3)
    yield (rules.Txn(1, (add,)), rules.Txn(2, (rules.DeleteRows(mine, _of(s, 1)),)))
    for entry in sorted(s.live, key=lambda e: -e.rows)[:2]:
        gone = entry.rows - entry.left
        for rows in _bounds(gone, entry.rows):
            yield (rules.Txn(1, (rules.DeleteRows(entry, _of(s, rows)),)),)
        for epoch in _bounds(s.fence, now):
            yield (rules.Txn(1, (rules.DeleteRows(entry, rules.Vector(epoch, gone + 1)),)),)
        once, more = (rules.DeleteRows(entry, _of(s, gone + n)) for n in (1, 2))
        after = entry._replace(vector=once.vector)
        yield from (
            (rules.Txn(1, (rules.DeleteRows(other, more.vector),)),)
            for other in (after, entry._replace(version=0), entry._replace(seg=91))
        )
        drops = rules.Drop(entry), rules.Drop(after)
        for actions in ((once, more), *((once, drop) for drop in drops)):
            yield (rules.Txn(1, actions),)
            first, second = ((action,) for action in actions)
            yield (rules.Txn(1, first), rules.Txn(2, second))
            yield (rules.Txn(1, second), rules.Txn(2, first))
        yield (rules.Txn(1, (once,)), rules.Txn(2, (rules.DeleteRows(after, more.vector),)))
        yield (rules.Txn(1, (once,), until=now),)
        yield from _exchanges(s, entry, once.vector)
        yield from ((txn,) for txn in _updates(s, entry, once))


def _exchanges(
    s: rules.State, entry: rules.Entry, vector: rules.Vector
) -> Iterator[tuple[rules.Txn, ...]]:
    """Another vector for a live segment, and what is more than that."""
    restore, drop = rules.Restore(s.version), rules.Drop(entry)
    same = rules.Add(entry.seg, entry.chunk, entry.epoch, entry.rows, vector)
    for add in (
        same,
        replace(same, vector=None),
        replace(same, vector=entry.vector),
        replace(same, epoch=entry.epoch + 1),
        replace(same, chunk=entry.chunk + 1),
        replace(same, rows=entry.rows + 1),
    ):
        yield (rules.Txn(1, (restore, drop, add)),)
        yield (rules.Txn(1, (drop, add)),)
        yield (rules.Txn(1, (restore, add)),)
    once = rules.Txn(1, (restore, drop, same))
    made = rules.Entry(entry.seg, entry.chunk, entry.epoch, s.version + 1, 0, entry.rows, vector)
    more = rules.DeleteRows(entry, vector)
    for action in (drop, rules.Drop(made), more, rules.DeleteRows(made, _of(s, vector.rows + 1))):
        yield (once, rules.Txn(2, (action,)))
        yield (rules.Txn(2, (action,)), once)


def _of(s: rules.State, rows: int) -> rules.Vector:
    """A vector of so many rows that was staged at the version."""
    return rules.Vector(s.version, rows)


def _updates(s: rules.State, entry: rules.Entry, once: rules.DeleteRows) -> Iterator[rules.Txn]:
    """Rewrites and updates of a segment: what is left of it, and rows that go and come."""
    shrunk = [rules.Add(90, 0, s.version, rows, _of(s, 1)) for rows in (entry.left, entry.left + 1)]
    plan, drop = rules.Replace(s.version, 0), rules.Drop(entry)
    for add in (*shrunk, rules.Add(90, 0, s.version, entry.left)):
        yield rules.Txn(1, (plan, drop, add), read=s.version)
        yield rules.Txn(1, (plan, drop, add, once), read=s.version)
    for other in (e for e in sorted(s.live) if e != entry and e.left > 1):
        delete = rules.DeleteRows(other, _of(s, other.rows - 1))
        add = rules.Add(90, 0, s.version, entry.left)
        yield rules.Txn(1, (plan, drop, add, delete), read=s.version)
    for rows in (0, 1, 2, 3):
        for paired in (False, True):
            update = rules.Update(rows, paired)
            yield rules.Txn(1, (update,))
            for new in (1, 2):
                add = rules.Add(90, 0, s.version, new)
                yield rules.Txn(1, (update, once, add))
                yield rules.Txn(1, (update, drop, add))
                yield rules.Txn(1, (update, update, once, add))
                yield rules.Txn(1, (update, rules.Restore(s.version), once, add))


def _rewrites(s: rules.State) -> Iterator[tuple[rules.Txn, ...]]:
    """Replacements that balance and that do not, of what is old enough and of what is not."""
    now, add, more = s.version + 1, rules.Add(90, 0, s.version), rules.Add(92, 1, s.version)
    yield (rules.Txn(1, (rules.Replace(s.version, 0),), read=s.version),)
    yield (rules.Txn(1, (rules.Replace(s.version, 0), add), read=s.version),)
    for entry in sorted(s.live)[:2]:
        drop, planned = rules.Drop(entry), rules.Replace(entry.version, 0)
        for version in (*_bounds(entry.version), *_bounds(s.version)):
            replace = rules.Replace(version, 0)
            yield (rules.Txn(1, (replace, drop, add), read=s.version),)
            yield (rules.Txn(1, (replace, drop, add), read=version),)
        for deletes in (0, 1, 2):
            for adds in ((), (add,), (add, more)):
                actions = (rules.Replace(entry.version, deletes), drop, *adds)
                yield (rules.Txn(1, actions, read=s.version),)
        yield (rules.Txn(1, (planned, planned, drop, add), read=s.version),)
        once = rules.Txn(1, (planned, drop, add), read=s.version)
        yield (once, rules.Txn(2, (planned, drop, more), read=s.version))
        yield (rules.Txn(3, (drop,)), once)
        for extra in ((), (rules.Fence(now),), (rules.Unchanged(0, 1),)):
            yield (rules.Txn(1, (planned, drop, add, *extra), read=s.version, until=now),)
        yield (rules.Txn(1, (drop, add), read=s.version, until=now),)
        for claim in sorted(s.claims)[:1]:
            token = (claim.id, claim.token)
            for actions in ((), (rules.Release(*token),), (rules.Renew(*token),)):
                held = (planned, drop, add, *actions)
                yield (rules.Txn(1, held, read=s.version, until=now, claim=token),)
    fresh = rules.Drop(rules.Entry(90, 0, s.version, now, 0))
    for version in (s.version, now):
        again = (rules.Replace(version, 0), fresh, more)
        yield (rules.Txn(1, (add,)), rules.Txn(2, again, read=now))
