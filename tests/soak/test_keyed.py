"""The check of the soak's keyed table finds what is planted."""

from copy import deepcopy

import pytest
from soak import keyed
from soak.journal import add_hashes
from support.builders import fold_all

from eventlog import Table
from eventlog.readers import scan
from eventlog.store.memory import MemoryStore


@pytest.fixture(scope="module")
def run():
    """Journals, log and rows of a sound run of two units, read after each of them."""
    store = MemoryStore()
    table = Table.create(store.uri, keyed.SCHEMA, store=store, **keyed.COLUMNS)
    worker = keyed.Upserter.__new__(keyed.Upserter)
    worker.name, worker.table = "keyed-upsert-1", table
    rows = [{"k": n, "o": 5, "v": f"v{n}", "_op": "u"} for n in range(3)]
    gone = [{"k": 1, "o": None, "v": None, "_op": "d"}]
    lines, reads = [], []
    for number, (do, some) in enumerate([("upsert", rows), ("delete", gone)]):
        unit = worker.unit(do, number, [], app=worker.name, rows=some)
        version = worker.commit(unit)
        lines.append({**unit, "begin": 10 * number})
        lines.append({"unit": unit["unit"], "outcome": "acked", "version": version,
                      "end": 10 * number + 1})  # fmt: skip
        found = scan(table, ["k", "o", "v"]).to_table().to_pylist()
        reads.append({"read": "head", "begin": 10 * number + 2, "end": 10 * number + 3,
                      "version": version, "rows": len(found),
                      "digest": add_hashes(*map(keyed.row_hash, found))})  # fmt: skip
    log = [effect.taken for _, effect in fold_all(store)]
    return {"keyed-upsert-1": lines, "keyed-read-1": reads}, log, found


def found(run, change=lambda journals, log, rows: None):
    journals, log, rows = deepcopy(run)
    change(journals, log, rows)
    return keyed.violations(journals, log, 0, rows)[0]


def test_a_sound_run_has_none(run):
    assert found(run) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda j, log, rows: log.__setitem__(1, ()), "is lost"),
        (lambda j, log, rows: log.append(log[1]), "landed 2 times"),
        (lambda j, log, rows: rows.pop(), "ends with 1 rows"),
        (lambda j, log, rows: rows[0].update(v="other"), "not those of the model"),
        (lambda j, log, rows: j["keyed-read-1"][0].update(rows=2), "read 2 rows of version 1"),
        (lambda j, log, rows: j["keyed-read-1"].reverse(), "went back"),
        (lambda j, log, rows: j["keyed-read-1"][1].update(j["keyed-read-1"][0], begin=12),
         "saw 1 after 2 was acknowledged"),
        (lambda j, log, rows: j["keyed-read-1"][0].update(read="vacuumed"), "and it is not"),
        (lambda j, log, rows: j["keyed-upsert-1"][1].update(version=2), "was acknowledged as"),
        (lambda j, log, rows: j["keyed-upsert-1"].append({"error": "Traceback"}), "Traceback"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(run, change, says):
    assert any(says in line for line in found(run, change))
