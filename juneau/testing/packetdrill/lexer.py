"""Characters to tokens. As in every lexer of this language, the longest match wins."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from juneau.testing.packetdrill.model import ScriptError


class Token(NamedTuple):
    kind: str
    """option, float, int, hex, word, string, command, code, ip, ellipsis, or the character itself."""
    text: str
    line: int
    gap: bool
    """Space or a comment came before it."""


_SKIP: Final = re.compile(r"\s+|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKENS: Final = tuple(
    (kind, re.compile(pattern, re.DOTALL))
    for kind, pattern in (
        ("code", r"%\{.*?\}%"),
        ("command", r"`(?:\\.|[^`])*`"),
        ("string", r'"(?:\\.|[^"])*"'),
        ("option", r"--[A-Za-z0-9_]+"),
        ("ellipsis", r"\.\.\."),
        ("ip", r"\d+\.\d+\.\d+\.\d+"),
        ("float", r"-?\d*\.\d+"),
        ("int", r"-?\d+"),
        ("hex", r"0x[0-9a-fA-F]+"),
        ("word", r"[A-Za-z0-9_]+"),
    )
)
_DIRECTIVE: Final = re.compile(r"^[ \t]*#[ \t]*(ifdef|ifndef|else|endif)\b[ \t]*(\w*)[^\n]*$", re.MULTILINE)


def preprocess(text: str, symbols: Collection[str]) -> str:
    """Blank out what `#ifdef NAME … #else … #endif` excludes; line numbers stay."""
    kept: list[str] = []
    live = [True]
    for number, line in enumerate(text.split("\n"), 1):
        found = _DIRECTIVE.match(line)
        if found is None:
            kept.append(line if all(live) else "")
            continue
        kept.append("")
        word, name = found.groups()
        if word in ("ifdef", "ifndef"):
            live.append((name in symbols) == (word == "ifdef"))
        elif len(live) == 1:
            raise ScriptError(number, f"#{word} without #ifdef")
        elif word == "else":
            live[-1] = not live[-1]
        else:
            live.pop()
    if len(live) > 1:
        raise ScriptError(text.count("\n") + 1, "#ifdef without #endif")
    return "\n".join(kept)


def tokens(text: str) -> Iterator[Token]:
    at, line, gap = 0, 1, True
    while at < len(text):
        space = _SKIP.match(text, at)
        if space is not None:
            gap, at = True, space.end()
            line += space.group().count("\n")
            continue
        kind, lexeme = _longest(text, at)
        yield Token(kind, lexeme, line, gap)
        gap, at = False, at + len(lexeme)
        line += lexeme.count("\n")
    yield Token("end", "", line, True)


def _longest(text: str, at: int) -> tuple[str, str]:
    best, lexeme = text[at], ""
    for kind, pattern in _TOKENS:
        found = pattern.match(text, at)
        if found is not None and found.end() - at > len(lexeme):
            best, lexeme = kind, found.group()
    return best, lexeme or text[at]
