"""How hypothesis draws: quick and the same at every run by default, thorough and fresh on demand.

`EVENTLOG_EXAMPLES=2000` runs every property with so many fresh examples.
"""

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

EXAMPLES = int(os.environ.get("EVENTLOG_EXAMPLES", "0"))  # 0: those of the default run
_BOTH = {
    "phases": [Phase.explicit, Phase.generate, Phase.shrink],
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}


def load_profile():
    """Load the profile of this run.

    Hypothesis mixes constants into what it draws that it finds in the modules which happen to be
    loaded, and so draws other values where other tests ran before. The default run does without.
    """
    if EXAMPLES:
        settings.register_profile("thorough", max_examples=EXAMPLES, **_BOTH)
        settings.load_profile("thorough")
        return
    settings.register_profile("quick", max_examples=10, derandomize=True, database=None, **_BOTH)
    settings.load_profile("quick")
    providers._get_local_constants = lambda: providers._local_constants


def examples(default):
    """Return how many examples to run where the profile's number does not fit."""
    return max(default, EXAMPLES)
