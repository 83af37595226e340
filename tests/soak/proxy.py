"""A proxy between S3 clients and their server that breaks what networks and servers break.

Run as `python -m soak.proxy --upstream URL --seed N`: prints where it listens as JSON, answers each
line of its standard input with its counts, and ends, once all that is under way is done, with it.
"""

import argparse
import asyncio
import contextlib
import json
import random
import socket
import struct
import sys
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from soak.wire import HEAD_BYTES, Message, has_body, read_body, read_head, read_request

# Kind of fault -> the share of the requests that meet it.
RATES = {
    "drop_request": 0.012,  # the connection ends before the server sees the request
    "lose_response": 0.012,  # the server does it; the connection ends before the answer
    "late_request": 0.008,  # the connection ends; the server sees the request seconds later
    "delay": 0.015,
    "duplicate": 0.012,  # the server sees it twice; the second answer counts
    "reset_body": 0.02,  # a TCP reset in the middle of the answer's body
    "error_500": 0.01,  # the server does not see it
    "error_500_late": 0.008,  # the server does it, and the answer is 500 nevertheless
    "slow_down": 0.012,  # 503; the server does not see it
    "slow_body": 0.012,  # the answer trickles
}
_DRAIN_S = 10
_TRICKLES = 8


@dataclass
class Timing:
    """How long the faults that take time take, in seconds."""

    delay: tuple[float, float] = (0.05, 0.8)
    late: tuple[float, float] = (0.3, 3.0)
    trickle: float = 0.05


@dataclass
class Proxy:
    """The proxy; `rates` may name any of the kinds of `RATES`."""

    host: str
    port: int
    seed: int
    rates: dict[str, float] = field(default_factory=lambda: dict(RATES))
    timing: Timing = field(default_factory=Timing)
    counts: Counter = field(default_factory=Counter)

    def __post_init__(self):
        self._random = random.Random(self.seed)
        self._tasks: set[asyncio.Task] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        """Listen on a free port; return the URL."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES)
        return "http://{}:{}".format(*self._server.sockets[0].getsockname())

    async def stop(self) -> None:
        """Take no more; let what is under way arrive, so that nothing lands afterwards."""
        self._server.close()
        idle = [task for task in self._tasks if task.get_name() == "idle"]
        for task in idle:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_DRAIN_S)
        for task in self._tasks:
            task.cancel()

    def _spawn(self, coroutine, name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _accept(self, reader, writer) -> None:
        self._spawn(self._serve(reader, writer), "idle")

    async def _serve(self, reader, writer) -> None:
        """Answer the requests of one connection, one after the other."""
        task = asyncio.current_task()
        try:
            while request := await read_request(reader, writer):
                task.set_name("busy")
                self.counts["requests"] += 1
                if not await self._answer(request, writer):
                    break
                task.set_name("idle")
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            self.counts["broken"] += 1  # by the client, or the server is gone
        except asyncio.CancelledError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, request: Message, writer) -> bool:
        """Answer one request, perhaps badly; return whether the connection goes on."""
        kind = self._draw()
        if kind in ("drop_request", "late_request"):
            self.counts[kind] += 1
            if kind == "late_request":
                self._spawn(self._late(request, self._between(self.timing.late)), "late")
            return False
        if kind in ("error_500", "slow_down"):
            self.counts[kind] += 1
            return await self._send(request, _error(kind), writer)
        if kind == "delay":
            self.counts[kind] += 1
            await asyncio.sleep(self._between(self.timing.delay))
        answer = await self._forward(request)
        if kind == "duplicate":
            self.counts[kind] += 1
            answer = await self._forward(request)
        if kind == "lose_response":
            self.counts[kind] += 1
            return False
        if kind == "error_500_late":
            self.counts[kind] += 1
            answer = _error(kind)
        elif kind in ("reset_body", "slow_body") and len(answer.body) > 1:
            self.counts[kind] += 1
            return await getattr(self, f"_{kind}")(request, answer, writer)
        return await self._send(request, answer, writer)

    def _draw(self) -> str | None:
        point = self._random.random()
        for kind, rate in self.rates.items():
            point -= rate
            if point < 0:
                return kind
        return None

    def _between(self, bounds: tuple[float, float]) -> float:
        return self._random.uniform(*bounds)

    async def _late(self, request: Message, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(OSError, EOFError):
            await self._forward(request)

    async def _forward(self, request: Message) -> Message:
        """Send the request to the server on a connection of its own; return the whole answer."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=HEAD_BYTES)
        try:
            length = [("Content-Length", str(len(request.body)))] if has_body(request) else []
            writer.write(request.head(*length, ("Connection", "close")) + request.body)
            await writer.drain()
            answer = await read_head(reader)
            while answer and answer.status < 200:
                answer = await read_head(reader)
            if answer is None:
                raise EOFError("the server ended the connection")
            if request.method != "HEAD" and answer.status not in (204, 304):
                answer.body = await read_body(reader, answer, until_end=True)
            return answer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _send(self, request: Message, answer: Message, writer) -> bool:
        writer.write(_answer_head(request, answer))
        if request.method != "HEAD":
            writer.write(answer.body)
        await writer.drain()
        return request.keeps_open

    async def _reset_body(self, request: Message, answer: Message, writer) -> bool:
        writer.write(_answer_head(request, answer) + answer.body[: len(answer.body) // 2])
        await writer.drain()
        # To linger for no time is what makes the end a reset.
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        return False

    async def _slow_body(self, request: Message, answer: Message, writer) -> bool:
        writer.write(_answer_head(request, answer))
        piece = max(1, -(-len(answer.body) // _TRICKLES))
        for start in range(0, len(answer.body), piece):
            writer.write(answer.body[start : start + piece])
            await writer.drain()
            await asyncio.sleep(self.timing.trickle)
        return request.keeps_open


def _answer_head(request: Message, answer: Message) -> bytes:
    length = str(len(answer.body))
    if request.method == "HEAD":
        length = answer.get("content-length") or length
    extra = [] if answer.status in (204, 304) else [("Content-Length", length)]
    connection = "keep-alive" if request.keeps_open else "close"
    told = Message("HTTP/1.1 " + answer.start.partition(" ")[2], answer.headers)
    return told.head(*extra, ("Connection", connection))


def _error(kind: str) -> Message:
    status, code = (503, "SlowDown") if kind == "slow_down" else (500, "InternalError")
    body = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
        "<Message>Please try again.</Message><RequestId>0</RequestId></Error>"
    )
    headers = [("Content-Type", "application/xml")]
    return Message(f"HTTP/1.1 {status} {code}", headers, body.encode())


def _tell(what: dict) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def _run(options: argparse.Namespace) -> None:
    where = urlsplit(options.upstream)
    proxy = Proxy(where.hostname, where.port, options.seed)
    _tell({"endpoint_url": await proxy.start()})
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        _tell(proxy.counts)
    await proxy.stop()
    _tell(proxy.counts)


def main() -> None:
    parser = argparse.ArgumentParser(prog="soak.proxy", description=__doc__)
    parser.add_argument("--upstream", required=True, help="URL of the server")
    parser.add_argument("--seed", type=int, required=True)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
