"""Graph backend over a SPARQL 1.1 endpoint.

Each request has its own connection, follows no redirect, and is limited in bytes and time. Every failure is
raised as `EndpointFailed` or `QueryStopped`, without the credentials that may be part of the URL.

The dataset of a query is part of its text (FROM and FROM NAMED), because servers interpret the protocol's
parameters for it differently.
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import islice, starmap
from socket import socket
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from omoide.errors import EndpointFailed, Invalid, QueryStopped, StoreFailed, WrongType
from omoide.graph.backend import (
    OWNED_PREFIXES,
    GraphSubject,
    SyncState,
    check_timeout,
    copy_steps,
    delete_steps,
    describe_targets,
    drop_steps,
    insert_step,
    iri_ref,
    parse_state,
    prepare_query,
    state_iri,
    state_steps,
    unreadable_rdf,
    usage_steps,
    with_dataset,
    with_limit,
)
from omoide.graph.results import (
    Answer,
    Deadline,
    Triple,
    check_syntax,
    load_oxigraph,
    map_syntax_errors,
    read_results,
    read_triples,
    to_answer,
)
from omoide.graph.sparql import BoundQuery, tokenize
from omoide.graph.terms import from_oxigraph, is_ambiguous, quote_string, to_expression
from omoide.graph.vocabulary import META_GRAPH

_CHUNK_BYTES = 1 << 16
_URL_REMEDY = "use http://host:port/path or https://host/path"
_SERVER_REMEDY = "check the URL, and that the server is running"


class EndpointResponse(NamedTuple):
    """Media type and body of a server's response."""

    media_type: str
    body: bytes


