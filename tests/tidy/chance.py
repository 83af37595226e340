"""The checks that a default run is deterministic: no unseeded draws, no timing, no short waits.

Functions from the source of a test to findings, one line each.
"""

import ast
from collections.abc import Iterator

# Calls that draw without a seed. Use `random.Random(seed)` instead.
DICE = {
    *(f"random.{name}" for name in (
        "random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform",
        "getrandbits", "randbytes", "seed", "SystemRandom",
    )),
    *(f"np.random.{name}" for name in ("rand", "randn", "randint", "random", "choice", "shuffle")),
    *("os.urandom", "uuid.uuid1", "uuid.uuid4"),
    *(f"secrets.{name}" for name in ("token_bytes", "token_hex", "randbelow", "choice")),
}  # fmt: skip
# Calls that draw without a seed if they get none.
SEEDED = {"random.Random", "np.random.default_rng", "np.random.RandomState"}
STOPWATCHES = {
    f"time.{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time")
    for unit in ("", "_ns")
}
# The shortest allowed time-out in seconds, which only a hang may reach.
WAITS = {"join", "wait", "wait_for", "result", "communicate", "run", "get", "Barrier", "Timer"}
PATIENCE_S = 200
# Settings that the hypothesis profile in `repeatable` decides for all tests.
OF_THE_PROFILE = {"derandomize", "database", "deadline"}

# Test -> why it is exempt.
ALLOWED = {
    "support/predicates.py::examples": "fresh only if EVENTLOG_EXAMPLES is set",
    "integration/test_concurrency.py::localstack": "a bucket on a shared server",
    "soak/test_soak.py::test_nothing_is_lost_or_doubled_while_everything_breaks": "a long run",
    "spark/test_stream_sink.py::"
    "test_twenty_kills_of_a_running_query_lose_and_double_nothing": "a long run",
    "soak/test_proxy.py::test_a_slow_answer_is_a_whole_one": "no load makes the wait shorter",
    "unit/store/test_s3_faults.py::broken_404": "whether it arrives or not, the answer is the same",
}


def findings(file: str, source: str) -> list[str]:
    """Return the places in test code that depend on chance or on a machine's speed."""
    return [
        f"{file}:{line} ({name}): {said}"
        for name, scope in _scopes(ast.parse(source))
        if f"{file}::{name}" not in ALLOWED
        for line, said in _found(scope)
        # An argument of this name may be drawn by hypothesis.
        if not (said.startswith("random.") and "random" in _arguments(scope))
    ]


def _arguments(scope: ast.AST) -> set[str]:
    if not isinstance(scope, ast.FunctionDef):
        return set()
    return {argument.arg for argument in scope.args.args}


def _scopes(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Yield the statements of a module, and the methods of its classes, with their names."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield from ((getattr(part, "name", node.name), part) for part in node.body)
        else:
            yield getattr(node, "name", "module"), node


def _found(scope: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(scope):
        if not isinstance(node, ast.Call):
            continue
        name = _dotted(node.func)
        if name in DICE or (name in SEEDED and not node.args and not node.keywords):
            yield node.lineno, f"{name} draws without a seed: random.Random(seed)"
        elif name in STOPWATCHES:
            yield node.lineno, f"{name} measures this machine: count the work (effort.calls_of)"
        elif name == "time.sleep":
            yield node.lineno, "time.sleep may be too short: wait for the expected event"
        elif name.split(".")[-1] == "settings":
            for keyword in node.keywords:
                if keyword.arg in OF_THE_PROFILE:
                    yield (
                        node.lineno,
                        f"{keyword.arg} is the profile's: tests/support/repeatable.py",
                    )
        else:
            yield from _short_waits(node, name.split(".")[-1])


def _dotted(called: ast.expr) -> str:
    """Return the dotted name of what is called; of `f().wait` only `.wait`."""
    parts = []
    while isinstance(called, ast.Attribute):
        parts.append(called.attr)
        called = called.value
    parts.append(called.id if isinstance(called, ast.Name) else "")
    return ".".join(reversed(parts))


def _short_waits(node: ast.Call, called: str) -> Iterator[tuple[int, str]]:
    given = [k.value for k in node.keywords if k.arg == "timeout"]
    if called in {"join", "wait", "result", "Timer"}:
        given += node.args[:1]
    if called not in WAITS:
        return
    for value in given:
        seconds = value.value if isinstance(value, ast.Constant) else None
        # Less than a second is a polling interval, not a time-out.
        if isinstance(seconds, int | float) and 1 <= seconds < PATIENCE_S:
            yield node.lineno, f"{called} waits {seconds} s only: a busy machine needs more"
