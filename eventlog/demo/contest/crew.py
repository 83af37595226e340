"""The programs of the contest: started early, let go together, and read as they report."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

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

    def __init__(self, posts: Iterable[Post], folder: Path) -> None:
        self._folder = folder
        self._reports: queue.Queue[tuple[Post, ParticipantReport]] = queue.Queue()
        self._programs = {post: self._start(post) for post in posts}
        for post, program in self._programs.items():
            threading.Thread(target=self._read, args=(post, program), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for program in self._programs.values():
            program.kill()
        for program in self._programs.values():
            program.communicate()

    def give(self, assignments: Mapping[Post, Assignment]) -> None:
        """Give each participant its assignment; it opens its table and reports that it is ready."""
        for post, assignment in assignments.items():
            self._send(post, json.dumps(assignment))

    def go(self) -> None:
        """Let all of them begin."""
        for post in self._programs:
            self._send(post, "go")

    def stop(self, posts: Iterable[Post]) -> None:
        """Let these end after what is under way."""
        for post in posts:
            self._send(post, "stop")

    def end(self, post: Post) -> None:
        """End one at once, whatever it does."""
        self._programs[post].kill()

    def dismiss(self, format_name: str) -> None:
        """End all that use one format, and forget them."""
        for post in [each for each in self._programs if each.format == format_name]:
            program = self._programs.pop(post)
            program.kill()
            program.wait()

    def next_report(self, timeout_s: float) -> tuple[Post, ParticipantReport] | None:
        """Return the next report of anyone, or None if there is none for so long."""
        try:
            return self._reports.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def last_words(self, post: Post) -> str:
        """Return the end of what a participant printed on standard error, on one line."""
        text = self._errors(post).read_text(errors="replace")
        return " ".join(text.split())[-_LAST_CHARACTERS:]

    def _start(self, post: Post) -> subprocess.Popen[str]:
        environment = {n: v for n, v in os.environ.items() if not n.startswith("AWS_")}
        with self._errors(post).open("w") as errors:
            return subprocess.Popen(  # noqa: S603 - this interpreter, and a file beside this one
                [sys.executable, "-P", "-W", "ignore", participant.__file__, post.format],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environment | _ENVIRONMENT,
                start_new_session=True,  # Ctrl-C reaches this program, which ends the others
            )

    def _errors(self, post: Post) -> Path:
        return self._folder / f"{post.format}-{post.number}.log"

    def _send(self, post: Post, line: str) -> None:
        stream = self._programs[post].stdin
        try:
            if stream is not None:
                stream.write(f"{line}\n")
                stream.flush()
        except BrokenPipeError:
            pass  # it has ended, and its last report says so

    def _read(self, post: Post, program: subprocess.Popen[str]) -> None:
        ended = False
        for line in program.stdout or ():
            report: ParticipantReport = json.loads(line)
            ended = ended or report["did"] == "end"
            self._reports.put((post, report))
        if not ended:
            self._reports.put((post, {"did": "gone"}))
