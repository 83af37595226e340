"""Whose value of a setting counts where two sides changed it."""

import pytest
from support.acts import Log

from eventlog.merging.planning.merged_settings import decisions, settings_of

NAME = "user.colour"


def choice(source, target, start=None):
    """What is decided for the target where the sides set these values, one after the other."""
    logs = Log("a"), Log("b")
    for log, values in zip(logs, (source, target), strict=True):
        for value in ([start] if start else []) + values:
            log.set(NAME, value)
        del log.steps[: 1 if start else 0]
    one, two = logs
    changes = [settings_of(act for step in log.steps for act in step.acts) for log in logs]
    return decisions(*changes, one.meta, two.meta)[NAME].choice


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (["red"], [], "take"),
        (["red"], ["blue"], "conflict"),
        (["red", "blue"], ["red"], "take"),  # it went on
        (["red"], ["red", "blue"], "keep"),
        (["red", "blue"], ["blue", "red"], "conflict"),
        (["red", None], ["blue"], "keep"),  # it tried, and went back
        (["blue"], ["red", None], "take"),
    ],
)
def test_a_side_that_went_on_or_alone_decided_counts(source, target, expected):
    assert choice(source, target) == expected


def test_a_value_from_before_is_gone_back_to():
    assert choice(["red", "green"], ["blue"], start="green") == "keep"
    assert choice(["blue"], ["red", "green"], start="green") == "take"


def test_only_what_the_source_changed_is_decided():
    one, two = Log("a"), Log("b")
    two.set(NAME, "red")
    changes = settings_of(act for step in two.steps for act in step.acts)
    assert decisions({}, changes, one.meta, two.meta) == {}


def test_what_both_logs_have_stands_for_what_came_before_it():
    log = Log("a")
    first, second = log.set(NAME, "red"), log.set(NAME, "blue")
    shared = {first.commit}
    changes = settings_of([first, second], lambda act: act.commit in shared)
    assert [change.new for change in changes[NAME]] == ["blue"]
    shared.add(second.commit)
    assert settings_of([first, second], lambda act: act.commit in shared)[NAME] == []
