"""Which stores keep the promise that tables need: each server that can be installed here, tried.

    python tests/stores/run.py                  # all: `make test-stores`; writes the page's table
    python tests/stores/run.py --only SeaweedFS # one; writes nothing

A server is installed in build/stores (its version is pinned in `servers.py`), started on
127.0.0.1, tried by `trial.py` and stopped. One that cannot be installed is skipped loudly, and
keeps the row of the page that it has. A verdict that is not the expected one fails the run.
"""

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from engines.outcomes import put_between
from stores.servers import SERVERS
from stores.trial import BUCKET, ROUNDS, try_store, verdict

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "stores"
PAGE = ROOT / "docs" / "stores.md"
BEGIN = "<!-- Stores: made by `make test-stores` -->\n"
INSTALL_S = int(os.environ.get("INSTALL_SECONDS", "900"))  # of one server
START_S = 90
NOT_ASKED = "\N{EN DASH}"
SAID = {
    "yes": "yes",
    "no vacuum": "yes, but a vacuum fails",
    "races": "**no**: a key can be created twice",
    "loses": "**no**",
    "refused": "**no**, and no table is created",
}
PORTS = range(20_000, 32_000)  # below those that systems give out, so that a port stays free


class Missing(Exception):
    """A server cannot be installed or does not start here; the message says why."""


def main():
    parser = argparse.ArgumentParser(description="Try the stores.")
    parser.add_argument("--only", help="the beginning of a server's name")
    parser.add_argument("--seconds", type=int, default=10, help="of writing beside compaction")
    given = parser.parse_args()
    chosen = [s for s in SERVERS if s.name.casefold().startswith((given.only or "").casefold())]
    rows, wrong = {}, []
    for server in chosen:
        started = time.monotonic()
        try:
            found = tried(server, given.seconds)
        except Missing as error:
            print(f"\n== stores: {server.name} was NOT tried: {error}\n", flush=True)
            continue
        rows[server.name] = row(server, found)
        took = time.monotonic() - started
        print(f"{rows[server.name]}  {took:.0f} s", flush=True)
        if not is_expected(server.expected, verdict(found)):
            wrong.append(f"{server.name}: expected {server.expected}: {found}")
    if not given.only and not wrong:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(put_between(page, table(rows, page), BEGIN), encoding="utf-8")
    for line in wrong:
        print(f"== stores: {line}")
    return 1 if wrong or not rows else 0


def is_expected(expected, said):
    """Whether a store did what `servers.py` says of it."""
    return said == expected or (expected == "races" and said == "yes")


def row(server, found):
    """Return a server's line of the table."""
    asked = found.double is not None
    races = f"{found.double} of {ROUNDS}" if asked else NOT_ASKED
    return (
        f"| {server.name} {version_of(server)} | {SAID[server.expected]} | {races} | "
        f"{beside(found)} | {conditions_of(found)} | {server.use} |"
    )


def beside(found):
    """Return what came of the writers, as a cell."""
    if found.appends is None:
        return NOT_ASKED
    if found.lost is None:
        return "failed"
    landed = found.compactions["done"]
    exact = "rows exact" if not found.lost and not found.doubled else "ROWS WRONG"
    return f"{found.appends} appends in {found.commits} commits, {landed} compactions: {exact}"


def conditions_of(found):
    """Return the conditions that a store honours besides, as a cell."""
    kept = [name for name, what in found.conditions.items() if what == "kept"]
    return ", ".join(kept) or "none"


def table(rows, page):
    """Return the table: new rows, and the page's old ones of what was not tried now."""
    old = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines()}
    head = (
        "| store | tables may lie there | races with two winners | eight writers beside compaction "
        "| other conditions that it honours | use it for |\n|---|---|---|---|---|---|"
    )
    lines = [
        rows.get(server.name, old.get(f"{server.name} {version_of(server)}")) for server in SERVERS
    ]
    return "\n".join([head, *filter(None, lines)])


def version_of(server):
    """Return the version that runs: the pinned one, or that of .venv."""
    return server.version.removeprefix("v") or version(server.package)


# ------------------------------------------------------------------------------------ servers


