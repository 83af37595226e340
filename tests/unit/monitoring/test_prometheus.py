"""The metrics of a table in Prometheus' text format, as its own parser reads them."""

import pytest
from support import builders

from eventlog.compaction import run
from eventlog.monitoring.prometheus import exposition
from eventlog.replication import follow
from eventlog.writers import append, upsert

parser = pytest.importorskip("prometheus_client.parser")


def parsed(text):
    """The samples of a text by name, each with its labels and value."""
    families = list(parser.text_string_to_metric_families(text))
    assert all(family.type == "gauge" and family.documentation for family in families)
    return {family.name: [(s.labels, s.value) for s in family.samples] for family in families}


@pytest.fixture
def table(tmp_path):
    """A table with a pin, a copy that lags, and segments that a compaction has dropped."""
    t = builders.create()
    for _ in range(3):
        append(t, builders.events(5))
    run(t)
    follow(t, tmp_path / "copy", name="dr", clock=t.clock)
    t.pin("audit", 2)
    append(t, builders.events(5))
    return t


def test_values_are_those_of_the_stats(table):
    found = table.stats(vacuum=True)
    metrics, label = parsed(exposition(found)), {"table": table.uri}
    expected = {
        "version": found.version, "segments": 2, "rows": 20, "bytes": found.bytes,
        "small_segments": 2, "horizon_version": 0, "retention_seconds": 168 * 3600,
        "compaction_saved_segments": found.compaction.saved,
        "commit_timestamp_seconds": found.time.timestamp(),
        "horizon_timestamp_seconds": found.horizon_time.timestamp(),
        "commits_per_day": found.daily.commits,
    }  # fmt: skip
    assert {name: metrics[f"eventlog_{name}"] for name in expected} == {
        name: [(label, value)] for name, value in expected.items()
    }
    assert metrics["eventlog_copy_behind_versions"] == [({**label, "name": "dr"}, 4)]
    assert metrics["eventlog_requests_per_day"][0][0] == {**label, "kind": "put"}
    assert {labels["name"] for labels, _ in metrics["eventlog_held_version"]} == {"audit", "dr"}
    assert sum(value for _, value in metrics["eventlog_retained_bytes"]) > 0


def test_metrics_of_what_a_table_lacks_are_absent(table):
    plain = set(parsed(exposition(table.stats())))
    assert not plain & {"eventlog_log_segments", "eventlog_vacuum_bytes", "eventlog_retained_bytes"}
    keyed = builders.create(key="name", buckets=1)
    upsert(keyed, builders.events(4))
    assert parsed(exposition(keyed.stats()))["eventlog_log_segments"][0][1] == 1


def test_names_of_others_stay_values_of_labels(table):
    name = 'a"} 1\neventlog_rows{x="\\'
    table.pin(name, 2)
    text = exposition(table.stats())
    assert parsed(text).keys() == parsed(exposition(table.stats())).keys()
    assert [value for _, value in parsed(text)["eventlog_rows"]] == [20]
    named = [labels["name"] for labels, _ in parsed(text)["eventlog_held_version"]]
    assert name.replace("\n", r"\n") in named
    assert text.endswith("\n")


def test_ages_are_differences_of_two_metrics(table):
    table.clock.advance(2 * 3600 * 1000)
    metrics = parsed(exposition(table.stats()))
    now, commit = (
        metrics[f"eventlog_{name}_timestamp_seconds"][0][1] for name in ("stats", "commit")
    )
    assert 7199 < now - commit <= 7200
    assert metrics["eventlog_copy_behind_seconds"][0][1] == pytest.approx(7200, abs=1)
