"""Tokenise, guard and bind queries.

Terms and keywords are told apart as the grammar of SPARQL does it, so that nothing which stands inside text,
an IRI or a comment is taken for a keyword, nor the reverse.

What is sent on is put together from the pieces that were checked: prefixed names become whole IRIs and
comments go, so that no engine can read another query out of the same text.

A bound name means its value wherever it stands in the query. The value is put in as the text of a single
term, so no value can change what is asked; every backend is sent the same text and gives the same answer.
`SELECT *` shows the variables that are left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, cast

import msgspec

from omoide.errors import InvalidQuery, WrongType
from omoide.graph.terms import RDFTerm, check_iri, is_ambiguous, term_of, to_expression
from omoide.graph.vocabulary import PREFIXES

# tokens: Where does each word of a query begin and end?


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


class SparqlToken(NamedTuple):
    """A piece of a query: what kind it is of, and what it says."""

    kind: str
    text: str


def tokenize(query: str) -> list[SparqlToken]:
    """All pieces of a query, spaces included; together they are the query."""
    return list(_scan(decode_escapes(query)))


def _scan(query: str) -> Iterator[SparqlToken]:
    at = 0
    while at < len(query):
        found = _TOKEN.match(query, at)
        if found is None:
            raise InvalidQuery(f"cannot be read {_position(query, at)}", _remedy(query[at]))
        kind = str(found.lastgroup)
        yield SparqlToken(kind, found.group())
        at = found.end()


def decode_escapes(query: str) -> str:
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


def _position(query: str, at: int) -> str:
    line = query.count("\n", 0, at) + 1
    return f"from line {line}, column {at - query.rfind(chr(10), 0, at)} on"


def _remedy(character: str) -> str:
    if character in "\"'":
        return "close the text with the quote it begins with"
    return "write whole IRIs in <>, text in quotes, and variables with ?"


# guarding: Does a query only ask?


MAX_BYTES = 100_000
MAX_DEPTH = 50
MAX_TOKENS = 1_000
MAX_STEPS = 300
"""How many steps there are to patterns and paths, about three to each; the time to plan them grows faster."""
MAX_PREFIX_LENGTH = 2_000
MAX_VARIABLES = 200
"""How deep a query may be nested, and how many words and signs it may have apart from lists of values.

