"""SPARQL 1.1 endpoint backend.

One request, one connection, no redirects, no more bytes and no more time than allowed. Whatever goes wrong is
told as `EndpointFailed` or `QueryStopped`, without the credentials that may be part of the URL.

By the SPARQL 1.1 protocol, with any server. Which graphs a query sees is said in the query itself (FROM and
FROM NAMED), because servers differ in what they make of the protocol's parameters for it.
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from itertools import islice, starmap
from socket import socket
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from omoide.errors import EndpointFailed, Invalid, QueryStopped, StoreFailed, WrongType
from omoide.graph.backend import (
    OWNED,
    State,
    Subject,
    adding,
    asked,
    copying,
    counting,
    described,
    dropping,
    named,
    positive,
    removing,
    state_from,
    state_iri,
    stating,
    unreadable,
    with_dataset,
    with_limit,
)
from omoide.graph.results import (
    Answer,
    Deadline,
    Triple,
    answered,
    asking,
    checked,
    oxigraph,
    read_results,
    read_triples,
)
from omoide.graph.sparql import Bound, tokens
from omoide.graph.terms import expressed, from_oxigraph, is_ambiguous, quoted
from omoide.graph.vocabulary import META_GRAPH

# endpoint: How does a question travel to a SPARQL server and back?


_CHUNK = 1 << 16
_REMEDY = "use http://host:port/path or https://host/path"
_CHECK = "check the URL, and that the server is running"


class Reply(NamedTuple):
    """What a server answered."""

    kind: str
    """The media type it names."""
    body: bytes


class Endpoint:
    """One URL that SPARQL is sent to."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, max_bytes: int = 64 << 20
    ) -> None:
        if not isinstance(url, str):
            raise WrongType("url", "text", url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise Invalid("url", f"cannot be read ({error})", _REMEDY) from None
        if parts.scheme not in ("http", "https") or not host or not url.isascii() or not url.isprintable():
            raise Invalid("url", f"with the scheme {parts.scheme[:20]!r} is no SPARQL endpoint", _REMEDY)
        if " " in url:
            raise Invalid("url", "has a space in it", "write it as %20")
        self._host, self._port, self._secure = host, port, parts.scheme == "https"
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        place = f"[{host}]" if ":" in host else host
        self.name = f"{parts.scheme}://{place}{f':{port}' if port else ''}{parts.path}"
        self._headers = {"User-Agent": "omoide", **_authorization(parts.username, parts.password)}
        self._headers.update(_checked(headers or {}))
        self._max_bytes = max_bytes

    def post(self, text: str, kind: str, accept: str, timeout: float) -> Reply:
        """What the server answers to a text of some media type."""
        headers = {**self._headers, "Content-Type": f"{kind}; charset=utf-8", "Accept": accept}
        until = time.monotonic() + timeout
        with self._failing(timeout):
            connection = self._connection(timeout)
            try:
                connection.connect()
                wire = connection.sock  # the connection lets go of it when it has the head of the answer
                connection.request("POST", self._target, text.encode(), headers)
                with connection.getresponse() as response:
                    body = self._read(wire, response, until)
            finally:
                connection.close()
        media = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if not 200 <= response.status < 300:
            raise self._refused(response, media, body)
        return Reply(media, body)

    def misread(self, reply: Reply, reason: object) -> EndpointFailed:
        """The error for an answer that is none."""
        what = "a web page" if reply.kind == "text/html" else repr(reply.kind or "something")
        return EndpointFailed(self.name, f"answers with {what} that cannot be read ({reason})", _CHECK)

    def _connection(self, timeout: float) -> HTTPConnection:
        if self._secure:
            return HTTPSConnection(
                self._host, self._port, timeout=timeout, context=ssl.create_default_context()
            )
        return HTTPConnection(self._host, self._port, timeout=timeout)

    def _read(self, wire: socket, response: HTTPResponse, until: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            wire.settimeout(left)
            part = response.read1(_CHUNK)
            if not part:
                break
            size += len(part)
            if size > self._max_bytes:
                raise QueryStopped(
                    self.name, f"answers with more than {self._max_bytes} bytes", "ask for less, or use LIMIT"
                )
            parts.append(part)
        if response.length:
            raise EndpointFailed(self.name, "broke off in the middle of its answer", "try again")
        return b"".join(parts)

    @contextmanager
    def _failing(self, timeout: float) -> Iterator[None]:
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
            raise EndpointFailed(self.name, f"cannot be reached ({reason})", _CHECK) from error

    def _refused(self, response: HTTPResponse, media: str, body: bytes) -> StoreFailed:
        status = response.status
        said = "" if media == "text/html" else f": {_excerpt(body)}"
        match status:
            case 300 | 301 | 302 | 303 | 307 | 308:
                return EndpointFailed(self.name, "has moved to another place", "use the URL it has moved to")
            case 401 | 403 | 407:
                return EndpointFailed(self.name, f"does not let us in ({status})", "check user and password")
            case 408 | 504:
                return QueryStopped(self.name, f"gave up ({status}){said}", "ask for less")
            case 429 | 503:
                return EndpointFailed(self.name, f"is too busy ({status})", "try again later")
            case _:
                return EndpointFailed(self.name, f"refuses ({status}){said}", _CHECK)


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None and password is None:
        return {}
    said = f"{unquote(user or '')}:{unquote(password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(said).decode()}"}


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise WrongType("headers", "a mapping of text to text", headers)
        if not (name + value).isprintable() or not name.isascii() or ":" in name or not name.strip():
            raise Invalid("headers", f"has {name[:40]!r}, which is no header", "use printable text")
    return dict(headers)


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:2000].decode(errors="replace").split())
    return "".join(letter for letter in text if letter.isprintable())[:200]


