"""Which worker runs what: one of them has the Spark session, and what takes long comes first.

Tests of one file stay on one worker, which share what the module's fixtures made.
"""

# The folders whose files take longest come first, so that no worker is left with one at the end.
_FIRST = ("simulation", "scenarios", "property", "integration", "tidy", "fuzz", "contract", "model")
# And of a folder those files that take ten seconds or more.
_LONG = (
    "unit/store/test_s3_faults.py",
    "unit/writers/test_files.py",
    "unit/cli/test_cli.py",
    "integration/test_s3_way.py",
    "integration/test_crash_pairs.py",
)

# A session of a minute ends before the optimizing compiler has paid; half of its time otherwise.
SHORT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def scope_of(nodeid):
    """Return what a test shares a worker with: its file, or everything that uses Spark.

    A session takes many seconds to start and a gigabyte, so that one worker has the only one.
    """
    return "spark" if "spark" in nodeid else nodeid.split("::", 1)[0]


def put_in_order(items):
    """Order the tests: those of the Spark session, which take longest, then by folder.

    Raises:
        ValueError: a test uses the session and does not have "spark" in its id; or workers could
            not agree on an id, because it names an address in memory.
    """
    for item in items:
        if " at 0x" in item.nodeid:
            raise ValueError(f"{item.nodeid} is another id in every process: give its values ids")
        if "spark" in getattr(item, "fixturenames", ()) and "spark" not in item.nodeid:
            raise ValueError(f"{item.nodeid} uses Spark: put the word into its name")
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid):
    if scope_of(nodeid) == "spark":
        return -1, False
    file = nodeid.split("::")[0]
    folders = file.split("/")[:2]
    folder = min((n for n, name in enumerate(_FIRST) if name in folders), default=len(_FIRST))
    return folder, not file.endswith(_LONG)


def scheduler(config, log):
    """Return the scheduler of a run by several workers: scopes in the order of the tests."""
    # Where xdist is not installed nobody asks.
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

    class InOrder(LoadScopeScheduling):
        """Hands out scopes as they come."""

        def _split_scope(self, nodeid):
            return scope_of(nodeid)

    config.option.loadscopereorder = False
    return InOrder(config, log)
