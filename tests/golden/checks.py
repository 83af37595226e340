"""Which checks of the second reader no vector notices.

    PYTHONPATH=tests .venv/bin/python tests/golden/checks.py

takes the calls of `need`, `readable` and `intact` out of `reader.py` one at a time, applies the
negative vectors that had failed there, and prints the checks without which every verdict is the
same. Those that cannot be noticed are in `UNNOTICED`, with the reason.
"""

import ast
import base64
import functools
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
TABLES = HERE / "tables"
SOURCE = HERE / "reader.py"
CHECKS = ("need", "readable", "intact")

# By the text of a check: why no vector can notice that it is missing.
UNNOTICED: dict[str, str] = {
    "need(places == (row.get('vector_rows') is not None), 'R9.3')": (
        "the hash of an entry is that with the one vector which a reader takes"
    ),
    "need(interval(drop['chunk']) is not None, 'R5.2')": (
        "the entry that the drop names has a chunk's name, and so another one"
    ),
    "need(found['totals'] == head['totals'], 'R9.6')": (
        "the state hash is the same, and so are the entries, whose sums are compared"
    ),
    "need(not hashes.keys() & new.keys(), 'R6.6')": (
        "the drop names no entry of the key frame, which is noticed where all entries are read"
    ),
    "need(all((number in live for number in hashes)), '4.1')": (
        "one entry too many is left, whose rows are in no total"
    ),
    "need(slash and interval(chunk) is not None and is_hex(number, 32), '2.9')": (
        "the first entry of the leaf is compared with it, and this reader reads all leaves"
    ),
    "need(interval(chunk)[1] <= one['end'] <= MAX_MS, '2.9')": (
        "the ends of the leaf's chunks are compared with it, and this reader reads all leaves"
    ),
    "need(len(dict(kinds_of(one['stats']))) == len(kinds_of(one['stats'])), 'R7.4')": (
        "the bounds of all entries of a version are compared with one another, and those of a "
        "leaf's entries with those of the root"
    ),
}


@functools.cache
def objects(table: str) -> dict[str, bytes]:
    """Return the objects of a golden table by key."""
    files = (path for path in sorted((TABLES / table).rglob("*")) if path.is_file())
    return {path.relative_to(TABLES / table).as_posix(): path.read_bytes() for path in files}


@functools.cache
def cases() -> list[dict[str, Any]]:
    """Return the negative vectors."""
    return json.loads((HERE / "negative.json").read_text(encoding="utf-8"))


def changed(case: dict[str, Any]) -> dict[str, bytes]:
    """Return the objects of a table after the changes of a negative vector."""
    contents = dict(objects(case["table"].split("/")[0]))
    for change in case["changes"]:
        key = change["key"]
        before = body = contents.get(key, b"")
        for find, put in change.get("text", ()):
            assert body.count(find.encode()) == 1, (case["name"], find)
            body = body.replace(find.encode(), put.encode())
        if "times" in change:
            text, count = change["times"]
            assert body.count(text.encode()) == 1, case["name"]
            body = body.replace(text.encode(), text.encode() * count)
        if "insert" in change:
            body = body[: change["at"]] + bytes.fromhex(change["insert"]) + body[change["at"] :]
        elif "at" in change:
            put = bytes.fromhex(change["hex"])
            body = body[: change["at"]] + put + body[change["at"] + len(put) :]
        body = body[: change["cut"]] if "cut" in change else body
        body = change["new"].encode() if "new" in change else body
        body = base64.b64decode(change["base64"]) if "base64" in change else body
        if "absent" in change:
            del contents[key]
        else:
            assert before != body or key not in contents, case["name"]
            contents[key] = body
    return contents


def branches_of(table: str) -> list[str]:
    """Return the names of branches in the name of a vector's table."""
    return table.split("/_branches/")[1:]


def verdict(module: ModuleType | Any, case: dict[str, Any], contents: dict[str, bytes]) -> str:
    """Return what a reader does with the objects of a case: an outcome, or what it reads."""
    make = lambda: module.Reader(contents, branches_of(case["table"]))
    version = case["version"]
    try:
        if case["what"] == "chain":
            make().open(version)
            make().check_chain(version)
            return "chained"
        reader = make()
        head = reader.head()
        found = head if head.header["version"] == version else make().open(version)
        answer = [found.base, found.header["state_hash"], sorted(found.live)]
        if head.header["version"] == version or case["what"] == "vacuumed":
            answer.append(rows_of(module, make(), found, head))
    except module.Refused:
        return "refuse"
    except module.CutOff:
        return "cut"
    except module.Unsupported:
        return "unsupported"
    except Exception as error:  # noqa: BLE001 - what a reader without a check runs into
        return f"broken: {type(error).__name__}"
    return json.dumps(answer)


