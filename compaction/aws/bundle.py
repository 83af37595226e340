"""Makes the zip file that Lambda runs: this project and its dependencies, for one Python.

    python -m eventlog.compaction.aws.bundle --out dist/lambda.zip --arch arm64 --python 3.13

The wheels come from PyPI, in the versions installed here, so that the tested versions run. boto3 is
left out because Lambda's runtime has it, and so are the parts of pyarrow that this project never
loads: the bundle must fit into the 250 MB that Lambda allows. The same inputs give the same bytes.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import eventlog
from eventlog.errors import EventLogError, InvalidInput, Unavailable

# Folders below the parent of `eventlog`; of the first, all but the folders in _APART.
PACKAGES = ("eventlog", "eventlog/readers", "eventlog/compaction")
_APART = ("readers", "writers", "compaction", "cli", "demo")
IN_THE_RUNTIME = ("boto3",)
PYTHONS = ("3.12", "3.13")  # on Amazon Linux 2023; older ones have too old a C library
MAX_BYTES = 262_144_000  # unzipped, layers included: AWS Lambda quotas
DIRECT_BYTES = 50 * 10**6  # largest zip file that can be uploaded without a bucket

_PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")
_MACHINES = {"x86_64": "x86_64", "arm64": "aarch64"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can hold

# Files that are never loaded at run time, by path inside the bundle.
_PRUNED = re.compile(
    r"""
    (.*/)? __pycache__/.* | .*\.pyc            # made by this machine's Python
    | bin/.*                                   # programs of the packages
    | [^/]+\.dist-info/(RECORD|INSTALLER|REQUESTED|direct_url\.json)
    | pyarrow/(include|src|tests|scripts)/.*   # for compiling against it
    | pyarrow/.*\.(pyx|pxd|pxi|h|hpp|cc|cmake)
    | pyarrow/[^/]*(flight|gandiva|_cuda|_orc|cpp_tests|hdfs|jvm)[^/]*
    | pyarrow/_?substrait[^/]*                 # but its library is linked against
    """,
    re.VERBOSE,
)
_PUBLISHES = re.compile(r"extra == ['\"]publish['\"]")
# A library under several names; the loader uses one of them (its SONAME).
_ALIAS = re.compile(r"(?P<stem>.*\.so)(?P<soname>\.\d+)?(\.\d+\.\d+)?")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a bundle by the command line's options, and print its sizes."""
    options = _options(arguments)
    try:
        with TemporaryDirectory(prefix="eventlog-bundle-") as folder:
            tree = Path(folder) / "tree"
            gather(tree, arch=options.arch, python=options.python, with_boto3=options.with_boto3)
            full = size_of(tree)
            prune(tree)
            unzipped = size_of(tree)
            check_bundle_size(unzipped)
            verdict = _verified(tree, options)
            pack(tree, options.out)
    except EventLogError as error:
        sys.stderr.write(f"bundle: {error}\n")
        return error.exit_code
    zipped = options.out.stat().st_size
    way = "upload it to a bucket" if zipped > DIRECT_BYTES else "can be uploaded directly"
    for line in (
        f"{options.out}: Python {options.python}, {options.arch}, {verdict}",
        f"unzipped {_mb(unzipped)} of {_mb(MAX_BYTES)} ({_mb(full - unzipped)} left out)",
        f"zipped   {_mb(zipped)}: {way}",
    ):
        sys.stdout.write(f"{line}\n")
    return 0


