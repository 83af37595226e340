"""The pages that a newcomer opens first run with the extra that they name, and no other one."""

import re
import subprocess
import sys

from tidy.definitions import TESTS
from tidy.tables import EXTRAS

ROOT = TESTS.parent
NAMED = {"click", "rich"}  # what the extra `cli` installs
MISSING = sorted({*EXTRAS} - NAMED)

RUN = """
import os
import sys
from pathlib import Path


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


sys.meta_path.insert(0, Missing())
from docs.test_examples import run

for page in map(Path, sys.argv[2:]):
    # README leads on to it, in the same folder.
    folder = Path("README" if page.stem == "getting-started" else page.stem)
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    print("page", page, run(page, {"__name__": "example"}))
    os.chdir("..")
"""


def test_the_first_pages_need_one_extra(tmp_path):
    pages = {"README.md": 2, "docs/index.md": 1, "docs/getting-started.md": 6}
    other = tmp_path / "other.md"
    other.write_text("```python\nimport pandas\n```\n")  # would fail
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN, ",".join(MISSING), *(ROOT / n for n in pages), other],
        cwd=tmp_path,
        # No account of AWS either.
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{TESTS}"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    counts = dict(re.findall(r"^page (\S+) (\d+)$", done.stdout, re.MULTILINE))
    for page, least in pages.items():
        assert int(counts.get(str(ROOT / page), 0)) >= least, done.stderr
    assert "No module named 'pandas'" in done.stderr
