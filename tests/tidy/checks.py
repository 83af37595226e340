"""The checks of the tidy test: functions from sources to findings.

A source is the text of a module by its dotted name; a finding is one line that says what is wrong
and what to do. The packages are parsed with `ast`, not imported.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tidy.tables import (
    ALLOWED_ANYWHERE,
    AVOIDED,
    AVOIDED_BUT_ALLOWED,
    BANNED_CALLS,
    DEMO,
    FILES_OF_ONE_NAME,
    FLOORS,
    FUNCTIONS_OF_ONE_NAME,
    IMPURE,
    LATE_IMPORTS,
    MACHINE_PATH,
    MAX_FUNCTION_LINES,
    OWNERS,
    PACKAGE_MAY_IMPORT,
    PURE,
)

ROOT = Path(__file__).resolve().parents[2]

Sources = dict[str, str]
Check = Callable[[Sources], list[str]]


def read_packages() -> Sources:
    """Return the source of every module, by its dotted name; a package ends in `.__init__`."""
    return {
        ".".join([*prefix_of(package), *path.relative_to(ROOT).with_suffix("").parts]): (
            path.read_text(encoding="utf-8")
        )
        for package in PACKAGE_MAY_IMPORT
        if (ROOT / package).is_dir()
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def prefix_of(package: str) -> list[str]:
    """Return the package prefix of a folder at the root, to which a link in eventlog/ points."""
    return ["eventlog"] if (ROOT / "eventlog" / package).is_symlink() else []


def package_of(module: str) -> str:
    """Return the package of a module, or its first name if it is in none of the packages."""
    first, _, rest = module.partition(".")
    second = rest.partition(".")[0]
    return second if first == "eventlog" and second in PACKAGE_MAY_IMPORT else first


@cache
def parsed(source: str) -> ast.Module:
    """Return the tree of a source. All checks share it: do not change it."""
    return ast.parse(source)


@cache
def nodes_of(source: str) -> tuple[ast.AST, ...]:
    """Return every node of a source."""
    return tuple(ast.walk(parsed(source)))


@cache
def imports_in(source: str) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """Return every import of a source, including those in functions and type checks."""
    return tuple(n for n in nodes_of(source) if isinstance(n, ast.Import | ast.ImportFrom))


def imported_by(module: str, source: str, known: set[str]) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) of every import, including those in functions and type checks.

    A name imported from a package is its module if it is one, else the package's `__init__`.
    """
    for node in imports_in(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, as_module(alias.name, known)
        else:
            base = node.module or ""
            if node.level:
                package = module.split(".")[: -node.level]
                base = ".".join([*package, *filter(None, [base])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                is_module = inner in known or f"{inner}.__init__" in known
                yield node.lineno, as_module(inner if is_module else base, known)


def as_module(name: str, known: set[str]) -> str:
    """Return the name that `read_packages` gives to an imported module."""
    return f"{name}.__init__" if f"{name}.__init__" in known else name


def public_name(module: str) -> str:
    """Return the name by which callers import the module."""
    return module.removesuffix(".__init__")


def is_within(module: str, owner: str) -> bool:
    """Return whether the module is `owner` or below it."""
    return f"{module}.".startswith(f"{owner}.")


# -------------------------------------------------------------------------------------- checks


def room_of(module: str) -> str:
    """Return the room of one of eventlog's own modules: its folder, `face`, or `ground`."""
    parts = module.split(".")
    if module == "eventlog.__init__":
        return "face"
    return parts[1] if len(parts) > 2 else "ground"


def table_findings(sources: Sources) -> list[str]:
    """Compare the table of rooms with the existing folders."""
    there = {room_of(name) for name in sources if package_of(name) == "eventlog"}
    rooms = {room for floor in FLOORS for room in floor}
    missing = [
        f"eventlog/{room}/ is on no floor: enter it in FLOORS of tests/tidy/tables.py, as low as"
        " its imports allow"
        for room in sorted(there - rooms)
    ]
    gone = [
        f"FLOORS of tests/tidy/tables.py has {room!r}, but there is no such folder: remove it"
        for room in sorted(rooms - there)
    ]
    return missing + gone


def layer_findings(sources: Sources) -> list[str]:
    """Find the imports inside eventlog from a higher floor or another room of the same one."""
    floor_of = {room: number for number, floor in enumerate(FLOORS) for room in floor}
    findings = []
    for module, source in sources.items():
        here = room_of(module)
        if package_of(module) != "eventlog" or here not in floor_of:
            continue
        for line, target in imported_by(module, source, set(sources)):
            there = room_of(target)
            if package_of(target) != "eventlog" or there == here:
                continue
            if floor_of.get(there, len(FLOORS)) <= floor_of[here]:
                findings.append(f"{module}:{line} ({here}) imports {target} ({there}): upward")
    return findings


def package_findings(sources: Sources) -> list[str]:
    """Find the imports between the packages that the table of layers does not allow."""
    findings = []
    for module, source in sources.items():
        package = package_of(module)
        for line, target in imported_by(module, source, set(sources)):
            other = package_of(target)
            may = {package, *PACKAGE_MAY_IMPORT[package], *LATE_IMPORTS.get(module, ())[:-1]}
            if other in PACKAGE_MAY_IMPORT and other not in may:
                allowed = ", ".join(sorted(PACKAGE_MAY_IMPORT[package])) or "none of the others"
                findings.append(f"{module}:{line} imports {target}: {package} may import {allowed}")
    return findings


def owner_findings(sources: Sources) -> list[str]:
    """Find the imports that only certain modules may have."""
    findings = []
    for module, source in sources.items():
        for line, target in imported_by(module, source, set(sources)):
            package = target.split(".")[0]
            owners = OWNERS.get(package)
            if owners is None or any(is_within(public_name(module), owner) for owner in owners):
                continue
            if package == "pyspark" and is_within(module, DEMO):
                continue
            findings.append(
                f"{module}:{line} imports {target}: only {', '.join(owners)} may (OWNERS)"
            )
    return findings


def purity_findings(sources: Sources) -> list[str]:
    """Find the imports of rooms that do no I/O and log nothing which do one of the two."""
    return [
        f"{module}:{line} imports {target}: {room_of(module)} is pure, hand it in instead"
        for module, source in sources.items()
        if package_of(module) == "eventlog" and room_of(module) in PURE
        for line, target in imported_by(module, source, set(sources))
        if target.split(".")[0] in IMPURE
    ]


def call_findings(sources: Sources) -> list[str]:
    """Find the calls that read the clock or the random source without `eventlog.clock`."""
    return [
        f"{module}:{node.lineno} calls {ast.unparse(node.func)}: take a Clock instead"
        for module, source in sources.items()
        if not is_within(module, "eventlog.clock")
        for node in nodes_of(source)
        if isinstance(node, ast.Call)
        and ".".join(ast.unparse(node.func).split(".")[-2:]) in BANNED_CALLS
    ]


def public_definitions(module: str, source: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield (dotted name, node) of a module and of its public classes, functions and methods."""
    if module.rpartition(".")[2].startswith("_") and not module.endswith(".__init__"):
        return
    tree = parsed(source)
    waiting: list[tuple[str, ast.AST]] = [(public_name(module), tree)]
    yield waiting[0]
    while waiting:
        outer, scope = waiting.pop()
        for node in statements(scope):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_"):
                continue
            yield f"{outer}.{node.name}", node
            if isinstance(node, ast.ClassDef):
                waiting.append((f"{outer}.{node.name}", node))


def statements(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module's or class's body, including those under `if` and `try`."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from statements(node)
        else:
            yield node


def docstring_findings(sources: Sources) -> list[str]:
    """Find public definitions without a docstring."""
    return [
        f"{name} has no docstring"
        for module, source in sources.items()
        for name, node in public_definitions(module, source)
        if not ast.get_docstring(node) and not is_documented_elsewhere(node)
    ]


def is_documented_elsewhere(node: ast.AST) -> bool:
    """Return whether the docstring belongs to another definition of the same name."""
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(each).split(".")[-1] in {"overload", "setter"} for each in decorators)


def size_findings(sources: Sources) -> list[str]:
    """Find the functions that are too long."""
    findings = []
    for module, source in sources.items():
        for node in nodes_of(source):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    findings.append(
                        f"{module}:{node.lineno} {node.name} has {lines} lines,"
                        f" more than {MAX_FUNCTION_LINES}: split it"
                    )
    return findings


def word_findings(sources: Sources) -> list[str]:
    """Find the avoided words in public names: modules, definitions, parameters, fields."""
    return [
        f"{name} has an avoided word: name the thing (or enter it, with the reason, in"
        " AVOIDED_BUT_ALLOWED)"
        for module, source in sources.items()
        for name in dict.fromkeys(public_names(module, source))
        if AVOIDED & words_of(name.split(".")[-1])
        and name not in AVOIDED_BUT_ALLOWED
        and name.split(".")[-1] not in ALLOWED_ANYWHERE
    ]


def class_findings(sources: Sources) -> list[str]:
    """Find the public classes that share a name: one word means one thing."""
    first: dict[str, str] = {}
    found = []
    for module, source in sources.items():
        for node in parsed(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                other = first.setdefault(node.name, module)
                if other != module:
                    found.append(f"{module}.{node.name} has the name of a class in {other}")
    return found


def function_findings(sources: Sources) -> list[str]:
    """Find the public functions of modules that share a name, and needless exceptions."""
    modules: dict[str, list[str]] = {}
    for module, source in sources.items():
        for node in parsed(source).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(module)
    shared = {name: found for name, found in modules.items() if len(set(found)) > 1}
    twins = [
        f"{found[-1]}.{name} has the name of a function in {found[0]}: name it by its subject (or"
        " enter it, with the reason, in FUNCTIONS_OF_ONE_NAME)"
        for name, found in shared.items()
        if name not in FUNCTIONS_OF_ONE_NAME
    ]
    return twins + [
        f"FUNCTIONS_OF_ONE_NAME of tests/tidy/tables.py has {name!r}, which stands once: remove it"
        for name in FUNCTIONS_OF_ONE_NAME
        if name not in shared
    ]


def file_findings(sources: Sources) -> list[str]:
    """Find the modules whose files share a name."""
    first: dict[str, str] = {}
    return [
        f"{module} has the file name of {other}: name it by its subject (or enter it, with the"
        " reason, in FILES_OF_ONE_NAME)"
        for module in sources
        if (name := module.rpartition(".")[2]) not in FILES_OF_ONE_NAME
        and (other := first.setdefault(name, module)) != module
    ]


def public_names(module: str, source: str) -> Iterator[str]:
    """Yield the dotted public names."""
    for name, node in public_definitions(module, source):
        yield name
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
                yield f"{name}.{each.arg}"
            continue
        for statement in statements(node):
            targets: list[ast.expr] = []
            if isinstance(statement, ast.Assign):
                targets = statement.targets
            elif isinstance(statement, ast.AnnAssign):
                targets = [statement.target]
            for target in targets:
                if isinstance(target, ast.Name) and not target.id.startswith("_"):
                    yield f"{name}.{target.id}"


def words_of(name: str) -> set[str]:
    """Split snake_case and CamelCase into lower-case words."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def path_findings(files: Sources) -> list[str]:
    """Find the absolute paths of one machine."""
    return [
        f"{name}:{number} names a path of one machine: {line.strip()[:80]}"
        for name, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]


# Every check of the code.
CODE_CHECKS: list[Check] = [
    table_findings,
    layer_findings,
    package_findings,
    owner_findings,
    purity_findings,
    call_findings,
    docstring_findings,
    size_findings,
    word_findings,
    class_findings,
    function_findings,
    file_findings,
]
