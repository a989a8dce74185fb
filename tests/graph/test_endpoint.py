"""A graph on a server behaves like one in this process, whatever the server does.

What every backend has to do is tested in `test_backends`.
"""

import base64
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.sparql_servers import free_port

from omoide.errors import EndpointFailed, Invalid, InvalidQuery, QueryStopped, StoreFailed, WrongType
from omoide.graph.endpoint import EndpointBackend
from omoide.graph.oxigraph import OxigraphBackend

EMPTY = b'{"head":{"vars":["s"]},"results":{"bindings":[]}}'
SELECT = "SELECT ?s { ?s ?p ?o }"

Handle = Callable[[BaseHTTPRequestHandler, bytes], None]


@contextmanager
def serve_endpoint(handle: Handle) -> Iterator[str]:
    """A server that does to every request what a test wants."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            handle(self, self.rfile.read(length))

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/sparql"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_handler(
    status: int, body: bytes = b"", kind: str = "application/sparql-results+json", **more: str
) -> Handle:
    def handle(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        for name, value in more.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)

    return handle


def ask(url: str, query: str = SELECT, **options: Any) -> Any:
    return EndpointBackend(url, **options).query(query, default_graphs=["urn:g"])


@pytest.mark.parametrize(
    ("handle", "kind", "problem"),
    [
        (make_handler(400, b"what?", "text/plain"), EndpointFailed, r"refuses \(400\): what\?"),
        (make_handler(401), EndpointFailed, "denies access"),
        (make_handler(403, b"<html>", "text/html"), EndpointFailed, "check user and password"),
        (make_handler(404, b"<html>", "text/html"), EndpointFailed, r"refuses \(404\)"),
        (make_handler(408), QueryStopped, "timed out"),
        (make_handler(429), EndpointFailed, "too busy"),
        (make_handler(500, b"\x1b[31mboom\x00" * 999, "text/plain"), EndpointFailed, "boom"),
        (make_handler(503), EndpointFailed, "too busy"),
        (make_handler(504), QueryStopped, "timed out"),
        (make_handler(302, b"", Location="http://127.0.0.1:1/"), EndpointFailed, "has moved"),
        (make_handler(307, b"", Location="/sparql"), EndpointFailed, "has moved"),
        (make_handler(200, b"<html>hello</html>", "text/html; charset=utf-8"), EndpointFailed, "a web page"),
        (make_handler(200, EMPTY[:-9]), EndpointFailed, "cannot be read"),
        (make_handler(200, b""), EndpointFailed, "cannot be read"),
        (make_handler(200, b'{"head":{},"boolean":"maybe"}'), EndpointFailed, "cannot be read"),
        (make_handler(200, b"\xff\xfe"), EndpointFailed, "cannot be read"),
        (make_handler(200, b"[" * 100_000), EndpointFailed, "cannot be read"),
    ],
    ids=map(str, range(17)),
)
def test_what_a_server_answers_wrongly_is_told(handle: Handle, kind: type[StoreFailed], problem: str) -> None:
    """Whatever a server answers, it is an answer or an error of ours that says what to do."""
    with serve_endpoint(handle) as url, pytest.raises(kind, match=problem) as caught:
        ask(url)
    assert caught.value.remedy
    assert str(caught.value).isprintable()


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    """A connection that ends in the middle of an answer is an error, even where the part could be read."""

    def handle(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        request.send_response(200)
        request.send_header("Content-Length", str(len(EMPTY) + 10))
        request.end_headers()
        request.wfile.write(EMPTY)

    with serve_endpoint(handle) as url, pytest.raises(EndpointFailed, match=r"broke off|cannot be reached"):
        ask(url)


def test_a_server_that_hangs_up_is_told() -> None:
    """A server that closes the connection, or does not speak HTTP, has failed."""

    def silent(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        request.close_connection = True

    def strange(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        request.wfile.write(b"220 mail.example ESMTP\r\n\r\n")
        request.close_connection = True

    for handle in (silent, strange):
        with serve_endpoint(handle) as url, pytest.raises(EndpointFailed, match="cannot be reached"):
            ask(url)


def test_a_server_that_is_not_there_is_told() -> None:
    """Where nobody listens, or no such host exists, the error says to look whether the server is running."""
    for url in (
        f"http://127.0.0.1:{free_port()}/",
        f"https://127.0.0.1:{free_port()}/",
        "http://host.invalid/",
    ):
        with pytest.raises(EndpointFailed, match="server is running"):
            ask(url)


def test_a_server_without_a_certificate_is_not_trusted() -> None:
    """What speaks no TLS is not asked over https."""
    with (
        serve_endpoint(make_handler(200, EMPTY)) as url,
        pytest.raises(EndpointFailed, match=r"trusted|reached"),
    ):
        ask(url.replace("http:", "https:"), timeout=5.0)
    assert ssl.create_default_context().check_hostname


def test_a_slow_server_is_not_waited_for() -> None:
    """A server that does not answer, or gives its answer bit by bit for ever, is left when time is over."""
    enough = threading.Event()

    def never(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        enough.wait(20)

    def dripping(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        request.send_response(200)
        request.end_headers()
        while not enough.wait(0.01):
            try:
                request.wfile.write(b" ")
            except OSError:
                return

    for handle in (never, dripping):
        with serve_endpoint(handle) as url:
            for options in ({"timeout": 0.2}, {}):
                with pytest.raises(QueryStopped, match=r"within 0\.2 s"):
                    EndpointBackend(url, **options).query(  # type: ignore[arg-type]
                        SELECT, default_graphs=["urn:g"], timeout=None if options else 0.2
                    )
            enough.set()
        enough.clear()


def test_an_endless_answer_is_cut() -> None:
    """An answer that is larger than allowed is not read to its end."""
    with serve_endpoint(make_handler(200, EMPTY + b" " * 200_000)) as url:
        with pytest.raises(QueryStopped, match="more than 100000 bytes"):
            ask(url, max_bytes=100_000)
        assert len(ask(url)) == 0


def test_credentials_travel_in_a_header_and_nowhere_else() -> None:
    """User and password of a URL are sent as a header; no message, name or repr shows them."""
    seen: list[Any] = []

    def handle(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        seen.append((request.path, request.headers["Authorization"], request.headers["X-Own"]))
        make_handler(401 if len(seen) > 1 else 200, EMPTY)(request, asked)

    with serve_endpoint(handle) as url:
        url = url.replace("http://", f"http://me:{quote('p@ss:w/rd', safe='')}@") + "?key=s3cret"
        remote = EndpointBackend(url, headers={"X-Own": "1"})
        remote.query(SELECT, default_graphs=["urn:g"])
        with pytest.raises(EndpointFailed) as caught:
            remote.query(SELECT, default_graphs=["urn:g"])
    assert seen[0] == ("/sparql?key=s3cret", f"Basic {base64.b64encode(b'me:p@ss:w/rd').decode()}", "1")
    for text in (str(caught.value), repr(caught.value), remote.name, repr(remote)):
        assert "ss:w" not in text
        assert "s3cret" not in text


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("ftp://host/x", Invalid),
        ("file:///etc/hosts", Invalid),
        ("host/sparql", Invalid),
        ("http://", Invalid),
        ("http://host:port/", Invalid),
        ("http://[::1/", Invalid),
        ("http://host/a b", Invalid),
        ("http://host/\r\nX: y", Invalid),
        ("http://hést/", Invalid),
        (None, WrongType),
    ],
)
def test_a_url_is_one_of_a_web_server(url: Any, error: type[Exception]) -> None:
    """Only whole http and https URLs name an endpoint."""
    with pytest.raises(error):
        EndpointBackend(url)
    if url is not None:
        with pytest.raises(error):
            EndpointBackend("http://host/", url)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1.0},
        {"timeout": float("nan")},
        {"timeout": "1"},
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X:Y": "a"}},
        {"headers": {"": "a"}},
        {"headers": {"X": 1}},
    ],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    """A time that is none, and headers that would be two, are refused."""
    with pytest.raises(Invalid):
        EndpointBackend("http://127.0.0.1/", **options)


def test_a_query_that_makes_no_sense_is_not_sent() -> None:
    """What is wrong with a query is said without asking the server."""
    remote = EndpointBackend(f"http://127.0.0.1:{free_port()}/")
    for query in ("SELECT ?s {", "SELECT ?x { ?s ?p ?o } GROUP BY ?s", "DROP ALL"):
        with pytest.raises(InvalidQuery):
            remote.query(query, default_graphs=["urn:g"])
    assert len(remote.query(SELECT, default_graphs=[])) == 0


def test_a_question_is_checked_without_being_answered_here() -> None:
    """A query that would take for ever is read here and sent on: only the endpoint's time counts."""
    values = " ".join(f"VALUES ?{name} {{ {' '.join(map(str, range(1_500)))} }}" for name in "abc")
    with serve_endpoint(make_handler(200, b'{"head": {}, "boolean": false}')) as url:
        assert not ask(url, f"ASK {{ {values} FILTER(?a + ?b + ?c < 0) }}").truth


