"""The golden branches, found by the text of FORMAT.md section 6 alone: files, JSON and hashes."""

import hashlib
import json

import pytest
from golden.vectors import TABLES

ROOT = TABLES / "branched"
BRANCHES = [("audit",), ("audit", "fix")]


def lineage(branch):
    """Where objects of a branch and of its ancestors lie, each with the fork that it ends below."""
    found = [(ROOT, -1)]
    for name in branch:
        fork = found[0][0] / "_branches" / name / "_fork.json"
        told = json.loads(fork.read_bytes())
        found.insert(0, (fork.parent / told["id"], told["version"]))
    return found


def root_of(branch, number, *, epoch):
    """The root of a version's commit, or of a segment of an epoch, by R16.3."""
    for root, fork in lineage(branch):
        if number > fork or (epoch and number == fork):
            return root
    raise AssertionError


def commit_of(branch, version):
    name = f"_log/{999_999_999_999 - version:012d}.json"
    return (root_of(branch, version, epoch=False) / name).read_bytes()


@pytest.mark.parametrize("branch", BRANCHES)
def test_the_chain_runs_over_the_forks(branch):
    head = json.loads(min((lineage(branch)[0][0] / "_log").glob("????????????.json")).read_bytes())
    forks = {fork: root for root, fork in lineage(branch) if fork >= 0}
    before = None
    for version in range(head["header"]["version"] + 1):
        body = commit_of(branch, version)
        assert json.loads(body)["header"]["prev"] == before
        before = hashlib.sha256(body).hexdigest()
        if version in forks:
            assert (
                json.loads((forks[version].parent / "_fork.json").read_bytes())["commit"] == before
            )


@pytest.mark.parametrize("branch", BRANCHES)
def test_segments_lie_where_their_epoch_says(branch):
    head = json.loads(min((lineage(branch)[0][0] / "_log").glob("????????????.json")).read_bytes())
    places = set()
    for version in range(head["header"]["version"] + 1):
        for entry in json.loads(commit_of(branch, version))["delta"]["adds"]:
            root = root_of(branch, entry["epoch"], epoch=True)
            name = f"data/{entry['epoch']:012d}/{entry['chunk']}/{entry['id']}.parquet"
            if version < 3 and not (root / name).exists():
                continue  # vacuumed in the parent, before the version that the pin holds
            body = (root / name).read_bytes()
            assert hashlib.sha256(body).hexdigest() == entry["checksum"]
            places.add((root, entry["version"] > 4 and root == ROOT))
    # The restored segment has a version of the branch, and lies in the table.
    assert (ROOT, True) in places
    assert {root for root, _ in places} == {root for root, _ in lineage(branch)}
