"""The bundle for Lambda: what goes in, what stays out, how large it is, and that it works."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.compaction.aws import bundle
from eventlog.errors import InvalidInput, Unavailable

ROOT = Path(__file__).parents[2]

KEPT = [
    "eventlog/compaction/lambda_handler.py",
    "eventlog/compaction/planner/planning.py",
    "msgspec/_core.cpython-313-x86_64-linux-gnu.so",
    "msgspec-0.22.0.dist-info/METADATA",
    "msgspec-0.22.0.dist-info/licenses/LICENSE",
    "pyarrow/__init__.py",
    "pyarrow/lib.cpython-313-x86_64-linux-gnu.so",
    "pyarrow/libarrow.so.2600",
    "pyarrow/libarrow_s3.so.2600",
    "pyarrow/libarrow_substrait.so.2600",
    "pyarrow/parquet/core.py",
    "tests_of_others/keep.py",
]
DROPPED = [
    "bin/jp.py",
    "eventlog/compaction/__pycache__/x.cpython-313.pyc",
    "msgspec-0.22.0.dist-info/RECORD",
    "msgspec-0.22.0.dist-info/INSTALLER",
    "pyarrow/include/arrow/api.h",
    "pyarrow/lib.pxd",
    "pyarrow/_flight.cpython-313-x86_64-linux-gnu.so",
    "pyarrow/libarrow_flight.so.2600",
    "pyarrow/_substrait.cpython-313-x86_64-linux-gnu.so",
    "pyarrow/substrait.py",
    "pyarrow/gandiva.pyx",
    "pyarrow/src/arrow/python/api.cc",
    "pyarrow/table.pxi",
    "pyarrow/tests/test_array.py",
]

CHECK = "eventlog/compaction/aws/bundle_check.py"


def names(tree):
    return sorted(str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file())


def fill(tree, files):
    for name, content in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return tree


def test_what_is_never_loaded_is_left_out(tmp_path):
    fill(tmp_path, {name: name.encode() for name in KEPT + DROPPED})
    bundle.prune(tmp_path)
    assert names(tmp_path) == sorted(KEPT)


def test_of_a_library_under_several_names_the_loaders_stays(tmp_path):
    same = {"a/libx.so": b"x", "a/libx.so.26": b"x", "a/libx.so.26.1.0": b"x"}
    other = {"a/liby.so": b"y", "a/liby.so.1": b"another", "a/libz.so": b"z", "b/libx.so": b"x"}
    fill(tmp_path, same | other)
    bundle.prune(tmp_path)
    assert names(tmp_path) == ["a/libx.so.26", "a/liby.so", "a/liby.so.1", "a/libz.so", "b/libx.so"]


def test_a_bundle_that_lambda_would_refuse_is_refused_here():
    bundle.check_bundle_size(bundle.MAX_BYTES)
    with pytest.raises(InvalidInput, match="Lambda allows 262,144,000"):
        bundle.check_bundle_size(bundle.MAX_BYTES + 1)


def test_the_size_is_that_of_the_files(tmp_path):
    assert bundle.size_of(fill(tmp_path, {"a/b": b"12345", "c": b"1"})) == 6


@given(st.dictionaries(st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3}){0,2}\.py", fullmatch=True),
                       st.binary(max_size=50), max_size=5))  # fmt: skip
def test_the_same_files_give_the_same_bytes(tmp_path_factory, files):
    folder = tmp_path_factory.mktemp("zips")
    archives = []
    for number, order in enumerate((sorted(files), sorted(files, reverse=True))):
        tree = fill(folder / f"tree-{number}", {name: files[name] for name in order})
        (folder / f"tree-{number}").mkdir(exist_ok=True)
        for position, path in enumerate(p for p in tree.rglob("*") if p.is_file()):
            os.utime(path, (1_600_000_000 + position, 1_600_000_000 + 7 * number))
            path.chmod(0o700 if number else 0o644)
        bundle.pack(tree, folder / "out" / f"{number}.zip")
        archives.append((folder / "out" / f"{number}.zip").read_bytes())
    assert archives[0] == archives[1]
    with zipfile.ZipFile(folder / "out" / "0.zip") as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == files
        # Lambda runs as another user: everybody has to be able to read.
        assert all(entry.external_attr >> 16 & 0o444 == 0o444 for entry in archive.infolist())


def test_what_goes_in_is_the_base_of_what_is_installed_here():
    wanted = bundle.requirements(bundle.IN_THE_RUNTIME)
    assert {line.partition("==")[0] for line in wanted} == {
        "fastavro",
        "msgspec",
        "pyarrow",
        "pyroaring",
        "sqlglot",
        "tenacity",
    }
    assert all(line.partition("==")[2] for line in wanted)
    assert set(bundle.requirements()) - set(wanted) == {
        line for line in bundle.requirements() if line.startswith("boto3==")
    }


def fake_pip(monkeypatch, tmp_path, script):
    """A Python whose pip is the script; it writes its arguments down."""
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setattr(bundle.sys, "executable", str(fake))
    return tmp_path / "said"


def test_pip_is_asked_for_wheels_of_that_processor_and_python(monkeypatch, tmp_path):
    said = fake_pip(monkeypatch, tmp_path, f'echo "$@" > {tmp_path}/said; mkdir -p {tmp_path}/tree')
    bundle.gather(tmp_path / "tree", arch="arm64", python="3.12")
    words = said.read_text().split()
    assert "--platform=manylinux_2_28_aarch64" in words
    assert "--only-binary=:all:" in words
    assert words[words.index("--python-version") + 1] == "3.12"
    assert not [word for word in words if word.startswith("boto3")]
    found = names(tmp_path / "tree")
    assert "eventlog/compaction/lambda_handler.py" in found
    assert {name.partition("/")[0] for name in found} == {"eventlog"}
    parts = {f"eventlog/{part}" for part in ("readers", "writers", "compaction")}
    there = {"/".join(name.split("/")[:2]) for name in found} & parts
    assert {"eventlog", *there} == set(bundle.PACKAGES)
    bundle.gather(tmp_path / "tree", arch="x86_64", python="3.13", with_boto3=True)
    words = said.read_text().split()
    assert "--platform=manylinux_2_28_x86_64" in words
    assert [word for word in words if word.startswith("boto3==")]


def test_what_pip_says_is_passed_on(monkeypatch, tmp_path, capsys):
    fake_pip(monkeypatch, tmp_path, "echo no matching distribution >&2; exit 1")
    with pytest.raises(Unavailable, match="no matching distribution"):
        bundle.gather(tmp_path / "tree", arch="x86_64", python="3.13")
    assert bundle.main(["--out", str(tmp_path / "x.zip")]) == 1
    assert "no matching distribution" in capsys.readouterr().err
    assert not (tmp_path / "x.zip").exists()


def test_a_bundle_that_lacks_something_is_found_out(tmp_path):
    fill(
        tmp_path,
        {"eventlog/compaction/__init__.py": b"", CHECK: b"import nowhere"},
    )
    with pytest.raises(InvalidInput, match="No module named 'nowhere'"):
        bundle.verify(tmp_path, sys.executable)


def test_a_bundle_is_tried_with_nothing_else_to_import_from(tmp_path):
    fill(
        tmp_path,
        {"eventlog/compaction/__init__.py": b"", CHECK: b"import pytest"},
    )
    with pytest.raises(InvalidInput, match="No module named 'pytest'"):
        bundle.verify(tmp_path, sys.executable)
    (tmp_path / CHECK).write_text("import json, ssl, zlib")
    bundle.verify(tmp_path, sys.executable)
    assert not list(tmp_path.rglob("*.pyc"))


@pytest.mark.localstack
@pytest.mark.timeout(600)
def test_a_real_bundle_compacts(tmp_path):
    """From PyPI; with the Python that LocalStack needs too."""
    finder = ROOT / ".ci" / "find-python"
    python = subprocess.run([finder, "3.13"], capture_output=True, text=True, check=True)
    out = tmp_path / "lambda.zip"
    built = subprocess.run(
        [sys.executable, "-m", "eventlog.compaction.aws.bundle", "--out", out, "--python", "3.13",
         "--interpreter", python.stdout.strip()],
        capture_output=True, text=True, timeout=500, cwd=ROOT,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert "tried: it compacts" in built.stdout
    with zipfile.ZipFile(out) as archive:
        inside = archive.namelist()
        assert sum(entry.file_size for entry in archive.infolist()) < bundle.MAX_BYTES
    assert "eventlog/compaction/lambda_handler.py" in inside
    packages = {name.partition("/")[0] for name in inside}
    assert not {p for p in packages if p.startswith(("boto", "pyspark", "numpy", "pandas"))}
    print(json.dumps({"said": built.stdout}))  # noqa: T201 - the sizes, with -s
