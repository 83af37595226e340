"""The tables of the tidy test: what a new module, or an exception to a rule, is entered in.

Each exception stands with its reason.
"""

import re

# A module imports only from its own layer and from those before it.
LAYERS = ("words", "pure", "ports", "shell")

# Every module of eventlog/, by its name inside the package.
LAYER_OF = {
    "terminal": "shell",
    "program": "shell",
    "inspection": "shell",
    "commands": "shell",
    "cli": "shell",
    "fallback": "shell",
    "fsck": "shell",
    "repair": "shell",
    "walk": "shell",
    "upkeep": "shell",
    "findings": "words",
    "leftovers": "pure",
    "sql_size": "pure",
    "sql_tokens": "pure",
    "sql_values": "pure",
    "sql": "pure",
    "scan": "pure",
    "pruning": "pure",
    "predicate": "pure",
    "literals": "pure",
    "like": "pure",
    "guarantees": "pure",
    "conditions": "pure",
    "schema_text": "pure",
    "audit": "pure",
    "errors": "words",
    "limits": "words",
    "actions": "words",
    "entries": "words",
    "model": "words",
    "arguments": "pure",
    "assessment": "pure",
    "claims": "pure",
    "creation": "pure",
    "holds": "pure",
    "tally": "words",
    "timeline": "pure",
    "timing": "pure",
    "chain": "pure",
    "chunks": "pure",
    "codec": "pure",
    "cutting": "pure",
    "decimals": "pure",
    "decoding": "pure",
    "delta": "pure",
    "diff": "pure",
    "fold": "pure",
    "keyframe": "pure",
    "keys": "pure",
    "lineage": "pure",
    "moments": "pure",
    "options": "pure",
    "places": "pure",
    "parts": "pure",
    "properties": "pure",
    "proposal": "pure",
    "rebase": "pure",
    "resolve": "pure",
    "restoration": "pure",
    "rows": "pure",
    "frames": "pure",
    "sweep": "pure",
    "rules": "pure",
    "spills": "pure",
    "s3_answers": "pure",
    "schema": "pure",
    "seal": "pure",
    "segments": "pure",
    "snapshot": "pure",
    "stats": "pure",
    "verification": "pure",
    "wellformed": "pure",
    "clock": "ports",
    "faults": "ports",
    "memory": "ports",
    "store": "ports",
    "store_files": "ports",
    "wrappers": "ports",
    "__init__": "shell",
    "commit": "shell",
    "framing": "shell",
    "history": "shell",
    "identity": "shell",
    "holding": "shell",
    "leases": "shell",
    "local": "shell",
    "local_server": "shell",
    "location": "shell",
    "log": "shell",
    "publish": "shell",
    "s3": "shell",
    "s3_clients": "shell",
    "settings": "shell",
    "s3_way": "shell",
    "restage": "shell",
    "slot": "shell",
    "encoding": "shell",
    "staging": "shell",
    "table": "shell",
    "writer": "shell",
}

# What each import package may import of the others.
PACKAGE_MAY_IMPORT: dict[str, set[str]] = {
    "eventlog": set(),
    "readers": {"eventlog"},
    "writers": {"eventlog", "readers"},
    "compaction": {"eventlog", "readers"},
    "pyspark_eventlog": {"eventlog", "readers", "writers"},
}

_CLOCK = {"eventlog.clock": "the one module that reads time and randomness"}
_S3 = {
    "eventlog.s3": "the adapter that owns boto3",
    "eventlog.s3_clients": "the adapter's clients, one per thread pool and process",
    "eventlog.s3_way": "asks a client where it would send a request",
    "eventlog.local_server": "makes the bucket of the embedded server",
    "eventlog.compaction.lambda_handler": "asks its queue for the rest of the work",
}
_SPARK = {
    "eventlog.readers.spark": "Spark's reader",
    "eventlog.writers.spark": "Spark's writer",
    "eventlog.compaction.spark": "tasks on executors",
    "eventlog.compaction.runner": "the type of a session, for the type checker",
    "pyspark_eventlog": "what Spark discovers",
}
# Top-level package -> the modules that may import it, each with its reason. A package that is not
# here may be imported anywhere; a name here covers the modules below it.
OWNERS = {
    "time": _CLOCK,
    "random": _CLOCK,
    "secrets": _CLOCK,
    "uuid": _CLOCK,
    "boto3": _S3,
    "botocore": _S3,
    "moto": {"eventlog.local_server": "the embedded server"},
    "pyspark": _SPARK,
}
# A module of one of these names shows the whole system, Spark included.
DEMO = re.compile(r"(^|\.)demo(_\w+)?(\.|$)")

# Calls that read the clock or the random source without one of the modules above.
BANNED_CALLS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "os.urandom",
}

# What only an extra installs: a base install, such as a Lambda bundle, has none of it.
EXTRAS = ("click", "duckdb", "matplotlib", "moto", "pandas", "polars", "pyspark", "rich", "sqlglot")

AVOIDED = {
    word + ending
    for word in ("manager", "helper", "util", "handle", "info")
    for ending in ("", "s")
} | {"utility", "utilities", "process", "processes"}
# Dotted public name -> why it keeps an avoided word.
AVOIDED_BUT_ALLOWED = {
    "eventlog.store.ObjectInfo": "the storage port's row of a listing, named in the design",
    "eventlog.model.Transaction.info": "a field of the format: the writer's own notes",
    "eventlog.table.Table.transaction.info": "fills that field",
}
# Methods that pyarrow calls by their name, in its own file system handlers.
ALLOWED_ANYWHERE = {"get_file_info", "get_file_info_selector"}

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 60

# Absolute paths that only one machine has; not a part of a longer path, nor of a URI.
MACHINE_PATH = re.compile(r"(?<![\w.\-~})>])/(?:work|home|root)/")
