"""Hypothesis profiles: quick and deterministic by default, thorough and fresh on demand.

`EVENTLOG_EXAMPLES=2000` runs every property with that many fresh examples.
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

    Hypothesis also draws constants that it finds in loaded modules, so its values depend on which
    tests ran before. The default run disables that.
    """
    if EXAMPLES:
        settings.register_profile("thorough", max_examples=EXAMPLES, **_BOTH)
        settings.load_profile("thorough")
        return
    settings.register_profile("quick", max_examples=6, derandomize=True, database=None, **_BOTH)
    settings.load_profile("quick")
    providers._get_local_constants = lambda: providers._local_constants


def examples(default):
    """Return the number of examples for a property with its own default."""
    return max(default, EXAMPLES)
