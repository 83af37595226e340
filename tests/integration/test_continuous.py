"""Compaction beside appends that never pause: nobody fails, and no row is lost or doubled."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import continuous
import pytest
import racers

from compaction import plan, run
from eventlog import Table
from eventlog.fsck import fsck
from readers import scan

WRITERS = 4
BLOCKS = 12
MINUTE = float(os.environ.get("EVENTLOG_SOAK_MINUTES", "1")) * 60


def create(uri, options):
    Table.create(uri, continuous.SCHEMA, time_column="at", storage_options=options)


def check_rows(uri, options, blocks, rows):
    """Every acknowledged row is there once, and the log adds up."""
    table = Table.open(uri, options)
    wanted = [n for w, count in enumerate(blocks) for n in continuous.ids_of(w, count, rows)]
    found = scan(table, columns=["id"]).to_table().column("id").to_pylist()
    assert len(found) == len(wanted)
    assert set(found) == set(wanted)
    assert table.head().totals.rows == len(wanted)
    report = fsck(table)
    assert not report.findings, report.findings
    return table


def check_at_rest(table):
    """With nobody about, one more pass leaves nothing to do: a segment a day."""
    run(table)
    assert not plan(table).tasks
    assert table.head().totals.segments == continuous.DAYS


def test_appends_and_compactions_without_a_pause(root_uri):
    create(root_uri, None)
    start = Barrier(WRITERS + 1)
    with ThreadPoolExecutor(WRITERS) as pool:
        appending = [
            pool.submit(
                continuous.append_all_the_time, n, start, lambda done: done >= BLOCKS, root_uri,
                None, rows=10,
            )
            for n in range(WRITERS)
        ]  # fmt: skip
        compactions = continuous.compact_all_the_time(
            start, lambda _: all(future.done() for future in appending), root_uri, None
        )
        blocks = [future.result() for future in appending]

    assert blocks == [BLOCKS] * WRITERS
    assert compactions.statuses
    assert set(compactions.statuses) == {"done"}, compactions.errors
    assert len(compactions.tries) == len(compactions.statuses)
    check_at_rest(check_rows(root_uri, None, blocks, 10))


@pytest.mark.soak
@pytest.mark.timeout(0)  # its length is given: EVENTLOG_SOAK_MINUTES
@pytest.mark.parametrize("place", ["s3", "directory"])
def test_every_compaction_lands_at_its_first_or_second_try(place, request, tmp_path, capsys):
    uri, options, environment = str(tmp_path / "table"), None, None
    if place == "s3":
        server = request.getfixturevalue("s3")
        uri = f"s3://{request.getfixturevalue('bucket')}/table"
        options, environment = server.storage_options(), server.environment()
    create(uri, options)

    arguments = (WRITERS, continuous.Seconds(MINUTE), uri, options, 100)
    *blocks, compactions = racers.run(
        continuous.work, WRITERS + 1, *arguments, environment=environment, seconds=MINUTE + 120
    )

    spread = {n: compactions.tries.count(n) for n in sorted(set(compactions.tries))}
    with capsys.disabled():
        sys.stdout.write(f"\n{place}: appends {blocks}, compactions by tries {spread}\n")
    assert len(compactions.statuses) >= 10
    assert set(compactions.statuses) == {"done"}, compactions.errors
    check_at_rest(check_rows(uri, options, blocks, 100))
    assert max(compactions.tries) <= 2, spread
