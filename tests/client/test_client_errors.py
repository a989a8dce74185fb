"""Errors that the client raises."""

import socket
import subprocess
import sys

import httpx2
import msgspec
import pytest
from tests.support.rest import HOME, OTHER, Service

from omoide import Scope, errors
from omoide.client import Client
from omoide.errors import (
    Conflict,
    Erased,
    Invalid,
    InvalidRecord,
    KeyReused,
    NotAllowed,
    NotFound,
    OmoideError,
    ServiceFailed,
    TimedOut,
    TooManyRequests,
    Unreachable,
)
from omoide.service import to_problem
from omoide.service.problems import to_error

ADA = Scope(agent_id="ada")


def test_errors_are_those_of_the_library(client: Client) -> None:
    """What the store refuses is raised again as the class it was, with what it carries."""
    with pytest.raises(NotFound) as missing:
        client.get("absent", ADA)
    assert (missing.value.kind, missing.value.name) == ("entry", "absent")
    with pytest.raises(Conflict) as conflict:
        client.forget(f"{HOME}-1", ADA, expected_rev=7)
    assert (conflict.value.expected, conflict.value.actual) == (7, 1)
    with pytest.raises(InvalidRecord) as invalid:
        client.remember("x", ADA, source="nobody")
    assert invalid.value.field == "source"
    assert invalid.value.remedy
    made = client.remember("a", ADA, id="a", idempotency_key="k").entry
    with pytest.raises(KeyReused):
        client.remember("b", ADA, id="b", idempotency_key="k")
    client.erase(ADA, id="a", reason="asked to")
    with pytest.raises(Erased) as erased:
        client.get("a", ADA, as_of=made.created_at)
    assert erased.value.reason == "asked to"


def test_a_field_that_there_is_not_is_named(client: Client) -> None:
    """A misspelt field changes nothing and is told."""
    with pytest.raises(Invalid, match="colour"):
        client.remember("x", ADA, colour="red")  # type: ignore[call-arg]
    with pytest.raises(Invalid, match="unknown"):
        client.page(ADA, colour="red")  # type: ignore[call-arg]


def test_a_token_that_does_not_allow_it(server: Service) -> None:
    """No token that counts, and a namespace that it does not reach, are told with what to do."""
    with Client(server.url, server.secrets.revoked) as client, pytest.raises(NotAllowed) as refused:
        client.agents()
    assert (refused.value.status, "omoide token create" in refused.value.remedy) == (401, True)
    with Client(server.url, server.secrets.admin) as client, pytest.raises(NotAllowed) as other:
        client.agents(Scope(namespace=OTHER))
    assert other.value.status == 403


def test_nobody_is_there(server: Service) -> None:
    """A service that does not run is told, with how to start it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", "omd_x.y") as client, pytest.raises(Unreachable) as error:
        client.agents()
    assert "omoide serve" in error.value.remedy
    with pytest.raises(Unreachable), Client(f"http://127.0.0.1:{port}", "omd_x.y") as client:
        next(iter(client.events()))


def test_nobody_answers_in_time() -> None:
    """A service that takes too long is told as such."""
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(f"http://127.0.0.1:{silent.getsockname()[1]}", "omd_x.y", timeout=0.05) as client,
        pytest.raises(TimedOut) as error,
    ):
        client.agents()
    assert error.value.seconds == 0.05


def test_somebody_else_answers() -> None:
    """An answer that is none of ours is told as such, whatever it is."""

    def other(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(502, text="<html>bad gateway</html>")

    with Client("http://x", "omd_x.y", transport=httpx2.MockTransport(other)) as client:
        with pytest.raises(ServiceFailed) as error:
            client.agents()
        with pytest.raises(ServiceFailed):
            next(iter(client.events()))
    assert error.value.status == 502


def test_an_answer_that_makes_no_sense() -> None:
    """What cannot be read is told, and no value is made of it."""
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json={"agents": 3}))
    with Client("http://x", "omd_x.y", transport=transport) as client, pytest.raises(Invalid, match="agents"):
        client.agents()


def test_asking_too_often_says_how_long_to_wait() -> None:
    """The seconds that the service asks for are told."""
    body = {"type": "too-many-requests", "title": "Too many requests", "status": 429, "detail": "too many"}
    transport = httpx2.MockTransport(
        lambda request: httpx2.Response(429, json=body, headers={"Retry-After": "7"})
    )
    with (
        Client("http://x", "omd_x.y", transport=transport) as client,
        pytest.raises(TooManyRequests) as error,
    ):
        client.agents()
    assert error.value.retry_after == 7.0


@pytest.mark.parametrize("url", ["", "localhost:8765", "ftp://x", "file:///etc/passwd"])
def test_a_url_that_cannot_be_one(url: str) -> None:
    """What is no HTTP URL is refused before anything is asked."""
    with pytest.raises(Invalid, match="url"):
        Client(url, "omd_x.y")


@pytest.mark.parametrize("token", ["", " ", "a\r\nX-Other: 1", "naïve"])
def test_a_token_that_cannot_be_one(token: str) -> None:
    """What no header can hold is refused before anything is asked, and not quoted."""
    with pytest.raises(Invalid, match="token") as error:
        Client("http://x", token)
    assert "X-Other" not in str(error.value)


def test_a_missing_extra_is_named() -> None:
    """Without the package that speaks HTTP there is one line that says what to install."""
    program = "import sys; sys.modules['httpx2'] = None; from omoide.client import Client"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.endswith(
        "the client needs packages that are not installed; pip install 'omoide[client]'\n"
    )


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_survives_the_way_through_a_problem(name: str) -> None:
    """Each class of the tree has a word of its own, and comes back as itself with its words."""
    kind = getattr(errors, name)
    error: OmoideError = kind.__new__(kind)
    error.args = ("it happened",)
    error.__dict__.update({"field": "a.b", "remedy": "do that", "names": ("x", "y"), "count": 3})
    written = msgspec.json.decode(msgspec.json.encode(to_problem(error)), type=type(to_problem(error)))
    again = to_error(written)
    assert again is not None
    assert type(again) is kind
    assert again.args == error.args
    assert again.__dict__ == error.__dict__
