"""HTTP messages as the soak's proxy reads them: whole, from one connection or the other."""

import asyncio
from dataclasses import dataclass

HEAD_BYTES = 64 * 1024
_BODY_BYTES = 64 * 2**20
_HOP_BY_HOP = {"connection", "keep-alive", "expect", "transfer-encoding", "content-length"}


@dataclass
class Message:
    """One request or answer, read to its end."""

    start: str
    headers: list[tuple[str, str]]
    body: bytes = b""

    def get(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def head(self, *extra: tuple[str, str]) -> bytes:
        kept = [(key, value) for key, value in self.headers if key.lower() not in _HOP_BY_HOP]
        lines = [self.start, *(f"{key}: {value}" for key, value in [*kept, *extra])]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    @property
    def method(self) -> str:
        return self.start.partition(" ")[0]

    @property
    def status(self) -> int:
        return int(self.start.split(" ", 2)[1])

    @property
    def keeps_open(self) -> bool:
        asked = self.get("connection").lower()
        return asked == "keep-alive" or (asked != "close" and self.start.endswith("HTTP/1.1"))


async def read_request(reader, writer) -> Message | None:
    request = await read_head(reader)
    if request is None:
        return None
    if request.get("expect").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await writer.drain()
    request.body = await read_body(reader, request)
    return request


async def read_head(reader) -> Message | None:
    """Read a start line and headers; None where the other side ended before one."""
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    start, *lines = text.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    return Message(start, headers)


async def read_body(reader, message: Message, *, until_end: bool = False) -> bytes:
    if message.get("transfer-encoding").lower() == "chunked":
        return await _read_chunks(reader)
    length = message.get("content-length")
    if length:
        return await reader.readexactly(_bounded(int(length)))
    return await reader.read(-1) if until_end else b""


async def _read_chunks(reader) -> bytes:
    body = bytearray()
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(_bounded(len(body) + size) - len(body))
        await reader.readline()
    while (await reader.readline()).strip():
        pass  # trailers
    return bytes(body)


def _bounded(length: int) -> int:
    if length > _BODY_BYTES:
        raise ValueError(f"a body of {length} bytes")
    return length


def has_body(request: Message) -> bool:
    return bool(request.body or request.get("content-length") or request.get("transfer-encoding"))
