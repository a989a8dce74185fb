"""Where does each word of a query begin and end?

Terms and keywords are told apart as the grammar of SPARQL does it, so that nothing which stands inside text,
an IRI or a comment is taken for a keyword, nor the reverse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from omoide.errors import InvalidQuery

_BASE = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME = f"{_BASE}_0-9\u00b7\u0300-\u036f\u203f-\u2040"
_LOCAL = rf"(?:[{_NAME}:-]|%[0-9A-Fa-f]{{2}}|\\[_~.\-!$&'()*+,;=/?#@%])"
_ESCAPE = r"\\[tbnrf\\\"']"

_TOKEN = re.compile(
    rf"""
    (?P<space>[\x20\t\r\n]++)
  | (?P<comment>\#[^\r\n]*+)
  | (?P<iri><[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{{}}|^`\\]*+>)
  | (?P<string>\"\"\"(?:\"{{0,2}}(?:[^\"\\]|{_ESCAPE}))*+\"\"\"
      | '''(?:'{{0,2}}(?:[^'\\]|{_ESCAPE}))*+'''
      | \"(?:[^\"\\\n\r]|{_ESCAPE})*+\"
      | '(?:[^'\\\n\r]|{_ESCAPE})*+')
  | (?P<variable>[?$][{_BASE}_0-9][{_BASE}_0-9\u00b7\u0300-\u036f\u203f-\u2040]*+)
  | (?P<blank>_:[{_BASE}_0-9](?:\.*[{_NAME}-])*+)
  | (?P<name>(?:[{_BASE}](?:\.*[{_NAME}-])*+)?:(?:{_LOCAL}(?:\.*{_LOCAL})*+)?)
  | (?P<language>@[A-Za-z]++(?:-[A-Za-z0-9]++)*+(?:--[A-Za-z]++)?)
  | (?P<number>(?:[0-9]++(?:\.[0-9]*+(?=[eE][+-]?[0-9])|\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
  | (?P<word>[A-Za-z][A-Za-z0-9_]*+)
  | (?P<sign>\^\^|&&|\|\||<<\(|\)>>|<<|>>|\{{\||\|\}}|[<>!]=|[{{}}()\[\].,;=<>!*/|^+?~&-])
    """,
    re.VERBOSE,
)
_codepoint = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)


class Token(NamedTuple):
    """A piece of a query: what kind it is of, and what it says."""

    kind: str
    text: str


def tokens(query: str) -> list[Token]:
    """All pieces of a query, spaces included; together they are the query."""
    return list(_pieces(decoded(query)))


def _pieces(query: str) -> Iterator[Token]:
    at = 0
    while at < len(query):
        found = _TOKEN.match(query, at)
        if found is None:
            raise InvalidQuery(f"cannot be read {_place(query, at)}", _remedy(query[at]))
        kind = str(found.lastgroup)
        yield Token(kind, found.group())
        at = found.end()


def decoded(query: str) -> str:
    r"""The query with its `\u0041` replaced by the characters they mean, before anything else is read."""
    return _codepoint.sub(_character, query) if "\\" in query else query


def _character(found: re.Match[str]) -> str:
    digits = found[1] or found[2]
    if digits is None:
        return found[0]
    number = int(digits, 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF or chr(number) in "\0\"'\\\n\r":
        raise InvalidQuery(
            f"holds {found[0]}, which engines read differently",
            "write the character itself, or bind the text",
        )
    return chr(number)


def _place(query: str, at: int) -> str:
    line = query.count("\n", 0, at) + 1
    return f"from line {line}, column {at - query.rfind(chr(10), 0, at)} on"


def _remedy(letter: str) -> str:
    if letter in "\"'":
        return "close the text with the quote it begins with"
    return "write whole IRIs in <>, text in quotes, and variables with ?"
