"""Attacks on the service are refused, and leave nothing of their content in the log."""

import logging
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.rest import OTHER, SECRET, Service, bearer, open_test_store, serve

from omoide import Scope
from omoide.stores.sqlite.connection import SQLiteConnections
from omoide.web import openapi_document

PATHS = openapi_document()["paths"]
WORD = "marzipanlantern"
"""What somebody sends, and no log may show."""
SQL = [
    f"' OR '1'='1 {WORD}",
    f"'; DROP TABLE entries; -- {WORD}",
    f'" UNION ALL VALUES (1, 2) -- {WORD}',
    f"x') OR 1=1) -- {WORD}",
]
SPARQL = [
    f'" . }} INSERT DATA {{ <urn:a> <urn:b> "{WORD}" }} #',
    f"> }} ; DROP ALL # {WORD}",
    f'"}} UNION {{ ?s ?p ?o FILTER(CONTAINS(?o, "tulip"))}} # {WORD}',
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    with (
        open_test_store(folder) as store,
        serve(store, requests_per_minute=None, max_body_bytes=100_000) as server,
    ):
        yield server


@pytest.fixture
def eve(service: Service) -> Iterator[httpx2.Client]:
    """Somebody with a good token for one namespace, and bad intentions."""
    with httpx2.Client(base_url=service.url, headers=bearer(service.secrets.admin), timeout=20) as client:
        yield client


@pytest.fixture(autouse=True)
def unharmed(service: Service, folder: Path, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After each attempt the others' memories are as they were, the file is sound, and the log is silent."""
    caplog.set_level(logging.DEBUG)
    before = _theirs(service)
    yield
    assert _theirs(service) == before
    assert service.store.sync.check() == []
    told = "\n".join(f"{record.getMessage()}{record.exc_text or ''}" for record in caplog.records)
    assert WORD not in told
    assert SECRET not in told
    assert service.secrets.admin not in told


def _theirs(server: Service) -> list[Any]:
    scope = Scope(namespace=OTHER)
    ids = (f"{OTHER}-1", f"{OTHER}-2")
    return [*(server.store.sync.get(id, scope) for id in ids), server.store.sync.stats(scope).entries]


def string_parameters() -> list[tuple[str, str]]:
    """Every parameter of a query that takes text."""
    return [
        (path, parameter["name"])
        for path, methods in PATHS.items()
        for parameter in methods.get("get", {}).get("parameters", [])
        if parameter["in"] == "query" and parameter["schema"].get("type") == "string" and path != "/v1/events"
    ]


@pytest.mark.parametrize(("path", "name"), string_parameters())
def test_no_parameter_becomes_a_part_of_a_statement(eve: httpx2.Client, path: str, name: str) -> None:
    """SQL and SPARQL in any parameter are text: nothing is found by it, and nothing of others."""
    for attempt in (*SQL, *SPARQL):
        answer = eve.get(path, params={"id": "x", name: attempt} if "id" in _names(path) else {name: attempt})
        assert answer.status_code in (200, 403, 404, 422)
        assert SECRET not in answer.text


def _names(path: str) -> list[str]:
    return [one["name"] for one in PATHS[path]["get"]["parameters"]]


@pytest.mark.parametrize("attempt", [*SQL, *SPARQL])
@pytest.mark.parametrize(
    "where", ["content", "id", "tags", "rationale", "key", "value", "ref", "supersedes", "type", "source"]
)
def test_no_field_of_a_memory_becomes_a_part_of_a_statement(
    eve: httpx2.Client, where: str, attempt: str
) -> None:
    """It is kept letter by letter, keys of metadata included, or refused; the graph takes it as text too."""
    body: dict[str, Any] = {"content": "Something."}
    if where in ("key", "value"):
        body["metadata"] = {attempt: 1} if where == "key" else {"key": attempt}
    elif where == "ref":
        body["evidence"] = [{"kind": "document", "ref": attempt, "quote": attempt}]
    else:
        body[where] = [attempt] if where == "tags" else attempt
    answer = eve.post("/v1/remember", params={"agent": "eve"}, json=body | {"dedupe": False})
    assert answer.status_code in (200, 404, 422)
    if answer.status_code == 200 and where in body:
        assert answer.json()["entry"].get(where, attempt) in (attempt, [attempt])
    count = eve.post("/v1/sparql", json={"query": "SELECT ?t { ?m jido:summary ?t }"})
    assert SECRET not in count.text


@pytest.mark.parametrize("attempt", SPARQL)
def test_what_is_bound_to_a_variable_is_a_value(eve: httpx2.Client, attempt: str) -> None:
    """A binding cannot end the query, and the name of one cannot either."""
    query = "SELECT ?m { ?m jido:summary ?text FILTER(?text = ?x) }"
    found = eve.post("/v1/sparql", json={"query": query, "bindings": {"x": f"{attempt} again"}})
    assert (found.status_code, found.json()["results"]["bindings"]) == (200, [])
    named = eve.post("/v1/sparql", json={"query": query, "bindings": {attempt: "x"}})
    assert (named.status_code, named.json()["type"]) == (422, "invalid-query")


@pytest.mark.parametrize(
    "query",
    [
        "INSERT DATA { <urn:a> <urn:b> <urn:c> }",
        "DELETE WHERE { ?s ?p ?o }",
        "DROP ALL",
        "LOAD <file:///etc/passwd>",
        "SELECT * { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }",
        "SELECT * FROM <urn:x> { ?s ?p ?o }",
        "SELECT ?o { GRAPH ?g { ?s ?p ?o } }",
    ],
)
def test_a_query_can_change_nothing_and_leave_nowhere(eve: httpx2.Client, query: str) -> None:
    """Updates, other services and other graphs are refused, or hold nothing of others."""
    answer = eve.post("/v1/sparql", json={"query": f"{query} # {WORD}"})
    assert answer.status_code in (200, 422)
    assert SECRET not in answer.text


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 50_000, 400),
        (b'{"content":' + b'{"a":' * 9_000 + b"1" + b"}" * 9_000 + b"}", 400),
        (b'{"content":"x","metadata":' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"}", 422),
        (b'{"content":"' + b"x" * 200_000 + b'"}', 413),
        (b'{"content":"\xff\xfe"}', 400),
        ('{"content":"x"}'.encode("utf-16"), 400),
        (b'{"content":"a\\u0000b"}', 422),
        (b'{"content":"\\ud800"}', 400),
        (b'{"content":1e999}', 400),
        (b'{"content":"x","metadata":{"n":1e999}}', 400),
        (b'{"content":"x","metadata":{"n":99999999999999999999999}}', 422),
        (b'{"content":"x"} trailing', 400),
        (b"", 400),
        (b"null", 422),
        (b'{"content":"x","metadata":{"a":{"$Agent":{}}}}', 422),
        (b'{"content":"x","metadata":{"a":{"$datetime":"never"}}}', 422),
        (b'{"content":"x","__class__":"os.system"}', 422),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_body_that_nobody_should_send_is_refused(eve: httpx2.Client, body: bytes, status: int) -> None:
    """Too deep, too large, of another encoding, or of another shape: a problem that says so."""
    answer = eve.post(
        "/v1/remember",
        params={"agent": "eve"},
        content=body.replace(b"trailing", WORD.encode()),
        headers={"Content-Type": "application/json"},
    )
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert eve.get("/v1/entries", params={"agent": "eve-bodies"}).json()["entries"] == []


@pytest.mark.parametrize(
    "media",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=utf-16",
        "application/msgpack",
    ],
)
def test_a_body_of_another_kind_is_refused(eve: httpx2.Client, media: str) -> None:
    """Only JSON in UTF-8 is read, so no form of another site's page is either."""
    headers = {"Content-Type": media} if media else {}
    answer = eve.post("/v1/remember", params={"agent": "eve"}, content=b'{"content":"x"}', headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (415, "wrong-media-type")


@pytest.mark.parametrize(
    "path",
    [
        "/schema/../../../../etc/passwd",
        "/schema/%2e%2e/%2e%2e/etc/passwd",
        "/schema/..%2f..%2fetc%2fpasswd",
        "/v1/..%5c..%5cetc",
        "/v1/entry/..%2f..%2fmemory.db",
        "/health/../v1/agents%00",
        "//etc/passwd",
        "/schema%00.json",
        f"/v1/%0d%0aSet-Cookie:%20{WORD}",
        "/static/../memory.db",
    ],
)
def test_no_path_leads_to_a_file(service: Service, path: str) -> None:
    """Whatever is put into a path, it names a route or nothing; no header of one's own comes back."""
    answer = _raw(service, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 400 ", b"HTTP/1.1 401 "))
    assert b"root:" not in answer
    assert b"\r\nset-cookie" not in answer.lower()


@pytest.mark.parametrize("route", [*PATHS])
@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "", "0.0.0.0"]
)
def test_a_name_that_leads_here_from_elsewhere_is_not_ours(service: Service, route: str, host: str) -> None:
    """A page whose own name was made to lead to this machine is told 421, whatever it asks."""
    shown = bearer(service.secrets.admin)["Authorization"]
    method = next(iter(PATHS[route])).upper()
    request = (
        f"{method} {route} HTTP/1.1\r\nHost: {host}\r\nAuthorization: {shown}\r\nConnection: close\r\n\r\n"
    )
    answer = _raw(service, request.encode())
    assert answer.startswith(b"HTTP/1.1 421 ")
    assert b"application/problem+json" in answer


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example", ""])
def test_a_page_of_another_site_can_change_nothing(eve: httpx2.Client, origin: str) -> None:
    """What changes something is refused where the browser says that another site sent it."""
    answer = eve.post(
        "/v1/remember", params={"agent": "eve"}, json={"content": WORD}, headers={"Origin": origin}
    )
    assert (answer.status_code, answer.json()["type"]) == (403, "forbidden")
    own = {"Origin": str(eve.base_url)}
    assert eve.post("/v1/recall", json={"query": "tea"}, headers=own).status_code == 200


