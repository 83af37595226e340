"""The verbs that keep a table: fsck with its options, pin, unpin, pins, restore."""

import json
from datetime import timedelta

import pyarrow as pa
import pytest
from click.testing import CliRunner
from support import builders

from eventlog import Table
from eventlog.cli.program import build
from eventlog.clock import ManualClock
from eventlog.format import keys
from eventlog.model.actions import Horizon
from eventlog.store.local import LocalStore
from eventlog.table.leases import RENEW_S
from eventlog.writers import append, overwrite


def run(*arguments):
    return CliRunner().invoke(build(), [str(a) for a in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result


def document(*arguments):
    return json.loads(done(*arguments, "--json").stdout)


@pytest.fixture
def table(tmp_path):
    """Two appends of two days each, a key frame at every second version."""
    store = LocalStore(str(tmp_path / "t"))
    made = builders.create(store, properties={"keyframe_commits": "2"})
    append(made, builders.events(2, days=2))
    append(made, builders.events(2, day=5, days=2))
    return made


# ----------------------------------------------------------------------------- stats


def test_stats_for_people_programs_and_prometheus(table):
    table.pin("audit", 1)
    shown = done("stats", table.uri, "--vacuum", "--target-mb", 1).stdout
    for part in ("4 rows, ", "4 segments below 786 kB", "from version 0 on", "pin      audit  "):
        assert part in shown
    found = document("stats", table.uri)
    assert (found["table"], found["version"], found["rows"]) == (table.uri, 3, 4)
    assert found["holds"] == [{"kind": "pin", "name": "audit", "version": 1}]
    assert found["vacuum"] is None
    metrics = done("stats", table.uri, "--prometheus").stdout
    assert f'\neventlog_version{{table="{table.uri}"}} 3\n' in metrics
    both = run("stats", table.uri, "--prometheus", "--json")
    assert both.exit_code == 2
    assert "not both" in both.stderr


# ------------------------------------------------------------------------------ pins


def test_pin_unpin_and_pins(table):
    assert document("pin", table.uri, "audit", 1) == {
        "table": table.uri, "version": 3, "committed": True, "name": "audit", "pinned": 1,
    }  # fmt: skip
    assert "protects version 3" in done("pin", table.uri, "newest", "--owner", "ci").stdout
    found = document("pins", table.uri)
    assert [(p["name"], p["pinned"]) for p in found] == [("audit", 1), ("newest", 3)]
    assert found[1].keys() == {"name", "pinned", "owner", "token", "time"}
    header, first, second = done("pins", table.uri).stdout.splitlines()
    assert header.split() == ["name", "version", "owner", "since"]
    assert (first.split()[:2], second.split()[:3]) == (["audit", "1"], ["newest", "3", "ci"])
    assert "is removed" in done("unpin", table.uri, "audit").stdout
    assert list(table.refresh().meta.pins) == ["newest"]


def test_somebody_elses_pin_needs_break(table):
    done("pin", table.uri, "theirs", "--owner", "them")
    refused = run("unpin", table.uri, "theirs")
    assert refused.exit_code == 3
    assert "them" in refused.stderr
    assert run("unpin", table.uri, "theirs", "--break", "--owner", "them").exit_code == 2
    removed = document("unpin", table.uri, "theirs", "--break")
    assert (removed["name"], removed["broken"]) == ("theirs", True)
    assert table.refresh().meta.pins == {}
    assert run("unpin", table.uri, "theirs").exit_code == 2


def test_claims_are_listed_and_broken(table):
    lease = table.claim("2013-01-07", "2013-01-08", group="night", owner="ci")
    everything = table.claim(kind="shared", owner="audit", start="2014-01-01")
    found = document("claims", table.uri)
    assert [(c["id"], c["owner"], c["kind"]) for c in found] == [
        (lease.id, "ci", "exclusive"),
        (everything.id, "audit", "shared"),
    ]
    shown = done("claims", table.uri).stdout
    assert "2013-01-07 00:00:00Z to 2013-01-08 00:00:00Z" in shown
    assert "2014-01-01 00:00:00Z to the end" in shown
    answer = document("claims", table.uri, "--break", lease.id, "--silent", 0)
    assert (answer["id"], answer["broken"]) == (lease.id, True)
    assert list(table.claims()) == [everything.id]
    assert run("claims", table.uri, "--break", lease.id).exit_code == 2


class Alive(ManualClock):
    """The clock of who watches a holder that renews as often as it has to."""

    def __init__(self, lease):
        super().__init__(builders.START_MS, 9)
        self._lease, self.renewals = lease, 0

    def sleep(self, seconds):
        super().sleep(seconds)
        if self.elapsed_s() >= RENEW_S * (self.renewals + 1):
            self.renewals += 1
            self._lease.renew()


@pytest.mark.hazard("K3")
def test_k3_the_watch_that_nobody_asked_for_otherwise_spares_who_is_alive(table, monkeypatch):
    lease = table.claim("2013-01-07", "2013-01-08")
    clock = Alive(lease)
    monkeypatch.setattr("eventlog.cli.place.Place.open", lambda _: Table(table.store, clock))
    refused = run("claims", table.uri, "--break", lease.id)
    assert refused.exit_code == 3
    assert "its holder is alive" in refused.stderr
    assert lease.held()
    clock.renewals = 10**9  # from now on it is dead
    done("claims", table.uri, "--break", lease.id)
    assert not table.claims()
    assert clock.elapsed_s() >= 4 * RENEW_S


def test_taken_name_is_a_conflict(table):
    done("pin", table.uri, "audit", 1)
    assert run("pin", table.uri, "audit", 2).exit_code == 3
    assert run("pin", table.uri, "later", 99).exit_code == 1


# ------------------------------------------------------------------------------ restore


def test_restore(table):
    assert table.session.head().totals.segments == 4
    dry = done("restore", table.uri, 1, "--dry-run").stdout
    assert "drops 2 segments, brings back 0 segments" in dry
    assert "takes back what version 2 did to rows, right loads included" in dry
    assert "nothing was committed" in dry
    assert table.refresh().version == 2
    assert "version 3: done" in done("restore", table.uri, 1).stdout
    assert table.refresh().totals.segments == 2
    assert "nothing to do" in done("restore", table.uri, 1).stdout
    answer = document("restore", table.uri, 2)
    numbers = {"restored", "from", "version", "adds", "drops", "vectors", "rows", "bytes"}
    numbers |= {"table", "committed"}
    assert answer.keys() == numbers | {"undone_units", "units_forgotten"}
    assert (answer["from"], answer["version"], answer["adds"], answer["rows"]) == (3, 4, 2, 2)


def test_dry_run_commits_nothing(table):
    assert document("restore", table.uri, 1, "--dry-run")["committed"] is False
    assert table.refresh().version == 2


def test_restore_of_a_vacuumed_version(table):
    builders.commit(table, Horizon(2), operation="vacuum")
    answer = run("restore", table.uri, 1, "--json")
    assert answer.exit_code == 1
    assert json.loads(answer.stderr)["error"]["type"] == "VersionVacuumed"
    assert run("restore", table.uri, 99).exit_code == 1


# ------------------------------------------------------------------------------ drop


def test_drop_shows_and_with_run_drops(table):
    first, second, *_ = table.snapshot().segments()
    table.store.delete([keys.key_of(first)])
    asked = ("drop", table.uri, keys.key_of(first), second.id)
    shown = done(*asked)
    assert "nothing was changed" in shown.stderr
    gone, there = shown.stdout.splitlines()[1:]
    assert (gone.split()[0], gone.split()[-1]) == (keys.key_of(first), "lost")
    assert (there.split()[0], there.split()[-1]) == (keys.key_of(second), "intact")
    dry = document(*asked)
    assert dry["committed"] is False
    assert [(s["id"], s["intact"]) for s in dry["dropped"]] == [
        (first.id, False),
        (second.id, True),
    ]
    assert len(table.refresh().segments()) == 4
    assert "version 3: dropped" in done(*asked, "--run", "--reason", "no copy left").stderr
    assert len(table.refresh().segments()) == 2
    assert "no copy left" in done("show", table.uri, 3).stdout


def test_drop_undoes_a_load_by_its_version(table):
    append(table, builders.events(4, day=9, first=10, days=2))
    append(table, builders.events(1, day=12))
    table.delete(where="name = 'row 10'")
    shown = done("drop", table.uri, "--version", 3).stderr
    assert "--run drops 2 segments with 3 rows\n" in shown
    assert "1 row more deleted or updated before" in shown
    answer = done("drop", table.uri, "--version", 3, "--run", "--reason", "wrong file")
    assert "version 6: dropped 2 segments with 3 rows\n" in answer.stderr
    assert {s.version for s in table.refresh().segments()} == {1, 2, 4}


def test_drop_refuses_what_is_not_live_and_a_run_without_a_reason(table):
    segment = table.snapshot().segments()[0].id
    for asked, message in (
        ([segment, "--run"], "--reason"),
        ([segment, "0" * 32, "--run", "--reason", "x"], "not a live segment of version 2"),
        ([], "give either SEGMENTs or --version"),
        ([segment, "--version", 1], "give either SEGMENTs or --version"),
        (["--version", 0], "added no segment"),
    ):
        answer = run("drop", table.uri, *asked)
        assert answer.exit_code == 2, answer.output
        assert message in answer.stderr
    assert table.refresh().version == 2


def test_verbs_of_other_programs_lead_to_those_of_this_one():
    for word, verb in (
        ("undo", "drop --version"),
        ("history", "eventlog log"),
        ("rename", "rename"),
    ):
        answer = run(word, "x")
        assert answer.exit_code == 2
        assert f"No such command {word!r}: see eventlog " in answer.stderr
        assert verb in answer.stderr


# ------------------------------------------------------------------------------ fsck


def test_fsck_repairs(table):
    append(table, builders.events(1))
    (key,) = [keys.keyframe_key(v) for v in (1,)]
    table.store.delete([key])
    text = done("fsck", table.uri).stdout
    assert "1 missing" in text
    assert "no errors" in text
    told = done("fsck", table.uri, "--repair").stdout
    assert f"{key}: written" in told
    assert "1 repaired" in told
    assert document("fsck", table.uri)["findings"] == []


def test_fsck_json_of_findings_and_leftovers(table):
    lost = keys.key_of(table.session.head().segments()[0])
    table.store.delete([lost])
    assert table.store.put_if_absent(keys.segment_key(0, "2013-01-07", "a" * 32), b"???")
    answer = run("fsck", table.uri, "--json")
    assert answer.exit_code == 4
    report = json.loads(answer.stdout)
    assert (report["ok"], report["errors"], report["warnings"]) == (False, 1, 0)
    (finding,) = report["findings"]
    assert finding.keys() == {"severity", "message", "key", "version", "repaired"}
    assert finding["key"] == lost
    staged = [x for x in report["leftovers"] if x["place"] == "data/"]
    assert staged == [
        {
            "place": "data/",
            "kind": "staged",
            "objects": 1,
            "bytes": 3,
            "example": keys.segment_key(0, "2013-01-07", "a" * 32),
        }
    ]
    assert document("fsck", table.uri, "--log-only")["segments"] is None


def test_fsck_repairs_json_keys(table):
    append(table, builders.events(1))
    table.store.delete([keys.keyframe_key(1)])
    (repair,) = document("fsck", table.uri, "--repair")["repairs"]
    assert repair.keys() == {"key", "version", "done", "message"}
    assert (repair["version"], repair["done"]) == (1, True)


def test_fsck_from_a_keyframe_and_at_a_version(table):
    assert document("fsck", table.uri, "--from", 1)["start"] == 1
    assert document("fsck", table.uri, "--version", 1)["segments"] == 2
    assert run("fsck", table.uri, "--from", 0).exit_code == 2
    assert run("fsck", table.uri, "--from", 1, "--version", 0).exit_code == 2
    assert "key frame of version 1" in done("fsck", table.uri, "--from", 1).stdout


def test_fsck_opens_what_open_refuses(table):
    table.store.delete([keys.commit_key(1)])
    with pytest.raises(Exception, match="eventlog fsck"):
        Table.open(table.uri).refresh()
    assert run("fsck", table.uri).exit_code == 4


# -------------------------------------------------------------------------- branches


def test_branch_branches_and_the_option_of_every_command(table, tmp_path):
    made = document("branch", table.uri, "audit")
    assert made == {
        "table": table.uri,
        "version": table.refresh().version,
        "committed": True,
        "name": "audit",
        "branch": f"{table.uri}/_branches/audit",
        "fork": 3,
    }
    assert "begins with version 1" in done("branch", table.uri, "old", "--at", "1").stdout
    branch = Table.open(table.uri, branch="audit")
    append(branch, builders.events(1))
    assert document("fsck", table.uri, "--branch", "audit")["version"] == 4
    assert document("log", made["branch"])[0]["version"] == 4
    nested = document("branch", table.uri, "2", "--branch", "audit")
    assert nested["branch"] == f"{made['branch']}/_branches/2"
    found = document("branches", table.uri)
    kept = {"pin_only": False, "damage": None}
    assert found == [
        {"name": "audit", "fork": 3, "head": 5, "held": True, "unfinished": False, **kept},
        {"name": "old", "fork": 1, "head": 1, "held": True, "unfinished": False, **kept},
    ]
    refused = run("branch", table.uri, "audit", "--delete")
    assert (refused.exit_code, "delete 2" in refused.stderr) == (2, True)
    old = tmp_path / "t" / "_branches" / "old"
    (old / "_fork.json").rename(old / "what-a-deletion-left")
    table.break_pin("branch:audit")
    shown = done("branches", table.uri)
    assert shown.stdout.split() == [
        *("name", "fork", "head", "state", "audit", "3", "5", "not", "held:", "the", "next"),
        *("vacuum", "pins", "it", "again", "(eventlog", "fsck)", "old", "unfinished"),
    ]
    assert "unfinished: `eventlog branch URI NAME` goes on" in shown.stderr
    assert "only a pin" not in shown.stderr
    done("branch", made["branch"], "2", "--delete")
    gone = document("branch", table.uri, "audit", "--delete")
    assert (gone["name"], gone["committed"]) == ("audit", True)
    assert "is deleted" in done("branch", table.uri, "old", "--delete").stdout
    assert document("branches", table.uri) == []


def test_a_copy_has_pins_of_branches_that_its_source_has(table, tmp_path):
    done("branch", table.uri, "audit")
    done("replicate", table.uri, str(tmp_path / "copy"))
    shown = done("branches", str(tmp_path / "copy"))
    assert shown.stdout.split() == [
        *("name", "fork", "head", "state", "audit"),
        *["only", "a", "pin"],
    ]
    assert "its source has the branch" in shown.stderr
    assert "unfinished:" not in shown.stderr
    assert done("branches", table.uri).stderr == ""


def test_wrong_branches_are_told(table):
    assert run("branch", table.uri, "a/b").exit_code == 2
    assert run("branch", table.uri, "a", "--delete", "--at", "1").exit_code == 2
    missing = run("show", table.uri, "--branch", "none")
    assert missing.exit_code == 1
    assert f"`eventlog branch {table.uri} none`" in missing.stderr
    done("branch", table.uri, "a")
    assert run("branch", table.uri, "a").exit_code == 3


# ------------------------------------------------------------------------------ vacuum


def test_vacuum_says_what_it_keeps_and_for_how_long(tmp_path):
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("name", pa.string())])
    properties = {"inline_bytes": "0"}
    table = Table.create(tmp_path / "now", schema, time_column="at", properties=properties)
    append(table, pa.table([[0], ["a"]], schema=schema))
    overwrite(table, pa.table([[1], ["b"]], schema=schema))
    shown = done("vacuum", table.uri, "--retention-hours", 5, "--staging-hours", 1.5).stdout
    assert "stay readable for 5 hours" in shown
    [dropped] = table.history(limit=1)
    until = (dropped.time + timedelta(hours=5)).strftime("%Y-%m-%dT%H:%M:%S")
    assert f"the last of these objects until {until}" in " ".join(shown.split())
    document = json.loads(done("vacuum", table.uri, "--retention-hours", 5, "--json").stdout)
    assert document["kept_until"].startswith(until)
    append(table, pa.table([[2], ["c"]], schema=schema))  # drops nothing
    again = json.loads(done("vacuum", table.uri, "--retention-hours", 5, "--json").stdout)
    assert again["kept_until"] == document["kept_until"]
    later = done("vacuum", table.uri, "--retention-hours", 0, "--staging-hours", 1.5).stdout
    assert "uploads that may still be committed" in later
    assert "until" not in later
    assert "for 1.5 hours after the upload began" in later


