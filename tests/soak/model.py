"""A model of the table: what the log says, folded in terms of the units that the workers meant."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field

from soak.journal import DAY_MS, N_COLUMN, TOKEN, add_hashes, part_hash

from eventlog.model.actions import (
    Action,
    Add,
    Drop,
    Fence,
    Horizon,
    SetPin,
    SetProperties,
    Swept,
    Unchanged,
    Unpin,
)
from eventlog.model.chunks import parse_chunk
from eventlog.model.records import App, Transaction


@dataclass
class Unit:
    """One unit of work: what its worker wanted, when it began, and how its attempts ended."""

    name: str
    intent: dict
    begin: int
    attempts: int = 0
    acked: list[tuple[int, int]] = field(default_factory=list)  # (version, end)
    failed: int = 0

    @property
    def parts(self) -> dict[int, tuple[int, int]]:
        """Day -> (first number, count)."""
        return {day: (first, count) for day, first, count in self.intent["parts"]}


@dataclass(frozen=True)
class Live:
    """A segment in the model."""

    day: int
    version: int
    first: int
    count: int


def units_of(journals: dict[str, list[dict]]) -> dict[str, Unit]:
    """Return every unit of work that a worker told its journal of."""
    units: dict[str, Unit] = {}
    for lines in journals.values():
        for line in lines:
            if "do" in line:
                unit = units.setdefault(line["unit"], Unit(line["unit"], line, line["begin"]))
                unit.attempts += 1
            elif line.get("outcome") == "acked":
                units[line["unit"]].acked.append((line["version"], line["end"]))
            elif line.get("outcome") == "failed":
                units[line["unit"]].failed += 1
    return units


@dataclass
class Marks:
    """What vacuum and pins leave in the state."""

    fence: int = 0
    horizon: int = 0
    pins: dict[str, tuple[int, int]] = field(default_factory=dict)  # (version held, token)
    swept: tuple[int, int, int] = (0, 0, 0)  # fence, horizon, version

    def refuse(self, action: Action, version: int) -> bool:
        """Say whether the action makes its transaction void."""
        match action:
            case Fence():
                return not self.fence < action.epoch <= version
            case Horizon():
                held = any(pin < action.version for pin, _ in self.pins.values())
                return held or not self.horizon < action.version < version
            case SetPin():
                there = self.horizon <= action.version < version
                return action.name in self.pins or not there
            case Unpin():
                return self.pins.get(action.name, (0, -1))[1] != action.token
            case Swept():
                now = action.sweep
                fence, horizon, seen = self.swept
                within = fence <= now.fence <= self.fence and horizon <= now.horizon <= self.horizon
                return not (within and seen < now.version < version)
        return False

    def take(self, action: Action, version: int) -> None:
        match action:
            case Fence():
                self.fence = action.epoch
            case Horizon():
                self.horizon = action.version
            case SetPin():
                self.pins[action.name] = (action.version, version)
            case Unpin():
                del self.pins[action.name]
            case Swept():
                self.swept = (action.sweep.fence, action.sweep.horizon, action.sweep.version)


class Model:
    """The table as the log tells it: who landed where, and the rows of every version."""

    def __init__(self, units: dict[str, Unit]) -> None:
        self.units = units
        self.landed: dict[str, list[int]] = {}
        self.sums: list[tuple[int, int]] = []  # by version: number of rows, sum of their hashes
        self.void: set[tuple[int, str]] = set()
        self.problems: list[str] = []
        self.live: dict[str, Live] = {}
        self._tokens = {u.intent["token"]: u for u in units.values() if "token" in u.intent}
        self._firsts = {f: u for u in units.values() for f, _ in u.parts.values()}
        self._apps: dict[str, int] = {}
        self._seen: set[str] = set()
        self._token: str | None = None
        self.marks = Marks()

    def fold(self, log: list[tuple[Transaction, ...]]) -> None:
        for version, transactions in enumerate(log):
            count, total = self.sums[-1] if self.sums else (0, 0)
            for transaction in transactions:
                if not self._accepts(transaction, version):
                    self.void.add((version, transaction.id))
                    continue
                more, hashes = self._apply(transaction, version)
                count, total = count + more, add_hashes(total, hashes)
            self.sums.append((count, total))

    def rows(self) -> Iterator[tuple[int, int]]:
        for part in self.live.values():
            yield from ((part.day, n) for n in range(part.first, part.first + part.count))

    def _accepts(self, transaction: Transaction, version: int) -> bool:
        app = transaction.app
        if transaction.id in self._seen or (app and self._apps.get(app.id, -1) >= app.seq):
            return False
        if transaction.until is not None and version > transaction.until:
            return False
        trial = copy.deepcopy(self.marks)
        for action in transaction.actions:
            refused = self._refuses(action, transaction.read_version)
            if refused or trial.refuse(action, version):
                return False
            trial.take(action, version)
        return True

    def _refuses(self, action: Action, read_version: int) -> bool:
        match action:
            case Drop():
                return action.id not in self.live
            case Add():
                return action.id in self.live or action.epoch < self.marks.fence
            case Unchanged():
                inside = self._inside(action.start // DAY_MS, action.end // DAY_MS).values()
                return any(part.version > read_version for part in inside)
            case SetProperties():
                olds = [change.old for change in action.changes if change.name == TOKEN]
                return any(old != self._token for old in olds)
        return False

    def _apply(self, transaction: Transaction, version: int) -> tuple[int, int]:
        """Apply it; return what that does to the number of rows and the sum of their hashes."""
        self._seen.add(transaction.id)
        if transaction.app:
            self._apps[transaction.app.id] = transaction.app.seq
        unit = self._unit(transaction)
        adds = {a.id: a for a in transaction.actions if isinstance(a, Add)}
        drops = {a.id for a in transaction.actions if isinstance(a, Drop)}
        for action in transaction.actions:
            self.marks.take(action, version)
            if isinstance(action, SetProperties):
                news = {change.name: change.new for change in action.changes}
                self._token = news.get(TOKEN, self._token)
        if unit is None:
            if adds or drops:
                self.problems.append(f"version {version}: nobody meant transaction {transaction}")
            return 0, 0
        self.landed.setdefault(unit.name, []).append(version)
        self._compare(unit, adds, drops, transaction.read_version, version)
        added = {key: _live(add, version) for key, add in adds.items()}
        dropped = [self.live.pop(key) for key in drops]
        self.live.update(added)
        count = sum(p.count for p in added.values()) - sum(p.count for p in dropped)
        return count, _hashes(added.values()) - _hashes(dropped)

    def _compare(
        self, unit: Unit, adds: dict[str, Add], drops: set[str], read_version: int, version: int
    ) -> None:
        """Compare what a transaction does with what its unit meant."""
        where = f"version {version}, {unit.name}"
        does = sorted((p.day, p.first, p.count) for p in (_live(a, 0) for a in adds.values()))
        meant = sorted((day, first, count) for day, (first, count) in unit.parts.items())
        if does != meant:
            self.problems.append(f"{where}: adds {does}, meant were {meant}")
        inside = self._inside(*unit.intent["days"]) if "days" in unit.intent else {}
        expected = {key for key, part in inside.items() if part.version <= read_version}
        if drops != expected:
            self.problems.append(
                f"{where}: drops {len(drops)} segments, of {len(expected)} live in its range at"
                f" version {read_version}; {len(drops ^ expected)} differ"
            )

    def _unit(self, transaction: Transaction) -> Unit | None:
        app = transaction.app or App("", 0)
        found = self.units.get(f"{app.id}:{app.seq}")
        for action in transaction.actions:
            if isinstance(action, SetProperties):
                found = found or next(
                    (self._tokens.get(change.new) for change in action.changes), None
                )
            elif isinstance(action, Add):
                found = found or self._firsts.get(_live(action, 0).first)
        return found

    def _inside(self, start: int, end: int) -> dict[str, Live]:
        return {key: part for key, part in self.live.items() if start <= part.day < end}


def _live(add: Add, version: int) -> Live:
    numbers = next((s for s in add.stats if s.column == N_COLUMN), None)
    first = numbers.min if numbers is not None and isinstance(numbers.min, int) else -1
    return Live(parse_chunk(add.chunk).start // DAY_MS, version, first, add.rows)


def _hashes(parts) -> int:
    return add_hashes(*(part_hash(p.day, p.first, p.count) for p in parts))
