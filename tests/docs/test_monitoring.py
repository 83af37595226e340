"""The page on monitoring names each metric that there is, and its alarms use no other."""

import re

import pytest
import yaml
from support import builders
from tidy.definitions import TESTS

from eventlog.compaction import run
from eventlog.monitoring.prometheus import gauges
from eventlog.replication import follow
from eventlog.telemetry.signals import COUNTERS
from eventlog.writers import upsert

PAGE = (TESTS.parent / "docs" / "guides" / "monitoring.md").read_text(encoding="utf-8")
OF_THE_TIMER = "eventlog_fsck_exit_code"


@pytest.fixture(scope="module")
def metrics(tmp_path_factory):
    """The metrics of a keyed table with a copy, and with segments that vacuum keeps, by name."""
    t = builders.create(key="name", buckets=1)
    for _ in range(2):
        upsert(t, builders.events(2))
    run(t)
    follow(t, tmp_path_factory.mktemp("copies") / "copy", name="dr", clock=t.clock)
    return {f"eventlog_{gauge.name}": gauge for gauge in gauges(t.stats(vacuum=True))}


def test_the_page_has_every_metric_with_its_text_and_labels(metrics):
    rows = re.findall(r"^\| `(eventlog_\w+)` \| (.+) \|$", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == [*metrics, OF_THE_TIMER]
    for name, text in rows[:-1]:
        gauge = metrics[name]
        assert text.startswith(gauge.text.rstrip("."))
        assert set(re.findall("`(.+?)`", text)) == set(gauge.samples[0][0])


def test_alarms_are_rules_over_metrics_that_there_are(metrics):
    rules = yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])["groups"][0][
        "rules"
    ]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 8
    for rule in rules:
        used = set(re.findall(r"\beventlog_\w+", rule["expr"]))
        assert used, rule
        assert used <= {*metrics, OF_THE_TIMER}, rule
        shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        known = {"table"}.union(*(metrics[name].samples[0][0] for name in used & set(metrics)))
        assert shown <= known, rule


def test_the_page_has_every_counter():
    rows = re.findall(r"^\| `eventlog\.(\w+)` \| (\S+) \| (.+) \|$", PAGE, re.MULTILINE)
    assert {name: (unit, text) for name, unit, text in rows} == COUNTERS