def tried(server, seconds):
    """Install, start and try a server.

    Raises:
        Missing: it cannot be had here.
    """
    home = installed(server)
    with running(server, home) as endpoint:
        client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id=server.access[0],
            aws_secret_access_key=server.access[1],
            region_name="us-east-1",
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
        )
        wait_for(client, server)
        options = {
            "endpoint_url": endpoint,
            "access_key_id": server.access[0],
            "secret_access_key": server.access[1],
            "region": "us-east-1",
        }
        return try_store(client, options, {"AWS_EC2_METADATA_DISABLED": "true"}, seconds)


def installed(server):
    """Return the folder of a server, which is made unless it is there.

    Raises:
        Missing: the tool or the package is not to be had.
    """
    if server.source == "host":
        run([sys.executable, ROOT / "localstack" / "start-host", "--install"], ROOT)
    home = HOME / f"{server.package.split('/')[-1].replace(':', '-')}-{server.version}"
    done = home / ".done"
    if server.source in ("here", "host") or done.exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    print(f"stores: installing {server.package} {server.version} ({server.source})", flush=True)
    for command in COMMANDS[server.source](server, home):
        run(command, home)
    done.touch()
    return home


def pip(server, home):
    """Return the commands that install a wheel and its scripts."""
    return [
        [sys.executable, "-m", "venv", "--without-pip", home],
        [ROOT / ".ci" / "install", sys.executable, home / "bin" / "python",
         f"{server.package}=={server.version}"],
    ]  # fmt: skip


def npm(server, home):
    """Return the command that installs a package without its scripts."""
    options = ("--silent", "--no-audit", "--no-fund", "--ignore-scripts")
    return [["npm", "install", *options, "--prefix", home, f"{server.package}@{server.version}"]]


def go(server, home):
    """Return the command that builds a program; two compilers at once."""
    target = f"GOBIN={home / 'bin'}"
    return [["env", target, "GOFLAGS=-p=2", "go", "install", f"{server.package}@{server.version}"]]


def maven(server, home):
    """Return the command that fetches a jar that has all that it needs."""
    group, name, kind, classifier = server.package.split(":")
    artifact = f"-Dartifact={group}:{name}:{server.version}:{kind}:{classifier}"
    options = ("-q", "-B", "-Dmdep.stripVersion=true", f"-DoutputDirectory={home}")
    return [
        ["mvn", "dependency:copy", artifact, *options],
        ["mv", home / f"{name}-{classifier}.{kind}", home / f"{name}.{kind}"],
    ]


COMMANDS = {"pip": pip, "npm": npm, "go": go, "maven": maven}


def run(command, home):
    """Run one command of an installation.

    Raises:
        Missing: it failed, took too long, or is not there.
    """
    words = list(map(str, command))
    if shutil.which(words[0]) is None:
        raise Missing(f"there is no {words[0]} here")
    try:
        done = subprocess.run(words, cwd=home, capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        raise Missing(f"{' '.join(words)} took more than {INSTALL_S} s") from None
    if done.returncode:
        raise Missing(f"{' '.join(words)}: {(done.stderr or done.stdout).strip()[-300:]}")


@contextmanager
def running(server, home):
    """Start a server, yield its endpoint, and end it with all of its processes."""
    with tempfile.TemporaryDirectory(prefix="stores-") as data:
        ports = free_ports(8)
        names = {"port": ports[0]} | {f"port{n}": port for n, port in enumerate(ports, 1) if n > 1}
        places = {"home": home, "data": data, "python": sys.executable, "root": ROOT, **names}
        environment = {k: v.format(**places) for k, v in server.environment.items()}
        command = [word.format(**places) for word in server.command]
        if shutil.which(command[0]) is None:
            raise Missing(f"there is no {command[0]} here")
        log = HOME / f"{server.name.split()[0].strip(',')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=data,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                yield f"http://127.0.0.1:{ports[0]}"
            finally:
                stop(process)


def stop(process):
    """End a server and what it started."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sent)
            process.wait(10)
        except ProcessLookupError:
            break
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def free_ports(count):
    """Return ports of 127.0.0.1 that nobody has now."""
    found = []
    for port in PORTS:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise Missing("no free ports")


def wait_for(client, server):
    """Wait until the server creates a bucket.

    Raises:
        Missing: it did not within `START_S`.
    """
    end = time.monotonic() + START_S
    while True:
        try:
            client.create_bucket(Bucket=BUCKET)
        except (BotoCoreError, ClientError) as error:
            if time.monotonic() > end:
                raise Missing(f"it did not start within {START_S} s: {error}") from error
            time.sleep(0.5)
        else:
            return


if __name__ == "__main__":
    sys.exit(main())
