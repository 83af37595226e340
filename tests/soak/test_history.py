"""The history checker finds each kind of violation where one is planted, and none where none is."""

import copy
from dataclasses import replace

import pytest
from soak.history import History, violations
from soak.journal import N_COLUMN, TOKEN, Journal, add_hashes, part_hash, read_journal

from eventlog.model.actions import (
    Add,
    Fence,
    Horizon,
    PropertyChange,
    SetPin,
    SetProperties,
    Swept,
    Unchanged,
    Unpin,
)
from eventlog.model.entries import ColumnStats, Segment, Sweep
from eventlog.model.records import App, Transaction
from eventlog.state.delta import drop_of

DAY = 10
CHUNK = "1970-01-11"  # day 10
DAY_MS = 86_400_000


def segment(first, *, version=0, epoch=0, count=3):
    stats = (ColumnStats(N_COLUMN, first, first + count - 1, 0),)
    return Segment(f"{first:032x}", CHUNK, epoch, version, 0, count, 100, "ab" * 32, 1, stats)


def add(first, **options):
    s = segment(first, **options)
    return Add(s.id, s.chunk, s.epoch, s.rows, s.bytes, s.checksum, s.schema, s.stats)


def transaction(number, *actions, read_version=0, app=None, until=None):
    ident = f"{number:032x}"
    return Transaction(ident, "append", "w", read_version, until, app, actions=actions)


def intent(unit, begin, first=None, **more):
    parts = [] if first is None else [[DAY, first, 3]]
    return {"do": "append", "unit": unit, "number": 0, "parts": parts, "begin": begin, **more}


def acked(unit, end, version):
    return {"unit": unit, "end": end, "outcome": "acked", "version": version}


def read(begin, version, *firsts, kind="head"):
    digest = add_hashes(*(part_hash(DAY, first, 3) for first in firsts))
    rows = 3 * len(firsts)
    return {"read": kind, "begin": begin, "end": begin + 1, "version": version} | {
        "rows": rows,
        "digest": digest,
    }


def sound():
    """Two appends, an overwrite that read the first of them, a property, and reads of it all."""
    overwrite = [drop_of(segment(100)), add(300)]
    return History(
        journals={
            "a": [
                {"start": 1, "pid": 1},
                intent("a:0", 10, 100, app="a"),
                acked("a:0", 20, 1),
                intent("a:1", 100, 900, app="a"),
                {"unit": "a:1", "end": 110, "outcome": "failed"},
            ],
            "b": [intent("b:0", 30, 200), acked("b:0", 40, 2), intent("b:1", 100, 800)],
            "o": [intent("o:0", 25, 300, days=[DAY, DAY + 1], app="o"), acked("o:0", 50, 3)],
            "m": [intent("m:0", 60, token="m:0"), acked("m:0", 70, 4)],
            "r": [read(22, 1, 100), read(52, 3, 200, 300), read(80, 4, 200, 300)],
            "s": [read(90, 1, 100, kind="old")],
        },
        log=[
            (transaction(1),),
            (transaction(2, add(100), app=App("a", 0)),),
            (transaction(3, add(200), until=9),),
            (transaction(4, *overwrite, read_version=1, app=App("o", 0)), transaction(3, until=9)),
            (transaction(5, SetProperties((PropertyChange(TOKEN, None, "m:0"),))),),
        ],
        void=frozenset({(3, f"{3:032x}")}),
        rows=[(DAY, n) for n in (200, 201, 202, 300, 301, 302)],
    )


def test_a_sound_history_passes():
    assert violations(sound()) == []


@pytest.mark.parametrize("landed", [False, True])
def test_what_nobody_answered_may_have_landed_or_not(landed):
    history = sound()
    if landed:
        history.log.append((transaction(6, add(800)),))
        history.rows.extend((DAY, n) for n in (800, 801, 802))
    assert violations(history) == []


def lost(h):
    del h.log[4]
    h.journals["r"].pop()


def doubled(h):
    h.log.append((transaction(7, replace_id(add(200), 77)),))
    h.rows.extend((DAY, n) for n in (200, 201, 202))


def replace_id(action, number):
    return Add(f"{number:032x}", *(getattr(action, f) for f in action.__struct_fields__[1:]))


def failed_landed(h):
    h.log.append((transaction(7, add(900), app=App("a", 1)),))
    h.rows.extend((DAY, n) for n in (900, 901, 902))


def elsewhere(h):
    h.journals["m"][-1]["version"] = 2


def out_of_order(h):
    h.journals["b"][0]["begin"] = 75  # after version 4 was acknowledged


def foreign(h):
    h.log.append((transaction(7, add(555)),))


def other_rows(h):
    h.log[2] = (transaction(3, add(200, count=2), until=9),)