def rows_of(module: ModuleType | Any, reader: Any, found: Any, head: Any) -> str | int | None:
    """Return the number of the rows of a version; why there are none; None of a keyed table."""
    try:
        rows = reader.rows(found, head)
    except module.Lost:
        return "lost"
    except module.Vacuumed:
        return "vacuumed"
    return None if rows is None else rows.num_rows


def as_it_should(case: dict[str, Any], said: str, plain: str) -> bool:
    """Return whether the verdict of a reader is that of the vector.

    Args:
        case: the vector.
        said: the verdict.
        plain: the verdict on the table without the changes.
    """
    what = case["what"]
    if what in ("refuse", "unsupported", "cut"):
        return said == what
    if what == "chain":
        return said == "refuse"
    if what == "fold":
        return said.startswith("[")
    if what == "either" and said == "refuse":
        return True
    if not said.startswith("["):
        return False
    one, other = json.loads(said), json.loads(plain)
    if what in ("lost", "vacuumed"):
        return one[-1] == what
    if what in ("older key frame", "either"):
        return one[0] != other[0] and one[1:] == other[1:]
    return one == other


class _Without(ast.NodeTransformer):
    """Takes the check of one number out of a module, and counts all."""

    def __init__(self, number: int = -1) -> None:
        self.number, self.found = number, list[ast.Expr]()

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        call = node.value
        name = (
            call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        )
        if name not in CHECKS:
            return node
        self.found.append(node)
        return ast.Pass() if len(self.found) - 1 == self.number else node


def all_checks() -> list[ast.Expr]:
    """Return the checks of the reader, in the order of its text."""
    counted = _Without()
    counted.visit(ast.parse(SOURCE.read_text(encoding="utf-8")))
    return counted.found


def text_of(check: ast.Expr) -> str:
    """Return a check as a text on one line."""
    return re.sub(r"\s+", " ", ast.unparse(check))


def reader(without: int = -1) -> ModuleType:
    """Return the reader as a module, without one of its checks, whose failures are recorded."""
    tree = _Without(without).visit(ast.parse(SOURCE.read_text(encoding="utf-8")))
    module = ModuleType("reader")
    exec(compile(ast.fix_missing_locations(tree), str(SOURCE), "exec"), module.__dict__)
    module.FAILED = set()

    def recorded(check: Any) -> Any:
        def call(condition: object, rule: str) -> None:
            if not condition:
                module.FAILED.add(sys._getframe(1).f_lineno)
            check(condition, rule)

        return call

    for name in CHECKS:
        setattr(module, name, recorded(getattr(module, name)))
    return module


def judged() -> list[tuple[dict[str, Any], str, set[int]]]:
    """Return each vector with the reader's verdict, and the lines of the checks that failed."""
    module, found = reader(), []
    for case in cases():
        module.FAILED.clear()
        said = verdict(module, case, changed(case))
        found.append((case, said, set(module.FAILED)))
    return found


def never_failed(results: list[tuple[dict[str, Any], str, set[int]]]) -> list[ast.Expr]:
    """Return the checks that no vector makes fail, without those of `UNNOTICED`."""
    lines = set().union(*(failed for _, _, failed in results))
    return [
        check
        for check in all_checks()
        if not lines & {*range(check.lineno, (check.end_lineno or check.lineno) + 1)}
        and text_of(check) not in UNNOTICED
    ]


def unnoticed(results: list[tuple[dict[str, Any], str, set[int]]]) -> list[ast.Expr]:
    """Return the checks without which every verdict is the same."""
    left = []
    for number, check in enumerate(all_checks()):
        lines = {*range(check.lineno, (check.end_lineno or check.lineno) + 1)}
        concerned = [(case, said) for case, said, failed in results if failed & lines]
        module = reader(number) if concerned else None
        if not any(verdict(module, case, changed(case)) != said for case, said in concerned):
            left.append(check)
    return left


def main() -> int:
    """Print the checks that no vector notices, and the reasons that are out of date."""
    results = judged()
    left = {text_of(check): check for check in unnoticed(results)}
    lines = [
        f"{SOURCE.name}:{check.lineno}: {UNNOTICED.get(text, 'NOT NOTICED')}: {text}"
        for text, check in left.items()
    ]
    lines += [f"noticed, and listed as if not: {text}" for text in UNNOTICED.keys() - left.keys()]
    lines.append(f"{len(all_checks())} checks, {len(left)} that no vector notices")
    sys.stdout.write("\n".join([*lines, ""]))
    return int(left.keys() != UNNOTICED.keys())


if __name__ == "__main__":
    sys.exit(main())
