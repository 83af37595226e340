"""The tables of the tidy test, in which new modules and exceptions to rules are entered.

Each exception has its reason.
"""

import re

# The rooms of the core by floor, from the top down: a module imports from its own room and from
# those on lower floors. `face` is `eventlog/__init__.py`; `ground` are the modules in no folder.
FLOORS = (
    ("face",),
    ("fsck", "replication", "view"),
    ("publishing",),
    ("recovery", "table"),
    ("staging",),
    ("merging",),
    ("session",),
    ("commit", "segments"),
    ("copying", "lineage"),
    ("inline", "log"),
    ("state",),
    ("keyed",),
    ("query", "store"),
    ("format",),
    ("model", "telemetry"),
    ("ground",),
)

# Rooms that do no I/O, start no threads and log nothing, and the standard modules that would.
PURE = {"model", "format", "query", "keyed", "state"}
IMPURE = {"asyncio", "concurrent", "logging", "os", "pathlib", "socket", "subprocess", "threading"}

# The packages that each package may import: `eventlog` is the core, the others stand beside it.
# Some are folders in eventlog/, and some are folders at the top that eventlog/ has links to.
PACKAGE_MAY_IMPORT: dict[str, set[str]] = {
    "eventlog": set(),
    "readers": {"eventlog"},
    "rewriting": {"eventlog", "readers"},
    "writers": {"eventlog", "readers", "rewriting"},
    "compaction": {"eventlog", "readers", "rewriting"},
    "pyspark_eventlog": {"eventlog", "readers", "writers"},
    "monitoring": {"eventlog", "compaction"},
    "erasing": {"eventlog", "readers", "writers", "compaction"},
    "demo": {"eventlog", "readers", "writers", "compaction", "monitoring"},
    "cli": {"eventlog", "readers", "writers", "compaction", "monitoring", "erasing", "demo"},
}

# Module of the core -> (packages above it that functions of it import when they are called, why).
LATE_IMPORTS = {
    "eventlog.store.parallel": ("readers", "executors of Spark do the work, if asked for"),
    "eventlog.table.table": (
        "readers",
        "writers",
        "compaction",
        "monitoring",
        "its methods for rows, and for figures, call their functions",
    ),
    "eventlog.publishing.positions": ("readers", "its merge decides which rows are hidden"),
}

_CLOCK = {"eventlog.clock": "the one module that reads time and randomness"}
_S3 = {
    "eventlog.store.s3.adapter": "the adapter that owns boto3",
    "eventlog.store.s3.clients": "the adapter's clients, one per thread pool and process",
    "eventlog.store.s3.endpoints": "determines the endpoint of a client",
    "eventlog.store.testing.local_server": "makes the bucket of the embedded server",
    "eventlog.compaction.lambda_handler": "requests the rest of the work from its queue",
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
    "opentelemetry": {"eventlog.telemetry.signals": "the spans and counters of all rooms"},
    "moto": {"eventlog.store.testing.local_server": "the embedded server"},
    "pyspark": _SPARK,
}
# The part of the demo that shows the whole system from Spark.
DEMO = "eventlog.demo.spark"

# Calls that read the clock or the random source without one of the modules above.
BANNED_CALLS = {
    "datetime.now",
    "datetime.utcnow",
    "datetime.today",
    "date.today",
    "os.urandom",
}

# Packages that only extras install: a base install, such as a Lambda bundle, has none of them.
EXTRAS = (
    "click",
    "duckdb",
    "fastavro",
    "matplotlib",
    "moto",
    "opentelemetry",
    "pandas",
    "polars",
    "pyspark",
    "resvg_py",
    "rich",
)

AVOIDED = {
    word + ending
    for word in ("manager", "helper", "util", "handle", "info")
    for ending in ("", "s")
} | {"utility", "utilities", "process", "processes"}
# Dotted public name -> why it keeps an avoided word.
AVOIDED_BUT_ALLOWED = {
    "eventlog.store.port.ObjectInfo": "the storage port's row of a listing, named in the design",
    "eventlog.model.records.Transaction.info": "a field of the format: the writer's own notes",
    "eventlog.table.table.Table.transaction.info": "fills that field",
    "eventlog.session.session.Session.transaction.info": "likewise",
}
# Methods that pyarrow calls by their name, in its own file system handlers.
ALLOWED_ANYWHERE = {"get_file_info", "get_file_info_selector"}

_VERB = "the verb of the program has the name of the method that it calls"
_DOOR = "one verb of a user: rows of this process, and those of a DataFrame"
# Function of a module that stands more than once -> why: it is one verb at several doors.
FUNCTIONS_OF_ONE_NAME = {
    "append": _DOOR,
    "delete": _DOOR,
    "overwrite": _DOOR,
    "update": _DOOR,
    "upsert": _DOOR,
    "branches": _VERB,
    "diff": _VERB,
    "follow": "a table by its copy, and a table by its publication",
    "fsck": _VERB,
    "merge": _VERB,
    "pin": _VERB,
    "publish": "a branch into its parent, and versions to other engines (docs/glossary.md)",
    "replicas": _VERB,
    "unpin": _VERB,
    "handler": "the entry point of a Lambda function",
    "main": "the entry point of a program",
}

# File name that stands more than once -> why.
FILES_OF_ONE_NAME = {
    "__init__": "the face of a package",
    "__main__": "what Python runs for a package",
    "demo": "the verb, and the demo that it runs",
    "source": "Spark's data source: its reader, and its writer",
    "vacuum": "the verb, and the vacuum that it runs",
}

MAX_FUNCTION_LINES = 60

# Absolute paths that only one machine has; not a part of a longer path, nor of a URI.
MACHINE_PATH = re.compile(r"(?<![\w.\-~})>])/(?:work|home|root)/")