class SparqlEndpoint:
    """One URL that SPARQL is posted to."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, max_bytes: int = 64 << 20
    ) -> None:
        if not isinstance(url, str):
            raise WrongType("url", "text", url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise Invalid("url", f"cannot be read ({error})", _URL_REMEDY) from None
        if parts.scheme not in ("http", "https") or not host or not url.isascii() or not url.isprintable():
            raise Invalid("url", f"with the scheme {parts.scheme[:20]!r} is no SPARQL endpoint", _URL_REMEDY)
        if " " in url:
            raise Invalid("url", "has a space in it", "write it as %20")
        self._host, self._port, self._secure = host, port, parts.scheme == "https"
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        netloc = f"[{host}]" if ":" in host else host
        # Shown in errors and logs, so without user, password and query string.
        self.name = f"{parts.scheme}://{netloc}{f':{port}' if port else ''}{parts.path}"
        self._headers = {"User-Agent": "omoide", **_authorization(parts.username, parts.password)}
        self._headers.update(_check_headers(headers or {}))
        self._max_bytes = max_bytes

    def post(self, text: str, content_type: str, accept: str, timeout: float) -> EndpointResponse:
        """Post text of some content type and return the response.

        Raises:
            EndpointFailed: the server cannot be reached, or refuses.
            QueryStopped: the response is too large or takes too long.
        """
        headers = {**self._headers, "Content-Type": f"{content_type}; charset=utf-8", "Accept": accept}
        deadline = time.monotonic() + timeout
        with self._map_errors(timeout):
            connection = self._connection(timeout)
            try:
                connection.connect()
                # Kept to adjust its timeout: the connection may drop it once the response has begun.
                raw_socket = connection.sock
                connection.request("POST", self._target, text.encode(), headers)
                with connection.getresponse() as response:
                    body = self._read_body(raw_socket, response, deadline)
            finally:
                connection.close()
        media_type = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if not 200 <= response.status < 300:
            raise self._status_error(response, media_type, body)
        return EndpointResponse(media_type, body)

    def unreadable_response(self, response: EndpointResponse, reason: object) -> EndpointFailed:
        """Return the error for a response that cannot be parsed."""
        what = (
            "a web page" if response.media_type == "text/html" else repr(response.media_type or "something")
        )
        return EndpointFailed(
            self.name, f"answers with {what} that cannot be read ({reason})", _SERVER_REMEDY
        )

    def _connection(self, timeout: float) -> HTTPConnection:
        if self._secure:
            return HTTPSConnection(
                self._host, self._port, timeout=timeout, context=ssl.create_default_context()
            )
        return HTTPConnection(self._host, self._port, timeout=timeout)

    def _read_body(self, connection_socket: socket, response: HTTPResponse, deadline: float) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            # The timeout of a socket applies to each read; a slow server could exceed the deadline.
            connection_socket.settimeout(remaining)
            chunk = response.read1(_CHUNK_BYTES)
            if not chunk:
                break
            size += len(chunk)
            if size > self._max_bytes:
                raise QueryStopped(
                    self.name, f"answers with more than {self._max_bytes} bytes", "ask for less, or use LIMIT"
                )
            chunks.append(chunk)
        # Unlike `read`, `read1` does not raise if the body ends early; `length` is what is missing.
        if response.length:
            raise EndpointFailed(self.name, "broke off in the middle of its response", "try again")
        return b"".join(chunks)

    @contextmanager
    def _map_errors(self, timeout: float) -> Iterator[None]:
        # TimeoutError and SSLError are subclasses of OSError, and have to come first.
        try:
            yield
        except StoreFailed:
            raise
        except TimeoutError as error:
            raise QueryStopped(
                self.name, f"did not answer within {timeout:g} s", "ask for less, or allow more time"
            ) from error
        except ssl.SSLError as error:
            raise EndpointFailed(
                self.name, f"cannot be trusted ({error.reason})", "check its certificate, or use http://"
            ) from error
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise EndpointFailed(self.name, f"cannot be reached ({reason})", _SERVER_REMEDY) from error

    def _status_error(self, response: HTTPResponse, media_type: str, body: bytes) -> StoreFailed:
        status = response.status
        detail = "" if media_type == "text/html" else f": {_excerpt(body)}"
        match status:
            case 300 | 301 | 302 | 303 | 307 | 308:
                return EndpointFailed(self.name, "has moved to another URL", "use the URL it redirects to")
            case 401 | 403 | 407:
                return EndpointFailed(self.name, f"denies access ({status})", "check user and password")
            case 408 | 504:
                return QueryStopped(self.name, f"timed out ({status}){detail}", "ask for less")
            case 429 | 503:
                return EndpointFailed(self.name, f"is too busy ({status})", "try again later")
            case _:
                return EndpointFailed(self.name, f"refuses ({status}){detail}", _SERVER_REMEDY)


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None and password is None:
        return {}
    credentials = f"{unquote(user or '')}:{unquote(password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(credentials).decode()}"}


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise WrongType("headers", "a mapping of text to text", headers)
        if not (name + value).isprintable() or not name.isascii() or ":" in name or not name.strip():
            raise Invalid("headers", f"contains the invalid header {name[:40]!r}", "use printable text")
    return dict(headers)


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:2000].decode(errors="replace").split())
    return "".join(character for character in text if character.isprintable())[:200]


_JSON = "application/sparql-results+json"
_NTRIPLES = "application/n-triples"
_MAX_UPDATE_CHARS = 500_000  # in one update
_MAX_UPDATE_STEPS = 50  # in one update: servers that parse steps recursively run out of stack
_MAX_NAMES = 200  # IRIs in one query
_NO_LIMIT = 1 << 62

T = TypeVar("T")
Dataset = tuple[Sequence[str], Sequence[str]]
"""Default graphs and named graphs of a query."""


class EndpointBackend:
    """A graph on a SPARQL server: a query endpoint and an update endpoint."""

    shared = True

    def __init__(
        self,
        query_url: str,
        update_url: str | None = None,
        *,
        timeout: float = 30.0,
        headers: Mapping[str, str] | None = None,
        max_bytes: int = 64 << 20,
    ) -> None:
        load_oxigraph()
        self._queries = SparqlEndpoint(query_url, headers=headers, max_bytes=max_bytes)
        self._updates = SparqlEndpoint(update_url or query_url, headers=headers, max_bytes=max_bytes)
        self.name = self._queries.name
        self._timeout = check_timeout(timeout)

    def query(
        self,
        query: str,
        *,
        default_graphs: Sequence[str],
        named_graphs: Sequence[str] = (),
        bindings: Mapping[str, Any] = {},
        limit: int = 10_000,
        timeout: float | None = None,
    ) -> Answer:
        """Return the result of a query over these graphs and no others."""
        # Parsed locally first, so that a syntax error is the same on every backend and costs no request.
        bound = check_syntax(prepare_query(query, bindings, limit))
        seconds = self._timeout if timeout is None else check_timeout(timeout)
        try:
            return self._query_graphs(bound, (default_graphs, named_graphs), limit, seconds)
        except EndpointFailed:
            # Some servers refuse a dataset with an empty graph.
            existing = self._existing_graphs([*default_graphs, *named_graphs])
            default, named = (
                [g for g in graphs if g in existing] for graphs in (default_graphs, named_graphs)
            )
            if [default, named] == [list(default_graphs), list(named_graphs)]:
                raise
            return self._query_graphs(bound, (default, named), limit, seconds)

    def replace(
        self, subjects: Iterable[GraphSubject], rdf: str | bytes, *, graph_name: str | None = None
    ) -> None:
        """Delete all triples about these subjects, then insert triples.

        What does not fit into one request is sent in several; after a failure, repeat the call.
        """
        inserts = list(_insert_steps(rdf, graph_name))
        self._update([*delete_steps(*self._existing_subjects(subjects)), *inserts])

    def record_uses(self, prefixes: Sequence[str], uses: Sequence[tuple[str, str, str]]) -> None:
        """Set the access counts of memories in all graphs with these prefixes."""
        if uses:
            self._update(usage_steps(prefixes, uses))

    def find_subjects(self, subjects: Sequence[str], prefixes: Sequence[str]) -> list[GraphSubject]:
        """Return the graphs with these prefixes in which the subjects are described."""
        in_graphs = " || ".join(f"STRSTARTS(STR(?g), {quote_string(prefix)})" for prefix in prefixes)
        described: list[GraphSubject] = []
        for chunk in _chunks(dict.fromkeys(subjects), _MAX_NAMES):
            values = f"VALUES ?s {{ {' '.join(map(iri_ref, chunk))} }}"
            rows = self._select(
                f"SELECT DISTINCT ?g ?s WHERE {{ {values} GRAPH ?g {{ ?s ?p ?o }} FILTER({in_graphs}) }}"
            ).rows
            described += [(str(row["g"]), str(row["s"])) for row in rows]
        return described

    def copy_graphs(self, sources: Sequence[str], target: str) -> None:
        """Replace a graph by the union of several graphs."""
        self._update(copy_steps(sources, target))

    def drop(self, graphs: Iterable[str]) -> None:
        """Delete whole graphs; unknown ones are ignored."""
        self._update(drop_steps(graphs))

    def graphs(self, prefix: str = "") -> list[str]:
        """Return the names of all graphs that are not empty, sorted."""
        condition = f"FILTER(isIRI(?g) && STRSTARTS(STR(?g), {quote_string(prefix)}))"
        answer = self._select(f"SELECT DISTINCT ?g WHERE {{ GRAPH ?g {{ ?s ?p ?o }} {condition} }}")
        return sorted(str(row["g"]) for row in answer.rows)

    def dump(self, graphs: Sequence[str]) -> bytes:
        """Return all triples of some graphs as N-Quads."""
        lines: list[str] = []
        for chunk in _chunks(dict.fromkeys(graphs), _MAX_NAMES):
            values = f"VALUES ?g {{ {' '.join(map(iri_ref, chunk))} }}"
            answer = self._select(f"SELECT ?g ?s ?p ?o WHERE {{ {values} GRAPH ?g {{ ?s ?p ?o }} }}")
            lines += (" ".join(str(row.term(name)) for name in "spog") for row in answer.rows)
        return "".join(f"{line} .\n" for line in lines).encode()

    def state(self, namespace: str) -> SyncState | None:
        """Return the sync state of a namespace, or None if it was never set."""
        pattern = f"GRAPH {iri_ref(META_GRAPH)} {{ {iri_ref(state_iri(namespace))} ?p ?o }}"
        answer = self._select(f"SELECT ?p ?o WHERE {{ {pattern} }}")
        return parse_state({str(row["p"]): str(row["o"]) for row in answer.rows})

    def set_state(self, namespace: str, state: SyncState) -> None:
        """Store the sync state of a namespace."""
        self._update(state_steps(namespace, state))

    def close(self) -> None:
        """Do nothing: no resource is held between requests."""

    def _query_graphs(self, bound: BoundQuery, dataset: Dataset, limit: int, timeout: float) -> Answer:
        if not any(dataset):
            return _query_empty_graph(bound, limit)
        if bound.form == "DESCRIBE":
            return self._describe(bound, dataset, limit, timeout)
        # One row more tells whether the result was cut. The LIMIT of a CONSTRUCT counts solutions and not
        # triples, so its result is cut after it was read.
        if bound.form == "SELECT":
            bound = with_limit(bound, limit + 1)
        return self._execute(with_dataset(bound, *dataset), limit, timeout)

    def _execute(self, bound: BoundQuery, limit: int, timeout: float) -> Answer:
        if bound.form == "CONSTRUCT":
            return self._post(bound.text, _NTRIPLES, timeout, lambda body: read_triples(body, limit))
        return self._post(bound.text, _JSON, timeout, lambda body: read_results(body, limit, bound.hidden))

    def _select(self, text: str) -> Answer:
        return self._post(text, _JSON, self._timeout, lambda body: read_results(body, _NO_LIMIT))

    def _post(self, text: str, accept: str, timeout: float, read: Callable[[bytes], Answer]) -> Answer:
        reply = self._queries.post(text, "application/sparql-query", accept, timeout)
        try:
            return read(reply.body)
        except Invalid as error:
            raise self._queries.unreadable_response(reply, error.problem) from error

    def _describe(self, bound: BoundQuery, dataset: Dataset, limit: int, timeout: float) -> Answer:
        """Return all triples about some subjects; servers disagree about DESCRIBE, so it is never sent."""
        iris, select = describe_targets(bound)
        if select is not None:
            answer = self._execute(with_dataset(select, *dataset), _NO_LIMIT, timeout)
            terms = (row.term(name) for row in answer.rows for name in answer.variables)
            iris += [term.value for term in terms if term is not None and term.kind == "iri"]
        triples: list[Triple] = []
        for chunk in _chunks(dict.fromkeys(iris), _MAX_NAMES):
            pattern = f"{{ VALUES ?s {{ {' '.join(map(iri_ref, chunk))} }} ?s ?p ?o }}"
            query = with_dataset(_construct(pattern), *dataset)
            triples += self._execute(query, _NO_LIMIT, timeout).triples
        return Answer(kind="triples", triples=tuple(triples[:limit]), truncated=len(triples) > limit)

    def _existing_graphs(self, graphs: Iterable[str]) -> set[str]:
        existing: set[str] = set()
        for chunk in _chunks(dict.fromkeys(graphs), _MAX_NAMES):
            values = f"VALUES ?g {{ {' '.join(map(iri_ref, chunk))} }}"
            rows = self._select(f"SELECT DISTINCT ?g WHERE {{ {values} GRAPH ?g {{ ?s ?p ?o }} }}").rows
            existing.update(str(row["g"]) for row in rows)
        return existing

    def _existing_subjects(
        self, pairs: Iterable[GraphSubject]
    ) -> tuple[list[GraphSubject], list[GraphSubject]]:
        """Return those subjects that are described, and the nodes that they own."""
        # One query finds subjects and owned nodes, so that updates name only what exists.
        existing: dict[GraphSubject, None] = {}
        owned: dict[GraphSubject, None] = {}
        is_owned = " || ".join(f"STRSTARTS(STR(?o), {quote_string(prefix)})" for prefix in OWNED_PREFIXES)
        for chunk in _chunks(dict.fromkeys(pairs), _MAX_NAMES):
            blocks = " UNION ".join(starmap(_subjects_pattern, _group_by_graph(chunk).items()))
            bind_node = f"BIND(IF(isIRI(?o) && ({is_owned}), ?o, ?s) AS ?n)"
            for row in self._select(f"SELECT DISTINCT ?g ?s ?n WHERE {{ {blocks} {bind_node} }}").rows:
                existing[row["g"], row["s"]] = None
                if row["n"] != row["s"]:
                    owned[row["g"], row["n"]] = None
        return list(existing), list(owned)

    def _update(self, steps: Iterable[str]) -> None:
        batch: list[str] = []
        size = 0
        for step in steps:
            if batch and (size + len(step) > _MAX_UPDATE_CHARS or len(batch) == _MAX_UPDATE_STEPS):
                self._send(batch)
                batch, size = [], 0
            batch.append(step)
            size += len(step)
        if batch:
            self._send(batch)

    def _send(self, steps: Sequence[str]) -> None:
        self._updates.post(";\n".join(steps), "application/sparql-update", "*/*", self._timeout)


def _query_empty_graph(bound: BoundQuery, limit: int) -> Answer:
    """Return the result of a query over no graph at all."""
    with map_syntax_errors():
        return to_answer(load_oxigraph().Store().query(bound.text), bound, limit, Deadline("nothing", None))


def _construct(pattern: str) -> BoundQuery:
    return BoundQuery("CONSTRUCT", tuple(tokenize(f"CONSTRUCT {{ ?s ?p ?o }} WHERE {pattern}")))


def _insert_steps(rdf: str | bytes, graph_name: str | None) -> Iterator[str]:
    """Yield the updates that insert RDF, each small enough for a request."""
    engine = load_oxigraph()
    format = engine.RdfFormat.N_QUADS if graph_name is None else engine.RdfFormat.N_TRIPLES
    triples: dict[str, list[str]] = {}
    size = 0
    try:
        for quad in engine.parse(rdf, format=format):
            graph, term = graph_name or quad.graph_name.value, from_oxigraph(quad.object)
            start = f"{quad.subject} {quad.predicate}"
            # Such a term is computed by an expression, which a VALUES table cannot contain.
            if is_ambiguous(term):
                binding = f"WHERE {{ BIND({to_expression(term)} AS ?o) }}"
                yield f"INSERT {{ GRAPH {iri_ref(graph)} {{ {start} ?o }} }} {binding}"
                continue
            triples.setdefault(graph, []).append(f"{start} {term}")
            size += len(start) + len(term.value)
            if size > _MAX_UPDATE_CHARS:
                yield from starmap(insert_step, triples.items())
                triples, size = {}, 0
    except SyntaxError as error:
        raise unreadable_rdf(error, graph_name) from error
    yield from starmap(insert_step, triples.items())


def _group_by_graph(pairs: Iterable[GraphSubject]) -> dict[str, list[str]]:
    by_graph: dict[str, list[str]] = {}
    for graph, subject in pairs:
        by_graph.setdefault(graph, []).append(subject)
    return by_graph


def _subjects_pattern(graph: str, subjects: Iterable[str]) -> str:
    """Return the pattern for all triples of a graph about some subjects."""
    values = f"VALUES ?s {{ {' '.join(map(iri_ref, subjects))} }}"
    return f"{{ GRAPH {iri_ref(graph)} {{ {values} ?s ?p ?o }} BIND({iri_ref(graph)} AS ?g) }}"


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
