"""What all workers of a soak run have in common: turns, and units of work told to a journal."""

import os
import random
import threading
import traceback
from pathlib import Path

from soak.journal import Journal, Part, now_ns

from eventlog import Table
from eventlog.errors import CommitConflict, CommitUnknown, Unavailable

DAY_S = 4  # appends move on to the next day every so many seconds, so that old days can be emptied
FIRST_DAY = 10
PACE_S = 0.15


class Worker:
    """What every worker has: a handle, a journal, and random numbers of its own."""

    def __init__(self, place: dict, name: str, index: int) -> None:
        self.place, self.name, self.index = place, name, index
        self.journal = Journal(Path(place["journals"]) / f"{name}.jsonl")
        lives = 1 + sum("start" in line for line in self.journal.earlier)
        self.random = random.Random(f"{place['seed']} {name} {lives}")
        self.journal.note(start=now_ns(), pid=os.getpid())
        self.stop = threading.Event()
        self.table = None

    def run(self) -> None:
        """Take turns until told to stop; what the store cannot answer is tried again."""
        while not self.stop.is_set():
            try:
                self.table = self.table or self.open()
                self.turn()
            except (CommitConflict, CommitUnknown, Unavailable) as error:
                # Not of a unit of work: of what vacuum and pins may do again, and of reads.
                self.journal.note(later=f"{type(error).__name__}: {error}"[:300])
            except Exception:  # noqa: BLE001 - the checker shows it
                self.journal.note(error=traceback.format_exc()[-2000:])
            self.stop.wait(self.random.uniform(0, 2 * PACE_S))
        self.journal.close()

    def open(self) -> Table:
        return Table.open(self.place["uri"], self.place["options"])

    def today(self) -> int:
        """The day that appends write to; it moves on with the run."""
        return FIRST_DAY + int((now_ns() - self.place["began"]) / 1e9 / DAY_S)

    def turn(self) -> None:
        raise NotImplementedError


class Writer(Worker):
    """A worker that commits units, each told to the journal before and after."""

    def __init__(self, place: dict, name: str, index: int) -> None:
        super().__init__(place, name, index)
        self.pending: dict | None = None  # the unit to do again
        # Where one attempt was unclear, a later one that failed says nothing of the first.
        self.unclear = False
        self.number = 0
        for line in self.journal.earlier:
            if "do" in line:
                self._start(line)
            elif "outcome" in line:
                self._settle(line["outcome"])

    def turn(self) -> None:
        unit = self.pending or self.form(self.number)
        self._start(unit)
        self._settle(self.attempt({k: v for k, v in unit.items() if k != "begin"}))

    def form(self, number: int) -> dict:
        """Return a new unit of work: `do`, `parts` and what else it takes to do it again."""
        raise NotImplementedError

    def commit(self, unit: dict) -> int:
        raise NotImplementedError

    def attempt(self, unit: dict) -> str:
        self.journal.note(**unit, begin=now_ns())
        told: dict = {}
        try:
            told = {"outcome": "acked", "version": self.commit(unit)}
        except CommitUnknown as error:
            told = self.unknown(error)
        except (CommitConflict, Unavailable) as error:
            told = {"outcome": "failed", "why": f"{type(error).__name__}: {error}"[:300]}
        except Exception:  # noqa: BLE001 - the checker shows it
            told = {"outcome": "error", "why": traceback.format_exc()[-2000:]}
        self.journal.note(unit=unit["unit"], end=now_ns(), **told)
        return told["outcome"]

    def unknown(self, error: CommitUnknown) -> dict:
        return {"outcome": "unknown", "why": str(error)[:300]}

    def _start(self, unit: dict) -> None:
        """Count the unit as unclear until its outcome is known: a kill may come between."""
        earlier = self.pending is not None and self.pending["unit"] == unit["unit"]
        self._before, self.unclear = earlier and self.unclear, True
        self.pending, self.number = unit, max(self.number, unit["number"] + 1)

    def _settle(self, outcome: str) -> None:
        if outcome == "acked" or (outcome == "failed" and not self._before):
            self.pending, self.unclear = None, False

    def unit(self, do: str, number: int, parts: list, **more) -> dict:
        return {"do": do, "unit": f"{self.name}:{number}", "number": number, "parts": parts, **more}

    def part(self, number: int, day: int, count: int, offset: int = 0) -> Part:
        """Rows that nobody else writes, nor any other unit of this worker."""
        return [day, self.index * 10**9 + number * 1000 + offset, count]
