"""Negative vectors of a log that is cut: stubs, and the state that says where."""

import json
import re
from typing import Any

from golden.forge import Forge, log_key, sealed
from golden.negative_log import OLDER, REFUSE, set_in

Value = dict[str, Any]
STUB, KEPT, FRAME, FOLD = ("cut", 3), ("cut", 20), 19, "fold"


def stub_of(body: bytes, commit: str) -> bytes:
    """Return the stub of a commit, with the hash that it is to have."""
    text = body.decode()
    found = re.match(r'\{"header":.*?,"digest":"[0-9a-f]{64}"\}', text)
    assert found
    return sealed(f'{found[0]},"commit":"{commit}"}}').encode()


def stubs() -> list[Value]:
    """Cases of stubs."""

    def more(made: Value) -> None:
        made["state"] = {}

    cases = [
        ("a stub of another version", "2.2", set_in("header", "version", to=4)),
        ("a stub whose hash has capitals", "R5.2", set_in("commit", to="AB" * 32)),
        ("a stub without a hash", "R5.2", set_in("commit", to=None)),
        ("a stub with another field", "R5.1", more),
        ("a stub with another writer", "R5.2", set_in("header", "changes", "writer", to=5)),
    ]
    made = [Forge(*STUB).edit(change).case(name, rule, REFUSE) for name, rule, change in cases]
    above = Forge(*KEPT)
    key = log_key(KEPT[1])
    following = json.loads(above.objects[log_key(KEPT[1] + 1)])["header"]["prev"]
    above.objects[key] = stub_of(above.objects[key], following)
    damaged = Forge(*STUB)
    body = damaged.objects[log_key(STUB[1])]
    damaged.objects[log_key(STUB[1])] = body.replace(b'"commit":"', b'"commit":"0', 1)[:-1]
    return [
        *made,
        above.case("a stub above the cut", "R22.2", "cut"),
        damaged.case("a damaged stub", "1.6", REFUSE),
    ]


def states() -> list[Value]:
    """Cases of what the small state says of the cut."""

    def nowhere(made: Value) -> None:
        made["state"]["cut"]["version"] = 0

    def unsaid(made: Value) -> None:
        made["header"]["features"] = []

    return [
        Forge("cut", 22)
        .cut()
        .edit(set_in("state", "cut", "version", to=0), restate=False)
        .case("a cut at version 0", "R5.1", REFUSE),
        Forge(*KEPT).edit_root(FRAME, nowhere).case("a key frame cut at version 0", "R5.1", OLDER),
        Forge("cut", 23).cut().edit(unsaid).case("a cut without its feature", "R22.1", FOLD),
    ]


def all_cases() -> list[Value]:
    """Return the vectors."""
    return [*stubs(), *states()]
