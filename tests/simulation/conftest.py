"""What the tests of the simulation share."""

import pytest
from simulation.scheduler import one_thread


@pytest.fixture(scope="module")
def in_turn():
    """No threads of eventlog run: the scheduler alone decides what happens when."""
    with one_thread():
        yield
