"""What is installed: two packages, which get along with whatever a job is made of."""

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOB = """
import readers, writers, compaction  # noqa: TID251 - the job's own
from eventlog.compaction import plan
from eventlog.readers import scan
from eventlog.writers import append

assert [m.OURS for m in (readers, writers, compaction)] == [1, 1, 1]
print(scan.__module__, append.__module__, plan.__module__)
"""


def run(*command, folder, path):
    """What a program prints that finds packages in these folders, in this order."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def job_in(folder):
    """A job with packages of its own that are called as our folders are."""
    for name in ("readers", "writers", "compaction"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("OURS = 1\n")
    (folder / "job.py").write_text(JOB)
    return folder


def test_a_job_may_have_packages_of_its_own_called_readers_and_writers(tmp_path):
    job = job_in(tmp_path / "job")
    modules = run("job.py", folder=job, path=[job, ROOT]).split()
    assert all(module.startswith("eventlog.") for module in modules)


def left_out():
    """The files of the packages that a wheel lacks, as paths in it."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    excluded = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    return {path.removeprefix("/") for path in excluded}


@pytest.mark.verify
def test_nothing_in_a_wheel_imports_what_it_lacks():
    """The demo and the server of the guides load without it."""
    finder = f"""
import sys
from importlib.abc import MetaPathFinder

class Lacks(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.replace(".", "/") + ".py" in {left_out()!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Lacks())
import eventlog.demo.contest.contest, eventlog.demo.spark.demo
import eventlog.store.testing.local_server
try:
    import eventlog.store.testing.wrappers
except ModuleNotFoundError as error:
    print(error)
"""
    assert run("-c", finder, folder=ROOT, path=[ROOT]).strip() == "eventlog.store.testing.wrappers"


@pytest.mark.long
def test_a_wheel_has_two_packages_and_works_beside_such_a_job(tmp_path):
    pip = [sys.executable, "-m", "pip"]
    subprocess.run(
        [*pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, ROOT],
        check=True, timeout=280,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("eventlog_tables-*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        "eventlog",
        "pyspark_eventlog",
    }
    for folder in ("readers", "writers", "compaction"):
        wanted = {f"eventlog/{p.relative_to(ROOT)}" for p in (ROOT / folder).rglob("*.py")}
        assert wanted <= set(names)
    assert "eventlog/store/testing/local_server.py" in names
    assert not left_out() & set(names)
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--target", tmp_path / "site", wheel],
        check=True, timeout=280,
    )  # fmt: skip
    job = job_in(tmp_path / "job")
    assert "eventlog.readers" in run("job.py", folder=job, path=[job, tmp_path / "site"])
