"""Runs LocalStack's own entry point, restricted to the loopback and to a folder of its own.

`start-host` runs this with the Python of `.localstack/venv`; not for use by hand. LocalStack 4.14
has no setting for the two things done here: it listens on every IPv4 interface whatever host
GATEWAY_LISTEN names, and it keeps the bytes of S3 objects in one fixed folder, which two servers
on one machine would share.
"""

import functools
import os
import signal
import threading
import time

from twisted.internet import endpoints

# Before LocalStack looks the name up in this module.
endpoints.TCP4ServerEndpoint = functools.partial(  # type: ignore[misc, assignment]
    endpoints.TCP4ServerEndpoint, interface="127.0.0.1"
)

from localstack.runtime.main import main  # noqa: E402
from localstack.services.s3 import provider  # noqa: E402


def end_with(parent: int) -> None:
    """Stop this server when its parent is gone, killed before it could stop it."""
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    provider.DEFAULT_S3_TMP_DIR = os.path.join(os.environ["FILESYSTEM_ROOT"], "s3")  # noqa: PTH118
    main()
