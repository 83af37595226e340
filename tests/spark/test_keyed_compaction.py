"""Slices that executors merge are those that a program merges by itself."""

from importlib import import_module

import pytest
from support.keyed_histories import check_answers, shapes, written
from support.keyed_tables import KINDS

from eventlog.compaction import Policy, plan, run
from eventlog.fsck.check import fsck

POLICY = Policy(target_bytes=4096, max_task_bytes=16384, small_task_bytes=0)


@pytest.mark.parametrize(
    ("kind", "root_uri"),
    [
        ("last", "s3"),
        *(pytest.param(kind, "local", marks=pytest.mark.long) for kind in KINDS),
    ],
    indirect=["root_uri"],
)
def test_executors_merge_what_this_process_would(spark, root_uri, kind, tmp_path, monkeypatch):
    here, _ = written((tmp_path / "here").as_uri(), kind)
    assert all(outcome.ok for outcome in run(here, policy=POLICY).outcomes)
    table, answers = written(root_uri, kind)

    def in_this_process(*_, **__):
        raise AssertionError("a task was performed in the driver's process")

    for name in ("execute", "runner", "spark"):
        module = import_module(f"eventlog.compaction.{name}")
        monkeypatch.setattr(module, "perform", in_this_process)
    report = run(table, driver="spark", policy=POLICY, spark=spark)
    assert [outcome.error for outcome in report.outcomes if outcome.error] == []
    assert report.count("done") == len(report.outcomes) > 0
    check_answers(table, answers)
    assert shapes(table) == shapes(here)
    assert plan(table, POLICY).tasks == ()
    assert fsck(table).ok
