"""The shape of the code: layers, banned imports, docstrings, sizes, words, files.

The rules and their exceptions are in `tables`, the checks in `checks`. Each check is shown to fail
on a made-up source, so that an empty list of findings is meaningful.
"""

import subprocess
import sys

import pytest
from tidy.checks import (
    CODE_CHECKS,
    ROOT,
    Sources,
    call_findings,
    class_findings,
    docstring_findings,
    file_findings,
    function_findings,
    layer_findings,
    owner_findings,
    package_findings,
    package_of,
    path_findings,
    purity_findings,
    read_packages,
    size_findings,
    table_findings,
    word_findings,
)
from tidy.tables import EXTRAS, PACKAGE_MAY_IMPORT


@pytest.fixture(scope="module")
def sources() -> Sources:
    found = read_packages()
    assert {package_of(name) for name in found} == set(PACKAGE_MAY_IMPORT)
    return found


@pytest.mark.parametrize("check", CODE_CHECKS, ids=lambda check: check.__name__)
def test_packages_are_tidy(check, sources):
    found = check(sources)
    assert not found, "\n" + "\n".join(found)


# Each check, a made-up module that it must report, and a part of the finding.
PLANTED = [
    (table_findings, "eventlog.attic.box", '"""New."""', "eventlog/attic/ is on no floor"),
    (
        layer_findings,
        "eventlog.model.records",
        "from eventlog.format import codec",
        "records:1 (model) imports eventlog.format.codec (format): upward",
    ),
    (layer_findings, "eventlog.format.codec", "import eventlog.store.port", "(format) imports"),
    (layer_findings, "eventlog.format.keys", "from ..log import chain", "(format) imports"),
    (layer_findings, "eventlog.query.sql.values", "import eventlog.store.port", "(query) imports"),
    (layer_findings, "eventlog.errors", "from eventlog.model import chunks", "(ground) imports"),
    (layer_findings, "eventlog.store.port", "from eventlog import Table", "(face): upward"),
    (layer_findings, "eventlog.format.keys", "def f():\n    from ..log import log", "keys:2"),
    (
        package_findings,
        "eventlog.format.codec",
        "import eventlog.readers",
        "codec:1 imports eventlog",
    ),
    (
        package_findings,
        "eventlog.compaction.run",
        "def f():\n    import eventlog.writers.append",
        "run:2 imports eventlog.writers",
    ),
    (
        package_findings,
        "eventlog.writers.append",
        "from eventlog.compaction import plan",
        "append:1 imports eventlog.compaction",
    ),
    (
        package_findings,
        "eventlog.readers.scan",
        "from eventlog.writers import append",
        "scan:1 imports eventlog.writers",
    ),
    (
        package_findings,
        "eventlog.readers.scan",
        "from eventlog.rewriting import outputs",
        "scan:1 imports eventlog.rewriting",
    ),
    (
        package_findings,
        "eventlog.compaction.run",
        "from eventlog.cli import terminal",
        "run:1 imports eventlog.cli",
    ),
    (
        package_findings,
        "eventlog.demo.spark.spark_jobs",
        "from eventlog.cli import terminal",
        "jobs:1 imports eventlog.cli",
    ),
    (
        owner_findings,
        "eventlog.format.codec",
        "import time",
        "codec:1 imports time: only eventlog.clock",
    ),
    (
        owner_findings,
        "eventlog.readers.scan",
        "from botocore.config import Config",
        "scan:1 imports boto",
    ),
    (owner_findings, "eventlog.store.s3.adapter", "import moto.server", "adapter:1 imports moto"),
    (
        owner_findings,
        "eventlog.compaction.run",
        "def f():\n    import pyspark.sql",
        "run:2 imports pyspark",
    ),
    (
        class_findings,
        "eventlog.query.attic",
        '"""New."""\n\nclass Table:\n    """Another one."""',
        "attic.Table has the name of a class in eventlog.table.table",
    ),
    (
        file_findings,
        "eventlog.query.table",
        '"""New."""',
        "query.table has the file name of eventlog.table.table",
    ),
    (
        function_findings,
        "eventlog.query.attic",
        '"""New."""\n\ndef to_segments():\n    """Another one."""',
        "attic.to_segments has the name of a function in eventlog.format.frames.entry_columns",
    ),
    (
        purity_findings,
        "eventlog.state.fold",
        "import logging",
        "fold:1 imports logging: state is pure",
    ),
    (
        call_findings,
        "eventlog.writers.append",
        "import datetime\ndatetime.datetime.now()",
        "append:2 calls",
    ),
    (
        docstring_findings,
        "eventlog.readers.scan",
        '"""Scan."""\ndef f(): ...',
        "readers.scan.f has no",
    ),
    (docstring_findings, "eventlog.readers.scan", "x = 1", "readers.scan has no docstring"),
    (
        docstring_findings,
        "eventlog.readers.scan",
        '"""Scan."""\nclass C:\n    """C."""\n    def m(self): ...',
        "readers.scan.C.m has no docstring",
    ),
    (size_findings, "eventlog.readers.scan", "def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
    (
        word_findings,
        "eventlog.readers.scan",
        "class ScanManager: ...",
        "readers.scan.ScanManager has",
    ),
    (word_findings, "eventlog.readers.utils", '"""U."""', "readers.utils has"),
    (
        word_findings,
        "eventlog.readers.scan",
        "def f(info_text): ...",
        "readers.scan.f.info_text has",
    ),
    (word_findings, "eventlog.readers.scan", "class C:\n    file_handle: int", "C.file_handle has"),
]


@pytest.mark.parametrize(("check", "module", "source", "expected"), PLANTED)
def test_planted_fault_is_reported(check, module, source, expected, sources):
    planted = check({**sources, module: source})
    assert any(expected in finding for finding in planted), planted


@pytest.mark.parametrize(
    ("module", "source"),
    [
        (
            "eventlog.format.codec",
            "from eventlog import errors, model\nfrom eventlog.keys import x",
        ),
        ("eventlog.clock", "import time, random, secrets"),
        ("eventlog.store.s3.adapter", "def f():\n    import boto3"),
        ("eventlog.writers.append", "import eventlog.codec\nfrom eventlog.readers import scan"),
        ("eventlog.readers.spark", "from pyspark.sql import DataFrame"),
        ("eventlog.demo.spark.spark_jobs", "import pyspark"),
    ],
)
def test_right_imports_are_not_reported(module, source, sources):
    planted = {**sources, module: source}
    found = [*layer_findings(planted), *package_findings(planted), *owner_findings(planted)]
    assert not [finding for finding in found if finding.startswith(f"{module}:")]


def test_removed_room_is_reported_while_the_table_names_it(sources):
    left = {name: s for name, s in sources.items() if not name.startswith("eventlog.query.")}
    assert any("has 'query'" in finding for finding in table_findings(left))


IMPORT_WITHOUT = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Missing())
for package in sys.argv[2:]:
    __import__(package)
