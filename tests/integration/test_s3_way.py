"""Both S3 clients go one way: boto3 for small objects, pyarrow for large ones.

A proxy that answers nothing writes down where each of them wants to go, for every setting that
leads to a store; and a server with a certificate of a private authority is read by both.
"""

import datetime as dt
import ipaddress
import os
import random
import socket
import socketserver
import ssl
import threading
from contextlib import suppress

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from support.builders import SCHEMA

from eventlog import Table
from eventlog.errors import InvalidInput, KeyNotFound, Unavailable
from eventlog.readers import scan
from eventlog.store.s3 import clients
from eventlog.store.s3.adapter import S3Store
from eventlog.writers import append

REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BASE = {
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_REGION": "eu-central-1",
    "AWS_DEFAULT_REGION": "eu-central-1",
}
LOOK_ALIKE = "http://minio.example.com:9000"


@pytest.fixture
def proxy():
    """A proxy that notes the targets it is asked for; and the list of them."""
    asked = []

    class Note(socketserver.StreamRequestHandler):
        def handle(self):
            asked.append(self.rfile.readline().decode().split()[1])
            with suppress(OSError):
                self.wfile.write(REFUSED)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Note) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()


@pytest.fixture
def surroundings(monkeypatch, tmp_path):
    """Sets the whole environment that leads to a store."""

    def surround(variables, config=""):
        for name in list(os.environ):
            if name.startswith("AWS_") or name.lower().endswith(("_proxy", "_bundle")):
                monkeypatch.delenv(name)
        if config:
            path = tmp_path / "config"
            path.write_text(config)
            variables = {"AWS_CONFIG_FILE": str(path), **variables}
        for name, value in {**BASE, **variables}.items():
            if value is not None:
                monkeypatch.setenv(name, value)
        monkeypatch.setattr(clients, "READ_ATTEMPTS", 1)

    return surround


def targets(store, asked):
    """Where each client wants to go, without the query: two sets of one place each."""
    found = []
    files, root = store.filesystem()
    for read in (lambda: store.get("k"), lambda: files.open_input_file(f"{root}/k")):
        asked.clear()
        with pytest.raises((Unavailable, InvalidInput, OSError)):
            read()
        found.append({target.partition("?")[0] for target in asked})
    return found


S3 = ".amazonaws.com:443"
PROFILE = "[default]\ns3 =\n  "
WAYS = {
    "AWS itself": ({}, "", {}, f"mine.s3.eu-central-1{S3}"),
    "options": ({}, "", {"endpoint_url": LOOK_ALIKE}, f"{LOOK_ALIKE}/mine/root/k"),
    "endpoint": ({"AWS_ENDPOINT_URL": LOOK_ALIKE}, "", {}, f"{LOOK_ALIKE}/mine/root/k"),
    "endpoint of S3": ({"AWS_ENDPOINT_URL_S3": LOOK_ALIKE}, "", {}, f"{LOOK_ALIKE}/mine/root/k"),
    "endpoint of a named profile": (
        {"AWS_PROFILE": "mine"},
        f"[profile mine]\nendpoint_url = {LOOK_ALIKE}\n",
        {},
        f"{LOOK_ALIKE}/mine/root/k",
    ),
    "endpoint ignored": (
        {"AWS_ENDPOINT_URL_S3": LOOK_ALIKE, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
        "",
        {},
        f"mine.s3.eu-central-1{S3}",
    ),
    "endpoint of AWS": (
        {"AWS_ENDPOINT_URL": "https://s3.eu-west-1.amazonaws.com"},
        "",
        {},
        f"s3.eu-west-1{S3}",
    ),
    "endpoint of a VPC": (
        {"AWS_ENDPOINT_URL": "https://bucket.vpce-1a.s3.eu-central-1.vpce.amazonaws.com"},
        "",
        {},
        f"bucket.vpce-1a.s3.eu-central-1.vpce{S3}",
    ),
    "IPv6": (
        {"AWS_ENDPOINT_URL": "http://[2001:db8::1]:9000"},
        "",
        {},
        "http://[2001:db8::1]:9000/mine/root/k",
    ),
    "FIPS": ({"AWS_USE_FIPS_ENDPOINT": "true", "AWS_REGION": "us-west-2",
              "AWS_DEFAULT_REGION": "us-west-2"}, "", {}, f"mine.s3-fips.us-west-2{S3}"),
    "dual stack": (
        {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
        "",
        {},
        f"mine.s3.dualstack.eu-central-1{S3}",
    ),
    "accelerate": (
        {},
        f"{PROFILE}use_accelerate_endpoint = true\n",
        {},
        f"mine.s3-accelerate{S3}",
    ),
    "path style": ({}, f"{PROFILE}addressing_style = path\n", {}, f"s3.eu-central-1{S3}"),
    "virtual style": (
        {"AWS_ENDPOINT_URL": LOOK_ALIKE},
        f"{PROFILE}addressing_style = virtual\n",
        {},
        "http://mine.minio.example.com:9000/root/k",
    ),
    "region of the options": ({}, "", {"region": "sa-east-1"}, f"mine.s3.sa-east-1{S3}"),
    "region of the profile": (
        {"AWS_PROFILE": "mine", "AWS_REGION": None, "AWS_DEFAULT_REGION": None},
        "[profile mine]\nregion = ap-south-1\n",
        {},
        f"mine.s3.ap-south-1{S3}",
    ),
}  # fmt: skip


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", WAYS)
def test_both_clients_go_the_same_way(name, proxy, surroundings):
    address, asked = proxy
    variables, config, options, wanted = WAYS[name]
    surroundings({"HTTP_PROXY": address, "HTTPS_PROXY": f"http://{address}", **variables}, config)
    store = S3Store("s3://mine/root", options)
    assert targets(store, asked) == [{wanted}, {wanted}]


@pytest.mark.parametrize("past", ["minio.example.com", "*"])
def test_both_clients_go_past_the_proxy_where_they_are_told_to(past, proxy, surroundings):
    address, asked = proxy
    # The endpoint is the proxy itself, which is asked for a path if the request is for it.
    endpoint = {"AWS_ENDPOINT_URL": f"http://{address}"}
    surroundings({"http_proxy": f"http://{address}", "no_proxy": "127.0.0.1", **endpoint})
    direct = {"/mine/root/k"}
    assert targets(S3Store("s3://mine/root"), asked) == [direct, direct]
    surroundings({"http_proxy": f"http://{address}", "no_proxy": past, **endpoint})
    through = direct if past == "*" else {f"http://{address}/mine/root/k"}
    assert targets(S3Store("s3://mine/root"), asked) == [through, through]


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"AWS_ENDPOINT_URL": f"{LOOK_ALIKE}/base"}, "ends with the path '/base'"),
        ({"AWS_ENDPOINT_URL": LOOK_ALIKE, "HTTP_PROXY": "socks5://127.0.0.1:9"}, "scheme 'socks5'"),
        ({"AWS_CA_BUNDLE": "/nowhere/ca.pem"}, "name a file in PEM format"),
        ({"AWS_CA_BUNDLE": "/"}, "name a file in PEM format"),
        ({"REQUESTS_CA_BUNDLE": "/nowhere/ca.pem"}, "name a file in PEM format"),
    ],
)
def test_what_pyarrow_cannot_do_is_refused_at_the_first_request(variables, says, surroundings):
    surroundings(variables)
    with pytest.raises(InvalidInput, match=says):
        Table.open("s3://mine/root").refresh()


