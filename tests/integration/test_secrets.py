"""No password that stands in an endpoint, a root, a proxy or an option gets into a log or a text.

Every road by which one can be given is tried. Each is refused before a request is sent.
"""

import json
import traceback

import pyarrow as pa
import pytest
from click.testing import CliRunner

from eventlog import Table, replication
from eventlog.cli.program import build
from eventlog.compaction.aws.replicating import ReplicatorSettings
from eventlog.errors import InvalidInput
from eventlog.readers import scan
from eventlog.readers.spark.spark_options import parse_spark_options
from eventlog.store.location import open_store
from eventlog.store.options import StoreOptions, parse_options
from eventlog.writers import append

SECRET = "hunter2"
KEYS = {"access_key_id": "a", "secret_access_key": SECRET, "region": "us-east-1"}
ENDPOINTS = [
    f"http://user:{SECRET}@127.0.0.1:9",
    f"https://{SECRET}@127.0.0.1",
    f"http://user:{SECRET}/x@127.0.0.1:9",
    f"http://user:{SECRET} x@127.0.0.1:9",
    f"http://127.0.0.1:9/?token={SECRET}",
    f"http://127.0.0.1:9#{SECRET}",
]


@pytest.fixture
def table(tmp_path):
    schema = pa.schema([("at", pa.timestamp("us", "UTC"))])
    made = Table.create(str(tmp_path / "t"), schema, time_column="at")
    append(made, pa.table({"at": pa.array([0], pa.timestamp("us", "UTC"))}))
    return made


def refused(call):
    """Check that the call is refused, and return all that may be shown of the error."""
    with pytest.raises(InvalidInput) as caught:
        call()
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
    return shown.replace(str(ENDPOINTS), "")


def by_options(table, options):
    uri = "s3://bucket/copy"
    yield lambda: parse_options(options)
    yield lambda: StoreOptions(**options)
    yield lambda: open_store(uri, options)
    yield lambda: Table.open(uri, options)
    yield lambda: scan(uri, storage_options=options)
    yield lambda: replication.follow(table, uri, name="us", target_options=options)
    yield lambda: replication.merge(uri, table, source_options=options)
    spark = {"path": uri, **{f"storage.{name}": value for name, value in options.items()}}
    yield lambda: open_store(uri, parse_spark_options(spark).storage)
    settings = {
        "EVENTLOG_REPLICAS": json.dumps({"s3://bucket/t": uri}),
        "EVENTLOG_REPLICA_OPTIONS": json.dumps(options),
    }
    yield lambda: ReplicatorSettings.of(settings)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_no_password_of_an_endpoint_gets_anywhere(table, tmp_path, endpoint):
    options = {**KEYS, "endpoint_url": endpoint}
    for call in by_options(table, options):
        assert SECRET not in refused(call)
    flags = [f"--storage-option={name}={value}" for name, value in options.items()]
    for mode in ([], ["--json"], ["--debug"]):
        answer = CliRunner().invoke(
            build(), ["replicate", table.uri, "s3://bucket/copy", "--name", "us", *flags, *mode]
        )
        assert answer.exit_code == 2
        assert SECRET not in answer.output
    assert not any(SECRET.encode() in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert replication.replicas(table) == {}


@pytest.mark.parametrize(
    ("variable", "endpoint"),
    [
        ("AWS_ENDPOINT_URL", ENDPOINTS[0]),
        ("AWS_ENDPOINT_URL", ENDPOINTS[3]),
        ("AWS_ENDPOINT_URL", ENDPOINTS[4]),
        ("AWS_ENDPOINT_URL_S3", ENDPOINTS[0]),
        ("profile", ENDPOINTS[0]),
    ],
)
def test_no_password_of_the_environment_gets_anywhere(
    table, tmp_path, monkeypatch, endpoint, variable
):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    if variable == "profile":
        (tmp_path / "config").write_text(f"[profile p]\nendpoint_url = {endpoint}\n")
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_PROFILE", "p")
    else:
        monkeypatch.setenv(variable, endpoint)
    uri = "s3://bucket/copy"
    for call in (
        lambda: replication.follow(table, uri, name="us", target_options=KEYS),
        lambda: open_store(uri).filesystem(),
    ):
        assert SECRET not in refused(call)
    answer = CliRunner().invoke(build(), ["replicate", table.uri, uri, "--name", "us"])
    assert answer.exit_code == 2
    assert SECRET not in answer.output
    assert replication.replicas(table) == {}


@pytest.mark.parametrize(
    "proxy",
    [
        f"ftp://user:{SECRET}@proxy:1",
        f"http://user:{SECRET}/x@127.0.0.1:9",
        f"http://user:x@127.0.0.1:{SECRET}",
        f"http://user:{SECRET}@",
    ],
)
def test_no_password_of_a_proxy_is_shown(monkeypatch, proxy):
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "")
    options = {**KEYS, "endpoint_url": "http://127.0.0.1:9"}
    assert SECRET not in refused(lambda: Table.open("s3://bucket/t", options).refresh())


def test_no_password_of_a_root_or_an_option_is_shown(tmp_path):
    roots = [
        f"s3://AKIA:{SECRET}@bucket/t",
        f"s3a://AKIA:{SECRET}@bucket/t",
        f"http://user:{SECRET}@host/t",
        f"user:{SECRET}@host:/t",
        f"file://user:{SECRET}@host/t",
        f"file:///t?key={SECRET}",
    ]
    for root in roots:
        assert SECRET not in refused(lambda: open_store(root))  # noqa: B023 - called at once
        for setting in ({root: "s3://b/t"}, {"s3://b/t": root}, {root: root}):
            settings = {"EVENTLOG_REPLICAS": json.dumps(setting)}
            assert SECRET not in refused(lambda: ReplicatorSettings.of(settings))  # noqa: B023
    answer = CliRunner().invoke(build(), ["log", "s3://b/t", "--storage-option", f"key:{SECRET}"])
    assert answer.exit_code == 2
    assert SECRET not in answer.output
    assert "NAME=VALUE" in answer.output


def test_what_has_a_secret_does_not_show_it():
    uri = "s3://bucket/t"
    settings = ReplicatorSettings.of(
        {
            "EVENTLOG_REPLICAS": json.dumps({"s3://bucket/a": uri}),
            "EVENTLOG_REPLICA_OPTIONS": json.dumps(KEYS),
        }
    )
    store = open_store(uri, KEYS)
    for each in (settings, store, Table(store), parse_options(KEYS)):
        assert SECRET not in repr(each) + str(each)
