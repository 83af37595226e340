"""Random histories of copies or branches whose rows are changed on all sides and merged.

A history keeps a book of each side: the rows that it ever had, each with the changes that removed
it. A row that is updated is another one from then on. So the book tells the rows after each merge,
and which ones are refused: two sides removed one row, neither has the other's change, and one of
the two put other rows in its place. Each of these has to be refused, and no others, unless
compactions moved rows. Where a merge committed several changes at once, it may be any of them that
added the rows.
"""

import random
from collections import Counter
from datetime import timedelta

import pyarrow as pa
from support.builders import DAY_US, SCHEMA, create
from support.crashes import quick
from support.forked_histories import Side, copied, rare
from support.replacements import replace

from eventlog import Table, errors
from eventlog.compaction import vacuum
from eventlog.fsck.check import fsck
from eventlog.readers import changes, count, scan
from eventlog.replication import follow, merge
from eventlog.store.memory import MemoryStore
from eventlog.writers import append, delete, overwrite, update
from eventlog.writers import merge as merge_rows

DAYS = 2
HOUR = timedelta(hours=1)
CHOICES = {"append": 3, "delete": 5, "update": 2, "overwrite": 1, "merge_rows": 1, "merge": 7}
MOVES = {"compact": 2}
UNITS = {"unit": 5}
LEAST = {
    "delete": 1,
    "update": 0.3,
    "overwrite": 0.1,
    "merge_rows": 0.1,
    "merged": 2,
    "united": 0.3,
    "conflict": 0.02,
    "rows compared": 2,
    "became one": 0.9,
}
UNIT_LEAST = {"units done twice": 0.5, "conflict": 0.05, "rows compared": 1, "became one": 0.9}


class Book:
    """What a side must have.

    Attributes:
        rows: the rows that it ever had, by number: (number of the name, value, day).
        gone: for each row that was removed, the changes that did so.
        changes: for each change that it has, the days of the rows that it added.
        at_once: for each, whether it or one that was committed with it added rows.
        doers: for each unit of work that it has, the sides of whose doings it may have segments.
    """

    def __init__(self):
        self.rows, self.gone, self.changes, self.at_once, self.doers = {}, {}, {}, {}, {}

    def shown(self):
        return {n: row for n, row in self.rows.items() if n not in self.gone}

    def excludes(self, other, twice=frozenset()):
        """Whether both removed one row, and one of them put others in its place; or may have.

        Of rows that each has in segments of its own, `twice`, nothing tells that they are the same.
        """
        does = may = False
        for row in self.gone.keys() & other.gone.keys():
            mine = self.gone[row] - other.changes.keys()
            theirs = other.gone[row] - self.changes.keys()
            if mine and theirs:
                # An update may have put the row into another day, which nobody compares.
                day = self.rows[row][2]
                days = [self.changes[c] for c in mine] + [other.changes[c] for c in theirs]
                does |= row not in twice and any(day in some for some in days)
                may |= any(self.at_once[c] for c in mine) or any(other.at_once[c] for c in theirs)
        return does, may

    def take(self, other, commits=None):
        """Take over the changes of another side, which came in so many commits."""
        new = other.changes.keys() - self.changes.keys()
        at_once = {c: other.at_once[c] for c in new}
        if commits is not None and commits < len(new):
            at_once = dict.fromkeys(new, any(at_once.values()))
        self.at_once |= at_once
        self.rows |= other.rows
        for name, sides in other.doers.items():
            self.doers[name] = self.doers.get(name, set()) | sides
        self.changes |= other.changes
        for row, by in other.gone.items():
            self.gone[row] = self.gone.get(row, set()) | by


