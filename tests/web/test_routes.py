"""Every route, through a running server."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from tests.support.rest import HOME, OTHER, Service, bearer, open_test_store, serve
from tests.support.stores import rate_hits

from omoide import Scope, blocking
from omoide.service import auth
from omoide.web import openapi_document

ADA = {"agent": "ada"}
PROBLEM = "application/problem+json"


def keep_memory(ada: httpx2.Client, content: str, *, headers: Any = None, **fields: Any) -> httpx2.Response:
    """Keep a memory of Ada's."""
    return ada.post("/v1/remember", params=ADA, json={"content": content, **fields}, headers=headers)


def test_several_memories_are_erased_at_once(ada: httpx2.Client) -> None:
    """One unknown id changes nothing, and an empty list does not mean everything."""

    def erase(**body: Any) -> Any:
        return ada.post("/v1/erase", params=ADA, json=body)

    for id in ("a", "b", "c"):
        assert keep_memory(ada, f"Memory {id}.", id=id).status_code == 200
    assert erase(id=["a", "absent"]).status_code == 404
    assert erase(id=[]).status_code == 422
    assert erase(id=["a"], everything=True).status_code == 422
    assert erase(id=["b", "a"]).json()["ids"] == ["b", "a"]
    left = [entry["id"] for entry in ada.get("/v1/entries", params=ADA).json()["entries"]]
    assert left == ["c", "default-2", "default-1"]


def test_a_memory_lives_from_being_kept_to_being_erased(ada: httpx2.Client) -> None:
    """Remember, read, recall, forget, restore, history and erase, each by its route."""
    made = keep_memory(ada, "The door is red.", id="door", type="fact")
    assert (made.status_code, made.headers["etag"], made.json()["outcome"]) == (200, '"1"', "stored")
    assert ada.get("/v1/entry", params={"id": "door"}).json()["content"] == "The door is red."
    found = ada.post("/v1/recall", json={"query": "which colour is the door?"}).json()
    assert found["hits"][0]["entry"]["id"] == "door"
    assert found["hits"][0]["why"]["reasons"]
    gone = ada.post("/v1/forget", json={"id": "door", "reason": "painted"})
    assert (gone.headers["etag"], gone.json()["superseded_reason"]) == ('"2"', "painted")
    assert ada.post("/v1/restore", json={"id": "door"}).json()["superseded_by"] is None
    assert ada.post("/v1/pin", json={"id": "door"}).json()["id"] == "door"
    assert [one["id"] for one in ada.get("/v1/pins", params={"agent": "ada"}).json()["entries"]] == ["door"]
    assert ada.post("/v1/unpin", json={"id": "door"}).json()["id"] == "door"
    assert ada.get("/v1/pins", params={"agent": "ada"}).json()["entries"] == []
    versions = ada.get("/v1/history", params={"id": "door"}).json()["versions"]
    assert [version["rev"] for version in versions] == [1, 2, 3]
    assert ada.post("/v1/erase", json={"id": "door", "reason": "asked to"}).json()["ids"] == ["door"]
    assert ada.get("/v1/entry", params={"id": "door"}).status_code == 404
    before = {"id": "door", "as_of": made.json()["entry"]["created_at"]}
    assert ada.get("/v1/entry", params=before).json()["type"] == "erased"


def test_everyday_words_stand_for_types(ada: httpx2.Client) -> None:
    """Bodies and queries take them, answers have the type; a wrong one is answered with the right ones."""
    assert keep_memory(ada, "Say sorry first.", type="instruction").json()["entry"]["type"] == "agent_rule"
    listed = ada.get("/v1/entries", params={"type": "directive"}).json()["entries"]
    assert [entry["content"] for entry in listed] == ["Say sorry first."]
    found = ada.post("/v1/recall", json={"query": "sorry", "filter": {"types": ["instruction"]}}).json()
    assert [hit["entry"]["type"] for hit in found["hits"]] == ["agent_rule"]
    refused = keep_memory(ada, "They say so.", type="rumour")
    assert refused.status_code == 422
    assert "use one of fact, assumption" in refused.text


def test_an_empty_answer_tells_what_lies_elsewhere(ada: httpx2.Client) -> None:
    """A notice of the list and of recall names the parameter that leads there."""
    keep_memory(ada, "The door is red.")
    told = ["nothing of agent bob; 3 of others: agent=ada"]
    assert ada.get("/v1/entries", params={"agent": "bob"}).json()["notices"] == told
    empty = ada.post("/v1/recall", params={"agent": "bob"}, json={"query": "tea"}).json()
    assert (empty["hits"], empty["notices"]) == ([], told)
    assert ada.get("/v1/entries").json()["notices"] == []
    gone = ada.get("/v1/entry", params={"agent": "bob", "id": "default-1"})
    assert gone.json()["detail"].endswith("the scope that was searched: namespace default, agent bob")


def test_owners_and_namespaces_are_listed_as_the_token_allows(server: Service, ada: httpx2.Client) -> None:
    """Who has memories in a scope, with their numbers; of namespaces those that the token may read."""
    (one,) = ada.get("/v1/owners").json()["owners"]
    assert (one["agent_id"], one["user_id"], one["entries"], one["live"]) == ("ada", None, 2, 2)
    assert ada.get("/v1/owners", params={"agent": "bob"}).json() == {"owners": []}
    assert ada.get("/v1/owners", params={"namespace": OTHER}).status_code == 403
    assert ada.get("/v1/namespaces").json() == {"namespaces": [HOME]}
    theirs = bearer(server.secrets.other)
    known = httpx2.get(f"{server.url}/v1/namespaces", params={"namespace": OTHER}, headers=theirs)
    assert known.json() == {"namespaces": [OTHER]}
    assert httpx2.get(f"{server.url}/v1/namespaces", headers=theirs).status_code == 403


def test_a_document_is_added_by_its_name_and_text(ada: httpx2.Client) -> None:
    """Its passages are found; the same text changes nothing, and what cannot be read is a problem."""
    body = {"name": "guide.md", "text": "# Guide\n\nThe key hangs by the door.\n", "tags": ["house"]}
    first = ada.post("/v1/documents", params=ADA, json=body).json()
    assert (first["outcome"], first["passages"]) == ("stored", 1)
    found = ada.post("/v1/recall", json={"query": "where is the key?", "filter": {"tags": ["house"]}}).json()
    kept = next(hit["entry"] for hit in found["hits"] if hit["entry"]["id"] != first["id"])
    assert kept["evidence"][0] == {"kind": "document", "ref": "guide.md#char=9,35", "quote": None}
    assert ada.post("/v1/documents", params=ADA, json=body).json()["outcome"] == "unchanged"
    refused = ada.post("/v1/documents", params=ADA, json={"name": "a.docx", "text": "x"})
    assert (refused.status_code, "save it as PDF or HTML" in refused.json()["detail"]) == (422, True)
    refused = ada.post("/v1/documents", params=ADA, json={"name": "a", "text": "x", "format": "pdf"})
    assert refused.status_code == 422
    assert ada.post("/v1/documents", json=body).status_code == 422  # whose it is


def test_relevance_is_given_and_can_be_required(ada: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hits have their relevance and the newer one; those below `min_relevance` are withheld."""
    rate_hits(monkeypatch, {"old": "new"}, new=0.9, old=0.4)
    keep_memory(ada, "The door is red.", id="old")
    keep_memory(ada, "The door is blue.", id="new")
    found = ada.post("/v1/recall", json={"query": "door"}).json()
    rated = {hit["entry"]["id"]: (hit["relevance"], hit["newer"]) for hit in found["hits"]}
    assert (rated["new"], rated["old"]) == ((0.9, None), (0.4, "new"))
    assert found["withheld"] == []
    strict = ada.post("/v1/recall", json={"query": "door", "min_relevance": 0.5}).json()
    assert strict["hits"][0]["entry"]["id"] == "new"
    assert [hit["entry"]["id"] for hit in strict["withheld"]] == ["old"]
    assert ada.post("/v1/recall", json={"query": "door", "min_relevance": 2}).status_code in (400, 422)


def test_an_older_state_can_be_read(ada: httpx2.Client) -> None:
    """`as_of` gives a memory as it was, and 404 from before it was."""
    keep_memory(ada, "Tea.", id="m")
    keep_memory(ada, "Coffee.", id="m")
    first = ada.get("/v1/history", params={"id": "m"}).json()["versions"][0]
    shown = ada.get("/v1/entry", params={"id": "m", "as_of": first["at"]}).json()
    assert shown["content"] in ("Tea.", "Coffee.")  # both may fall into the same millisecond
    assert ada.get("/v1/entry", params={"id": "m", "as_of": 1}).status_code == 404


def test_pages_follow_each_other_by_their_cursors(ada: httpx2.Client) -> None:
    """Each memory is on one page, and the last page has no cursor; a cursor of one's own is refused."""
    for number in range(5):
        keep_memory(ada, f"Note {number}.", id=f"n{number}")
    seen: list[str] = []
    cursor: str | None = None
    while cursor is not None or not seen:
        page = ada.get("/v1/entries", params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        seen += [entry["id"] for entry in page["entries"]]
        cursor = page["cursor"]
    assert len(seen) == len(set(seen)) == 7
    assert ada.get("/v1/entries", params={"cursor": "nonsense"}).status_code == 422


def test_memories_are_listed_by_what_they_are(ada: httpx2.Client) -> None:
    """Type, tag, confidence and what was forgotten narrow or widen the list."""
    keep_memory(ada, "A risk.", id="r", type="risk", tags=["x"], confidence=0.4)
    assert [one["id"] for one in ada.get("/v1/entries", params={"type": "risk"}).json()["entries"]] == ["r"]
    assert [one["id"] for one in ada.get("/v1/entries", params={"tag": "x"}).json()["entries"]] == ["r"]
    sure = ada.get("/v1/entries", params={"min_confidence": 0.9}).json()["entries"]
    assert "r" not in [one["id"] for one in sure]
    ada.post("/v1/forget", json={"id": "r"})
    assert ada.get("/v1/entries", params={"tag": "x"}).json()["entries"] == []
    forgotten = {"tag": "x", "include_superseded": "true"}
    assert len(ada.get("/v1/entries", params=forgotten).json()["entries"]) == 1


def test_somebody_who_read_an_older_revision_is_stopped(ada: httpx2.Client) -> None:
    """A write with `If-Match` of another revision than the stored one is a 412, and changes nothing."""
    tag = keep_memory(ada, "Red.", id="m").headers["etag"]
    assert keep_memory(ada, "Blue.", id="m", headers={"If-Match": tag}).headers["etag"] == '"2"'
    late = keep_memory(ada, "Green.", id="m", headers={"If-Match": tag})
    assert (late.status_code, late.headers["content-type"]) == (412, PROBLEM)
    assert (late.json()["type"], late.json()["about"]["actual"]) == ("conflict", 2)
    for path in ("/v1/forget", "/v1/restore"):
        assert ada.post(path, json={"id": "m"}, headers={"If-Match": '"1"'}).status_code == 412
    assert ada.get("/v1/entry", params={"id": "m"}).json()["content"] == "Blue."


@pytest.mark.parametrize("given", ["1", '"x"', "*", '"1", "2"', '"-1"', '""'])
def test_a_revision_that_is_none_is_refused(ada: httpx2.Client, given: str) -> None:
    """`If-Match` takes one revision in quotes and nothing else."""
    answer = keep_memory(ada, "x", headers={"If-Match": given})
    assert (answer.status_code, answer.json()["field"]) == (400, "if-match")


def test_a_repeated_request_counts_once(ada: httpx2.Client) -> None:
    """The same key and memory get the first receipt; the same key with another memory is a 409."""
    key = {"Idempotency-Key": "k1"}
    first = keep_memory(ada, "Paid 5.", id="p", headers=key)
    assert keep_memory(ada, "Paid 5.", id="p", headers=key).json() == first.json()
    other = keep_memory(ada, "Paid 6.", id="p", headers=key)
    assert (other.status_code, other.json()["type"]) == (409, "key-reused")
    both = keep_memory(ada, "Paid 6.", id="p", headers=key | {"If-Match": '"1"'})
    assert both.status_code == 409


def test_what_memories_have_to_do_with_each_other(ada: httpx2.Client) -> None:
    """Relate, related, provenance, conflicts, review and prune, each by its route."""
    keep_memory(ada, "Tea.", id="a", metadata={"key": "drink", "value": "tea"})
    keep_memory(ada, "Milk.", id="b", metadata={"key": "drink", "value": "milk"})
    named = {"source": "a", "relation": "refines", "target": "b"}
    assert ada.post("/v1/relate", json=named).json()["name"] == "refines"
    assert ada.get("/v1/related", params={"id": "a"}).json()["related"][0]["entry"]["id"] == "b"
    assert ada.get("/v1/provenance", params={"id": "a"}).json()["links"]
    assert len(ada.get("/v1/conflicts").json()["conflicts"]) == 1
    assert len(ada.get("/v1/review").json()["conflicts"]) == 1
    report = ada.post("/v1/prune", json={"max_access": 0, "older_than_ms": 0}).json()
    assert report["dry_run"]
    assert ada.get("/v1/entry", params={"id": "a"}).json()["superseded_by"] is None


def test_the_graph_answers_in_the_format_of_sparql(ada: httpx2.Client) -> None:
    """Rows come as SPARQL results, bound variables are values, and a cut is told in a header."""
    query = "SELECT ?text { ?m jido:summary ?text . FILTER(?text = ?which) }"
    answer = ada.post("/v1/sparql", json={"query": query, "bindings": {"which": "Ada drinks tea."}})
    assert answer.headers["content-type"] == "application/sparql-results+json"
    assert [row["text"]["value"] for row in answer.json()["results"]["bindings"]] == ["Ada drinks tea."]
    cut = ada.post("/v1/sparql", json={"query": "SELECT ?m { ?m jido:summary ?t }", "limit": 1})
    assert cut.headers["omoide-truncated"] == "true"
    product = " . ".join(f"?a{at} ?b{at} ?c{at}" for at in range(6))
    endless = {"query": f"SELECT * {{ {product} }} ORDER BY ?a1", "timeout": 0.05}
    long = ada.post("/v1/sparql", json=endless)
    assert (long.status_code, long.json()["type"]) == (504, "query-stopped")


def test_sessions_are_looked_at_and_promoted(ada: httpx2.Client) -> None:
    """Sessions, transcript, context, preflight, promote and undo-promotion, each by its route."""
    id = f"{HOME}-session"
    assert [one["session_id"] for one in ada.get("/v1/sessions").json()["sessions"]] == [id]
    assert ada.get("/v1/sessions", params={"agent": "nobody"}).json()["sessions"] == []
    assert ada.get("/v1/transcript", params={"id": id}).json()["entries"]
    assert "Ada drinks tea." in ada.get("/v1/context", params={"id": id}).json()["text"]
    asked = {"session": id, "message": "What do I drink?"}
    assert ada.post("/v1/preflight", json=asked).json()["prompt"]["messages"]
    shown = ada.post("/v1/promote", json={"session": id}).json()
    assert (shown["dry_run"], shown["run"]) == (True, None)
    done = ada.post("/v1/promote", json={"session": id, "dry_run": False}).json()["run"]
    assert done["promoted"]
    assert ada.post("/v1/undo-promotion", json={"session": id}).json()["id"] == done["id"]
    for path in ("/v1/transcript", "/v1/context"):
        assert ada.get(path, params={"id": id, "agent": "nobody"}).status_code == 404


def test_who_rests_in_the_store(ada: httpx2.Client) -> None:
    """Agents, identity, spaces and who-can, each by its route."""
    id = f"{HOME}-agent"
    assert [one["id"] for one in ada.get("/v1/agents").json()["agents"]] == [id]
    assert ada.get("/v1/identity", params={"id": id}).json()["identity"]
    spaces = {one["name"]: one["data"] for one in ada.get("/v1/spaces", params={"id": id}).json()["spaces"]}
    assert spaces["world"] == {"drink": "Ada drinks tea."}
    assert ada.post("/v1/who-can", json={"action": "sing"}).json() == {"choices": []}


def test_the_service_says_that_it_is_there_and_what_it_does(ada: httpx2.Client) -> None:
    """Health and the OpenAPI document need no token."""
    assert httpx2.get(f"{ada.base_url}/health").json() == {"status": "ok"}
    shown = httpx2.get(f"{ada.base_url}/schema")
    assert shown.headers["content-type"] == "application/vnd.oai.openapi+json"
    assert shown.json() == json.loads(json.dumps(openapi_document()))


@contextmanager
def open_events(ada: httpx2.Client, after: int) -> Iterator[Iterator[str]]:
    """The lines of a stream of events."""
    with ada.stream("GET", "/v1/events", params={"after": after}) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        yield stream.iter_lines()


def test_what_another_program_changes_is_told_as_it_happens(ada: httpx2.Client, tmp_path: Path) -> None:
    """A write through another handle on the same file is an event, with its number and without content."""
    last = ada.get("/v1/changes", params={"limit": 500}).json()["changes"][-1]["seq"]
    with open_events(ada, last) as lines, open_test_store(tmp_path) as other:
        assert next(lines).startswith(":")
        blocking.remember(other, "Not to be told.", Scope(agent_id="bob"), id="new")
        event = list(islice(filter(None, lines), 3))
    said = dict(line.split(": ", 1) for line in event)
    assert (said["event"], json.loads(said["data"])["id"]) == ("write", "new")
    assert int(said["id"]) > last
    assert "Not to be told." not in said["data"]


def test_a_stream_ends_with_its_token(server: Service, ada: httpx2.Client) -> None:
    """Whoever's token is revoked hears no more, though the connection was there before."""
    with open_events(ada, 0) as lines:
        assert next(lines).startswith(":")
        for token in anyio.run(auth.list_tokens, server.store):
            anyio.run(auth.revoke, server.store, token.id)
        assert len(list(lines)) < 1_000  # there is an end


def test_a_token_that_asks_too_often_has_to_wait(tmp_path: Path) -> None:
    """After so many requests within a minute there is a 429 that says when to come back; others may go on."""
    with open_test_store(tmp_path) as store, serve(store, requests_per_minute=2) as server:
        answers = [
            httpx2.get(f"{server.url}/v1/agents", headers=bearer(server.secrets.read)) for _ in range(3)
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        assert 1 <= int(answers[2].headers["retry-after"]) <= 31
        assert answers[2].json()["type"] == "too-many-requests"
        assert httpx2.get(f"{server.url}/v1/agents", headers=bearer(server.secrets.all)).status_code == 200


def test_no_other_site_is_let_in(ada: httpx2.Client) -> None:
    """No answer names an origin that may read it, and a browser that asks first is told nothing."""
    origin = {"Origin": "https://other.example"}
    preflight = ada.options("/v1/remember", headers=origin | {"Access-Control-Request-Method": "POST"})
    for answer in (ada.get("/v1/agents", headers=origin), preflight):
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("method", "path", "status", "remedy"),
    [
        ("GET", "/v1/absent", 404, "GET /schema lists all"),
        ("GET", "/v1/remember", 405, "takes OPTIONS, POST"),
        ("DELETE", "/v1/entry", 405, "takes GET, OPTIONS"),
        ("GET", "/", 404, "GET /schema lists all"),
        ("GET", "/v1/entries?agnt=ada", 400, "agnt is an unknown parameter; use agent, "),
    ],
)
def test_what_there_is_not_is_told_as_a_problem(
    ada: httpx2.Client, method: str, path: str, status: int, remedy: str
) -> None:
    """An unknown path, method or parameter has a problem as its answer, which says what to do."""
    answer = ada.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)
    assert answer.json()["status"] == status
    assert remedy in answer.json()["detail"]


def test_a_store_that_is_closed_cannot_serve(server: Service, ada: httpx2.Client) -> None:
    """Once the store is closed every route says 503, and the service itself stays up."""
    server.store.sync.close()
    answer = ada.get("/v1/agents")
    assert (answer.status_code, answer.json()["type"]) == (503, "closed")
    assert ada.get("/health").status_code == 200