def test_counts_below_the_horizon_are_refused_as_their_rows_are(table):
    overwrite(table, builders.events(1, day=20), start="1970-01-01", end="2100-01-01")
    done("vacuum", table.uri, "--run", "--retention-hours", 0, "--staging-hours", 0)
    refused = run("scan", table.uri, "--count", "--version", 1, "--json")
    assert refused.exit_code == 1
    assert json.loads(refused.stderr)["error"]["type"] == "VersionVacuumed"


# ------------------------------------------------------------------------------ tags


def test_tag_untag_and_tags(table):
    assert document("tag", table.uri, "audit", "--version", 1) == {
        "table": table.uri, "version": 3, "committed": True, "name": "audit", "tagged": 1,
    }  # fmt: skip
    assert "tag newest names version 3" in done("tag", table.uri, "newest").stdout
    found = document("tags", table.uri)
    assert [(tag["name"], tag["tagged"]) for tag in found] == [("audit", 1), ("newest", 3)]
    header, first, second = done("tags", table.uri).stdout.splitlines()
    assert header.split() == ["tag", "version", "since"]
    assert (first.split()[:2], second.split()[:2]) == (["audit", "1"], ["newest", "3"])
    assert "is removed" in done("untag", table.uri, "audit").stdout
    assert table.tags() == {"newest": 3}


