"""Random changes of checks and columns of logs that merge each other: all end up with the same."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.merged_schemas import play_schemas


@pytest.mark.sample(3, verify=5)
@pytest.mark.parametrize("seed", range(12))
def test_logs_that_merge_each_other_end_up_with_one_schema(seed):
    assert play_schemas(seed).counts["merge"] > 0


@pytest.mark.long
@settings(max_examples=200)
@given(st.integers(100, 2**40))
def test_and_so_do_logs_of_other_histories(seed):
    play_schemas(seed)