"""


def import_without(missing: tuple[str, ...], *packages: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT, ",".join(missing), *packages],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_base_install_imports_without_the_extras():
    done = import_without(
        EXTRAS, "eventlog", "eventlog.readers", "eventlog.writers", "eventlog.compaction"
    )
    assert done.returncode == 0, (
        f"the packages must import where none of {', '.join(EXTRAS)} is installed: import it"
        f" inside the function that needs it\n{done.stderr}"
    )


def test_nothing_loads_pandas_or_sqlglot_before_it_is_needed():
    """Loading pandas takes half as long as everything else, at each start of the program."""
    packages = "eventlog.cli.entry, eventlog.readers, eventlog.writers.files, eventlog.compaction"
    look = f"import {packages}, sys; print([n for n in ('pandas', 'sqlglot') if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("package", EXTRAS)
def test_import_hook_does_hide_an_extra(package):
    done = import_without(EXTRAS, package)
    assert f"No module named '{package}'" in done.stderr


@pytest.mark.parametrize("folder", ["localstack", "tests"])
def test_folder_is_no_package(folder):
    assert (ROOT / folder).is_dir()
    found = [str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("__init__.py")]
    assert not found, f"{found}: it would shadow a package of PyPI, or undo importlib mode"


@pytest.mark.parametrize("package", [p for p in PACKAGE_MAY_IMPORT if (ROOT / p).is_dir()])
def test_package_is_typed(package):
    assert (ROOT / package / "py.typed").is_file(), f"{package}/py.typed is missing (PEP 561)"


def read_tracked_text() -> Sources:
    """Return every text file that is, or would be, in the repository."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=240,
    )
    found = {}
    for name in filter(None, listing.stdout.decode().split("\0")):
        path = ROOT / name
        content = path.read_bytes() if path.is_file() else b""
        if b"\0" not in content[:8192]:
            found[name] = content.decode("utf-8", errors="replace")
    return found


MOST_MODULES = 9  # in a folder that a person can hold in mind, besides __init__ and __main__


def crowded_folders(folders):
    """Return the folders of shipped code with too many modules."""
    counted = {
        folder: sum(not path.name.startswith("__") for path in folder.glob("*.py"))
        for folder in folders
    }
    return {folder.name: count for folder, count in counted.items() if count > MOST_MODULES}


def test_a_room_has_few_modules(tmp_path):
    roots = [ROOT / name for name in ("eventlog", "readers", "writers", "compaction")]
    folders = [path.parent for root in roots for path in root.rglob("__init__.py")]
    assert len(folders) > 25
    assert crowded_folders(folders) == {}
    for number in range(MOST_MODULES + 1):
        (tmp_path / f"module_{number}.py").touch()
    assert crowded_folders([tmp_path]) == {tmp_path.name: MOST_MODULES + 1}


@pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="only a checkout has a list of tracked files"
)
def test_no_text_names_a_path_of_one_machine():
    files = read_tracked_text()
    assert "pyproject.toml" in files
    found = path_findings(files)
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        ("cd /" + "work/main", 1),
        ('open("/' + "home" + '/me/x")', 1),
        ("PATH=/" + "root/bin", 1),
        ("s3://bucket/" + "work/x", 0),
        ("{root}/" + "home/x and a homework/root/ exercise", 0),
    ],
)
def test_machine_paths_are_recognised(line, reported):
    assert len(path_findings({"a.txt": line})) == reported
