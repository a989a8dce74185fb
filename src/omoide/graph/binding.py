"""How does a value take the place of a variable?

A bound name means its value wherever it stands in the query. The value is put in as the text of a single
term, so no value can change what is asked; every backend is sent the same text and gives the same answer.
`SELECT *` shows the variables that are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from omoide.errors import InvalidQuery
from omoide.graph.guarding import Form, Guarded
from omoide.graph.terms import Term, expressed, is_ambiguous, term_of
from omoide.graph.tokens import Token

_CLAUSES = ("projection", "grouping", "condition")
_ENDS = ("LIMIT", "OFFSET", "VALUES", "HAVING", "ORDER", "GROUP", "WHERE")


class Bound(msgspec.Struct, frozen=True):
    """A query whose bound variables are values."""

    form: Form
    tokens: tuple[Token, ...]
    hidden: frozenset[str] = frozenset()
    """Variables that stand in for others, and are not told to whoever asked."""

    @property
    def text(self) -> str:
        """The query as it is sent on."""
        return "".join(token.text for token in self.tokens)


def bind(guarded: Guarded, bindings: Mapping[str, Any]) -> Bound:
    """The query with each bound variable replaced by its value."""
    terms = {name: term_of(value, f"binding {name!r}") for name, value in bindings.items()}
    for name in terms:
        if name not in guarded.variables:
            known = ", ".join(f"?{known}" for known in sorted(guarded.variables)) or "none"
            raise InvalidQuery(f"has no variable ?{name} to bind", f"bind one of its variables: {known}")
    if not terms:
        return Bound(guarded.form, guarded.tokens)
    return _Binder(guarded, terms).bound()


class _Place(NamedTuple):
    """What kind of place in a query we are at."""

    kind: str
    """pattern, projection, grouping, condition (of an order), expression, or names and rows (of values)."""
    inner: bool = False
    """Whether it belongs to a query inside the query."""


class _Binder:
    """Walks through a query once and keeps track of where it is."""

    def __init__(self, guarded: Guarded, terms: Mapping[str, Term]) -> None:
        self._guarded, self._terms = guarded, terms
        self._spoken = [at for at, token in enumerate(guarded.tokens) if token.kind != "space"]
        self._places = [_Place("pattern")]
        self._hidden: set[str] = set()
        self._given = {at: token.text for at, token in enumerate(guarded.tokens)}

    def bound(self) -> Bound:
        for here, at in enumerate(self._spoken):
            token = self._guarded.tokens[at]
            if token.kind == "variable" and token.text[1:] in self._terms:
                self._given[at] = self._replaced(token.text[1:], here)
            elif token.kind == "iri":
                self._check_iri(token.text)
            else:
                self._move(token, here)
        pieces = (
            Token("given" if text != token.text else token.kind, text)
            for token, text in zip(self._guarded.tokens, self._given.values(), strict=True)
        )
        return Bound(self._guarded.form, tuple(pieces), frozenset(self._hidden))

    def _near(self, here: int, steps: int) -> Token:
        there = here + steps
        if 0 <= there < len(self._spoken):
            return self._guarded.tokens[self._spoken[there]]
        return Token("end", "")

    def _word(self, here: int, steps: int) -> str:
        token = self._near(here, steps)
        return token.text.upper() if token.kind in ("word", "sign") else ""

    def _move(self, token: Token, here: int) -> None:
        """Follow a word or a sign to the kind of place that comes after it."""
        word, places = token.text.upper() if token.kind in ("word", "sign") else "", self._places
        if word in ("{", "{|"):
            self._leave_clause()
            names = places[-1].kind == "names"
            places.append(_Place("rows" if names else "pattern", len(places) > 1))
        elif word in ("}", "|}"):
            self._leave_clause()
            if len(places) > 1:
                places.pop()
            if places[-1].kind == "names":
                places.pop()
        elif word == "(":
            inside = places[-1].kind if places[-1].kind in ("names", "rows") else "expression"
            if places[-1].kind == "pattern" and self._near(here, -1).kind != "word":
                inside = "pattern"
            places.append(_Place(inside, places[-1].inner))
        elif word == ")" and len(places) > 1:
            places.pop()
        elif token.kind == "word":
            self._enter_clause(word, here)

    def _enter_clause(self, word: str, here: int) -> None:
        if self._places[-1].kind in _CLAUSES and word in _ENDS:
            self._places.pop()
        inner = len(self._places) > 1
        if word == "SELECT":
            self._places.append(_Place("projection", inner))
        elif word == "BY":
            grouping = self._word(here, -1) == "GROUP"
            self._places.append(_Place("grouping" if grouping else "condition", inner))
        elif word == "VALUES":
            self._places.append(_Place("names", inner))

    def _leave_clause(self) -> None:
        if self._places[-1].kind in _CLAUSES:
            self._places.pop()

    def _replaced(self, name: str, here: int) -> str:
        place, term = self._places[-1], self._terms[name]
        if self._word(here, -1) == "AS" or place.kind == "names":
            raise InvalidQuery(
                f"gives ?{name} a value itself, and it is bound as well", "bind another name, or leave it out"
            )
        if self._word(here, -2) == "BOUND" and self._word(here, -1) == "(":
            return self._known(here)
        if place.kind == "projection":
            return f"({expressed(term)} AS ?{self._fresh(name) if place.inner else name})"
        if place.kind == "grouping":
            return f"({expressed(term)} AS ?{self._fresh(name)})"
        if place.kind == "condition":
            return f"({expressed(term)})"
        return expressed(term) if place.kind == "expression" else self._in_pattern(name, term)

    def _known(self, here: int) -> str:
        """A bound variable is bound: `BOUND(?x)` is true."""
        self._given[self._spoken[here - 2]] = ""
        return "true"

    def _in_pattern(self, name: str, term: Term) -> str:
        if is_ambiguous(term):
            raise InvalidQuery(
                f"has ?{name} in a pattern, bound to a text with \\u in it that servers read differently",
                f"put another variable there, and FILTER(?other = ?{name})",
            )
        return str(term)

    def _fresh(self, name: str) -> str:
        """A name for the column of an inner query: the outer one has the value already."""
        fresh = f"{name}_given"
        while fresh in self._guarded.variables or fresh in self._terms:
            fresh += "_"
        self._hidden.add(fresh)
        return fresh

    def _check_iri(self, iri: str) -> None:
        if any(f"{sign}{name}" in iri for name in self._terms for sign in "?$"):
            raise InvalidQuery(
                f"holds {iri[:60]}, with the name of a bound variable in it", "put spaces around < and >"
            )
