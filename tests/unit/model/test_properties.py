"""Properties of a table and their bounds."""

import pytest

from eventlog.model import properties


@pytest.mark.parametrize(
    ("stored", "value"), [("5", 5), ("0", 1), ("99999", 1024), ("x", 64), ("-3", 64), ("²", 64)]
)
def test_stored_settings_are_brought_within_their_bounds(stored, value):
    assert properties.setting({"keyframe_commits": stored}, "keyframe_commits") == value


def test_defaults_lie_within_their_bounds():
    for name, rule in properties.SETTINGS.items():
        assert properties.setting({}, name) == rule.default
        properties.check_property(name, str(rule.default))
        properties.check_property(name, None)