# remote: How is the graph kept on a SPARQL server?


_JSON = "application/sparql-results+json"
_NTRIPLES = "application/n-triples"
_BATCH = 500_000  # characters in one update
_STEPS = 50  # in one update: a server that reads step inside step runs out of stack
_MANY = 200  # names in one query
_ALL = 1 << 62

T = TypeVar("T")


class Remote:
    """A graph on a SPARQL server: where it is asked, and where it is changed."""

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
        oxigraph()
        self._queries = Endpoint(query_url, headers=headers, max_bytes=max_bytes)
        self._updates = Endpoint(update_url or query_url, headers=headers, max_bytes=max_bytes)
        self.name = self._queries.name
        self._timeout = positive(timeout)

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
        """What a query finds in these graphs, and in no other."""
        bound = checked(asked(query, bindings, limit))
        allowed = self._timeout if timeout is None else positive(timeout)
        try:
            return self._within(bound, default_graphs, named_graphs, limit, allowed)
        except EndpointFailed:
            # A server may refuse to be asked about a graph that holds nothing.
            known = self._existing([*default_graphs, *named_graphs])
            default, others = ([g for g in graphs if g in known] for graphs in (default_graphs, named_graphs))
            if [default, others] == [list(default_graphs), list(named_graphs)]:
                raise
            return self._within(bound, default, others, limit, allowed)

    def replace(self, removed: Iterable[Subject], told: str | bytes, *, into: str | None = None) -> None:
        """Forget what is said about these subjects, and then take in what is told.

        What does not fit into one request is sent in several; after a failure, do it again.
        """
        added = list(_additions(told, into))
        self._update([*removing(*self._known(removed)), *added])

    def use(self, prefixes: Sequence[str], uses: Sequence[tuple[str, str, str]]) -> None:
        """Say how often memories were used, in all graphs whose names begin so."""
        if uses:
            self._update(counting(prefixes, uses))

    def places(self, subjects: Sequence[str], prefixes: Sequence[str]) -> list[Subject]:
        """Where subjects are spoken of, among the graphs whose names begin so."""
        begins = " || ".join(f"STRSTARTS(STR(?g), {quoted(prefix)})" for prefix in prefixes)
        found: list[Subject] = []
        for some in _chunks(dict.fromkeys(subjects), _MANY):
            values = f"VALUES ?s {{ {' '.join(map(named, some))} }}"
            rows = self._select(
                f"SELECT DISTINCT ?g ?s WHERE {{ {values} GRAPH ?g {{ ?s ?p ?o }} FILTER({begins}) }}"
            ).rows
            found += [(str(row["g"]), str(row["s"])) for row in rows]
        return found

    def copy_graphs(self, sources: Sequence[str], target: str) -> None:
        """Make one graph say what several say together, and nothing else."""
        self._update(copying(sources, target))

    def drop(self, graphs: Iterable[str]) -> None:
        """Forget whole graphs; those that do not exist are passed over."""
        self._update(dropping(graphs))

    def graphs(self, prefix: str = "") -> list[str]:
        """The named graphs that hold something, in order."""
        said = f"FILTER(isIRI(?g) && STRSTARTS(STR(?g), {quoted(prefix)}))"
        found = self._select(f"SELECT DISTINCT ?g WHERE {{ GRAPH ?g {{ ?s ?p ?o }} {said} }}")
        return sorted(str(row["g"]) for row in found.rows)

    def dump(self, graphs: Sequence[str]) -> bytes:
        """All that some graphs say, as N-Quads."""
        lines: list[str] = []
        for some in _chunks(dict.fromkeys(graphs), _MANY):
            values = f"VALUES ?g {{ {' '.join(map(named, some))} }}"
            found = self._select(f"SELECT ?g ?s ?p ?o WHERE {{ {values} GRAPH ?g {{ ?s ?p ?o }} }}")
            lines += (" ".join(str(row.term(name)) for name in "spog") for row in found.rows)
        return "".join(f"{line} .\n" for line in lines).encode()

    def state(self, namespace: str) -> State | None:
        """How far a namespace has been followed; None when it was never set."""
        about = f"GRAPH {named(META_GRAPH)} {{ {named(state_iri(namespace))} ?p ?o }}"
        found = self._select(f"SELECT ?p ?o WHERE {{ {about} }}")
        return state_from({str(row["p"]): str(row["o"]) for row in found.rows})

    def set_state(self, namespace: str, state: State) -> None:
        """Write down how far a namespace has been followed."""
        self._update(stating(namespace, state))

    def close(self) -> None:
        """Nothing is held between requests."""

    def _within(
        self, bound: Bound, default: Sequence[str], others: Sequence[str], limit: int, timeout: float
    ) -> Answer:
        if not default and not others:
            return _of_nothing(bound, limit)
        if bound.form == "DESCRIBE":
            return self._describe(bound, default, others, limit, timeout)
        if bound.form == "SELECT":
            bound = with_limit(bound, limit + 1)
        return self._ask(with_dataset(bound, default, others), limit, timeout)

    def _ask(self, bound: Bound, limit: int, timeout: float) -> Answer:
        triples = bound.form == "CONSTRUCT"
        reply = self._queries.post(
            bound.text, "application/sparql-query", _NTRIPLES if triples else _JSON, timeout
        )
        try:
            return (
                read_triples(reply.body, limit) if triples else read_results(reply.body, limit, bound.hidden)
            )
        except Invalid as error:
            raise self._queries.misread(reply, error.problem) from error

    def _describe(
        self, bound: Bound, default: Sequence[str], others: Sequence[str], limit: int, timeout: float
    ) -> Answer:
        """What is said about some things; servers each have another idea of DESCRIBE, so it is not sent."""
        iris, select = described(bound)
        if select is not None:
            found = self._ask(with_dataset(select, default, others), _ALL, timeout)
            terms = (row.term(name) for row in found.rows for name in found.variables)
            iris += [term.value for term in terms if term is not None and term.kind == "iri"]
        triples: list[Triple] = []
        for some in _chunks(dict.fromkeys(iris), _MANY):
            pattern = f"{{ VALUES ?s {{ {' '.join(map(named, some))} }} ?s ?p ?o }}"
            dataset = with_dataset(_construct(pattern), default, others)
            triples += self._ask(dataset, _ALL, timeout).triples
        return Answer(kind="triples", triples=tuple(triples[:limit]), truncated=len(triples) > limit)

    def _select(self, text: str) -> Answer:
        reply = self._queries.post(text, "application/sparql-query", _JSON, self._timeout)
        try:
            return read_results(reply.body, _ALL)
        except Invalid as error:
            raise self._queries.misread(reply, error.problem) from error

    def _existing(self, graphs: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for some in _chunks(dict.fromkeys(graphs), _MANY):
            values = f"VALUES ?g {{ {' '.join(map(named, some))} }}"
            rows = self._select(f"SELECT DISTINCT ?g WHERE {{ {values} GRAPH ?g {{ ?s ?p ?o }} }}").rows
            found.update(str(row["g"]) for row in rows)
        return found

    def _known(self, pairs: Iterable[Subject]) -> tuple[list[Subject], list[Subject]]:
        """Those subjects of which something is said, and the nodes that belong to them."""
        known: dict[Subject, None] = {}
        owned: dict[Subject, None] = {}
        begins = " || ".join(f"STRSTARTS(STR(?o), {quoted(prefix)})" for prefix in OWNED)
        for some in _chunks(dict.fromkeys(pairs), _MANY):
            blocks = " UNION ".join(starmap(_about, _by_graph(some).items()))
            mine = f"BIND(IF(isIRI(?o) && ({begins}), ?o, ?s) AS ?n)"
            for row in self._select(f"SELECT DISTINCT ?g ?s ?n WHERE {{ {blocks} {mine} }}").rows:
                known[row["g"], row["s"]] = None
                if row["n"] != row["s"]:
                    owned[row["g"], row["n"]] = None
        return list(known), list(owned)

    def _update(self, steps: Iterable[str]) -> None:
        batch: list[str] = []
        size = 0
        for step in steps:
            if batch and (size + len(step) > _BATCH or len(batch) == _STEPS):
                self._send(batch)
                batch, size = [], 0
            batch.append(step)
            size += len(step)
        if batch:
            self._send(batch)

    def _send(self, steps: Sequence[str]) -> None:
        self._updates.post(";\n".join(steps), "application/sparql-update", "*/*", self._timeout)


def _of_nothing(bound: Bound, limit: int) -> Answer:
    """What a query finds where there is nothing."""
    with asking():
        return answered(oxigraph().Store().query(bound.text), bound, limit, Deadline("nothing", None))


def _construct(pattern: str) -> Bound:
    return Bound("CONSTRUCT", tuple(tokens(f"CONSTRUCT {{ ?s ?p ?o }} WHERE {pattern}")))


def _additions(told: str | bytes, into: str | None) -> Iterator[str]:
    """The steps that take in what is told, each small enough for a request."""
    engine = oxigraph()
    format = engine.RdfFormat.N_QUADS if into is None else engine.RdfFormat.N_TRIPLES
    said: dict[str, list[str]] = {}
    size = 0
    try:
        for quad in engine.parse(told, format=format):
            graph, term = into or quad.graph_name.value, from_oxigraph(quad.object)
            start = f"{quad.subject} {quad.predicate}"
            if is_ambiguous(term):
                found = f"WHERE {{ BIND({expressed(term)} AS ?o) }}"
                yield f"INSERT {{ GRAPH {named(graph)} {{ {start} ?o }} }} {found}"
                continue
            said.setdefault(graph, []).append(f"{start} {term}")
            size += len(start) + len(term.value)
            if size > _BATCH:
                yield from starmap(adding, said.items())
                said, size = {}, 0
    except SyntaxError as error:
        raise unreadable(error, into) from error
    yield from starmap(adding, said.items())


def _by_graph(pairs: Iterable[Subject]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for graph, subject in pairs:
        found.setdefault(graph, []).append(subject)
    return found


def _about(graph: str, subjects: Iterable[str]) -> str:
    """The pattern for all that a graph says about some subjects."""
    values = f"VALUES ?s {{ {' '.join(map(named, subjects))} }}"
    return f"{{ GRAPH {named(graph)} {{ {values} ?s ?p ?o }} BIND({named(graph)} AS ?g) }}"


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    left = iter(items)
    while some := list(islice(left, size)):
        yield some
