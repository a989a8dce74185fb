"""The routes that are declared, those that are served, and those of the OpenAPI document are the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, get_args, get_type_hints

import httpx2
import msgspec
import pytest
from starlette.responses import Response
from starlette.routing import Route
from tests.support.rest import bearer, create_tokens, open_test_store

from omoide.web import InspectorSessions, app, create_app, openapi_document
from omoide.web.endpoints import INJECTED_PARAMETERS, Endpoint
from omoide.web.schemas import SCOPE_PARAMETERS

DOCUMENT = openapi_document()
PATHS = DOCUMENT["paths"]


def operation(endpoint: Endpoint) -> dict[str, Any]:
    (one,) = PATHS[endpoint.path].values()
    return dict(one)


def own_parameters(endpoint: Endpoint) -> dict[str, Parameter]:
    given = signature(endpoint.handler).parameters
    return {name: one for name, one in given.items() if name not in INJECTED_PARAMETERS}


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema, or the component that it refers to."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return dict(DOCUMENT["components"]["schemas"][name]) if name else schema


def field_names(kind: Any) -> list[str]:
    excluded = getattr(kind, "EXCLUDED_FIELDS", ())
    return [field.encode_name for field in msgspec.structs.fields(kind) if field.name not in excluded]


each = pytest.mark.parametrize("endpoint", app.ENDPOINTS, ids=lambda endpoint: endpoint.path)


def test_every_route_that_is_served_is_in_the_document_and_no_other(tmp_path: Path) -> None:
    """The application has the paths and methods of the document; the inspector adds its own."""
    described = {(path, method.upper()) for path, methods in PATHS.items() for method in methods}
    with open_test_store(tmp_path) as store:
        plain = create_app(store).routes
        inspected = create_app(store, inspector_sessions=InspectorSessions()).routes
    routes = [route for route in plain if isinstance(route, Route)]
    endpoints: list[Any] = [route.endpoint for route in routes]
    assert [endpoint.path for endpoint in endpoints] == [route.path for route in routes]
    assert {(endpoint.path, endpoint.method) for endpoint in endpoints} == described
    assert len(routes) == len(plain) == len(described)
    more = {route.path for route in inspected if isinstance(route, Route)} - set(PATHS)
    assert {path.partition("/")[2].partition("/")[0] for path in more} == {"", "inspect"}


@each
def test_the_document_has_the_parameters_that_the_handler_declares(endpoint: Endpoint) -> None:
    """Names, defaults and which are required are those of the signature; the scope comes before them."""
    described = {one["name"]: one for one in operation(endpoint)["parameters"] if one["in"] == "query"}
    own = own_parameters(endpoint)
    taken = [name for name in described if name not in own]
    assert [*described] == [*taken, *own]
    assert set(taken) <= set(SCOPE_PARAMETERS)
    assert bool(taken) == ("memory_scope" in signature(endpoint.handler).parameters)
    for name, one in own.items():
        assert described[name].get("required", False) == (one.default is Parameter.empty)
        default = None if one.default is Parameter.empty else one.default
        assert described[name]["schema"].get("default") == default


@each
def test_the_document_has_the_body_and_the_answer_that_the_handler_declares(endpoint: Endpoint) -> None:
    """Each has the fields of the annotated class, and the media type that the route declares."""
    hints = get_type_hints(endpoint.handler)
    one = operation(endpoint)
    assert ("requestBody" in one) == ("payload" in hints)
    if "payload" in hints:
        schema = resolved(one["requestBody"]["content"]["application/json"]["schema"])
        assert set(schema["properties"]) == {
            field.encode_name for field in msgspec.structs.fields(hints["payload"])
        }
    ((media, content),) = one["responses"]["200"]["content"].items()
    assert media == endpoint.media_type
    (kind,) = get_args(hints["return"]) or (hints["return"],)
    if not issubclass(kind, Response):
        assert set(resolved(content["schema"])["properties"]) == set(field_names(kind))


@each
def test_the_document_has_the_right_and_the_statuses_that_the_route_declares(endpoint: Endpoint) -> None:
    """A route without a right needs no token, and each further status stands among the responses."""
    one = operation(endpoint)
    assert one["x-right"] == endpoint.right
    assert ("security" in one) == (endpoint.right is None)
    assert {str(status) for status in endpoint.statuses} <= set(one["responses"])


BOUNDS = [
    (path, parameter["name"], keyword, bound)
    for path, methods in PATHS.items()
    for parameter in methods.get("get", {}).get("parameters", [])
    for keyword, bound in parameter["schema"].items()
    if keyword in ("minimum", "maximum", "minLength") and parameter["name"] not in ("id", "namespace")
]


@pytest.fixture
async def reader(tmp_path: Path) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody who may read, and asks the application without a server in between."""
    with open_test_store(tmp_path) as store:
        secrets = await create_tokens(store)
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(create_app(store, requests_per_minute=None)),
            base_url="http://localhost",
            headers=bearer(secrets.read),
        ) as client:
            yield client


def takes_id(path: str) -> bool:
    return "id" in [one["name"] for one in PATHS[path]["get"]["parameters"]]


async def test_every_bound_of_the_document_is_kept(reader: httpx2.AsyncClient) -> None:
    """A value beyond it is a 400 that names the parameter and says what is expected."""
    assert {"minimum", "maximum", "minLength"} == {keyword for _, _, keyword, _ in BOUNDS}
    for path, name, keyword, bound in BOUNDS:
        beyond = {"minimum": bound - 1, "maximum": bound + 1, "minLength": ""}[keyword]
        id = {"id": "x"} if takes_id(path) else {}
        answer = await reader.get(path, params={**id, name: beyond})
        assert (answer.status_code, answer.json()["field"]) == (400, name)
        assert answer.json()["detail"].startswith(f"{name} is wrong: expected ")


async def test_a_missing_parameter_is_named(reader: httpx2.AsyncClient) -> None:
    """Every route that needs an id says so, with the field."""
    needed = [path for path, methods in PATHS.items() if "get" in methods and takes_id(path)]
    assert needed
    for path in needed:
        problem = (await reader.get(path)).json()
        assert (problem["status"], problem["field"], problem["detail"]) == (400, "id", "id is missing")


async def test_a_path_has_one_form(reader: httpx2.AsyncClient) -> None:
    """A slash more, or letters of another size, is another path; there is no redirect."""
    paths = ("/health", "/health/", "/Health", "/v1/entries/", "//health")
    assert [(await reader.get(path)).status_code for path in paths] == [200, 404, 404, 404, 404]


async def test_a_route_tells_its_method(reader: httpx2.AsyncClient) -> None:
    """OPTIONS names the method, as does the refusal of another one, HEAD included."""
    for endpoint in app.ENDPOINTS:
        answers = [await reader.request(method, endpoint.path) for method in ("OPTIONS", "HEAD", "PUT")]
        assert [answer.status_code for answer in answers] == [204, 405, 405]
        assert {answer.headers["allow"] for answer in answers} == {
            ", ".join(sorted((endpoint.method, "OPTIONS")))
        }


@pytest.mark.parametrize("path", ["/v1/entries", "/v1/absent", "/"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "OPTIONS"])
async def test_another_host_name_is_refused_before_anything_else(
    reader: httpx2.AsyncClient, path: str, method: str
) -> None:
    """It does not even learn which paths and methods there are."""
    answer = await reader.request(method, path, headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["type"]) == (421, "wrong-host")