Far beyond that a query engine runs out of stack, and takes the whole process with it.
"""

Form = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]
_FORMS = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_UPDATE_KEYWORD_LIST = "INSERT DELETE LOAD CLEAR DROP CREATE COPY MOVE ADD WITH USING INTO"
_UPDATE_KEYWORDS = frozenset(_UPDATE_KEYWORD_LIST.split())

# Every word that a query may hold. Others are refused: some engines read the beginning of them as one.
_QUERY_KEYWORD_LIST = """
A ABS ADJUST AS ASC ASK AVG BIND BNODE BOUND BY CEIL COALESCE CONCAT CONSTRUCT CONTAINS COUNT DATATYPE DAY
DESC DESCRIBE DISTINCT ENCODE_FOR_URI EXISTS FALSE FILTER FLOOR GRAPH GROUP GROUP_CONCAT HASLANG HASLANGDIR
HAVING HOURS IF IN IRI ISBLANK ISIRI ISLITERAL ISNUMERIC ISTRIPLE ISURI LANG LANGDIR LANGMATCHES LATERAL
LCASE LIMIT MAX MD5 MIN MINUS MINUTES MONTH NOT NOW OBJECT OFFSET OPTIONAL ORDER PREDICATE PREFIX RAND
REDUCED REGEX REPLACE ROUND SAMETERM SAMPLE SECONDS SELECT SEPARATOR SHA1 SHA256 SHA384 SHA512 STR STRAFTER
STRBEFORE STRDT STRENDS STRLANG STRLANGDIR STRLEN STRSTARTS STRUUID SUBJECT SUBSTR SUM TIMEZONE TRIPLE TRUE
TZ UCASE UNDEF UNION URI UUID VALUES WHERE YEAR
"""
_QUERY_KEYWORDS = frozenset(_QUERY_KEYWORD_LIST.split())

_OPENING, _CLOSING = ("(", "[", "{", "{|", "<<", "<<("), (")", "]", "}", "|}", ">>", ")>>")

_TERM_KINDS = frozenset({"string", "number", "iri", "variable", "blank", "language"})
_LIST_SEPARATORS = {"VALUES": frozenset("(){},") | {"^^"}, "IN": frozenset("(),") | {"^^"}}
"""What begins a list of values, and what may stand between them."""
_DATA_KEYWORDS = frozenset({"UNDEF", "TRUE", "FALSE"})
_SIGN_COSTS = {".": 1, ";": 1, "/": 1, "|": 1, "^": 1, ",": 3, "{": 3, "[": 3}
"""How much each sign adds to what has to be planned."""

_READ_ONLY_REMEDY = "ask with SELECT, ASK, CONSTRUCT or DESCRIBE; memories are changed through the store"


class CheckedQuery(msgspec.Struct, frozen=True):
    """A query that only asks, in pieces: spaces and comments are one kind, prefixed names are whole."""

    form: Form
    tokens: tuple[SparqlToken, ...]
    variables: frozenset[str]

    @property
    def text(self) -> str:
        """The query as it is sent on."""
        return "".join(token.text for token in self.tokens)


def check_query(query: str) -> CheckedQuery:
    """The query, if all it does is ask about the scope it is given."""
    if not isinstance(query, str):
        raise WrongType("query", "text", query)
    if "\0" in query:
        raise InvalidQuery("contains a NUL character", "remove it")
    if len(query) > MAX_BYTES or len(query.encode(errors="replace")) > MAX_BYTES:
        raise InvalidQuery(f"is longer than {MAX_BYTES} bytes", "ask in parts, or bind what is long")
    if any("\ud800" <= letter <= "\udfff" for letter in query):
        raise InvalidQuery("contains a lone surrogate", "decode the text properly first")
    return _check_cached(query)


@lru_cache(maxsize=64)
def _check_cached(query: str) -> CheckedQuery:
    pieces = tokenize(query)
    prefixes, start = _prologue(pieces)
    kept, size = [], 0
    for at, piece in enumerate(pieces):
        kept.append(_normalize(piece, prefixes, at >= start))
        size += len(kept[-1].text)
        if size > 5 * MAX_BYTES:
            raise InvalidQuery("is too long once its prefixes are written out", "ask in parts")
    first = next((token for token in kept if token.kind != "space"), SparqlToken("space", ""))
    form = first.text.upper()
    if first.kind != "word" or form not in _FORMS:
        raise InvalidQuery("is none of the kinds of question there are", _READ_ONLY_REMEDY)
    _check_size(kept)
    variables = frozenset(token.text[1:] for token in kept if token.kind == "variable")
    if len(variables) > MAX_VARIABLES:
        raise InvalidQuery(f"has more than {MAX_VARIABLES} variables", "ask in parts")
    return CheckedQuery(cast("Form", form), tuple(kept), variables)


def _prologue(pieces: list[SparqlToken]) -> tuple[dict[str, str], int]:
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
        if len(declared[1].text) > MAX_PREFIX_LENGTH:
            raise InvalidQuery(
                f"declares a prefix of more than {MAX_PREFIX_LENGTH} characters", "use a shorter one"
            )
        prefixes[declared[0].text[:-1]] = declared[1].text[1:-1]
        here += 3
    return prefixes, len(pieces)


def _normalize(piece: SparqlToken, prefixes: dict[str, str], in_body: bool) -> SparqlToken:
    """A piece as it is sent on."""
    if not in_body or piece.kind in ("space", "comment"):
        return SparqlToken("space", re.sub(r"[^\r\n]", " ", piece.text))
    if piece.kind == "name":
        return SparqlToken("iri", f"<{_expand_name(piece.text, prefixes)}>")
    if piece.kind == "word":
        _check_keyword(piece.text)
    return piece


def _check_keyword(text: str) -> None:
    word = text.upper()
    if word == "SERVICE":
        raise InvalidQuery("asks another server (SERVICE)", "ask only what is in memory")
    if word in ("FROM", "NAMED"):
        raise InvalidQuery(f"chooses its own graphs ({word})", "leave it out: the scope is what is asked")
    if word in _UPDATE_KEYWORDS:
        raise InvalidQuery(f"changes data ({word})", _READ_ONLY_REMEDY)
    if word not in _QUERY_KEYWORDS or text == "A":
        raise InvalidQuery(f"holds {text[:40]!r}, which is no word of SPARQL", "quote it, or put it apart")


def _expand_name(name: str, prefixes: dict[str, str]) -> str:
    prefix, _, local = name.partition(":")
    if prefix not in prefixes:
        remedy = f"declare it, or use {', '.join(sorted(prefixes))}"
        raise InvalidQuery(f"uses the prefix {prefix[:40]!r}, which it does not declare", remedy)
    return check_iri(prefixes[prefix] + re.sub(r"\\(.)", r"\1", local), "query")


def _check_size(pieces: list[SparqlToken]) -> None:
    """Raise for what an engine would take for ever to read or to plan, or would break at.

    Lists of values, after VALUES and IN, are data and may be long; a list that holds anything else is none.
    """
    depth = parts = steps = round_ = 0
    listed = ""
    after_term = False
    for kind, text in pieces:
        if kind == "space":
            continue
        term = kind in _TERM_KINDS
        if kind == "sign":
            depth += (text in _OPENING) - (text in _CLOSING)
            round_ += (text == "(") - (text == ")")
        if listed and not (term or text in _LIST_SEPARATORS[listed] or text.upper() in _DATA_KEYWORDS):
            listed = ""
        if not listed:
            parts += 1
            steps += (
                _SIGN_COSTS.get(text, 0) if kind == "sign" else term and after_term and (6 if round_ else 1)
            )
        if kind == "word" and text.upper() in _LIST_SEPARATORS:
            listed = text.upper()
        after_term = term
        if depth > MAX_DEPTH or parts > MAX_TOKENS or steps > MAX_STEPS:
            raise InvalidQuery("is too long or too deeply nested", "ask in parts, or bind what is long")


# binding: How does a value take the place of a variable?


_CLAUSES = ("projection", "grouping", "condition")
_CLAUSE_ENDS = ("LIMIT", "OFFSET", "VALUES", "HAVING", "ORDER", "GROUP", "WHERE")


class BoundQuery(msgspec.Struct, frozen=True):
    """A query whose bound variables are values."""

    form: Form
    tokens: tuple[SparqlToken, ...]
    hidden: frozenset[str] = frozenset()
    """Variables that stand in for others, and are not told to whoever asked."""

    @property
    def text(self) -> str:
        """The query as it is sent on."""
        return "".join(token.text for token in self.tokens)


def bind(query: CheckedQuery, bindings: Mapping[str, Any]) -> BoundQuery:
    """The query with each bound variable replaced by its value."""
    terms = {name: term_of(value, f"binding {name!r}") for name, value in bindings.items()}
    for name in terms:
        if name not in query.variables:
            known = ", ".join(f"?{known}" for known in sorted(query.variables)) or "none"
            raise InvalidQuery(f"has no variable ?{name} to bind", f"bind one of its variables: {known}")
    if not terms:
        return BoundQuery(query.form, query.tokens)
    return _Binder(query, terms).bind()


class _Position(NamedTuple):
    """What kind of place in a query we are at."""

    kind: str
    """pattern, projection, grouping, condition (of an order), expression, or names and rows (of values)."""
    nested: bool = False
    """Whether it belongs to a query inside the query."""


class _Binder:
    """Walks through a query once and keeps track of where it is."""

    def __init__(self, query: CheckedQuery, terms: Mapping[str, RDFTerm]) -> None:
        self._query, self._terms = query, terms
        self._significant = [at for at, token in enumerate(query.tokens) if token.kind != "space"]
        self._positions = [_Position("pattern")]
        self._hidden: set[str] = set()
        self._texts = {at: token.text for at, token in enumerate(query.tokens)}

    def bind(self) -> BoundQuery:
        for here, at in enumerate(self._significant):
            token = self._query.tokens[at]
            if token.kind == "variable" and token.text[1:] in self._terms:
                self._texts[at] = self._replacement(token.text[1:], here)
            elif token.kind == "iri":
                self._check_iri(token.text)
            else:
                self._track_position(token, here)
        pieces = (
            SparqlToken("given" if text != token.text else token.kind, text)
            for token, text in zip(self._query.tokens, self._texts.values(), strict=True)
        )
        return BoundQuery(self._query.form, tuple(pieces), frozenset(self._hidden))

    def _token_at(self, here: int, steps: int) -> SparqlToken:
        there = here + steps
        if 0 <= there < len(self._significant):
            return self._query.tokens[self._significant[there]]
        return SparqlToken("end", "")

    def _keyword_at(self, here: int, steps: int) -> str:
        token = self._token_at(here, steps)
        return token.text.upper() if token.kind in ("word", "sign") else ""

    def _track_position(self, token: SparqlToken, here: int) -> None:
        """Follow a word or a sign to the kind of place that comes after it."""
        word, places = token.text.upper() if token.kind in ("word", "sign") else "", self._positions
        if word in ("{", "{|"):
            self._leave_clause()
            names = places[-1].kind == "names"
            places.append(_Position("rows" if names else "pattern", len(places) > 1))
        elif word in ("}", "|}"):
            self._leave_clause()
            if len(places) > 1:
                places.pop()
            if places[-1].kind == "names":
                places.pop()
        elif word == "(":
            inside = places[-1].kind if places[-1].kind in ("names", "rows") else "expression"
            if places[-1].kind == "pattern" and self._token_at(here, -1).kind != "word":
                inside = "pattern"
            places.append(_Position(inside, places[-1].nested))
        elif word == ")" and len(places) > 1:
            places.pop()
        elif token.kind == "word":
            self._enter_clause(word, here)

    def _enter_clause(self, word: str, here: int) -> None:
        if self._positions[-1].kind in _CLAUSES and word in _CLAUSE_ENDS:
            self._positions.pop()
        inner = len(self._positions) > 1
        if word == "SELECT":
            self._positions.append(_Position("projection", inner))
        elif word == "BY":
            grouping = self._keyword_at(here, -1) == "GROUP"
            self._positions.append(_Position("grouping" if grouping else "condition", inner))
        elif word == "VALUES":
            self._positions.append(_Position("names", inner))

    def _leave_clause(self) -> None:
        if self._positions[-1].kind in _CLAUSES:
            self._positions.pop()

    def _replacement(self, name: str, here: int) -> str:
        place, term = self._positions[-1], self._terms[name]
        if self._keyword_at(here, -1) == "AS" or place.kind == "names":
            raise InvalidQuery(
                f"gives ?{name} a value itself, and it is bound as well", "bind another name, or leave it out"
            )
        if self._keyword_at(here, -2) == "BOUND" and self._keyword_at(here, -1) == "(":
            return self._replace_bound_call(here)
        if place.kind == "projection":
            return f"({to_expression(term)} AS ?{self._fresh_name(name) if place.nested else name})"
        if place.kind == "grouping":
            return f"({to_expression(term)} AS ?{self._fresh_name(name)})"
        if place.kind == "condition":
            return f"({to_expression(term)})"
        return to_expression(term) if place.kind == "expression" else self._pattern_term(name, term)

    def _replace_bound_call(self, here: int) -> str:
        """A bound variable is bound: `BOUND(?x)` is true."""
        self._texts[self._significant[here - 2]] = ""
        return "true"

    def _pattern_term(self, name: str, term: RDFTerm) -> str:
        if is_ambiguous(term):
            raise InvalidQuery(
                f"has ?{name} in a pattern, bound to a text with \\u in it that servers read differently",
                f"put another variable there, and FILTER(?other = ?{name})",
            )
        return str(term)

    def _fresh_name(self, name: str) -> str:
        """A name for the column of an inner query: the outer one has the value already."""
        fresh = f"{name}_given"
        while fresh in self._query.variables or fresh in self._terms:
            fresh += "_"
        self._hidden.add(fresh)
        return fresh

    def _check_iri(self, iri: str) -> None:
        if any(f"{sign}{name}" in iri for name in self._terms for sign in "?$"):
            raise InvalidQuery(
                f"holds {iri[:60]}, with the name of a bound variable in it", "put spaces around < and >"
            )
