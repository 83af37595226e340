"""The page docs/cli.md, made from the program itself: its verbs, their arguments and options.

python docs/make_cli.py      writes it; a test says when it is stale
"""

import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from eventlog.cli.demo import demo_
from eventlog.cli.program import purpose_of
from eventlog.cli.verbs import GROUPS

PAGE = Path(__file__).resolve().with_name("cli.md")
_WIDTH = 100
_HEAD = """# Commands

What `eventlog VERB --help` prints, on one page; `make cli-page` writes it. The guide
[Shell](guides/shell.md) has examples, and what all verbs have in common.
"""
_MARKUP = str.maketrans({"*": r"\*", "_": r"\_", "<": "&lt;"})
_NUMBERS = {"integer": "N", "integer range": "N", "float": "X", "float range": "X"}


def page() -> str:
    """Return the text of the page."""
    groups = {"Start": (demo_,), **GROUPS}
    common = _common([verb for verbs in GROUPS.values() for verb in verbs])
    parts = [_HEAD, "## Options of all verbs\n", _table(common)]
    known = {param.name for param in common}
    for group, verbs in groups.items():
        parts.append(f"## {group}\n")
        for verb in verbs:
            parts += [f"### {verb.name}\n", *_verb(verb, known)]
    return "\n".join(parts)


def _common(verbs: list[click.Command]) -> list[click.Option]:
    """Return the options that every verb has."""
    shared = set.intersection(*({p.name for p in verb.params} for verb in verbs))
    return [p for p in verbs[0].params if p.name in shared and isinstance(p, click.Option)]


def _verb(verb: click.Command, known: set[str | None]) -> Iterator[str]:
    _, _, rest = (verb.help or "").partition("\n")
    arguments = [_argument(p) for p in verb.params if isinstance(p, click.Argument)]
    yield f"{purpose_of(verb)}.\n"
    yield f"`{' '.join(['eventlog', str(verb.name), *arguments, '[OPTIONS]'])}`\n"
    for paragraph in rest.strip().split("\n\n"):
        if paragraph.startswith("\b"):
            yield "\n".join(["```text", *paragraph.splitlines()[1:], "```", ""])
        elif paragraph:
            yield _filled(_plain(paragraph)) + "\n"
    own = [p for p in verb.params if isinstance(p, click.Option) and p.name not in known]
    if own:
        yield _table(own)


def _plain(text: str) -> str:
    """Return text of a help without what Markdown would take for markup."""
    parts = " ".join(text.split()).split("`")
    outside = [part.translate(_MARKUP) for part in parts[::2]]
    mixed = [part for pair in zip(outside, [*parts[1::2], ""], strict=True) for part in pair]
    return "`".join(mixed[: len(parts)])


def _filled(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False, break_long_words=False)


def _argument(param: click.Argument) -> str:
    name = param.metavar or str(param.name).upper()
    many = "" if param.nargs == 1 or name.endswith("...") else "..."
    return f"{name}{many}" if param.required or name.startswith("[") else f"[{name}{many}]"


def _table(options: list[click.Option]) -> str:
    rows = [f"| `{_named(p)}` | {_plain(_help(p)).replace('|', chr(92) + '|')} |" for p in options]
    return "\n".join(["| option | |", "|---|---|", *rows, ""])


def _named(option: click.Option) -> str:
    names = ", ".join([*option.opts, *option.secondary_opts])
    if option.is_flag:
        return names
    kind = option.type
    choices = "¦".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else ""
    return f"{names} {option.metavar or choices or _NUMBERS.get(kind.name, kind.name.upper())}"


def _help(option: click.Option) -> str:
    default = f" Default: {option.default}." if option.show_default else ""
    return f"{option.help or ''}{default}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
