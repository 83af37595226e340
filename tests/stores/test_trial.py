"""The judgement of a store's trial, and its row. The servers run for `make test-stores`."""

import re
from collections import Counter

import boto3
import pytest
from stores import run, trial
from stores.servers import SERVERS
from stores.trial import Found, verdict


def found(**changes):
    """What a store did that keeps every promise, with some changes."""
    good = {"double": 0, "unwon": 0, "appends": 9, "commits": 5, "lost": 0, "doubled": 0}
    return Found(**good | changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "yes"),
        ({"refused": "this store ignores preconditions"}, "refused"),
        ({"double": 1}, "races"),
        ({"unwon": 1}, "races"),
        ({"lost": 1}, "loses"),
        ({"doubled": 1}, "loses"),
        ({"problems": ["the log has a gap"]}, "loses"),
        ({"no_vacuum": "501"}, "no vacuum"),
        ({"no_vacuum": "501", "lost": 1}, "loses"),
        ({"double": 1, "lost": 1}, "races"),
    ],
)
def test_a_store_has_the_first_of_its_faults(changes, expected):
    assert verdict(found(**changes)) == expected


def test_a_race_that_was_not_seen_is_no_surprise():
    assert run.is_expected("races", "yes")
    assert run.is_expected("races", "races")
    for expected in ("yes", "no vacuum", "refused"):
        assert not run.is_expected(expected, "races")
        assert not run.is_expected(expected, "loses")
    assert not run.is_expected("refused", "yes")  # it honours the condition now: change the page
    assert not run.is_expected("races", "loses")


@pytest.mark.usefixtures("s3")
def test_conditions_are_tried_on_an_object_that_stands_there():
    client = boto3.client("s3")
    client.create_bucket(Bucket=trial.BUCKET)
    assert trial.conditions(client) == {
        "PUT If-Match": "kept",
        "COPY If-None-Match": "kept",  # by the lock of this server; moto ignores it
        "DELETE If-Match": "kept",
    }


def test_a_row_has_what_was_seen():
    weed = SERVERS[0]
    seen = found(compactions=Counter(done=3, superseded=1), conditions={"PUT If-Match": "kept"})
    assert run.row(weed, seen) == (
        f"| {weed.name} {weed.version} | yes | 0 of 200 | 9 appends in 5 commits, 3 compactions: "
        "rows exact | PUT If-Match | tables |"
    )
    assert "ROWS WRONG" in run.row(weed, found(lost=1))
    refused = run.row(weed, Found(refused="it overwrites", conditions={"PUT If-Match": "ignored"}))
    assert refused.count(f"| {run.NOT_ASKED} ") == 2
    assert "| none |" in refused


def test_a_server_that_cannot_be_had_keeps_its_row():
    weed, gateway = SERVERS[:2]
    page = "\n".join(run.row(server, found()) for server in (weed, gateway))
    written = run.table({weed.name: run.row(weed, found(appends=10))}, page)
    assert "| 10 appends" in written
    assert run.row(gateway, found()) in written
    assert len(written.splitlines()) == 4


def test_the_page_has_a_row_of_every_server():
    page = run.PAGE.read_text(encoding="utf-8")
    for server in SERVERS:
        assert f"\n| {server.name} {run.version_of(server)} | " in page


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.name)
def test_servers_listen_on_this_machine_alone(server):
    places = [*server.command, *server.environment.values()]
    known = "localstack/start-host", "eventlog.store.testing.local_server"  # they say so themselves
    assert any("127.0.0.1" in place or place.endswith(known) for place in places)


def test_pins_are_exact():
    for server in SERVERS:
        if server.source != "here":
            assert re.fullmatch(r"v?\d+(\.\d+)+", server.version), server.name
    pins = (run.ROOT / "localstack" / "requirements.txt").read_text(encoding="utf-8")
    stack = next(server for server in SERVERS if server.source == "host")
    assert f"=={stack.version}" in pins


def test_ports_are_free_and_different():
    ports = run.free_ports(5)
    assert len(set(ports)) == 5
    assert set(ports) <= set(run.PORTS)
