"""Where in a query do its graphs and its limit go?"""

from __future__ import annotations

from collections.abc import Sequence

from omoide.errors import InvalidQuery
from omoide.graph.binding import Bound
from omoide.graph.tokens import Token
from omoide.graph.updating import named


def with_dataset(bound: Bound, default_graphs: Sequence[str], named_graphs: Sequence[str]) -> Bound:
    """The query, asked of these graphs: FROM and FROM NAMED, where the grammar has them."""
    clauses = [f"FROM {named(graph)}" for graph in default_graphs]
    clauses += [f"FROM NAMED {named(graph)}" for graph in named_graphs]
    at = _dataset_place(bound)
    dataset = Token("given", f" {' '.join(clauses)} ")
    return Bound(bound.form, (*bound.tokens[:at], dataset, *bound.tokens[at:]), bound.hidden)


def with_limit(bound: Bound, limit: int) -> Bound:
    """The query, with at most so many rows."""
    tokens = list(bound.tokens)
    depth = 0
    end = len(tokens)
    for at, token in enumerate(tokens):
        depth += (token.text in ("{", "(")) - (token.text in ("}", ")")) if token.kind == "sign" else 0
        if depth or token.kind != "word":
            continue
        if token.text.upper() == "LIMIT":
            number = next((n for n in range(at + 1, len(tokens)) if tokens[n].kind != "space"), at)
            if not tokens[number].text.isdecimal():
                raise InvalidQuery("has a LIMIT without a number", "say how many rows you want")
            if int(tokens[number].text) > limit:
                tokens[number] = Token("number", str(limit))
            return Bound(bound.form, tuple(tokens), bound.hidden)
        if token.text.upper() == "VALUES":
            end = at
    tokens.insert(end, Token("given", f" LIMIT {limit} "))
    return Bound(bound.form, tuple(tokens), bound.hidden)


def described(bound: Bound) -> tuple[list[str], Bound | None]:
    """What a DESCRIBE asks about: the IRIs it names, and a SELECT that finds the others, if any."""
    start = next(at for at, token in enumerate(bound.tokens) if token.kind == "word")
    end = _where(bound.tokens, start + 1)
    header = bound.tokens[start + 1 : end]
    iris = [token.text[1:-1] for token in header if token.text.startswith("<")]
    sought = [token.text for token in header if token.kind == "variable" or token.text == "*"]
    if not sought or end == len(bound.tokens):
        return iris, None
    select = (Token("word", "SELECT"), Token("given", f" DISTINCT {' '.join(sought)} "))
    return iris, Bound("SELECT", (*select, *bound.tokens[end:]), bound.hidden)


def _dataset_place(bound: Bound) -> int:
    tokens = bound.tokens
    start = next(at for at, token in enumerate(tokens) if token.kind == "word") + 1
    if bound.form == "ASK":
        return start
    if bound.form == "CONSTRUCT":
        first = next((at for at in range(start, len(tokens)) if tokens[at].kind != "space"), start)
        return _closed(tokens, first) if tokens[first].text == "{" else start
    return _where(tokens, start)


def _where(tokens: Sequence[Token], start: int) -> int:
    """Where the pattern of a query begins: at WHERE, or at its bracket."""
    depth = 0
    for at in range(start, len(tokens)):
        kind, text = tokens[at]
        if kind == "sign" and text in "()":
            depth += 1 if text == "(" else -1
        elif depth == 0 and (
            (kind == "word" and text.upper() == "WHERE") or (kind == "sign" and text == "{")
        ):
            return at
    return len(tokens)


def _closed(tokens: Sequence[Token], start: int) -> int:
    """The place after the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(tokens)):
        if tokens[at].kind == "sign":
            depth += (tokens[at].text == "{") - (tokens[at].text == "}")
        if depth == 0:
            return at + 1
    return len(tokens)
