"""`LocalServer` in a process of its own: `serve.py DELAY_MS`; ends with its standard input.

Prints where it is as JSON, then answers every line with the counts since the one before.
"""

import json
import sys
from dataclasses import asdict

from eventlog.store.testing.local_server import LocalServer

BUCKET = "bench"


def main():
    with LocalServer(delay_ms=int(sys.argv[1])) as server:
        server.create_bucket(BUCKET)
        server.reset()
        where = {
            "endpoint_url": server.endpoint_url,
            "environment": server.environment(),
            "storage_options": server.storage_options(),
        }
        print(json.dumps(where), flush=True)
        for _ in sys.stdin:
            counts = server.requests
            server.reset()
            print(json.dumps({**asdict(counts), "total": counts.total}), flush=True)


if __name__ == "__main__":
    main()
