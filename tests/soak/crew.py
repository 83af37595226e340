"""The workers of a soak run as child processes: started, killed, started again, stopped."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from soak import work

ROOT = Path(__file__).resolve().parents[2]
STOP_S = work.LAST_S + 5
_STDERR_BYTES = 2000


class Crew:
    """The workers, by name: started, killed, started again, and stopped."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._running: dict[str, subprocess.Popen] = {}
        self.kills: Counter = Counter()
        self.restarts = 0
        self.problems: list[str] = []

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "soak.work", str(self._place), name]
        with self._stderr(name).open("ab") as stderr:
            self._running[name] = subprocess.Popen(
                command, env=environment(), stdin=subprocess.PIPE, stderr=stderr
            )

    def kill(self, name: str) -> None:
        """End one at once, wherever it is, and start it again."""
        self._end(name)
        self.kills[name] += 1
        self.start(name)
        self.restarts += 1

    def look(self) -> None:
        """Note those that ended by themselves, and start them again."""
        for name, worker in list(self._running.items()):
            if worker.poll() is not None:
                self._note_end(name, worker.returncode)
                self._end(name)
                self.start(name)
                self.restarts += 1

    def stop(self) -> None:
        """Let all finish what they are at; whoever does not is killed."""
        for worker in self._running.values():
            worker.stdin.close()
        deadline = time.monotonic() + STOP_S
        for name, worker in self._running.items():
            try:
                worker.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kills[name] += 1
            else:
                if worker.returncode != 0:
                    self._note_end(name, worker.returncode)
        self.close()

    def close(self) -> None:
        for name in list(self._running):
            self._end(name)

    def names(self) -> list[str]:
        return sorted(self._running)

    def _end(self, name: str) -> None:
        worker = self._running.pop(name)
        worker.kill()
        worker.wait()
        worker.stdin.close()

    def _note_end(self, name: str, code: int) -> None:
        said = self._stderr(name).read_bytes()[-_STDERR_BYTES:].decode(errors="replace")
        self.problems.append(f"{name} ended by itself with {code}: {said}")

    def _stderr(self, name: str) -> Path:
        return self._place.with_name(f"{name}.stderr")


def environment() -> dict[str, str]:
    """Return the environment of the children: these packages, and no AWS configuration."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return {
        **kept,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }
