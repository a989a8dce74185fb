"""What the scope of a request, and the rights of its token, keep out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from tests.support.rest import HOME, OTHER, SECRET, Service, bearer, make_entry, open_test_store, serve

from omoide import Scope, WriteRequest
from omoide.service import auth
from omoide.sessions import Session
from omoide.stores import AsyncStore, Change
from omoide.stores.sql.store import SQLStore
from omoide.turns import AgentSpec
from omoide.web import openapi_document

PATHS = openapi_document()["paths"]
SCOPE = ("user", "agent", "session", "project")
SESSION = f"{HOME}-session"
BRIDGE = "bridge"
"""A session that is kept in one namespace and remembers in the other."""
BODIES: dict[str, dict[str, Any]] = {
    "/v1/remember": {"content": "A new note."},
    "/v1/documents": {"name": "note.txt", "text": "A new note."},
    "/v1/recall": {"query": "tea", "filter": {"include_superseded": True}},
    "/v1/forget": {"id": f"{HOME}-1"},
    "/v1/restore": {"id": f"{HOME}-1"},
    "/v1/pin": {"id": f"{HOME}-1"},
    "/v1/unpin": {"id": f"{HOME}-1"},
    "/v1/erase": {"everything": True},
    "/v1/relate": {"source": f"{HOME}-1", "relation": "refines", "target": f"{HOME}-2"},
    "/v1/prune": {"max_access": 0},
    "/v1/sparql": {"query": "SELECT ?s ?p ?o WHERE { ?s a ?o . ?s ?p ?x }"},
    "/v1/promote": {"session": SESSION},
    "/v1/undo-promotion": {"session": SESSION},
    "/v1/preflight": {"session": SESSION, "message": "Hello."},
    "/v1/who-can": {},
}
IDS = {
    "/v1/transcript": SESSION,
    "/v1/context": SESSION,
    "/v1/identity": f"{HOME}-agent",
    "/v1/spaces": f"{HOME}-agent",
}
MARKS = (f"{HOME}-1", f"{HOME}-2", f"{HOME}-agent", "Ada drinks", '"ada"')
"""What every answer about the filled store has at least one of."""
NARROWED = [
    (path, method, parameter)
    for path, methods in PATHS.items()
    for method, operation in methods.items()
    for parameter in SCOPE
    if operation["x-right"] is not None and path != "/v1/events"
]


class Running(NamedTuple):
    """A server that all tests share, and who asks it."""

    service: Service
    http: httpx2.Client

    def ask(self, path: str, method: str, secret: str, **parameters: str) -> httpx2.Response:
        """The answer of a route."""
        if "id" in [one["name"] for one in PATHS[path][method]["parameters"]]:
            parameters.setdefault("id", IDS.get(path, f"{HOME}-1"))
        body = BODIES[path] if method == "post" else None
        return self.http.request(
            method.upper(), path, params=parameters, json=body, headers=bearer(secret), timeout=20
        )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with (
        open_test_store(tmp_path_factory.mktemp("scopes")) as store,
        serve(store) as service,
        httpx2.Client(base_url=service.url) as http,
    ):
        anyio.run(bridge, store)
        yield Running(service, http)


async def bridge(store: AsyncStore) -> None:
    """A session in the home namespace whose memory lies in the other one, and which was promoted."""
    spec = AgentSpec.new({"id": "ada", "memory": {"namespace": OTHER}})
    session = await Session.start(
        spec, BRIDGE, store=store, namespace=HOME, llm=lambda request, journal: "I see."
    )
    session.set_promotion(enabled=False)
    async with session:
        session.propose(f"Bob drinks {SECRET} daily.", type="fact", confidence=1.0, importance=0.9)
        assert (await session.promote(threshold=0.0)).run is not None


async def tokens_over(store: AsyncStore, *namespaces: str) -> str:
    """The secret of a token with all rights in these namespaces."""
    return (await auth.create(store, "test", ["admin"], namespaces))[0]


@pytest.mark.parametrize(
    ("path", "method", "body"),
    [
        ("context", "get", None),
        ("preflight", "post", {"session": BRIDGE, "message": f"What of {SECRET}?"}),
        ("promote", "post", {"session": BRIDGE}),
        ("promote", "post", {"session": BRIDGE, "dry_run": False}),
        ("undo-promotion", "post", {"session": BRIDGE}),
    ],
)
def test_a_session_lends_no_rights_in_the_namespace_it_remembers_in(
    running: Running, path: str, method: str, body: dict[str, Any] | None
) -> None:
    """A token for the namespace of the transcript alone is refused, and nothing is read or written."""
    store = running.service.store.sync
    before = store.list_entries(Scope(namespace=OTHER))
    answer = running.http.request(
        method.upper(),
        f"/v1/{path}",
        params={} if body else {"id": BRIDGE},
        json=body,
        headers=bearer(running.service.secrets.admin),
    )
    assert (answer.status_code, answer.json()["type"]) == (403, "forbidden")
    assert SECRET not in answer.text
    assert OTHER not in answer.text
    assert store.list_entries(Scope(namespace=OTHER)) == before


def test_a_token_of_both_namespaces_reaches_the_memory_of_the_session(running: Running) -> None:
    """The right is looked up in every namespace that is reached, and found."""
    secret = anyio.run(tokens_over, running.service.store, HOME, OTHER)
    answer = running.http.get("/v1/context", params={"id": BRIDGE}, headers=bearer(secret))
    assert answer.status_code == 200
    assert SECRET in answer.text


@pytest.mark.parametrize(("path", "method", "parameter"), NARROWED)
def test_no_route_takes_a_scope_parameter_and_ignores_it(
    running: Running, path: str, method: str, parameter: str
) -> None:
    """A request narrowed to a name that nothing has is refused, finds nothing, or is about that name."""
    writes = path in ("/v1/remember", "/v1/documents")
    scope = {"namespace": HOME, "agent": "ada"} if writes else {"namespace": HOME}
    scope[parameter] = "somebody" if writes else "nobody"
    answer = running.ask(path, method, running.service.secrets.admin, **scope)
    taken = {one["name"] for one in PATHS[path][method]["parameters"]}
    if parameter not in taken:
        assert answer.status_code == 400
        assert answer.json()["field"] == parameter
    elif writes:
        id = answer.json()["id"] if "id" in answer.json() else answer.json()["entry"]["id"]
        stored = running.service.store.sync.get(id, Scope(namespace=HOME))
        assert getattr(stored, f"{parameter}_id") == "somebody"
    elif path == "/v1/status":
        assert answer.json()["stats"]["entries"] == 0
    else:
        assert answer.status_code in (200, 404, 422)
        shown = json.dumps(answer.json().get("about", "")) if answer.is_error else answer.text
        assert not [mark for mark in MARKS if mark in shown and mark not in IDS.get(path, f"{HOME}-1")]


@pytest.mark.parametrize("path", sorted({path for path, method, _ in NARROWED if method == "get"}))
def test_what_is_not_narrowed_is_shown(running: Running, path: str) -> None:
    """The marks that the other test looks for are there without a narrower scope."""
    answer = running.ask(path, "get", running.service.secrets.read, namespace=HOME)
    assert answer.status_code == 200
    empty = path in ("/v1/conflicts", "/v1/namespaces", "/v1/pins", "/v1/review", "/v1/status")
    assert empty or [mark for mark in MARKS if mark in answer.text]


def test_events_are_those_of_the_scope(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A stream that is narrowed to an agent tells of its changes, and of no other's before them."""
    with open_test_store(tmp_path_factory.mktemp("events")) as store, serve(store) as service:
        url = f"{service.url}/v1/events"
        for id, agent in (("bobs", "bob"), ("adas", "ada"), ("bobs-2", "bob")):
            entry = make_entry(id, f"A note of {agent}.").replace(agent_id=agent)
            store.sync.write(WriteRequest.new(entry=entry))
        told = []
        with httpx2.stream(
            "GET", url, params={"agent": "bob"}, headers=bearer(service.secrets.read), timeout=20
        ) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    told.append(json.loads(line.removeprefix("data:"))["id"])
                if len(told) == 2:
                    break
        assert told == ["bobs", "bobs-2"]


