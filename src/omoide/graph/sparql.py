"""Tokenize SPARQL queries, check that they only read, and bind values.

Tokens follow the SPARQL grammar, so nothing inside a string, an IRI or a comment is taken for a keyword, nor
the reverse.

The text that is sent on is assembled from checked tokens: prefixed names become full IRIs and comments are
removed, so that no engine can read another query out of the same text.

A bound variable stands for its value everywhere in the query. The value is inserted as a single term, so no
value can change the meaning of a query, and every backend receives the same text. `SELECT *` returns the
remaining variables.
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

_BASE = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c-\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME = f"{_BASE}_0-9\u00b7\u0300-\u036f\u203f-\u2040"
_LOCAL = rf"(?:[{_NAME}:-]|%[0-9A-Fa-f]{{2}}|\\[_~.\-!$&'()*+,;=/?#@%])"
_ESCAPE = r"\\[tbnrf\\\"']"

# Possessive quantifiers (++ and *+) never backtrack, so that hostile text takes linear time. The prefix of a
# name has a limit, because it is read in vain where no colon follows. Relative IRIs are no tokens: their
# meaning depends on a base. Names, which contain a colon, have to come before words.
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
  | (?P<name>(?:[{_BASE}](?:\.*[{_NAME}-]){{0,64}}+)?:(?:{_LOCAL}(?:\.*{_LOCAL})*+)?)
  | (?P<language>@[A-Za-z]++(?:-[A-Za-z0-9]++)*+(?:--[A-Za-z]++)?)
  | (?P<number>(?:[0-9]++(?:\.[0-9]*+(?=[eE][+-]?[0-9])|\.[0-9]++)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
  | (?P<word>[A-Za-z][A-Za-z0-9_]*+)
  | (?P<sign>\^\^|&&|\|\||<<\(|\)>>|<<|>>|\{{\||\|\}}|[<>!]=|[{{}}()\[\].,;=<>!*/|^+?~&-])
    """,
    re.VERBOSE,
)
_codepoint = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|.)", re.DOTALL)


class SparqlToken(NamedTuple):
    """A token of a query: its kind and its text."""

    kind: str
    text: str


def tokenize(query: str) -> list[SparqlToken]:
    """Return all tokens of a query, white space included."""
    return list(_scan(decode_escapes(query)))


def _scan(query: str) -> Iterator[SparqlToken]:
    at = 0
    while at < len(query):
        match = _TOKEN.match(query, at)
        if match is None:
            raise InvalidQuery(f"cannot be read {_position(query, at)}", _remedy(query[at]))
        kind = str(match.lastgroup)
        yield SparqlToken(kind, match.group())
        at = match.end()


def decode_escapes(query: str) -> str:
    r"""Return the query with codepoint escapes (`\u0041`) decoded, as the grammar requires."""
    return _codepoint.sub(_character, query) if "\\" in query else query