def dropped_more(h):
    """The overwrite read version 1, and drops what came in version 2 too."""
    changed = h.log[3][0]
    wide = (*changed.actions, drop_of(segment(200, version=2)))
    h.log[3] = (transaction(4, *wide, read_version=1, app=App("o", 0)), h.log[3][1])


def dropped_less(h):
    h.log[3] = (transaction(4, add(300), read_version=1, app=App("o", 0)), h.log[3][1])


def read_wrong(h):
    h.journals["s"][0]["digest"] += 1


def read_mixture(h):
    h.journals["r"][1] = read(52, 3, 100, 200, 300)


def read_future(h):
    h.journals["s"].append(read(95, 99, 100))


def read_behind(h):
    h.journals["s"].append(read(95, 1, 100))


def read_backwards(h):
    h.journals["t"] = [read(26, 2, 100, 200), read(28, 1, 100)]


def told_vacuumed(h):
    h.journals["s"].append({"read": "vacuumed", "begin": 95, "end": 96, "version": 2})


def rows_missing(h):
    h.rows.pop()


def rows_doubled(h):
    h.rows.append(h.rows[0])


def judged_otherwise(h):
    void = h.void | {(1, f"{2:032x}")}
    return replace(h, void=void)


def unexpected(h):
    h.journals["r"].append({"error": "Traceback: DataLoss"})


def unexpected_outcome(h):
    h.journals["a"].append({"unit": "a:1", "end": 120, "outcome": "error", "why": "Traceback"})


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (lost, "m:0 was acknowledged as version 4, and is lost"),
        (doubled, "b:0 landed 2 times"),
        (failed_landed, "a:1 failed for sure, and landed in"),
        (elsewhere, "m:0 was acknowledged as"),
        (out_of_order, "b:0 landed in version 2, and began after version 4"),
        (foreign, "nobody meant"),
        (other_rows, "b:0: adds"),
        (dropped_more, "o:0: drops 2 segments, of 1 live"),
        (dropped_less, "o:0: drops 0 segments, of 1 live"),
        (read_wrong, "s read 3 rows of version 1, which has 3, or others"),
        (read_mixture, "r read 9 rows of version 3, which has 6"),
        (read_future, "s read version 99, which the log does not have"),
        (read_behind, "s saw 1 as the newest version after 4 was acknowledged"),
        (read_backwards, "t went back from version 2 to 1"),
        (told_vacuumed, "told that version 2 is vacuumed, and it is not"),
        (rows_missing, "lacks 1 rows"),
        (rows_doubled, "has too many of 1 rows"),
        (judged_otherwise, "judge these transactions differently"),
        (unexpected, "r: Traceback: DataLoss"),
        (unexpected_outcome, "a: Traceback"),
    ],
)
def test_a_planted_violation_is_found(plant, message):
    history = copy.deepcopy(sound())
    found = violations(plant(history) or history)
    assert any(message in line for line in found), found


@pytest.mark.parametrize(
    "voided",
    [
        transaction(7, add(800, epoch=1), read_version=1),  # staged below the fence
        transaction(7, drop_of(segment(100)), app=App("a", 1)),  # dropped already
        transaction(7, Unchanged(DAY * DAY_MS, (DAY + 1) * DAY_MS), read_version=2),
        transaction(7, SetProperties((PropertyChange(TOKEN, None, "m:1"),))),
        transaction(7, app=App("a", 0)),  # a sequence that is done
        transaction(7, until=5),  # its window has ended
        transaction(3, add(800)),  # an id that has taken effect
        transaction(7, Fence(2)),
        transaction(7, Horizon(4)),  # above the pin
        transaction(7, Horizon(2)),
        transaction(7, SetPin("other", 1, "w")),  # below the horizon
        transaction(7, SetPin("pin", 4, "w")),
        transaction(7, Unpin("pin", "w", 4)),
        transaction(7, Swept(Sweep(3, 2, 4))),  # further than the fence
    ],
)
def test_the_model_refuses_what_the_fold_must_refuse(voided):
    history = sound()
    marks = (Fence(2), Horizon(2), SetPin("pin", 3, "w"), Swept(Sweep(2, 2, 4)))
    history.log.append((transaction(6, *marks),))
    history.journals["s"].append({"read": "vacuumed", "begin": 95, "end": 96, "version": 1})
    history.log.append((voided,))
    assert any("judge" in line for line in violations(history))
    assert violations(replace(history, void=history.void | {(6, voided.id)})) == []


def test_a_line_that_a_kill_cut_short_says_nothing(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"start": 1}\n{"do": "app')
    journal = Journal(path)
    journal.note(start=2)
    journal.close()
    assert read_journal(path) == [{"start": 1}, {"start": 2}]
