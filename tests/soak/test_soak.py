"""A short soak run; the length is EVENTLOG_SOAK_MINUTES, the seed EVENTLOG_SOAK_SEED."""

import os
import secrets
import sys

import pytest
from soak import run
from soak.proxy import RATES

ENOUGH_MINUTES = 1


@pytest.mark.soak
@pytest.mark.timeout(0)  # a run ends by itself
def test_nothing_is_lost_or_doubled_while_everything_breaks(tmp_path, capsys):
    minutes = float(os.environ.get("EVENTLOG_SOAK_MINUTES", "1"))
    seed = int(os.environ.get("EVENTLOG_SOAK_SEED") or secrets.randbelow(10**9))

    outcome = run.soak(minutes, seed, tmp_path)

    with capsys.disabled():
        sys.stdout.write(f"\n{outcome.text()}\n")
    assert not outcome.violations, outcome.text()
    # Where nothing broke, nothing was tested; how much happens in a short time is the machine's.
    happened = (
        sum(outcome.faults.values()),
        sum(outcome.kills.values()),
        outcome.units["acknowledged"],
        outcome.versions,
        outcome.reads,
    )
    assert all(happened), outcome.text()
    assert len(outcome.workers) == 8
    assert outcome.keyed["versions"]
    if minutes >= ENOUGH_MINUTES:
        check_variety(outcome)


def check_variety(outcome):
    """In a longer run everything has happened."""
    assert outcome.faults.keys() == RATES.keys()
    assert all(outcome.faults.values()), outcome.text()
    assert sum(outcome.kills.values()) >= 2
    assert outcome.units["acknowledged"] >= 10
    assert outcome.versions >= 10
    assert outcome.reads >= 2
    assert all(outcome.workers.values()), outcome.text()
    wanted = {"append", "overwrite", "properties", "vacuum", "pin", "unpin"}
    assert wanted <= outcome.operations.keys(), outcome.text()
    assert outcome.keyframes >= 1
    assert sum(outcome.vacuumed.values()) >= 1
    for what in ("landed", "merges", "reads", "horizon"):
        assert outcome.keyed[what], outcome.text()