def test_verbs_take_a_tag_for_a_version(table):
    table.tag("audit", 1)
    counted = document("scan", table.uri, "--version", "audit", "--count")
    assert (counted["version"], counted["rows"]) == (1, 2)
    assert document("show", table.uri, "audit")["version"] == 1
    assert {document("diff", table.uri, "audit", 2)[end] for end in ("from", "to")} == {1, 2}
    assert document("restore", table.uri, "audit", "--dry-run")["restored"] == 1
    assert len(done("changes", table.uri, 0, "audit", "--json").stdout.splitlines()) == 2
    assert len(document("log", table.uri, "--start", "audit")) == 2
    refused = run("scan", table.uri, "--version", "unknown")
    assert refused.exit_code == 1
    assert "tags: audit (1)" in refused.output
    assert run("scan", table.uri, "--version", "-1").exit_code == 2


# ------------------------------------------------------------------------------ log, diff


def test_log_lists_the_versions_that_are_asked_for(table):
    def listed(*options):
        return [entry["version"] for entry in document("log", table.uri, *options)]

    assert listed("--operation", "append") == [2, 1]
    assert listed("--chunk", "1970-01-07", "--limit", 5) == [2]
    assert listed("--app", "none") == []
    assert listed("--until", "2000-01-01") == []
    assert run("log", table.uri, "--chunk", "x").exit_code == 2


def test_diff_lists_changed_rows(table):
    lines = done("diff", table.uri, 1, 2, "--rows", "--json").stdout.splitlines()
    found = [(row["_change"], row["_version"]) for row in map(json.loads, lines)]
    assert found == [("insert", 2)] * 2
    assert run("diff", table.uri, 0, 1, "--rows", "--chunks").exit_code == 2


def test_diff_sums_by_chunk(table):
    found = document("diff", table.uri, 0, 2, "--chunks")
    assert [row["chunk"] for row in found] == [
        "1970-01-01", "1970-01-02", "1970-01-06", "1970-01-07",
    ]  # fmt: skip
    assert found[0]["added"]["rows"] == found[0]["added"]["segments"] == 1
    assert found[0]["dropped"] == {"segments": 0, "rows": 0, "bytes": 0}
    back = document("diff", table.uri, 2, 1, "--chunks")
    assert [row["dropped"]["rows"] for row in back] == [1, 1]
    header, first, *_ = done("diff", table.uri, 0, 1, "--chunks", "--wide").stdout.splitlines()
    assert header.split()[:2] == ["chunk", "added"]
    assert first.split()[:3] == ["1970-01-01", "1", "1"]
