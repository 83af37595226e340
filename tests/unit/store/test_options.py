"""Parsing of storage options."""

import pickle

import pytest

from eventlog.errors import InvalidInput
from eventlog.store.options import NAMES, StoreOptions, parse_options


def test_none_given():
    assert parse_options(None) == parse_options({}) == StoreOptions()


@pytest.mark.parametrize("spelling", ["{}", "aws_{}", "AWS_{}", "Aws_{}"])
def test_any_case_and_prefix(spelling):
    given = {
        "endpoint_url": "http://127.0.0.1:1",
        "access_key_id": "a",
        "secret_access_key": "b",
        "session_token": "c",
        "region": "eu-west-1",
        "profile": "p",
    }
    assert set(given) == set(NAMES)
    parsed = parse_options({spelling.format(name): value for name, value in given.items()})
    assert parsed == StoreOptions(**given)
    upper = {spelling.format(name).upper(): value for name, value in given.items()}
    assert parse_options(upper) == parsed


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InvalidInput, match="'regoin' is unknown") as caught:
        parse_options({"regoin": "x"})
    for name in NAMES:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        {"region": ""},
        {"region": None},
        {"region": 7},
        {"region": "a", "AWS_REGION": "b"},
        {"access_key_id": "hidden-id"},
        {"secret_access_key": "hidden-key"},
        {"session_token": "hidden-token"},
        {"endpoint_url": "hidden-host:9000"},
    ],
)
def test_what_makes_no_sense_is_refused_without_showing_values(given):
    with pytest.raises(InvalidInput) as caught:
        parse_options(given)
    assert "hidden" not in str(caught.value)


def test_the_same_value_twice_is_fine():
    assert parse_options({"region": "a", "AWS_REGION": "a"}).region == "a"


def test_secrets_do_not_show():
    options = parse_options(
        {"access_key_id": "hidden1", "secret_access_key": "hidden2", "session_token": "hidden3"}
    )
    assert "hidden" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