def test_a_stream_of_a_small_scope_reads_each_change_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work of one that begins long ago grows with the number of changes, not with its square."""
    with open_test_store(tmp_path) as store, serve(store) as service:
        entries = [make_entry(f"bobs-{n}", f"Note {n}.").replace(agent_id="bob") for n in range(1_000)]
        entries.append(make_entry("adas", "A note.").replace(agent_id="ada"))
        store.sync.write_many([WriteRequest.new(entry=entry) for entry in entries])
        newest = store.sync.changes("default", after=900)[-1].seq
        changes, searched = SQLStore.changes, []

        def count(store: SQLStore, namespace: str, **options: Any) -> list[Change]:
            if options.get("scope") is not None:
                searched.append((options.get("until") or newest) - options["after"])
            return changes(store, namespace, **options)

        monkeypatch.setattr(SQLStore, "changes", count)
        with httpx2.stream(
            "GET", f"{service.url}/v1/events", params={"agent": "ada"},
            headers=bearer(service.secrets.read), timeout=20,
        ) as answer:  # fmt: skip
            assert any("adas" in line for line in answer.iter_lines())
        assert 0 < sum(searched) <= newest


def test_only_an_admin_of_all_namespaces_sees_the_store_as_a_whole(running: Running) -> None:
    """Where the store lies, how large it is and what a check found are not of one namespace."""
    everywhere = anyio.run(tokens_over, running.service.store, auth.ALL_NAMESPACES)
    for secret in (running.service.secrets.read, running.service.secrets.admin):
        answer = running.ask("/v1/status", "get", secret)
        assert (answer.json()["store"], answer.json()["stats"]["size_bytes"]) == ("sqlite", 0)
        assert "memory.db" not in answer.text
        assert running.ask("/v1/status", "get", secret, check="true").status_code == 403
    answer = running.ask("/v1/status", "get", everywhere, check="true")
    assert "memory.db" in answer.json()["store"]
    assert answer.json()["stats"]["size_bytes"] > 0


def test_damage_in_one_namespace_is_not_told_to_others(tmp_path: Path) -> None:
    """Neither how many rows are set aside or unchecked, nor where the file with them lies."""
    with open_test_store(tmp_path) as store, serve(store) as service:
        assert isinstance(store.sync, SQLStore)
        for namespace in ("default", "other"):
            entry = make_entry("m", "A note.").replace(namespace=namespace)
            store.sync.write(WriteRequest.new(entry=entry))
        with store.sync._db.write_transaction() as db:
            db.execute("UPDATE entries SET body = x'00' WHERE namespace = 'other'")
        assert store.sync.repair().set_aside == {"entries": 1}
        with store.sync._db.write_transaction() as db:
            db.execute("UPDATE entries SET checksum = NULL")
        status = httpx2.get(f"{service.url}/v1/status", headers=bearer(service.secrets.read)).json()["stats"]
        assert (status["unchecked"], status["set_aside"]) == (0, 0)
        answer = httpx2.post(
            f"{service.url}/v1/erase", json={"id": "m"}, headers=bearer(service.secrets.admin)
        )
        assert answer.status_code == 200
        assert "memory.db.damaged" in answer.text
        assert str(tmp_path) not in answer.text


def test_an_error_of_the_store_does_not_tell_where_it_lies(tmp_path: Path) -> None:
    """What failed is told, and not the path."""
    with open_test_store(tmp_path) as store, serve(store) as service:
        store.sync.close()
        answer = httpx2.get(f"{service.url}/v1/entries", headers=bearer(service.secrets.read))
        assert (answer.status_code, answer.json()["type"]) == (503, "closed")
        assert "memory.db" not in answer.text


def test_a_namespace_does_not_see_the_sequence_of_another(running: Running) -> None:
    """The last number of a status is that of the namespace: what others write does not move it."""

    def last() -> int:
        return int(running.ask("/v1/status", "get", running.service.secrets.read).json()["stats"]["last_seq"])

    before = last()
    entry = make_entry("far", "A far note.", OTHER)
    running.service.store.sync.write(WriteRequest.new(entry=entry))
    assert last() == before


def test_a_session_of_another_agent_is_one_that_does_not_exist(running: Running) -> None:
    """The two answers do not differ in a word."""
    answers = [
        running.http.get(
            "/v1/context",
            params={"id": id, "agent": "bob"},
            headers=bearer(running.service.secrets.read),
        ).text.replace(id, "…")
        for id in (SESSION, "absent")
    ]
    assert answers[0] == answers[1]
