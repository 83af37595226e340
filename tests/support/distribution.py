"""Distributes tests to workers: one has the Spark session, and long tests come first.

Tests of one file run on one worker, because they share the module's fixtures.
"""

# The folders whose files take longest come first, so that none of them runs last alone.
_FIRST = ("simulation", "scenarios", "property", "integration", "tidy", "fuzz", "contract", "model")
# Within a folder, the files that take ten seconds or more come first.
_LONG = (
    "unit/store/test_s3_faults.py",
    "unit/writers/test_files.py",
    "unit/cli/test_cli.py",
    "integration/test_s3_way.py",
    "integration/test_crash_pairs.py",
)

# In a session of a minute the optimizing compiler does not pay off; it would take half the time.
# Nor does it pay to verify the classes that Spark loads.
_UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
SHORT_JVM = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {_UNVERIFIED}"


def scope_of(nodeid):
    """Return the group of tests that run on one worker: a file, or all that use Spark.

    A session takes many seconds to start and a gigabyte, so only one worker has one.
    """
    return "spark" if "spark" in nodeid else nodeid.split("::", 1)[0]


def put_in_order(items):
    """Order the tests: first those that use the Spark session, then by folder.

    Raises:
        ValueError: a test uses the session and does not have "spark" in its id; or an id differs
            between workers, because it has a memory address.
    """
    for item in items:
        if " at 0x" in item.nodeid:
            raise ValueError(f"{item.nodeid} differs between processes: give its parameters ids")
        if "spark" in getattr(item, "fixturenames", ()) and "spark" not in item.nodeid:
            raise ValueError(f"{item.nodeid} uses Spark: put that word into its name")
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid):
    if scope_of(nodeid) == "spark":
        return -1, False
    file = nodeid.split("::")[0]
    folders = file.split("/")[:2]
    folder = min((n for n, name in enumerate(_FIRST) if name in folders), default=len(_FIRST))
    return folder, not file.endswith(_LONG)


def scheduler(config, log):
    """Return the scheduler for a run with several workers: scopes in the order of the tests."""
    # Only called if xdist is installed.
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

    class InOrder(LoadScopeScheduling):
        """Assigns scopes in order."""

        def _split_scope(self, nodeid):
            return scope_of(nodeid)

    config.option.loadscopereorder = False
    return InOrder(config, log)
