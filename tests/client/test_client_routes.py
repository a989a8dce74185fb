"""The client, the routes and the verbs of the library agree."""

import inspect
from typing import Any

import pytest

from omoide import Scope, verbs
from omoide.client import AsyncClient, Client, requests
from omoide.client.client import ClientMethods
from omoide.client.requests import ServiceRequest
from omoide.web import openapi_document

PATHS = openapi_document()["paths"]
OPEN = {"/health", "/schema"}
SAMPLES = {
    "str": "x",
    "Scope": Scope(agent_id="ada", session_id="s", project_id="p"),
}


def functions() -> dict[str, Any]:
    """Every verb that says what it asks."""
    return {
        name: function
        for name, function in inspect.getmembers(requests, inspect.isfunction)
        if function.__module__ == requests.__name__ and not name.startswith("_")
    }


def a_request(function: Any, scope: Scope = SAMPLES["Scope"]) -> ServiceRequest[Any]:  # type: ignore[assignment]
    """What a verb asks, with everything given that it can be given."""
    given = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            kind = str(parameter.annotation).removesuffix(" | None")
            given[name] = {**SAMPLES, "Scope": scope}.get(
                kind, None if parameter.default is parameter.empty else parameter.default
            )
    asked = function(**given)
    assert isinstance(asked, ServiceRequest)
    return asked


def test_every_route_has_a_verb_and_every_verb_a_route() -> None:
    """What can be asked of the service is what the client asks, and nothing else."""
    asked = {a_request(function).path for function in functions().values()}
    assert asked == set(PATHS) - OPEN


@pytest.mark.parametrize("name", functions())
def test_a_verb_sends_what_its_route_takes(name: str) -> None:
    """Method, parameters, headers and fields of the body are those of the document."""
    asked = a_request(functions()[name])
    method = "get" if asked.body is None else "post"
    route = PATHS[asked.path][method]
    taken = {parameter["name"] for parameter in route["parameters"]}
    if "session" not in taken:  # the service refuses a scope that is narrower than the route can be
        asked = a_request(functions()[name], Scope(agent_id="ada"))
    assert set(asked.query) | set(asked.headers) <= taken
    needed = {parameter["name"] for parameter in route["parameters"] if parameter.get("required")}
    assert needed <= set(asked.query)
    if asked.body is not None:
        kind = route["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        shape = openapi_document()["components"]["schemas"][kind]
        assert set(asked.body) <= set(shape["properties"])
        assert set(shape.get("required", ())) <= set(asked.body)


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_both_clients_have_all_verbs_with_their_words(kind: type) -> None:
    """Each verb of the table is a method of both clients and says what it does; two of them go on and on."""
    methods = {name for name, _ in inspect.getmembers(kind, lambda one: bool(one.__doc__)) if name[0] != "_"}
    assert {*functions(), "list", "events"} <= methods
    assert {name for name in vars(ClientMethods) if name[0] != "_"} == functions().keys() - {"events"}


@pytest.mark.parametrize("name", sorted({*verbs.__all__} - {"reindex"}))  # what runs for long has no route
def test_verbs_take_the_same_in_the_same_order(name: str) -> None:
    """Whoever knows a verb of the library knows that of the client: only the store is not passed."""
    here = [*inspect.signature(getattr(verbs, name)).parameters]
    there = [*inspect.signature(getattr(requests, name)).parameters]
    assert here[0] == "store"
    assert [parameter for parameter in there if parameter in here] == [
        one for one in here[1:] if one in there
    ]
    assert {*here[1:]} - {*there} <= {"fields"}
