"""A small S3 server that answers after a delay, for benchmarks with many writers.

`delayed.py DELAY_MS`: prints where it is as JSON, answers every line of its standard input with the
counts since the one before, and ends with it. One thread, so that every request is atomic; a
request takes effect after half of the delay. It knows what the project asks of S3 (conditional PUT,
ranged GET, LIST, DELETE of many) and costs a tenth of the processor time of moto, which would be
what such a benchmark measures.
"""

import asyncio
import json
import os
import re
import sys
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from email.utils import formatdate
from hashlib import md5
from itertools import islice, takewhile
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bench"
_KEYS = re.compile(rb"<Key>([^<]*)</Key>")
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")
_HEAD = (
    b"HTTP/1.1 %d %s\r\nContent-Length: %d\r\nDate: %s\r\nServer: bench\r\nx-amz-request-id: 1\r\n"
)

_WHY = {200: b"OK", 206: b"Partial Content", 204: b"No Content", 404: b"Not Found"}
_WHY |= {412: b"Precondition Failed", 416: b"Range Not Satisfiable", 501: b"Not Implemented"}


class Bucket:
    """The objects of the one bucket, and what each request does to them."""

    def __init__(self):
        self.objects = {}
        self.names = []
        self.counts = Counter()

    def answer(self, method, target, headers, body):
        """Return status, headers and body of one request."""
        parts = urlsplit(target)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").removeprefix("/")
        query = parse_qs(parts.query, keep_blank_values=True)
        kind = {"PUT": "put", "GET": "get" if key else "list", "HEAD": "head", "POST": "delete"}
        self.counts[kind.get(method, "post")] += 1
        if method == "PUT":
            return self._put(key, headers, body)
        if method == "GET":
            return self._get(key, headers) if key else self._list(query)
        if method == "HEAD":
            return self._get(key, {}) if key else (200, {}, b"")
        if method == "POST" and "delete" in query:
            for name in _KEYS.findall(body):
                if self.objects.pop(name.decode(), None) is not None:
                    self.names.remove(name.decode())
            return 200, {}, b"<DeleteResult/>"
        return _error(501, "NotImplemented")

    def _put(self, key, headers, body):
        if not key:
            return 200, {}, b""
        if key in self.objects:
            if headers.get("if-none-match") == "*":
                return _error(412, "PreconditionFailed")
        else:
            insort(self.names, key)
        self.objects[key] = body
        return 200, {"ETag": f'"{md5(body).hexdigest()}"'}, b""

    def _get(self, key, headers):
        body = self.objects.get(key)
        if body is None:
            return _error(404, "NoSuchKey")
        wanted = _RANGE.fullmatch(headers.get("range", ""))
        if wanted is None:
            return 200, {"ETag": '"x"'}, body
        start = int(wanted[1])
        end = min(int(wanted[2] or len(body) - 1), len(body) - 1)
        if start >= len(body):
            return _error(416, "InvalidRange")
        shown = {"ETag": '"x"', "Content-Range": f"bytes {start}-{end}/{len(body)}"}
        return 206, shown, body[start : end + 1]

    def _list(self, query):
        told = {name: values[0] for name, values in query.items()}
        prefix, limit = told.get("prefix", ""), int(told.get("max-keys", 1000))
        after = max(told.get("start-after", ""), told.get("continuation-token", ""))
        first = max(bisect_right(self.names, after), bisect_left(self.names, prefix))
        inside = takewhile(lambda name: name.startswith(prefix), islice(self.names, first, None))
        names = list(islice(inside, limit + 1))
        cut = len(names) > limit
        rows = "".join(
            f"<Contents><Key>{escape(n)}</Key><Size>{len(self.objects[n])}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag></Contents>"
            for n in names[:limit]
        )
        token = escape(names[limit - 1]) if cut else ""
        text = (
            f"<ListBucketResult><Name>{BUCKET}</Name><KeyCount>{len(names[:limit])}</KeyCount>"
            f"<MaxKeys>{limit}</MaxKeys><IsTruncated>{str(cut).lower()}</IsTruncated>"
            f"<NextContinuationToken>{token}</NextContinuationToken>{rows}</ListBucketResult>"
        )
        return 200, {"Content-Type": "application/xml"}, text.encode()


def _error(status, code):
    body = f"<Error><Code>{code}</Code></Error>".encode()
    return status, {"Content-Type": "application/xml"}, body


async def _serve(bucket, delay_s, reader, writer):
    """Answer the requests of one connection."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            method, target, _ = head[0].split(" ", 2)
            headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
            headers = {name.lower(): value for name, value in headers.items()}
            if headers.get("expect") == "100-continue":
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if "aws-chunked" in headers.get("content-encoding", ""):
                body = _unchunked(body)
            if delay_s:
                await asyncio.sleep(delay_s / 2)
            status, shown, answer = bucket.answer(method, target, headers, body)
            if delay_s:
                await asyncio.sleep(delay_s / 2)
            date = formatdate(usegmt=True).encode()
            lines = _HEAD % (status, _WHY.get(status, b""), len(answer), date)
            lines += "".join(f"{n}: {v}\r\n" for n, v in shown.items()).encode()
            writer.write(lines + b"\r\n" + (b"" if method == "HEAD" else answer))
            await writer.drain()
    except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
        pass
    finally:
        writer.close()


def _unchunked(body):
    """Return what chunks with signatures or trailers carry."""
    content, rest = [], body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size.split(b";")[0], 16)
        if not length:
            break
        content.append(rest[:length])
        rest = rest[length + 2 :]
    return b"".join(content)


async def main():
    """Serve until the standard input ends."""
    delay_s = float(sys.argv[1]) / 1000
    bucket = Bucket()

    async def connected(reader, writer):
        await _serve(bucket, delay_s, reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**26, backlog=512)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    names = {"AWS_ENDPOINT_URL": url, "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}
    names |= {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
    names |= {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.devnull}
    names |= {"AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    options = {"endpoint_url": url, "region": "us-east-1"}
    options |= {"access_key_id": "local", "secret_access_key": "local"}
    print(
        json.dumps({"endpoint_url": url, "environment": names, "storage_options": options}),
        flush=True,
    )
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        counts, bucket.counts = bucket.counts, Counter()
        told = {name: counts[name] for name in ("get", "put", "list", "delete", "head", "post")}
        print(json.dumps({**told, "total": counts.total()}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
