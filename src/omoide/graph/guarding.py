"""Does a query only ask?

What is sent on is put together from the pieces that were checked: prefixed names become whole IRIs and
comments go, so that no engine can read another query out of the same text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, cast

import msgspec

from omoide.errors import InvalidQuery, WrongType
from omoide.graph.terms import check_iri
from omoide.graph.tokens import Token, tokens
from omoide.graph.vocabulary import PREFIXES

MAX_BYTES = 100_000
MAX_DEPTH = 50
MAX_PARTS = 1_000
MAX_STEPS = 300
"""How many steps there are to patterns and paths, about three to each; the time to plan them grows faster."""
MAX_PREFIX = 2_000
MAX_VARIABLES = 200
"""How deep a query may be nested, and how many words and signs it may have apart from lists of values.

Far beyond that a query engine runs out of stack, and takes the whole process with it.
"""

Form = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]
_FORMS = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_CHANGING = "INSERT DELETE LOAD CLEAR DROP CREATE COPY MOVE ADD WITH USING INTO"
_UPDATES = frozenset(_CHANGING.split())

# Every word that a query may hold. Others are refused: some engines read the beginning of them as one.
_ASKING = """
A ABS ADJUST AS ASC ASK AVG BIND BNODE BOUND BY CEIL COALESCE CONCAT CONSTRUCT CONTAINS COUNT DATATYPE DAY
DESC DESCRIBE DISTINCT ENCODE_FOR_URI EXISTS FALSE FILTER FLOOR GRAPH GROUP GROUP_CONCAT HASLANG HASLANGDIR
HAVING HOURS IF IN IRI ISBLANK ISIRI ISLITERAL ISNUMERIC ISTRIPLE ISURI LANG LANGDIR LANGMATCHES LATERAL
LCASE LIMIT MAX MD5 MIN MINUS MINUTES MONTH NOT NOW OBJECT OFFSET OPTIONAL ORDER PREDICATE PREFIX RAND
REDUCED REGEX REPLACE ROUND SAMETERM SAMPLE SECONDS SELECT SEPARATOR SHA1 SHA256 SHA384 SHA512 STR STRAFTER
STRBEFORE STRDT STRENDS STRLANG STRLANGDIR STRLEN STRSTARTS STRUUID SUBJECT SUBSTR SUM TIMEZONE TRIPLE TRUE
TZ UCASE UNDEF UNION URI UUID VALUES WHERE YEAR
"""
_WORDS = frozenset(_ASKING.split())

_OPENING, _CLOSING = ("(", "[", "{", "{|", "<<", "<<("), (")", "]", "}", "|}", ">>", ")>>")

_TERMS = frozenset({"string", "number", "iri", "variable", "blank", "language"})
_BETWEEN = {"VALUES": frozenset("(){},") | {"^^"}, "IN": frozenset("(),") | {"^^"}}
"""What begins a list of values, and what may stand between them."""
_WORDS_OF_DATA = frozenset({"UNDEF", "TRUE", "FALSE"})
_WEIGHTS = {".": 1, ";": 1, "/": 1, "|": 1, "^": 1, ",": 3, "{": 3, "[": 3}
"""How much each sign adds to what has to be planned."""

_ASK_ONLY = "ask with SELECT, ASK, CONSTRUCT or DESCRIBE; memories are changed through the store"


class Guarded(msgspec.Struct, frozen=True):
    """A query that only asks, in pieces: spaces and comments are one kind, prefixed names are whole."""

    form: Form
    tokens: tuple[Token, ...]
    variables: frozenset[str]

    @property
    def text(self) -> str:
        """The query as it is sent on."""
        return "".join(token.text for token in self.tokens)


def check(query: str) -> Guarded:
    """The query, if all it does is ask about the scope it is given."""
    if not isinstance(query, str):
        raise WrongType("query", "text", query)
    if "\0" in query:
        raise InvalidQuery("contains a NUL character", "remove it")
    if len(query) > MAX_BYTES or len(query.encode(errors="replace")) > MAX_BYTES:
        raise InvalidQuery(f"is longer than {MAX_BYTES} bytes", "ask in parts, or bind what is long")
    if any("\ud800" <= letter <= "\udfff" for letter in query):
        raise InvalidQuery("contains a lone surrogate", "decode the text properly first")
    return _check(query)


@lru_cache(maxsize=64)
def _check(query: str) -> Guarded:
    pieces = tokens(query)
    prefixes, start = _prologue(pieces)
    kept, size = [], 0
    for at, piece in enumerate(pieces):
        kept.append(_plain(piece, prefixes, at >= start))
        size += len(kept[-1].text)
        if size > 5 * MAX_BYTES:
            raise InvalidQuery("is too long once its prefixes are written out", "ask in parts")
    first = next((token for token in kept if token.kind != "space"), Token("space", ""))
    form = first.text.upper()
    if first.kind != "word" or form not in _FORMS:
        raise InvalidQuery("is none of the kinds of question there are", _ASK_ONLY)
    _check_size(kept)
    variables = frozenset(token.text[1:] for token in kept if token.kind == "variable")
    if len(variables) > MAX_VARIABLES:
        raise InvalidQuery(f"has more than {MAX_VARIABLES} variables", "ask in parts")
    return Guarded(cast("Form", form), tuple(kept), variables)


def _prologue(pieces: list[Token]) -> tuple[dict[str, str], int]:
    """The prefixes that the query declares besides the known ones, and where what follows them begins."""
    prefixes = dict(PREFIXES)
    spoken = [(at, piece) for at, piece in enumerate(pieces) if piece.kind not in ("space", "comment")]
    here = 0
    while here < len(spoken):
        at, piece = spoken[here]
        word = piece.text.upper() if piece.kind == "word" else ""
        if word in ("BASE", "VERSION"):
            raise InvalidQuery(f"declares a {word}", "leave it out, and write whole IRIs")
        if word != "PREFIX":
            return prefixes, at
        declared = [piece for _, piece in spoken[here + 1 : here + 3]]
        if [piece.kind for piece in declared] != ["name", "iri"] or not declared[0].text.endswith(":"):
            raise InvalidQuery("declares a prefix wrongly", "write PREFIX name: <https://whole.example/iri#>")
        if len(declared[1].text) > MAX_PREFIX:
            raise InvalidQuery(f"declares a prefix of more than {MAX_PREFIX} characters", "use a shorter one")
        prefixes[declared[0].text[:-1]] = declared[1].text[1:-1]
        here += 3
    return prefixes, len(pieces)


def _plain(piece: Token, prefixes: dict[str, str], spoken: bool) -> Token:
    """A piece as it is sent on."""
    if not spoken or piece.kind in ("space", "comment"):
        return Token("space", re.sub(r"[^\r\n]", " ", piece.text))
    if piece.kind == "name":
        return Token("iri", f"<{_whole(piece.text, prefixes)}>")
    if piece.kind == "word":
        _check_word(piece.text)
    return piece


def _check_word(said: str) -> None:
    word = said.upper()
    if word == "SERVICE":
        raise InvalidQuery("asks another server (SERVICE)", "ask only what is in memory")
    if word in ("FROM", "NAMED"):
        raise InvalidQuery(f"chooses its own graphs ({word})", "leave it out: the scope is what is asked")
    if word in _UPDATES:
        raise InvalidQuery(f"changes data ({word})", _ASK_ONLY)
    if word not in _WORDS or said == "A":
        raise InvalidQuery(f"holds {said[:40]!r}, which is no word of SPARQL", "quote it, or put it apart")


def _whole(name: str, prefixes: dict[str, str]) -> str:
    prefix, _, local = name.partition(":")
    if prefix not in prefixes:
        remedy = f"declare it, or use {', '.join(sorted(prefixes))}"
        raise InvalidQuery(f"uses the prefix {prefix[:40]!r}, which it does not declare", remedy)
    return check_iri(prefixes[prefix] + re.sub(r"\\(.)", r"\1", local), "query")


def _check_size(pieces: list[Token]) -> None:
    """Raise for what an engine would take for ever to read or to plan, or would break at.

    Lists of values, after VALUES and IN, are data and may be long; a list that holds anything else is none.
    """
    depth = parts = steps = round_ = 0
    listed = ""
    after_term = False
    for kind, text in pieces:
        if kind == "space":
            continue
        term = kind in _TERMS
        if kind == "sign":
            depth += (text in _OPENING) - (text in _CLOSING)
            round_ += (text == "(") - (text == ")")
        if listed and not (term or text in _BETWEEN[listed] or text.upper() in _WORDS_OF_DATA):
            listed = ""
        if not listed:
            parts += 1
            steps += _WEIGHTS.get(text, 0) if kind == "sign" else term and after_term and (6 if round_ else 1)
        if kind == "word" and text.upper() in _BETWEEN:
            listed = text.upper()
        after_term = term
        if depth > MAX_DEPTH or parts > MAX_PARTS or steps > MAX_STEPS:
            raise InvalidQuery("is too long or too deeply nested", "ask in parts, or bind what is long")
