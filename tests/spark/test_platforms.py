"""The example job as platforms run it: an environment or a wheel is sent to the executors.

The executors of `local-cluster` are processes with folders of their own; nothing of this checkout
is on their path. The environment is built from PyPI, which takes a minute.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest

from eventlog import Table, readers

# The environment is downloaded, and two JVMs start for each test.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
QUIET = ["--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR"]
QUIET += ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"]
OURS = ("eventlog", "_eventlog", "__editable__", "pyspark_eventlog")


def run(*command, environment=None):
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


def submit(uri, *arguments, driver, executor):
    """Run the job twice; return the last line of each. Nothing leads Python to this checkout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYSPARK_PYTHON": str(executor), "PYSPARK_DRIVER_PYTHON": str(driver)}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONSAFEPATH": "1"}
    job = [ROOT / "examples" / "spark_job.py", "--uri", uri, "--day", "2013-01-07"]
    command = [SUBMIT, "--master", "local-cluster[2,1,1024]", *QUIET, *arguments, *job]
    command += ["--JOB_NAME", "load"]
    return [run(*command, environment=environment).splitlines()[-1] for _ in range(2)]


def check(uri, said):
    assert said == ["version 1, 1440 rows"] * 2
    assert readers.count(uri) == 1440
    assert Table.open(uri).session.head().version == 1


def test_an_environment_is_sent_along(wheel, tmp_path, root_uri):
    """As on EMR Serverless, and with `spark-submit --archives`."""
    environment, archive = tmp_path / "env", tmp_path / "environment.tar.gz"
    run(sys.executable, "-m", "venv", environment)
    run(environment / "bin/pip", "install", "--quiet", f"{wheel}[job]", "venv-pack", "setuptools")
    run(environment / "bin/venv-pack", "--prefix", environment, "--output", archive)
    said = submit(
        root_uri,
        "--archives",
        f"{archive}#environment",
        driver=environment / "bin/python",
        executor="./environment/bin/python",
    )
    check(root_uri, said)


def test_a_wheel_is_sent_along(wheel, tmp_path, root_uri):
    """As a library of a cluster whose machines have the other packages."""
    archive = tmp_path / "eventlog.zip"
    shutil.copy(wheel, archive)
    others = tmp_path / "site"
    others.mkdir()
    for package in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if not package.name.startswith(OURS):
            (others / package.name).symlink_to(package)
    python = tmp_path / "python3"
    path = f'export PYTHONPATH="$PYTHONPATH:{others}"'
    python.write_text(f'#!/bin/sh\n{path}\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    check(root_uri, submit(root_uri, "--py-files", archive, driver=python, executor=python))