# --- a private authority --------------------------------------------------------------------------


def _certificate(name, key, issuer, issuer_key, *, authority):
    now = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=36_500))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
        .add_extension(
            x509.KeyUsage(*(True, False, False, False, False, authority, authority, False, False)),
            critical=True,
        )
    )
    if not authority:
        host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        made = made.add_extension(host, critical=False)
    return made.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture
def certified(s3, tmp_path):
    """The S3 server behind TLS, and the file of the authority that signed its certificate."""
    authority, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    bundle, chain = tmp_path / "ca.pem", tmp_path / "server.pem"
    bundle.write_bytes(_certificate("ca", authority, "ca", authority, authority=True))
    private = own.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    chain.write_bytes(_certificate("server", own, "ca", authority, authority=False) + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    behind = ("127.0.0.1", int(s3.endpoint_url.rpartition(":")[2]))

    class Forward(socketserver.BaseRequestHandler):
        def handle(self):
            with (
                suppress(OSError),
                context.wrap_socket(self.request, server_side=True) as near,
                socket.create_connection(behind) as far,
            ):
                back = threading.Thread(target=_pump, args=(far, near), daemon=True)
                back.start()
                _pump(near, far)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Forward) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{server.server_address[1]}", str(bundle)
        server.shutdown()
        thread.join()


def _pump(source, sink):
    with suppress(OSError):
        while piece := source.recv(65_536):
            sink.sendall(piece)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("how", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "profile"])
def test_large_segments_are_read_behind_a_private_authority(how, bucket, certified, surroundings):
    endpoint, bundle = certified
    variables = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "testing"}
    config = f"[default]\nca_bundle = {bundle}\n" if how == "profile" else ""
    surroundings(variables if config else {**variables, how: bundle}, config)
    table = Table.create(f"s3://{bucket}/t", SCHEMA, time_column="at")
    names = [random.Random(n).randbytes(700_000).hex() for n in range(2)]
    rows = pa.table([[1, 2], names, [0.5, 1.5]], schema=SCHEMA)
    append(table, rows)
    (segment,) = table.session.head().segments()
    assert segment.bytes > 2**20
    assert scan(table, ["name"]).to_table().column("name").to_pylist() == names


def test_an_unknown_authority_is_refused_before_anything_is_written(
    bucket, certified, surroundings
):
    endpoint, _ = certified
    surroundings({"AWS_ENDPOINT_URL": endpoint})
    store = S3Store(f"s3://{bucket}/t")
    with pytest.raises(Unavailable, match=r"SSL|certificate"):
        store.get("k")
    surroundings({"AWS_ENDPOINT_URL": endpoint, "AWS_CA_BUNDLE": certified[1]})
    with pytest.raises(KeyNotFound):
        S3Store(f"s3://{bucket}/t").get("k")
