"""Every route with every kind of token."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx2
import pytest
from tests.support.rest import HOME, OTHER, RIGHTS, SECRET, Secrets, bearer, open_test_store, serve

from omoide.service.auth import TOKEN_SCOPE
from omoide.web import openapi_document

PATHS = openapi_document()["paths"]
ID = f"{HOME}-1"
SESSION = f"{HOME}-session"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/remember": {"content": "Kept."},
    "/v1/documents": {"name": "a.txt", "text": "Kept."},
    "/v1/recall": {"query": "tea"},
    "/v1/forget": {"id": ID},
    "/v1/restore": {"id": ID},
    "/v1/pin": {"id": "absent"},  # another row forgets the other one, which then cannot be pinned
    "/v1/unpin": {"id": ID},
    "/v1/erase": {"id": "absent"},
    "/v1/relate": {"source": ID, "relation": "refines", "target": f"{HOME}-2"},
    "/v1/prune": {"max_access": 0},
    "/v1/sparql": {"query": "ASK {}"},
    "/v1/promote": {"session": SESSION},
    "/v1/undo-promotion": {"session": SESSION},
    "/v1/preflight": {"session": SESSION, "message": "Hello."},
    "/v1/who-can": {"action": "sing"},
}
IDS = {
    "/v1/transcript": SESSION,
    "/v1/context": SESSION,
    "/v1/identity": f"{HOME}-agent",
    "/v1/spaces": f"{HOME}-agent",
}
EXPECTED_RIGHTS = {
    "write": {
        *("documents", "remember", "forget", "restore", "pin", "unpin"),
        *("relate", "prune", "promote", "undo-promotion"),
    },
    "erase": {"erase"},
}


class Running(NamedTuple):
    """A server that all rows of the table share, and who asks it."""

    secrets: Secrets
    http: httpx2.Client


class Route(NamedTuple):
    """One row of the table."""

    path: str
    method: str
    right: str

    def request(self, service: Running, secret: str | None, namespace: str = HOME) -> httpx2.Response:
        """Ask it with a token; only whether it is let in matters, so a stream is not read."""
        parameters = {"namespace": namespace}
        described = PATHS[self.path][self.method]["parameters"]
        if "id" in [one["name"] for one in described]:
            parameters["id"] = IDS.get(self.path, ID)
        if self.path in ("/v1/remember", "/v1/documents"):
            parameters["agent"] = "ada"
        with service.http.stream(
            self.method.upper(),
            self.path,
            params=parameters,
            json=BODIES[self.path] if self.method == "post" else None,
            headers={} if secret is None else bearer(secret),
        ) as answer:
            if not answer.headers["content-type"].startswith("text/event-stream"):
                answer.read()
            return answer


ROUTES = [
    Route(path, method, operation["x-right"])
    for path, methods in PATHS.items()
    for method, operation in methods.items()
    if operation["x-right"] is not None
]
pytestmark = pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with (
        open_test_store(tmp_path_factory.mktemp("served")) as store,
        serve(store) as server,
        httpx2.Client(base_url=server.url) as http,
    ):
        yield Running(server.secrets, http)


def test_a_route_takes_the_right_that_it_should(route: Route) -> None:
    """What changes something takes `write`, what removes it `erase`, and everything else `read`."""
    name = route.path.removeprefix("/v1/")
    expected = next((right for right, names in EXPECTED_RIGHTS.items() if name in names), "read")
    assert route.right == expected


def test_nobody_is_let_in_without_a_token_that_counts(route: Route, service: Running) -> None:
    """No token, a wrong one, a revoked and an expired one are all 401, with the same words."""
    good = service.secrets.admin
    wrong = [
        None,
        "nonsense",
        good[:-1] + ("a" if good[-1] != "a" else "b"),
        good.partition(".")[0],
        f"{good}.x",
        service.secrets.revoked,
        service.secrets.expired,
    ]
    answers = [route.request(service, secret) for secret in wrong]
    assert [answer.status_code for answer in answers] == [401] * len(wrong)
    assert len({answer.text for answer in answers}) == 1
    assert {answer.headers["www-authenticate"] for answer in answers} == {'Bearer realm="omoide"'}
    assert {answer.headers["content-type"] for answer in answers} == {"application/problem+json"}


@pytest.mark.parametrize("right", RIGHTS)
def test_a_token_may_do_what_its_right_says_and_no_more(route: Route, right: str, service: Running) -> None:
    """The right of the route, or `admin`, is let in; any other is 403."""
    answer = route.request(service, getattr(service.secrets, right))
    if right in (route.right, "admin"):
        assert answer.status_code in (200, 404)
    else:
        assert (answer.status_code, answer.json()["type"]) == (403, "forbidden")


def test_a_token_is_good_in_its_own_namespace_only(route: Route, service: Running) -> None:
    """The token of another namespace is 403 here, and in its own place it is let in and finds its own."""
    assert route.request(service, service.secrets.other).status_code == 403
    assert route.request(service, service.secrets.admin, OTHER).status_code == 403
    own = route.request(service, service.secrets.other, OTHER)
    assert own.status_code in (200, 404)
    assert "Ada drinks" not in ("" if own.is_stream_consumed is False else own.text)


def test_two_namespaces_at_once_are_refused(route: Route, service: Running) -> None:
    """Naming one's own namespace first and another one after it does not open the other one."""
    for names in ((HOME, OTHER), (OTHER, HOME)):
        path = f"{route.path}?namespace={names[0]}&namespace={names[1]}&id=x"
        body = BODIES.get(route.path)
        answer = service.http.request(route.method, path, json=body, headers=bearer(service.secrets.admin))
        assert answer.status_code == 400
        assert SECRET not in answer.text


def test_no_token_reaches_where_tokens_are_kept(route: Route, service: Running) -> None:
    """Not even `admin` can name the namespace of the tokens."""
    assert route.request(service, service.secrets.admin, TOKEN_SCOPE.namespace).status_code == 403