def test_a_cookie_is_no_token(service: Service) -> None:
    """What a browser sends along by itself lets nobody in."""
    cookies = dict.fromkeys(("token", "authorization", "omoide"), service.secrets.admin)
    with httpx2.Client(base_url=service.url, cookies=cookies) as client:
        assert client.get("/v1/agents").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        b"Authorization: Basic YWRtaW46YWRtaW4=",
        b"Authorization: Bearer \xff\xfe",
        b"Authorization: Bearer omd_../../x.y",
        b"Authorization: Bearer omd_" + b"x" * 30_000 + b".y",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked",
        b"X-A: b\r\n Authorization: Bearer x",
        b"Host: evil.example",
    ],
)
def test_a_header_that_means_two_things_lets_nobody_in(service: Service, headers: bytes) -> None:
    """Strange, doubled and folded headers are refused, and end nothing."""
    answer = _raw(
        service,
        b"GET /v1/agents HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\nConnection: close\r\n\r\n",
    )
    assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 401", b"HTTP/1.1 421")
    assert httpx2.get(f"{service.url}/health").status_code == 200


def test_a_key_cannot_write_a_header(eve: httpx2.Client) -> None:
    """What comes back in headers is a number of ours; a key with controls is refused by the store."""
    answer = eve.post(
        "/v1/remember",
        params={"agent": "eve"},
        json={"content": "x", "id": "a\r\nSet-Cookie: b=c"},
        headers={"Idempotency-Key": "k\tx"},
    )
    assert answer.status_code == 422
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "query", ["namespace=%ff", "agent=%ed%a0%80", "id=%c0%80", "namespace=a%00b", "limit=1&limt=2"]
)
def test_a_query_in_another_encoding_is_refused(eve: httpx2.Client, query: str) -> None:
    """What is not UTF-8, holds NUL or is misspelt is not taken for something else."""
    assert eve.get(f"/v1/entry?id=x&{query}").status_code in (400, 403)


