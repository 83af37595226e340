"""One compaction of one table in a process of its own: `compact_once.py SYSTEM ROOT SCRATCH
MEMORY_BYTES ROWS_PER_FILE` (0: the default).

What it measures lies around the compaction alone: the libraries are loaded and have compacted a
small table in SCRATCH before, and the table is open. CPU counts every thread and every child that
has ended; memory is the high-water mark less what was resident at the start.
"""

import json
import resource
import sys
import time

import wide
from compactors import COMPACTORS
from harness import peak_rss_mb, reset_peak, rss_mb


def main():
    name, root, scratch, memory_bytes, rows_per_file = sys.argv[1:6]
    settings = {
        "memory_bytes": int(memory_bytes) or None,
        "rows_per_file": int(rows_per_file) or None,
    }
    warm_up(COMPACTORS[name](scratch), settings)
    system = COMPACTORS[name](root)
    system.attach()
    files_before = system.files()
    reset_peak()
    resident_mb = rss_mb()
    cpu, wall = cpu_s(), time.perf_counter()
    done = system.compact(**settings)
    told = {
        "cpu_s": cpu_s() - cpu,
        "wall_s": time.perf_counter() - wall,
        "grown_mb": peak_rss_mb() - resident_mb,
        "committed": done.committed,
        "failed": done.failed,
        "why": done.why,
        "files_before": files_before,
        "files": system.files(),
        "rows": system.rows(),
    }
    print(json.dumps(told))


def warm_up(system, settings):
    system.create_by_day(wide.SCHEMA)
    for rows in wide.tables(4000, days=2, rows_each=1000):
        system.append_files(rows, 500)
    system.attach()
    system.compact(**settings)


def cpu_s():
    """Return the CPU seconds of this process, its threads, and the children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