def _character(match: re.Match[str]) -> str:
    digits = match[1] or match[2]
    if digits is None:
        return match[0]
    number = int(digits, 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF or chr(number) in "\0\"'\\\n\r":
        raise InvalidQuery(
            f"contains {match[0]}, which engines read differently",
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


MAX_BYTES = 100_000
MAX_DEPTH = 50
MAX_TOKENS = 1_000
MAX_STEPS = 300
"""Limit of the steps of patterns and paths, about three per triple; planning takes more than linear time."""
MAX_PREFIX_LENGTH = 2_000
MAX_VARIABLES = 200
"""Limit of distinct variables.

Beyond these limits (depth, tokens outside of lists of values, steps, variables) a query engine can run out of
stack and take the process down with it.
"""

Form = Literal["SELECT", "ASK", "CONSTRUCT", "DESCRIBE"]
_FORMS = ("SELECT", "ASK", "CONSTRUCT", "DESCRIBE")
_UPDATE_KEYWORDS = frozenset(
    ("INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "COPY", "MOVE", "ADD", "WITH", "USING", "INTO")
)

# Every keyword of a query. Other words are refused, because some engines read their beginning as a keyword.
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
"""Keywords that begin a list of values, and the signs allowed between values."""
_DATA_KEYWORDS = frozenset({"UNDEF", "TRUE", "FALSE"})
_SIGN_COSTS = {".": 1, ";": 1, "/": 1, "|": 1, "^": 1, ",": 3, "{": 3, "[": 3}
"""Steps that each sign adds to the query plan."""

_READ_ONLY_REMEDY = "ask with SELECT, ASK, CONSTRUCT or DESCRIBE; memories are changed through the store"


class CheckedQuery(msgspec.Struct, frozen=True):
    """A query that only reads; white space and comments are normalized, prefixed names expanded."""

    form: Form
    tokens: tuple[SparqlToken, ...]
    variables: frozenset[str]

    @property
    def text(self) -> str:
        """The text that is sent on."""
        return "".join(token.text for token in self.tokens)


def check_query(query: str) -> CheckedQuery:
    """Check that a query only reads its scope, and return it as tokens.

    Raises:
        InvalidQuery: the query changes data, chooses graphs, calls a service, or is too large.
    """
    if not isinstance(query, str):
        raise WrongType("query", "text", query)
    if "\0" in query:
        raise InvalidQuery("contains a NUL character", "remove it")
    if len(query) > MAX_BYTES or len(query.encode(errors="replace")) > MAX_BYTES:
        raise InvalidQuery(f"is longer than {MAX_BYTES} bytes", "ask in parts, or bind what is long")
    if any("\ud800" <= character <= "\udfff" for character in query):
        raise InvalidQuery("contains a lone surrogate", "decode the text properly first")
    # Checked outside of the cache, which therefore only has queries of limited size.
    return _check_tokens(query)


@lru_cache(maxsize=64)
def _check_tokens(query: str) -> CheckedQuery:
    tokens = tokenize(query)
    prefixes, start = _prologue(tokens)
    checked, size = [], 0
    for at, token in enumerate(tokens):
        checked.append(_normalize(token, prefixes, at >= start))
        size += len(checked[-1].text)
        # A name of a few characters may expand to a prefix of up to 2,000.
        if size > 5 * MAX_BYTES:
            raise InvalidQuery("is too long once its prefixes are written out", "ask in parts")
    first = next((token for token in checked if token.kind != "space"), SparqlToken("space", ""))
    form = first.text.upper()
    if first.kind != "word" or form not in _FORMS:
        raise InvalidQuery("has no query form", _READ_ONLY_REMEDY)
    _check_size(checked)
    variables = frozenset(token.text[1:] for token in checked if token.kind == "variable")
    if len(variables) > MAX_VARIABLES:
        raise InvalidQuery(f"has more than {MAX_VARIABLES} variables", "ask in parts")
    return CheckedQuery(cast("Form", form), tuple(checked), variables)


def _prologue(tokens: list[SparqlToken]) -> tuple[dict[str, str], int]:
    """Return the declared prefixes with the known ones, and the index of the first token after them."""
    prefixes = dict(PREFIXES)
    significant = [(at, token) for at, token in enumerate(tokens) if token.kind not in ("space", "comment")]
    index = 0
    while index < len(significant):
        at, token = significant[index]
        word = token.text.upper() if token.kind == "word" else ""
        if word in ("BASE", "VERSION"):
            raise InvalidQuery(f"declares a {word}", "leave it out, and write whole IRIs")
        if word != "PREFIX":
            return prefixes, at
        declared = [token for _, token in significant[index + 1 : index + 3]]
        if [token.kind for token in declared] != ["name", "iri"] or not declared[0].text.endswith(":"):
            raise InvalidQuery("declares a prefix wrongly", "write PREFIX name: <https://whole.example/iri#>")
        if len(declared[1].text) > MAX_PREFIX_LENGTH:
            raise InvalidQuery(
                f"declares a prefix of more than {MAX_PREFIX_LENGTH} characters", "use a shorter one"
            )
        prefixes[declared[0].text[:-1]] = declared[1].text[1:-1]
        index += 3
    return prefixes, len(tokens)


def _normalize(token: SparqlToken, prefixes: dict[str, str], in_body: bool) -> SparqlToken:
    """Return a token as it is sent on."""
    if not in_body or token.kind in ("space", "comment"):
        # Line breaks stay, so that a line number in an error is that of the caller's text.
        return SparqlToken("space", re.sub(r"[^\r\n]", " ", token.text))
    if token.kind == "name":
        return SparqlToken("iri", f"<{_expand_name(token.text, prefixes)}>")
    if token.kind == "word":
        _check_keyword(token.text)
    return token


def _check_keyword(text: str) -> None:
    word = text.upper()
    if word == "SERVICE":
        raise InvalidQuery("asks another server (SERVICE)", "query only the graph itself")
    if word in ("FROM", "NAMED"):
        raise InvalidQuery(f"chooses its own graphs ({word})", "leave it out: the scope selects the graphs")
    if word in _UPDATE_KEYWORDS:
        raise InvalidQuery(f"changes data ({word})", _READ_ONLY_REMEDY)
    # `a`, short for rdf:type, is the only keyword that is case-sensitive.
    if word not in _QUERY_KEYWORDS or text == "A":
        raise InvalidQuery(f"contains the unknown keyword {text[:40]!r}", "quote it, or put spaces around it")


def _expand_name(name: str, prefixes: dict[str, str]) -> str:
    prefix, _, local = name.partition(":")
    if prefix not in prefixes:
        remedy = f"declare it, or use {', '.join(sorted(prefixes))}"
        raise InvalidQuery(f"uses the prefix {prefix[:40]!r}, which it does not declare", remedy)
    return check_iri(prefixes[prefix] + re.sub(r"\\(.)", r"\1", local), "query")


def _check_size(tokens: list[SparqlToken]) -> None:
    """Raise if an engine could take very long to plan the query, or run out of stack.

    Lists of values after VALUES and IN are data and may be long.
    """
    depth = count = steps = parentheses = 0
    list_keyword = ""
    after_term = False
    for kind, text in tokens:
        if kind == "space":
            continue
        is_term = kind in _TERM_KINDS
        if kind == "sign":
            depth += (text in _OPENING) - (text in _CLOSING)
            parentheses += (text == "(") - (text == ")")
        is_data = is_term or text.upper() in _DATA_KEYWORDS
        if list_keyword and not (is_data or text in _LIST_SEPARATORS[list_keyword]):
            list_keyword = ""
        if not list_keyword:
            count += 1
            if kind == "sign":
                steps += _SIGN_COSTS.get(text, 0)
            elif is_term and after_term:  # a triple or, in parentheses, an RDF list
                steps += 6 if parentheses else 1
        if kind == "word" and text.upper() in _LIST_SEPARATORS:
            list_keyword = text.upper()
        after_term = is_term
        if depth > MAX_DEPTH or count > MAX_TOKENS or steps > MAX_STEPS:
            raise InvalidQuery("is too long or too deeply nested", "ask in parts, or bind what is long")


_CLAUSES = ("projection", "grouping", "condition")
_CLAUSE_ENDS = ("LIMIT", "OFFSET", "VALUES", "HAVING", "ORDER", "GROUP", "WHERE")


class BoundQuery(msgspec.Struct, frozen=True):
    """A query with its bound variables replaced by values."""

    form: Form
    tokens: tuple[SparqlToken, ...]
    hidden: frozenset[str] = frozenset()
    """Helper variables, which are removed from the result."""

    @property
    def text(self) -> str:
        """The text that is sent on."""
        return "".join(token.text for token in self.tokens)


def bind(query: CheckedQuery, bindings: Mapping[str, Any]) -> BoundQuery:
    """Return the query with each bound variable replaced by its value.

    Raises:
        InvalidQuery: a name is not a variable of the query, or cannot be bound there.
    """
    terms = {name: term_of(value, f"binding {name!r}") for name, value in bindings.items()}
    for name in terms:
        if name not in query.variables:
            variables = ", ".join(f"?{variables}" for variables in sorted(query.variables)) or "none"
            raise InvalidQuery(f"has no variable ?{name} to bind", f"bind one of its variables: {variables}")
    if not terms:
        return BoundQuery(query.form, query.tokens)
    return _Binder(query, terms).bind()


class _Position(NamedTuple):
    """Syntactic position in a query."""

    kind: str
    """pattern, projection, grouping, condition (of ORDER BY), expression, or names and rows (of VALUES)."""
    nested: bool = False
    """True inside a subquery."""


class _Binder:
    """Bind values in one pass over the tokens, tracking the syntactic position."""

    def __init__(self, query: CheckedQuery, terms: Mapping[str, RDFTerm]) -> None:
        self._query, self._terms = query, terms
        self._significant = [at for at, token in enumerate(query.tokens) if token.kind != "space"]
        self._positions = [_Position("pattern")]
        self._hidden: set[str] = set()
        self._texts = {at: token.text for at, token in enumerate(query.tokens)}

    def bind(self) -> BoundQuery:
        for number, index in enumerate(self._significant):
            token = self._query.tokens[index]
            if token.kind == "variable" and token.text[1:] in self._terms:
                self._texts[index] = self._replacement(token.text[1:], number)
            elif token.kind == "iri":
                self._check_iri(token.text)
            else:
                self._track_position(token, number)
        bound = (
            SparqlToken("inserted" if text != token.text else token.kind, text)
            for token, text in zip(self._query.tokens, self._texts.values(), strict=True)
        )
        return BoundQuery(self._query.form, tuple(bound), frozenset(self._hidden))

    def _token_at(self, number: int, steps: int) -> SparqlToken:
        target = number + steps
        if 0 <= target < len(self._significant):
            return self._query.tokens[self._significant[target]]
        return SparqlToken("end", "")

    def _keyword_at(self, number: int, steps: int) -> str:
        token = self._token_at(number, steps)
        return token.text.upper() if token.kind in ("word", "sign") else ""

    def _track_position(self, token: SparqlToken, number: int) -> None:
        """Follow a keyword or sign to the position after it."""
        word, positions = self._keyword_at(number, 0), self._positions
        if word in ("{", "{|"):
            self._leave_clause()
            names = positions[-1].kind == "names"
            positions.append(_Position("rows" if names else "pattern", len(positions) > 1))
        elif word in ("}", "|}"):
            self._leave_clause()
            if len(positions) > 1:
                positions.pop()
            if positions[-1].kind == "names":
                positions.pop()
        elif word == "(":
            inside = positions[-1].kind if positions[-1].kind in ("names", "rows") else "expression"
            if positions[-1].kind == "pattern" and self._token_at(number, -1).kind != "word":
                inside = "pattern"
            positions.append(_Position(inside, positions[-1].nested))
        elif word == ")" and len(positions) > 1:
            positions.pop()
        elif token.kind == "word":
            self._enter_clause(word, number)

    def _enter_clause(self, word: str, number: int) -> None:
        if self._positions[-1].kind in _CLAUSES and word in _CLAUSE_ENDS:
            self._positions.pop()
        nested = len(self._positions) > 1
        if word == "SELECT":
            self._positions.append(_Position("projection", nested))
        elif word == "BY":
            grouping = self._keyword_at(number, -1) == "GROUP"
            self._positions.append(_Position("grouping" if grouping else "condition", nested))
        elif word == "VALUES":
            self._positions.append(_Position("names", nested))

    def _leave_clause(self) -> None:
        if self._positions[-1].kind in _CLAUSES:
            self._positions.pop()

    def _replacement(self, name: str, number: int) -> str:
        position, term = self._positions[-1], self._terms[name]
        if self._keyword_at(number, -1) == "AS" or position.kind == "names":
            raise InvalidQuery(
                f"gives ?{name} a value itself, and it is bound as well", "bind another name, or leave it out"
            )
        # BOUND takes a variable, and a bound one always has a value.
        if self._keyword_at(number, -2) == "BOUND" and self._keyword_at(number, -1) == "(":
            return self._replace_bound_call(number)
        if position.kind == "projection":
            return f"({to_expression(term)} AS ?{self._fresh_name(name) if position.nested else name})"
        if position.kind == "grouping":
            return f"({to_expression(term)} AS ?{self._fresh_name(name)})"
        if position.kind == "condition":
            return f"({to_expression(term)})"
        return to_expression(term) if position.kind == "expression" else self._pattern_term(name, term)

    def _replace_bound_call(self, number: int) -> str:
        """Replace `BOUND(?x)` of a bound variable by `true`."""
        self._texts[self._significant[number - 2]] = ""
        return "true"

    def _pattern_term(self, name: str, term: RDFTerm) -> str:
        if is_ambiguous(term):
            raise InvalidQuery(
                f"has ?{name} in a pattern, bound to a text with \\u in it that servers read differently",
                f"put another variable there, and FILTER(?other = ?{name})",
            )
        return str(term)

    def _fresh_name(self, name: str) -> str:
        """Return a name for the column of a subquery; the outer query has the value already."""
        fresh = f"{name}_given"
        while fresh in self._query.variables or fresh in self._terms:
            fresh += "_"
        self._hidden.add(fresh)
        return fresh

    def _check_iri(self, iri: str) -> None:
        # Text between < and > may be meant as two comparisons; then the variable would stay unbound.
        if any(f"{sign}{name}" in iri for name in self._terms for sign in "?$"):
            raise InvalidQuery(
                f"contains {iri[:60]}, with the name of a bound variable in it", "put spaces around < and >"
            )