def test_a_statement_that_is_interrupted_is_told_as_such(
    eve: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that stops in the middle is a 503 in our own words, without what was sent."""
    reading = SQLiteConnections.read_transaction

    @contextmanager
    def stopped(self: SQLiteConnections) -> Iterator[sqlite3.Connection]:
        with reading(self) as db:
            db.set_progress_handler(lambda: 1, 1)
            try:
                yield db
            finally:
                db.set_progress_handler(None, 0)

    monkeypatch.setattr(SQLiteConnections, "read_transaction", stopped)
    answer = eve.get("/v1/entries", params={"tag": WORD})
    assert (answer.status_code, answer.json()["type"]) == (503, "store-failed")
    assert WORD not in answer.text


def test_what_nobody_expected_says_nothing(
    service: Service,
    eve: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error that is not ours is a 500 without details, and the log has the place and not the words."""

    async def broken(*given: Any, **more: Any) -> None:
        raise RuntimeError(WORD)

    monkeypatch.setattr(type(service.store), "query", broken)
    answer = eve.get("/v1/entries", params={"tag": WORD})
    assert (answer.status_code, answer.json()["type"]) == (500, "failed")
    assert WORD not in answer.text
    assert "RuntimeError" in caplog.text
    assert "test_attacks.py" in caplog.text


def _raw(server: Service, request: bytes) -> bytes:
    """What comes back for bytes that no client would send."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(request)
        parts = []
        while part := connection.recv(65_536):
            parts.append(part)
        return b"".join(parts)