class RowRing:
    """Three copies of a table, merged around a ring; or branches of it, that are published.

    Args:
        seed: of all that is drawn.
    """

    CHOICES = CHOICES

    def __init__(self, seed):
        chance = self.chance = random.Random(seed)
        self.counts = Counter()
        self.born, self.made = 0, 0
        self.exact = True  # whether the books tell the rows: until somebody chooses
        self.moves = chance.random() < 0.3  # whether compactions and vacuums run beside
        table = create(seed=seed + 1, properties={"keyframe_commits": chance.choice(["1", "64"])})
        self.sides, self.books = [Side(0, table.store)], [Book()]
        for _ in range(chance.randrange(1, 4)):
            self.append(0)
        self.branched = chance.random() < 0.3
        for number in (1, 2):
            self.fork(number, table.store)

    def fork(self, number, store):
        if self.branched:
            self.sides[0].handle().branch(f"b{number}")
            self.sides.append(Side(number, store, f"b{number}"))
        else:
            self.sides.append(Side(number, copied(store)))
        book = Book()
        book.take(self.books[0])
        self.books.append(book)

    # What a side does.

    def new_rows(self, names):
        """Rows of these numbers of names, with new values, as the book has them and as a table."""
        found = {}
        for name in names:
            found[self.born] = (name, self.born, self.chance.randrange(DAYS))
            self.born += 1
        return found

    def changed(self, side, gone, new, unit=None):
        """Write a change, which may be a unit of work, into a side's book."""
        book, change = self.books[side], self.made if unit is None else unit
        self.made += 1
        book.changes[change] = {day for _, _, day in new.values()}
        book.at_once[change] = bool(new)
        for row in gone:
            book.gone.setdefault(row, set()).add(change)
        book.rows |= new

    def some(self, side, most):
        """A predicate, and the rows of the book of a side that pass it."""
        rows = self.books[side].shown()
        picked = self.chance.sample(sorted(rows), min(len(rows), self.chance.randint(1, most)))
        names = {rows[n][0] for n in picked}
        return predicate(names), {n: r for n, r in rows.items() if r[0] in names}

    def append(self, side):
        new = self.new_rows(range(self.born, self.born + self.chance.randint(6, 16)))
        append(self.sides[side].handle(), table_of(new))
        self.changed(side, (), new)

    def delete(self, side):
        where, rows = self.some(side, 2)
        if rows:
            delete(self.sides[side].handle(), where=where)
            self.changed(side, rows, {})

    def update(self, side):
        where, rows = self.some(side, 2)
        value = self.chance.randrange(1000, 9999)
        new = {}
        for name, _, day in rows.values():
            new[self.born] = (name, value, day)
            self.born += 1
        if rows:
            update(self.sides[side].handle(), {"value": value}, where)
            self.changed(side, rows, new)

    def overwrite(self, side):
        where, rows = self.some(side, 2)
        names = self.chance.sample(sorted({r[0] for r in rows.values()}), len(rows) // 2)
        new = self.new_rows(names)
        if rows:
            overwrite(self.sides[side].handle(), table_of(new), where=where)
            self.changed(side, rows, new)

    def merge_rows(self, side):
        _, rows = self.some(side, 2)
        matched = self.chance.choice(["update", "delete"])
        new = self.new_rows([r[0] for r in rows.values()] + [self.born + 50_000 + self.made])
        merge_rows(self.sides[side].handle(), table_of(new), "name", when_matched=matched)
        if matched == "delete":
            new = {n: r for n, r in new.items() if r[0] not in {old[0] for old in rows.values()}}
        self.changed(side, rows, new)

    def compact(self, side):
        t = self.sides[side].handle()
        segments = [*t.session.head().segments()]
        if segments:
            chunk = self.chance.choice(sorted({s.chunk for s in segments}))
            replace(t, [s for s in segments if s.chunk == chunk][: self.chance.randint(1, 3)])

    # Merges, and what must come of them.

    def merge(self, target):
        source = self.chance.choice([n for n in range(len(self.sides)) if n != target])
        self.merged(source, target)

    def merged(self, source, target):
        """Merge one side into another one, and return the number of commits."""
        one, two = self.sides[source], self.sides[target]
        theirs, ours = self.books[source], self.books[target]
        before = two.handle().session.head().version
        excluded, may_be = self.excluded(theirs, ours)
        there, here = ({*rows_of(side)} for side in (one, two))
        publish = one.branch is not None and target == 0 and self.chance.random() < 0.5
        run = lambda **options: (
            two.handle().merge(one.branch, **options)
            if publish
            else merge(one.handle(), two.handle(), **options)
        )
        try:
            done = run()
        except errors.CommitConflict as conflict:
            self.counts["conflict"] += 1
            self.check_refusal(str(conflict), may_be)
            assert two.handle().session.head().version == before
            done = run(take=self.chance.choice(["source", "target"]))
            self.exact = False
        else:
            assert not (self.exact and excluded), "a conflict was missed"
            ours.take(theirs, done.commits)
            self.counts["merged"] += 1
            self.counts["united"] += bool(done.transactions and done.skipped)
        after = {*rows_of(two)}
        # A row has another value for each change, so this holds whatever anybody has chosen.
        assert there & here <= after, "rows are gone that both sides show"
        assert after <= there | here, "rows came back that neither side shows"
        if self.exact:
            self.compare(target)
            self.feed(two, before)
        return done.commits

    def excluded(self, theirs, ours):
        """Whether what two sides did excludes each other; or may do so."""
        return theirs.excludes(ours)

    def check_refusal(self, message, may_be):
        """A conflict was told, and there is one, as far as the books can tell."""
        assert "--take source" in message
        assert not self.exact or self.moves or may_be, "a needless conflict"
        self.counts["rows moved"] += self.exact and not may_be

    def compare(self, number):
        assert rows_of(self.sides[number]) == listed(self.books[number].shown())
        self.counts["rows compared"] += 1

    def feed(self, side, before):
        """The changes since a version, applied to its rows, give the newest rows."""
        t = side.handle()
        found = Counter(rows_of(side, before))
        for row in changes(t, before).to_table().to_pylist():
            sign = -1 if row["_change"] in ("delete", "update_before") else 1
            found[row["name"], row["value"]] += sign
        assert found == Counter(rows_of(side)), "the changes are not those of the rows"
        self.counts["feeds"] += 1

    def play(self, steps):
        kinds = self.CHOICES | (MOVES if self.moves else {})
        for _ in range(steps):
            name = self.chance.choices([*kinds], [*kinds.values()])[0]
            self.counts[name] += 1
            getattr(self, name)(self.chance.randrange(len(self.sides)))
        for _ in range(8):
            pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
            if not sum(self.merged(a, b) for a, b in pairs):
                break
        else:
            raise AssertionError("merging again still commits something")
        first, *others = [rows_of(side) for side in self.sides]
        assert all(other == first for other in others)
        assert len({*first}) == len(first)
        self.counts["became one"] += 1
        self.check_sides()
        self.counts["histories"] += 1

    def check_sides(self):
        """Audits find nothing, a vacuum takes nothing away, and a copy has the same rows."""
        for side in self.sides:
            rows = rows_of(side)
            assert len(rows) == count(side.handle())
            if side.branch is None:
                store = MemoryStore()
                follow(side.handle(), Table(store))
                assert rows_of(Side(9, store)) == rows
            side.now_ms += 10 * 3_600_000
            if not self.branched:
                soon = {"retention": HOUR, "staging": HOUR}
                vacuum(side.handle(), dry_run=False, **soon)
            assert rows_of(side) == rows
            assert fsck(side.handle(), checksums=True).errors == 0


class UnitRing(RowRing):
    """Sides that also do units of work, some of which several sides do.

    Args:
        seed: of all that is drawn.
    """

    CHOICES = CHOICES | UNITS

    def __init__(self, seed):
        self.units = {}  # by name: the rows that it adds, or the numbers of names that it deletes
        super().__init__(seed)
        for side in self.chance.sample(range(3), 2):
            self.unit(side, again=1)

    def unit(self, side, again=0.5):
        """Do a unit of work, so often one that another side has done, if there is one."""
        book = self.books[side]
        known = [name for name in self.units if name not in book.changes]
        if known and self.chance.random() < again:
            name = self.chance.choice(known)
            self.counts["units done twice"] += 1
        else:
            name = f"unit {len(self.units)}"
            self.units[name] = self.new_unit(side)
        rows, names = self.units[name]
        options, gone = {"app_id": name, "app_seq": 1}, []
        if names:
            gone = [n for n, row in book.shown().items() if row[0] in names]
            delete(self.sides[side].handle(), where=predicate(names), **options)
        else:
            append(self.sides[side].handle(), table_of(rows), **options)
        self.changed(side, gone, rows, name)
        book.doers[name] = {side}

    def new_unit(self, side):
        if not self.units or self.chance.random() < 0.3:
            first = self.born
            return self.new_rows(range(first, first + self.chance.randint(2, 5))), ()
        _, rows = self.some(side, 2)
        return {}, {row[0] for row in rows.values()} or {-1}

    def some(self, side, most):
        """Mostly rows of units of work."""
        of_units = {n for rows, _ in self.units.values() for n in rows}
        rows = self.books[side].shown()
        wanted = sorted(rows.keys() & of_units)
        if not wanted or self.chance.random() < 0.3:
            return super().some(side, most)
        names = {rows[n][0] for n in wanted[: self.chance.randint(1, most)]}
        return predicate(names), {n: r for n, r in rows.items() if r[0] in names}

    def excluded(self, theirs, ours):
        """Where each side did a unit itself, changes of its rows may be a conflict."""
        both = theirs.doers.keys() & ours.doers.keys()
        apart = [self.units[n] for n in both if len(theirs.doers[n] | ours.doers[n]) > 1]
        does, may = theirs.excludes(ours, {row for rows, _ in apart for row in rows})
        return does, may or bool(apart)


def predicate(names):
    """The predicate of the rows with these numbers of names."""
    listed = ", ".join(f"'row {name}'" for name in sorted(names)) or "''"
    return f"name in ({listed})"


def table_of(rows):
    """Rows of a book, as they are written."""
    at = [day * DAY_US + n for n, (_, _, day) in rows.items()]
    names = [f"row {name}" for name, _, _ in rows.values()]
    return pa.table([at, names, [float(v) for _, v, _ in rows.values()]], SCHEMA)


def listed(rows):
    return sorted((f"row {name}", float(value)) for name, value, _ in rows.values())


def rows_of(side, version=None):
    """Names and values of the rows of a side."""
    found = scan(side.handle(), ["name", "value"], version=version).to_table().to_pylist()
    return sorted((row["name"], row["value"]) for row in found)


def play_rings(seed, steps=16, kind=RowRing):
    """Play a history and return it."""
    history = kind(seed)
    with quick():
        history.play(steps)
    return history


def play_unit_rings(seed, steps=16):
    """Play a history with units of work and return it."""
    return play_rings(seed, steps, UnitRing)


def rare_rings(counts):
    """What happened too rarely in so many histories."""
    return rare(counts, LEAST)


def rare_unit_rings(counts):
    """What happened too rarely in so many histories with units of work."""
    return rare(counts, UNIT_LEAST)
