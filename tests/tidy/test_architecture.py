"""The page about the architecture: its picture and its tours name what is there."""

import ast
import re
from functools import cache

import pytest
from tidy.checks import ROOT
from tidy.tables import FLOORS, PACKAGE_MAY_IMPORT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CORE = ROOT / "eventlog"
_TOUR = re.compile(r"^## (.+)\n((?:.*\n)*?)(?=^## |\Z)", re.MULTILINE)
_STEP = re.compile(r"^\d+\. .*\n(?:   .*\n)*", re.MULTILINE)
_ROOM = re.compile(r"\*\*(\w+)\*\*")
_CODE = re.compile(r"`([^`]+)`")
# Properties of a table, arguments, and words of options, of Spark and of the format.
OTHER_WORDS = {
    "_op", "app_id", "app_seq", "arrow", "data/", "jvm", "mapInArrow", "origin", "retention_hours",
    "staging_hours",
}  # fmt: skip


def rows_of(picture):
    """Return the names at the beginning of each line of a picture."""
    cells = (re.split(r"  +", line.strip()) for line in picture.splitlines())
    return [{cell for cell in line if cell.isidentifier()} for line in cells]


def test_the_picture_has_the_floors():
    picture = PAGE.split("```")[1]
    beside, core = re.split(r"\n─+\n", picture)
    ground = {path.stem for path in CORE.glob("*.py")} - {"__init__", "__main__"}
    modules = {"face": {"__init__"}, "ground": ground}
    floors = [set().union(*(modules.get(room, {room}) for room in floor)) for floor in FLOORS]
    assert rows_of(core.rstrip()) == floors
    assert set().union(*rows_of(beside)) == set(PACKAGE_MAY_IMPORT) - {"eventlog"}


DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@cache
def modules_of(folder):
    """Return the syntax of each module of a folder and of the folders in it."""
    return [ast.parse(path.read_text(encoding="utf-8")) for path in folder.rglob("*.py")]


def paths_in(folder):
    """Return the names of the modules and folders in a folder."""
    paths = folder.rglob("*")
    return {path.stem for path in paths if path.suffix == ".py" or path.is_dir()}


@cache
def names_in(room):
    """Return the modules, folders, functions, classes and parameters of a room or of the core."""
    folder = (CORE / room).resolve()
    nodes = [node for module in modules_of(folder) for node in ast.walk(module)]
    names = {node.arg for node in nodes if isinstance(node, ast.arg)}
    names |= {node.name for node in nodes if isinstance(node, DEFINITIONS)}
    fields = (node.target for node in nodes if isinstance(node, ast.AnnAssign))
    names |= {field.id for field in fields if isinstance(field, ast.Name)}
    return names | paths_in(folder)


def is_known(code, rooms):
    """Return whether a name is in one of the rooms; paths and classes may be anywhere."""
    if "/" in code:
        bases = (ROOT, CORE, *(CORE / room for room in rooms))
        return any((base / f"{code}{ending}").exists() for base in bases for ending in ("", ".py"))
    name = code.rpartition(".")[2]
    anywhere = [""] if name[0].isupper() else []
    return any(name in names_in(room) for room in [*rooms, *anywhere])


def unknown_names(tour):
    """Return the names in the steps of a tour that are in none of the rooms named so far."""
    rooms, unknown = [], []
    for step in _STEP.findall(tour):
        rooms += _ROOM.findall(step)
        names = set(_CODE.findall(step)) - OTHER_WORDS
        unknown += [code for code in sorted(names) if not is_known(code, rooms)]
    return unknown


TOURS = {title: text for title, text in _TOUR.findall(PAGE) if _STEP.search(text)}


@pytest.mark.parametrize("title", TOURS)
def test_a_tour_names_what_is_in_its_rooms(title):
    assert unknown_names(TOURS[title]) == []


def test_a_name_that_is_in_no_room_is_found():
    assert len(TOURS) > 7
    tour = "1. **compaction**: `plan`, `nobody`,\n   `planner/x`.\n2. **keyed**: `slices`, `Nil`.\n"
    assert unknown_names(tour) == ["nobody", "planner/x", "Nil"]
    assert unknown_names("1. **readers**, `spark`: for slices `slices`.\n") == ["slices"]


def unknown_words(docstring, folder):
    """Return the words in backticks that name nothing in a folder, beside it or above it.

    Methods do not count: modules that were renamed are often called as one.
    """
    public = (node for module in modules_of(folder) for node in module.body)
    known = paths_in(folder) | {node.name for node in public if isinstance(node, DEFINITIONS)}
    above = [CORE, *(parent for parent in folder.parents if parent.is_relative_to(ROOT))]
    known |= {path.stem for parent in above for path in parent.glob("*")}
    words = {code for code in _CODE.findall(docstring) if code.isidentifier() and code.islower()}
    return sorted(words - known - OTHER_WORDS)


ROOMS = {
    str(path.parent.relative_to(ROOT)): path
    for top in ("eventlog", "readers", "writers", "compaction")
    for path in sorted((ROOT / top).rglob("__init__.py"))
    if path.parent != CORE
}


@pytest.mark.parametrize("room", ROOMS)
def test_the_docstring_of_a_room_names_what_is_there(room):
    docstring = ast.get_docstring(ast.parse(ROOMS[room].read_text(encoding="utf-8")))
    assert unknown_words(docstring, ROOMS[room].parent) == []


def test_a_word_of_a_docstring_that_is_in_no_room_is_found():
    text = "Start at `encoding`, then `nobody`. Imports `commit`; not looked up: `Nil`, `a.b`."
    assert unknown_words(text, CORE / "staging") == ["nobody"]
