"""Profiles of hypothesis: quick and repeatable by default, thorough on demand.

`EVENTLOG_EXAMPLES=2000` runs every property with so many fresh examples.
"""

import os

from hypothesis import HealthCheck, Phase, settings

_quiet = {
    "phases": [Phase.explicit, Phase.generate, Phase.shrink],
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
}
settings.register_profile("quick", max_examples=15, derandomize=True, database=None, **_quiet)
settings.register_profile(
    "thorough", max_examples=int(os.environ.get("EVENTLOG_EXAMPLES", "2000")), **_quiet
)
settings.load_profile("thorough" if "EVENTLOG_EXAMPLES" in os.environ else "quick")
