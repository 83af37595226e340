"""One of several that change rows of the same day: `change_on.py SYSTEM ROOT SECONDS NUMBER`.

Appends, deletes and updates rows of its own again and again, which lie in the files of all, and
prints the values that they must have, how many changes of each kind were acknowledged, how many
raised, and the seconds it took. Rows of a change that raised are `unsure`: it may have been made.
"""

import json
import random
import sys
import time
from collections import Counter

import peers
import pyarrow as pa
import together
from compactors import COMPACTORS, DAY

SCHEMA = pa.schema(
    [
        (peers.TIME, pa.timestamp("us", tz="UTC")),
        ("owner", pa.int64()),
        ("n", pa.int64()),
        ("v", pa.int64()),
    ]
)
NEW = 50  # rows of an append
START_US = 1_577_836_800_000_000  # 2020-01-01
MINUTE_US = 60_000_000


def rows_of(owner, numbers):
    times = pa.array([START_US + n % 1440 * MINUTE_US for n in numbers], SCHEMA.field(0).type)
    owners, zeros = [owner] * len(numbers), [0] * len(numbers)
    return pa.table([times, owners, numbers, zeros], schema=SCHEMA)


class Eventlog(COMPACTORS["eventlog"]):
    def delete(self, where):
        from eventlog.writers import delete  # noqa: PLC0415 - imported where it is used

        delete(self.table, where=where)

    def update(self, where):
        from eventlog.writers import update  # noqa: PLC0415 - likewise

        update(self.table, {"v": "v + 1"}, where)

    def values(self):
        from eventlog.readers import scan  # noqa: PLC0415 - likewise

        return scan(self.open_head(), ["owner", "n", "v"]).to_table()


class Delta(COMPACTORS["deltalake"]):
    def append(self, rows):
        self.table.update_incremental()
        super().append(rows)

    def delete(self, where):
        self.table.update_incremental()
        self.table.delete(where)

    def update(self, where):
        self.table.update_incremental()
        self.table.update(updates={"v": "v + 1"}, predicate=where)

    def values(self):
        return self.open_head().to_pyarrow_table().drop_columns([peers.TIME, DAY])


class Lance(COMPACTORS["pylance"]):
    def append(self, rows):
        self.table.checkout_latest()
        super().append(rows)

    def delete(self, where):
        self.table.checkout_latest()
        self.table.delete(where)

    def update(self, where):
        self.table.checkout_latest()
        self.table.update({"v": "v + 1"}, where=where)

    def values(self):
        return self.open_head().to_table(columns=["owner", "n", "v"])


CHANGERS = {"eventlog": Eventlog, "deltalake": Delta, "pylance": Lance}


def main():
    name, root, seconds, owner = sys.argv[1:5]
    system = CHANGERS[name](root, together.options())
    system.attach()
    together.wait_for_go()
    print(json.dumps(_change(system, int(owner), float(seconds))), flush=True)


def _change(system, owner, seconds):
    chance, started = random.Random(owner), time.monotonic()
    held, unsure, following = {}, set(), 0
    counts, raised, why = Counter(), Counter(), ""
    while time.monotonic() - started < seconds:
        verb = chance.choice(["append", "delete", "update"])
        low, step = chance.randrange(following + 1), chance.choice([1, 3, 7])
        chosen = [*range(low, following, step)][: chance.choice([3, 40])] or [0]
        where = f"owner = {owner} and n in ({', '.join(map(str, chosen))})"
        try:
            if verb == "append":
                chosen = [*range(following, following + NEW)]
                following += NEW
                system.append(rows_of(owner, chosen))
                held |= dict.fromkeys(chosen, 0)
            elif verb == "delete":
                system.delete(where)
                held = {n: v for n, v in held.items() if n not in set(chosen)}
            else:
                system.update(where)
                held |= {n: held[n] + 1 for n in chosen if n in held}
        except Exception as error:
            raised[verb] += 1
            unsure.update(chosen)
            why = why or f"{type(error).__name__}: {error}"[:200]
            system.attach()
        else:
            counts[verb] += 1
    return {
        "held": {str(n): v for n, v in held.items()},
        "unsure": sorted(unsure),
        "counts": counts,
        "raised": raised,
        "seconds": time.monotonic() - started,
        "why": why,
    }


if __name__ == "__main__":
    main()
