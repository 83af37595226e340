"""A catalog that programs reach by Iceberg's REST protocol: what it needs for one program's writes.

It judges nothing: what a program says is committed. So what becomes of a write is the program's.
"""

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

NAMESPACE = "n"


class RestCatalog:
    """A catalog of one namespace, served by a thread of this process.

    Attributes:
        uri: that programs are given.
        tables: the URIs of the metadata of the tables, by name.
    """

    def __init__(self):
        self.tables = {}
        self._lists = {}
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (_Asked,), {"catalog": self}))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.uri = f"http://127.0.0.1:{server.server_address[1]}"

    def answer(self, method, path, body):
        """Return the code and the body of the answer to a request."""
        match (method, *path):
            case ("GET", "config"):
                return 200, {"defaults": {}, "overrides": {}}
            case ("GET", "namespaces"):
                return 200, {"namespaces": [[NAMESPACE]]}
            case ("GET" | "HEAD", "namespaces", name):
                return 200, {"namespace": [name], "properties": {}}
            case ("GET", "namespaces", name, "tables"):
                return 200, {"identifiers": [{"namespace": [name], "name": n} for n in self.tables]}
            case ("GET" | "HEAD", "namespaces", _, "tables", table) if table in self.tables:
                return 200, self._loaded(table)
            case ("GET" | "HEAD", "namespaces", _, "tables", _):
                return 404, _error(404, "NoSuchTableException")
            case ("POST", "namespaces", _, "tables"):
                return 200, self._created(body)
            case ("POST", "namespaces", _, "tables", table):
                self._commit(table, body["updates"])
                return 200, self._loaded(table)
            case ("POST", "transactions", "commit"):
                for change in body["table-changes"]:
                    self._commit(change["identifier"]["name"], change["updates"])
                return 204, None
            case ("DELETE", "namespaces", _, "tables", table):
                del self.tables[table]
                return 204, None
        return 406, _error(406, f"no {method} {'/'.join(path)}")

    def _loaded(self, table):
        location = self.tables[table]
        metadata = json.loads(_path(location).read_bytes())
        return {"metadata-location": location, "metadata": metadata, "config": {}}

    def _created(self, body):
        schema = {"schema-id": 0, **body["schema"]}
        metadata = {
            "format-version": int(body["properties"]["format-version"]),
            "table-uuid": str(uuid.uuid4()),
            "location": body["location"],
            "last-sequence-number": 0,
            "last-updated-ms": 0,
            "last-column-id": max(field["id"] for field in schema["fields"]),
            "schemas": [schema],
            "current-schema-id": 0,
            "partition-specs": [{"spec-id": 0, "fields": []}],
            "default-spec-id": 0,
            "last-partition-id": 999,
            "sort-orders": [{"order-id": 0, "fields": []}],
            "default-sort-order-id": 0,
            "properties": {},
            "snapshots": [],
        }
        self._put(body["name"], metadata)
        return self._loaded(body["name"])

    def _commit(self, table, updates):
        metadata = self._loaded(table)["metadata"]
        for update in updates:
            _apply(metadata, update)
        self._put(table, metadata)

    def _put(self, table, metadata):
        number = 1 + len(self._lists.setdefault(table, []))
        name = f"{number:05d}-{uuid.uuid4()}.metadata.json"
        location = f"{metadata['location']}/metadata/{name}"
        _path(location).parent.mkdir(parents=True, exist_ok=True)
        _path(location).write_text(json.dumps(metadata), encoding="utf-8")
        self._lists[table].append(location)
        self.tables[table] = location


def _apply(metadata, update):
    """Change metadata by an update; those of a new table's form are left out."""
    match update["action"]:
        case "add-snapshot":
            snapshot = update["snapshot"]
            metadata["snapshots"].append(snapshot)
            metadata["last-sequence-number"] = snapshot["sequence-number"]
            if "added-rows" in snapshot:
                metadata["next-row-id"] = snapshot["first-row-id"] + snapshot["added-rows"]
        case "set-snapshot-ref":
            kept = ("snapshot-id", "type")
            reference = {name: update[name] for name in kept}
            metadata.setdefault("refs", {})[update["ref-name"]] = reference
            if update["ref-name"] == "main":
                metadata["current-snapshot-id"] = update["snapshot-id"]
        case "set-properties":
            metadata["properties"] |= update["updates"]
        case "add-schema":
            metadata["schemas"].append(update["schema"])
            ids = [field["id"] for field in update["schema"]["fields"]]
            metadata["last-column-id"] = max(metadata["last-column-id"], *ids)
        case "set-current-schema":
            metadata["current-schema-id"] = metadata["schemas"][-1]["schema-id"]


def _path(location):
    return Path(location.removeprefix("file://"))


def _error(code, message):
    return {"error": {"message": message, "type": message, "code": code}}


class _Asked(BaseHTTPRequestHandler):
    """The requests that the catalog is asked by."""

    catalog = None
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""

    def _answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path.strip("/").split("/")[1:]
        try:
            code, found = self.catalog.answer(self.command, path, json.loads(body or b"{}"))
        except Exception as error:  # noqa: BLE001 - the program is told
            code, found = 500, _error(500, f"{type(error).__name__}: {error}")
        sent = b"" if found is None else json.dumps(found).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(sent)

    do_GET = do_HEAD = do_POST = do_DELETE = _answer  # noqa: N815 - names of the library
