"""The examples for Daft, Ray and Dask, where these are installed: `pip install daft ray dask`."""

import importlib.util

import pyarrow as pa
import pytest
from support.builders import events
from tidy.definitions import TESTS

from eventlog import Table
from eventlog.readers import scan
from eventlog.writers import append

pytestmark = pytest.mark.long


@pytest.fixture
def root(tmp_path):
    table = Table.create(tmp_path / "t", events(1).schema, time_column="at")
    for day in range(6):
        append(table, events(5, day=day, first=5 * day))
    return str(tmp_path / "t")


def example(name):
    path = TESTS.parent / "examples" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_daft_reads_a_version_in_parts(root):
    daft = pytest.importorskip("daft")
    frame = example("daft_source").read_version(root)
    assert frame.count_rows() == 30
    assert frame.limit(3).to_pydict()["name"] == ["row 0", "row 1", "row 2"]
    late = frame.where(daft.col("value") > 13).select("name").sort("name")
    assert late.to_pydict() == {"name": ["row 27", "row 28", "row 29"]}
    one = frame.where(daft.col("name") == "row 8").agg(daft.col("value").sum())
    assert one.to_pydict() == {"value": [4.0]}


@pytest.mark.filterwarnings("default")
def test_ray_reads_a_version_in_parts(root):
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        rows = example("ray_source").read_version(root)
        assert rows.count() == 30
        assert rows.sum("value") == sum(range(30)) / 2
        assert min(rows.select_columns(["name"]).take(100), key=str) == {"name": "row 0"}
        late = rows.filter(expr="value > 13").take_all()
        assert sorted(row["name"] for row in late) == ["row 27", "row 28", "row 29"]
    finally:
        ray.shutdown()


@pytest.mark.filterwarnings("default")
def test_dask_reads_a_version_in_parts(root):
    dataframe = pytest.importorskip("dask.dataframe")
    parts = scan(root, columns=["name", "value"]).parts(8)
    empty = pa.Table.from_batches([], parts[0].schema).to_pandas()
    frame = dataframe.from_map(lambda part: part.to_pandas(), parts, meta=empty)
    assert len(frame) == 30
    assert frame.value.sum().compute(scheduler="threads") == sum(range(30)) / 2
