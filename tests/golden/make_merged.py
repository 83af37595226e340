"""Write the golden table `merged`: what was carried from other logs of the same table.

    .venv/bin/python tests/golden/make_merged.py

Like the other tables it is written once a format. Its segments have objects; the logs that they
came from are made up.
"""

import sys

from golden import make, make_whole
from msgspec.structs import replace

from eventlog import Table
from eventlog.clock import ManualClock
from eventlog.model.actions import Action, AppReset, AppRise, Restore, SetOrigin
from eventlog.model.records import Transaction
from eventlog.writers import append

NAME = "merged"
ONE, TWO = "1a" * 32, "2b" * 32  # names of origins


def carried(t: Table, first: int, *actions: Action, **fields: object) -> Transaction:
    """Return a transaction that carries rows of another log."""
    made = t.transaction("merge", [*actions, *make_whole.staged(t, make_whole.rows(first, 2))])
    return Transaction(**{f: getattr(made, f) for f in made.__struct_fields__} | fields)


def make_merged(clock: ManualClock) -> None:
    """Two origins; what is void of them; sequences of apps that rise and never fall."""
    properties = {"keyframe_commits": "3", "app_retention_days": "1"}
    t = make.open_at(NAME, make_whole.SCHEMA, clock, properties=properties)
    append(t, make_whole.rows(0, 3, days=2), app_id="loader", app_seq=3)
    void = lambda rule, *actions, **fields: make_whole.void(t, rule, actions, **fields)
    none: dict[str, AppRise] = {}

    def rise(old: int | None, *runs: tuple[int, int]) -> AppRise:
        return AppRise(old, runs)

    def origin(old: int | None, version: int, of: str = ONE, **more: object) -> SetOrigin:
        commit, apps = more.get("commit", "cc" * 32), more.get("apps", none)
        return SetOrigin(of, old, version, commit, apps, more.get("checked"))

    below = {"loader": rise(3, (2, 2))}

    make_whole.put(
        t,
        [
            carried(t, 10, origin(None, 4, apps=below | {"other": rise(None, (5, 7))}, checked=1)),
            void("R19.1", origin(None, 4)),  # carried already
            void("R19.1", origin(4, 5, apps=below)),  # not said up to where it was looked
            void("R19.1", origin(3, 5)),
            void("R19.1", origin(4, 4)),
            void("R19.1", origin(4, 5, apps={"loader": rise(2, (4, 4))})),
            void("R19.1", origin(4, 5, apps={"third": rise(0, (4, 4))})),
            void("R19.1", origin(4, 5, apps={"third": rise(None)})),
            void("R19.1", origin(4, 5, apps={"third": rise(None, (4, 3))})),
            void("R19.1", origin(4, 5, apps={"third": rise(None, (4, 5), (5, 6))})),
            void("R19.1", origin(None, 0, of=TWO, apps=below, checked=1)),
            void("R19.1", origin(None, 5, of="1A" * 32)),
            void("R19.1", origin(None, 5, of="1a" * 16)),
            void("R19.1", origin(4, 5, commit="c" * 63)),
            void("R19.1", origin(4, 5), origin(4, 5)),
            void("R19.1", origin(None, 0, of=TWO, apps=below, checked=2)),  # not a version yet
            carried(t, 12, origin(None, 0, of=TWO), origin(4, 6), origin(6, 7)),
        ],
    )
    clock.advance(1000)
    several = {"loader": rise(3, (0, 0), (2, 3))}
    make_whole.put(
        t,
        [
            carried(t, 16, origin(0, 1, of=TWO, apps=several, checked=2)),
            carried(t, 14, origin(7, 9, apps={"loader": rise(3, (5, 5))})),
        ],
    )
    t.write_keyframe()
    marks = {"loader": 5, "other": 7}
    assert {name: mark.seq for name, mark in t.session.head().meta.apps.items()} == marks
    make_whole.put(
        t,
        [
            void("F2", make_whole._add(t), app=make_whole.App("loader", 5)),
            carried(t, 18, app=make_whole.App("loader", 6)),
        ],
    )
    append(t, make_whole.rows(20, 2), app_id="another", app_seq=1)
    clock.advance(1000)
    same = {"loader": AppReset(6, 6)}
    named = ((3, "ee" * 32), (10, "cc" * 32))
    make_whole.put(
        t,
        [
            void("R19.1", replace(origin(9, 10, checked=5), commits=())),
            void("R19.1", replace(origin(9, 10, checked=5), commits=((3, "ee"),))),
            void("R19.1", origin(9, 10, checked=6)),  # not a version yet
            void("R19.1", origin(1, 2, of=TWO, checked=1)),  # another log was merged since
            void("R12.3", origin(9, 10, checked=5), Restore(9, origin=ONE)),
            void("R12.3", origin(9, 10, checked=5), Restore(10, origin=TWO)),
            carried(
                t, 22, replace(origin(9, 10, checked=5), commits=named), Restore(10, same, ONE)
            ),
        ],
    )


def main() -> int:
    """Write the table."""
    with make.writing(NAME):
        make_merged(ManualClock(make.START_MS, seed=2026))
    return 0


if __name__ == "__main__":
    sys.exit(main())
