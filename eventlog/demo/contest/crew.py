"""The programs of the contest: started early, let go together, and read as they report."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TextIO

from eventlog.demo.contest import participant
from eventlog.demo.contest.participant import Assignment, ParticipantReport

_LAST_CHARACTERS = 500
# Every participant is given its own credentials; those of the machine are none of its business.
_ENVIRONMENT = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}


class Post(NamedTuple):
    """The place of a participant: the format that it uses, and its number there."""

    format: str
    number: int


class Crew:
    """The participants, each a program of its own. As a context manager it ends those left.

    They import their libraries as soon as they are started, and wait for `give`.

    Args:
        posts: of the participants.
        folder: for what they print on standard error.
    """

    def __init__(self, posts: Sequence[Post], folder: Path) -> None:
        self._folder = folder
        self._reports: queue.Queue[tuple[Post, ParticipantReport]] = queue.Queue()
        self._commands: dict[Post, TextIO] = {}
        self._ids: dict[Post, int] = {}  # of those that are ready and have not ended
        self._programs: list[tuple[str, subprocess.Popen[bytes]]] = []
        formats = dict.fromkeys(post.format for post in posts)
        teams = [[post for post in posts if post.format == name] for name in formats]
        # Elsewhere a fork may break what a library has loaded.
        for team in teams if sys.platform == "linux" else [[post] for post in posts]:
            self._programs.append((team[0].format, self._start(team)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for name in dict(self._programs):
            self.dismiss(name)

    def give(self, assignments: Mapping[Post, Assignment]) -> None:
        """Give each participant its assignment; it opens its table and reports that it is ready."""
        for post, assignment in assignments.items():
            self._send(post, json.dumps(assignment))

    def go(self) -> None:
        """Let all of them begin."""
        for post in self._commands:
            self._send(post, "go")

    def stop(self, posts: Iterable[Post]) -> None:
        """Let these end after what is under way."""
        for post in posts:
            self._send(post, "stop")

    def end(self, post: Post) -> None:
        """End one at once, whatever it does."""
        if (number := self._ids.get(post)) is not None:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)

    def dismiss(self, format_name: str) -> None:
        """End all that use one format, and forget them."""
        for name, program in self._programs:
            if name == format_name:
                # A participant that was forked is in the group of the one that was started.
                with suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
                program.wait()
        for post in [each for each in self._commands if each.format == format_name]:
            with suppress(OSError):
                self._commands.pop(post).close()

    def next_report(self, timeout_s: float) -> tuple[Post, ParticipantReport] | None:
        """Return the next report of anyone, or None if there is none for so long."""
        try:
            return self._reports.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def last_words(self, format_name: str) -> str:
        """Return the end of what those of one format printed on standard error, on one line."""
        text = self._errors(format_name).read_text(errors="replace")
        return " ".join(text.split())[-_LAST_CHARACTERS:]

    def _start(self, team: Sequence[Post]) -> subprocess.Popen[bytes]:
        """Start the participants with one format: one program, which forks."""
        theirs: list[tuple[int, int]] = []
        for post in team:
            commands, to_commands = os.pipe()
            from_reports, reports = os.pipe()
            theirs.append((commands, reports))
            self._commands[post] = open(to_commands, "w", buffering=1)  # noqa: PTH123, SIM115
            source = open(from_reports)  # noqa: PTH123, SIM115 - the thread closes it
            threading.Thread(target=self._read, args=(post, source), daemon=True).start()
        environment = {n: v for n, v in os.environ.items() if not n.startswith("AWS_")}
        pairs = [f"{commands}:{reports}" for commands, reports in theirs]
        with self._errors(team[0].format).open("a") as errors:
            program = subprocess.Popen(  # noqa: S603 - this interpreter, a file beside this one
                [
                    sys.executable,
                    "-P",
                    "-W",
                    "ignore",
                    participant.__file__,
                    team[0].format,
                    *pairs,
                ],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                pass_fds=[descriptor for pair in theirs for descriptor in pair],
                env=environment | _ENVIRONMENT,
                start_new_session=True,  # Ctrl-C reaches this program, which ends the others
            )
        for pair in theirs:
            for descriptor in pair:
                os.close(descriptor)
        return program

    def _errors(self, format_name: str) -> Path:
        return self._folder / f"{format_name}.log"

    def _send(self, post: Post, line: str) -> None:
        # One that has ended has said so in its last report.
        with suppress(BrokenPipeError):
            self._commands[post].write(f"{line}\n")

    def _read(self, post: Post, source: TextIO) -> None:
        ended = False
        with source:
            for line in source:
                report: ParticipantReport = json.loads(line)
                if report["did"] == "ready":
                    self._ids[post] = report["pid"]
                ended = ended or report["did"] == "end"
                self._reports.put((post, report))
        self._ids.pop(post, None)
        if not ended:
            self._reports.put((post, {"did": "gone"}))
