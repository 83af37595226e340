"""What the tests of crash points and random histories share."""

import pytest
from support.crashes import quick


@pytest.fixture(scope="module")
def in_turn():
    """No threads of eventlog run, so that an operation makes the same calls in the same order."""
    with quick():
        yield