def gather(tree: Path, *, arch: str, python: str, with_boto3: bool = False) -> None:
    """Put this project's packages and their dependencies into a folder, as Lambda requires.

    Args:
        tree: the folder, which is created.
        arch: x86_64 or arm64.
        python: 3.12 or 3.13.
        with_boto3: include boto3 instead of using the runtime's.

    Raises:
        Unavailable: pip did not find the wheels, or PyPI does not answer.
    """
    tags = [f"{tag}_{_MACHINES[arch]}" for tag in _PLATFORMS]
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--target", str(tree), "--no-compile", "--only-binary=:all:"]
    command += ["--implementation", "cp", "--python-version", python]
    command += [f"--platform={tag}" for tag in tags]
    left_out = () if with_boto3 else IN_THE_RUNTIME
    done = subprocess.run(  # noqa: S603 - this program's own pip
        [*command, *requirements(left_out)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Unavailable(f"pip could not download the wheels: {done.stderr.strip()[-2000:]}")
    root = Path(eventlog.__file__).parents[1]
    for package in PACKAGES:
        source = root / package
        for path in sorted(source.rglob("*.py")):
            if package == "eventlog" and path.relative_to(source).parts[0] in _APART:
                continue
            target = tree / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def requirements(left_out: Iterable[str] = ()) -> list[str]:
    """Return the dependencies of a bundle, each with the version installed here.

    They are this project's base dependencies, and what publishing needs.
    """
    names = [
        match[0]
        for line in metadata.requires(eventlog.DISTRIBUTION) or ()
        if ("extra ==" not in line or _PUBLISHES.search(line))
        and (match := re.match(r"[A-Za-z0-9._-]+", line))
    ]
    return [f"{name}=={metadata.version(name)}" for name in names if name not in set(left_out)]


def prune(tree: Path) -> None:
    """Remove files that Lambda does not need, and copies of libraries under other names."""
    files = [path for path in tree.rglob("*") if path.is_file()]
    for path in files:
        if _PRUNED.fullmatch(_name(path, tree)):
            path.unlink()
    for path in files:
        # libx.so and libx.so.1.2.3 beside the libx.so.1 that the loader uses.
        match = _ALIAS.fullmatch(path.name)
        named = _soname(path, match) if match else None
        if named is not None and path.exists() and named.read_bytes() == path.read_bytes():
            path.unlink()


def size_of(tree: Path) -> int:
    """Return the bytes of all files under a folder."""
    return sum(path.stat().st_size for path in tree.rglob("*") if path.is_file())


def check_bundle_size(unzipped: int) -> None:
    """Check a bundle against Lambda's limit.

    Raises:
        InvalidInput: it is too large.
    """
    if unzipped > MAX_BYTES:
        raise InvalidInput(
            f"the bundle has {unzipped:,} bytes, but Lambda allows {MAX_BYTES:,}: leave boto3 to "
            "the runtime, or run the function from a container image"
        )


def pack(tree: Path, out: Path) -> None:
    """Write a folder as a zip file whose bytes depend only on names and contents."""
    out.parent.mkdir(parents=True, exist_ok=True)
    files = {_name(path, tree): path for path in tree.rglob("*") if path.is_file()}
    with zipfile.ZipFile(out, "w") as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, whatever system this runs on, so that modes are read
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name].read_bytes(), compresslevel=6)


def verify(tree: Path, interpreter: str) -> None:
    """Run the handler of a bundle on a small table, importing from the bundle only.

    Args:
        tree: the unpacked bundle.
        interpreter: a Python of the bundle's version.

    Raises:
        InvalidInput: it fails; the message has the end of the traceback.
    """
    start = (
        "import runpy, sys; sys.path.insert(0, sys.argv[1]); "
        "runpy.run_module('eventlog.compaction.aws.bundle_check', run_name='__main__')"
    )
    # -B: the tree is packed afterwards and must not get this machine's bytecode.
    done = subprocess.run(  # noqa: S603 - a Python that the caller named
        [interpreter, "-I", "-S", "-B", "-c", start, str(tree)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise InvalidInput(f"the bundle does not work: {done.stderr.strip()[-2000:]}")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="eventlog.compaction.aws.bundle", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("dist/lambda.zip"))
    parser.add_argument("--arch", choices=sorted(_MACHINES), default="x86_64")
    parser.add_argument("--python", choices=PYTHONS, default="3.13")
    parser.add_argument(
        "--with-boto3", action="store_true", help="include boto3 instead of using the runtime's"
    )
    parser.add_argument("--interpreter", help="a Python of that version, to test the bundle with")
    return parser.parse_args(arguments)


def _verified(tree: Path, options: argparse.Namespace) -> str:
    """Test the bundle if this machine can run it. Return a description of the result."""
    same_python = f"{sys.version_info.major}.{sys.version_info.minor}" == options.python
    interpreter = options.interpreter or (sys.executable if same_python else None)
    if platform.machine() not in (options.arch, _MACHINES[options.arch]):
        return "not tried: another processor"
    if interpreter is None:
        return f"not tried: name a Python {options.python} with --interpreter"
    verify(tree, interpreter)
    return "tried: it compacts"


def _soname(path: Path, match: re.Match[str]) -> Path | None:
    """Return the file whose name the loader uses for this library, unless it is this one."""
    for other in sorted(path.parent.glob(f"{match['stem']}.*")):
        if other != path and re.fullmatch(r"\.\d+", other.name.removeprefix(match["stem"])):
            return other
    return None


def _name(path: Path, tree: Path) -> str:
    return str(PurePosixPath(path.relative_to(tree)))


def _mb(size: int) -> str:
    return f"{size / 10**6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())
