"""What the operator of a table watches: its size, its upkeep, its copies, and what it costs.

`gathering` begins with `stats`, which asks the log, the planner of compaction and, if wanted, a
vacuum that deletes nothing. `table_stats` has the values that come out, `daily` the rates and
requests that the history of commits gives, `prices` what these cost, and `prometheus` their text
for a collector. Nothing here writes.
"""

from eventlog.monitoring.gathering import stats
from eventlog.monitoring.table_stats import TableStats

__all__ = ["TableStats", "stats"]
