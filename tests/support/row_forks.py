"""The random histories of copies and branches, with rows deleted and updated beside all else.

See `forked_histories`, `deep_histories` and `united_histories`, whose checks hold here, too. In the
end all sides have the same values.
"""

from support import forked_histories as forked
from support import united_histories as united
from support.deep_histories import LEAST as DEEP_LEAST
from support.deep_histories import DeepHistory
from support.deleting import deleted_positions

from eventlog.readers import scan
from eventlog.writers import delete, update

ROWS = {"delete_where": 3, "update_where": 1.5, "delete_unit": 1}
LEAST = {"delete_where": 0.3, "update_where": 0.1, "deletes done twice": 0.02}


class RowVerbs:
    """Deletes and updates of rows by their names."""

    def picked(self, side):
        """A predicate of one or two rows of a side, and their names; None of an empty side."""
        names = side.names()
        some = self.chance.sample(names, min(len(names), self.chance.randint(1, 2)))
        listed = ", ".join(f"'{name}'" for name in some)
        return (f"name in ({listed})", set(some)) if some else (None, set())

    def read(self, t, segment):
        gone = deleted_positions(t, segment)
        rows = super().read(t, segment)
        return rows.take([n for n in range(len(rows)) if n not in gone])

    def delete_where(self, side):
        where, names = self.picked(side)
        if where and not self.calm:
            delete(side.handle(), where=where)
            self.removed |= names

    def update_where(self, side):
        where, _ = self.picked(side)
        if where and not self.calm:
            update(side.handle(), {"value": self.chance.randrange(1000)}, where)

    def delete_unit(self, side):
        """Delete rows by a unit of work, which is delivered to one side, or to two."""
        where, names = self.picked(side)
        if not where or self.calm:
            return
        self.number += 1
        unit = {"app_id": f"delete {self.number}", "app_seq": 1}
        delete(side.handle(), where=where, **unit)
        self.removed |= names
        other = self.chance.choice(self.sides)
        if other is not side and self.chance.random() < 0.8:
            self.counts["deletes done twice"] += 1
            delete(other.handle(), where=where, **unit)

    def check_values(self):
        first, *others = [values_of(side) for side in self.sides]
        assert all(other == first for other in others)


class RowForks(RowVerbs, forked.ForkedHistory):
    """Copies."""

    CHOICES = forked.ForkedHistory.CHOICES | ROWS

    def converge(self):
        super().converge()
        self.check_values()


class RowBranches(RowVerbs, forked.BranchedHistory):
    """Branches that are published."""

    CHOICES = forked.BranchedHistory.CHOICES | ROWS

    def converge(self):
        super().converge()
        self.check_values()


class RowDeep(RowVerbs, DeepHistory):
    """Copies of copies and branches of branches."""

    CHOICES = DeepHistory.CHOICES | ROWS


class RowUnited(RowVerbs, united.UnitedHistory):
    """Copies that become one again by the commands that messages name."""

    CHOICES = united.UnitedHistory.CHOICES | ROWS

    def check_equal(self):
        super().check_equal()
        self.check_values()


def values_of(side):
    """Names and values of the rows of a side."""
    found = scan(side.handle(), ["name", "value"]).to_table().to_pylist()
    return sorted((row["name"], row["value"] or 0) for row in found)


def play_row_forks(seed):
    """Play a history of copies and return it."""
    return forked.played(RowForks, seed)


def play_row_branches(seed):
    """Play a history of branches and return it."""
    return forked.played(RowBranches, seed)


def play_row_deep(seed):
    """Play a history of copies and branches of each other and return it."""
    return forked.played(RowDeep, seed, steps=18)


def play_row_united(seed):
    """Play a history of copies that become one again and return it."""
    return forked.played(RowUnited, seed)


def rare_row_forks(counts):
    """What happened too rarely in so many histories of copies."""
    return forked.rare(counts, LEAST | {"converged": 0.1, "deaths": 0.1})


def rare_row_branches(counts):
    """What happened too rarely in so many histories of branches."""
    return forked.rare(counts, LEAST | {"published": 0.3, "deaths": 0.1})


def rare_row_deep(counts):
    """What happened too rarely in so many histories of copies and branches of each other."""
    return forked.rare(counts, LEAST | DEEP_LEAST)


def rare_row_united(counts):
    """What happened too rarely in so many histories of copies that become one again."""
    return forked.rare(counts, LEAST | united.LEAST)