@pytest.mark.parametrize("end", ["LIMIT", "LIMIT OFFSET", "LIMIT ?n"])
def test_a_limit_needs_a_number(end: str) -> None:
    """A LIMIT that says no number is refused."""
    with serve_endpoint(make_handler(200, EMPTY)) as url, pytest.raises(InvalidQuery):
        ask(url, f"SELECT ?s {{ ?s ?p ?o }} {end}")


def test_what_is_sent_says_which_graphs() -> None:
    """The graphs and the limit stand where the grammar has them, and updates go to their own URL."""
    sent: list[tuple[str, str, str]] = []

    def handle(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        sent.append((request.path, str(request.headers["Content-Type"]), asked.decode()))
        kind = request.headers["Accept"]
        make_handler(200, b"" if "triples" in kind else EMPTY, kind)(request, asked)

    with serve_endpoint(handle) as url:
        remote = EndpointBackend(url, f"{url}/update")
        for query in (
            "SELECT (EXISTS { ?s ?p 1 } AS ?x) WHERE { ?s ?p ?o } VALUES ?o {}",
            "ASK{}",
            "CONSTRUCT { ?s ?p ?o } { ?s ?p ?o }",
            "CONSTRUCT WHERE { ?s ?p ?o }",
        ):
            remote.query(query, default_graphs=["urn:a"], named_graphs=["urn:b"], limit=9)
        remote.drop(["urn:a"])
    assert [" ".join(text.split()) for _, _, text in sent] == [
        "SELECT (EXISTS { ?s ?p 1 } AS ?x) FROM <urn:a> FROM NAMED <urn:b> WHERE { ?s ?p ?o } "
        "LIMIT 10 VALUES ?o {}",
        "ASK FROM <urn:a> FROM NAMED <urn:b> {}",
        "CONSTRUCT { ?s ?p ?o } FROM <urn:a> FROM NAMED <urn:b> { ?s ?p ?o }",
        "CONSTRUCT FROM <urn:a> FROM NAMED <urn:b> WHERE { ?s ?p ?o }",
        "DROP SILENT GRAPH <urn:a>",
    ]
    assert {(path, kind) for path, kind, _ in sent[:-1]} == {
        ("/sparql", "application/sparql-query; charset=utf-8")
    }
    assert sent[-1][:2] == ("/sparql/update", "application/sparql-update; charset=utf-8")


def test_much_is_sent_in_several_parts() -> None:
    """What is too much for one update is sent in several, each of which can be read."""
    sent: list[str] = []

    def handle(request: BaseHTTPRequestHandler, asked: bytes) -> None:
        if b"INSERT" in asked or b"DELETE" in asked:
            sent.append(asked.decode())
        make_handler(200, EMPTY)(request, asked)

    said = "".join(f'<u:{n}> <u:p> "{"x" * 1000}" <u:g{n % 3}> .\n' for n in range(2_000))
    with serve_endpoint(handle) as url:
        EndpointBackend(url).replace([], said)
    assert 3 < len(sent) < 12
    kept = OxigraphBackend()
    for update in sent:
        kept._require_store().update(update)
    assert len(kept.dump(["u:g0", "u:g1", "u:g2"]).splitlines()) == 2_000
