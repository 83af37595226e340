"""Several processes at work at once: each says `ready`, waits for a line, and prints JSON lines."""

import json
import os
import subprocess
import sys
import threading
from contextlib import contextmanager

from harness import HERE, Failed, watched


@contextmanager
def started(program, *arguments, environment, timeout_s, memory_mb=4000):
    """Start a program of this folder and end it with the block, or when it takes too long."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(HERE / program), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    with process, watched(process, timeout_s, memory_mb):
        yield process


def environment_of(server):
    """Return the environment of a process that opens tables on the server (`options`)."""
    told = {"BENCH_OPTIONS": json.dumps(server.storage_options())}
    return os.environ | server.environment() | told


def options():
    """Return, in such a process, the storage options."""
    return json.loads(os.environ["BENCH_OPTIONS"])


def wait_for_go():
    """In such a process: say that all is ready, and wait for the others."""
    print("ready", flush=True)
    sys.stdin.readline()


def ready(running):
    """Wait until every process is ready.

    Raises:
        Failed: one of them did not start.
    """
    for process in running:
        if process.stdout.readline().strip() != "ready":
            raise Failed(f"a process did not start: {process.stderr.read()[-300:]}")


def go(running):
    """Let all of them begin at once."""
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()


def answers(running):
    """Return the last line of each as JSON, None of one that printed none, in their order.

    The pipes are read together, so that no process blocks.
    """
    found = [None] * len(running)

    def read(number, process):
        lines = process.communicate()[0].strip().splitlines()
        found[number] = json.loads(lines[-1]) if lines else None

    threads = [threading.Thread(target=read, args=item) for item in enumerate(running)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
