r"""Text of others on a person's terminal, and commands that a person may paste into a shell.

Names, owners, notes and messages come from logs that anybody may have written. No I/O.
"""

from __future__ import annotations

import re
import shlex

# Characters that a terminal obeys instead of showing them: control characters, separators of lines,
# marks that reverse the direction of text, and surrogates, which no output can encode.
_OBEYED = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def plain(text: str, *, kept: str = "") -> str:
    r"""Return text as one line without characters that a terminal obeys: `\x1b` for ESC.

    Args:
        text: of anybody.
        kept: characters that stay, such as the ends of the lines of a text with several.
    """
    # against text-that-a-terminal-obeys
    return _OBEYED.sub(lambda found: found[0] if found[0] in kept else _escaped(found[0]), text)


def plain_json(text: str) -> str:
    r"""Return JSON with the same value without those characters; line ends between values stay."""
    return _OBEYED.sub(lambda f: f[0] if f[0] == "\n" else f"\\u{ord(f[0]):04x}", text)


def command(verb: str, *words: str) -> str:
    """Return a command of the program, in backticks, that a shell runs with exactly these words.

    Args:
        verb: of the program.
        words: its arguments and options.
    """
    quoted = (shlex.quote(word) for word in words)  # against command-that-a-shell-expands
    return f"`{' '.join(['eventlog', verb, *quoted])}`"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
