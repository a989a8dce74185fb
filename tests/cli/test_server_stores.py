"""Commands on PostgreSQL and Redis stores, whose passwords stay hidden."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Run
from tests.support.servers import postgres, redis

SECRET = "geheim"
URL = f"postgresql://ada:{SECRET}@db.example/agents"


@pytest.fixture(params=["postgres", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of a fresh store on a server."""
    return postgres().fresh_url() if request.param == "postgres" else f"{redis().url}?prefix={id(request)}:"


def test_a_memory_goes_to_a_server_and_back(omoide: Run, url: str) -> None:
    """Copied there it is recalled as before, a second time nothing is new, and a new file gets it all."""
    omoide("remember", "Ada prefers green tea.", "--store", "laptop.db")
    omoide("remember", "The kettle is in the kitchen.", "--store", "laptop.db")
    first = omoide("copy", "--from", "laptop.db", "--to", url, "--json")
    again = omoide("copy", "--from", "laptop.db", "--to", url, "--json")
    assert (json.loads(first.stdout)["new"], json.loads(again.stdout)["new"]) == (2, 0)
    assert "green tea" in omoide("recall", "tea", "--store", url).stdout.splitlines()[0]
    assert json.loads(omoide("copy", "--from", url, "--to", "back.db", "--json").stdout)["new"] == 2
    assert "green tea" in omoide("recall", "tea", "--store", "back.db").stdout


def test_the_doctor_looks_at_the_server(omoide: Run, url: str) -> None:
    """It names the server and how durable it is, and shows no password."""
    omoide("remember", "Tea.", "--store", url)
    fast = 1 if "postgresql" in url else 0  # the server of the tests takes risks, and the doctor says so
    found = omoide("doctor", "--store", url, code=fast)
    assert ("set fsync = on" in found.stdout) == bool(fast)
    assert "everything agrees" in found.stdout
    assert postgres().password not in found.output


def test_a_backup_of_a_server_says_what_to_do_instead(omoide: Run, url: str) -> None:
    """It has backups of its own; a copy makes a file."""
    found = omoide("backup", "monday.db", "--store", url, code=2)
    assert "omoide copy --to" in found.stderr


def test_a_configuration_for_a_client_has_no_password_in_it(omoide: Run) -> None:
    """Such files lie in projects; the client gets the URL from its environment."""
    found = omoide("mcp", "--print-config", "cursor", "--store", URL)
    assert found.exit_code == 0, found.output
    assert SECRET not in found.output
    assert "OMOIDE_STORE" in found.stderr


def test_an_address_that_lacks_a_slash_is_not_taken_for_a_file(omoide: Run) -> None:
    """And what was meant as a password is not repeated."""
    found = omoide("recall", "tea", "--store", f"postgresql:/ada:{SECRET}@db.example/agents", code=2)
    assert SECRET not in found.output


def test_a_misspelt_option_is_answered_with_those_there_are(omoide: Run) -> None:
    """Those of the kind of store that was named are among them."""
    found = omoide("recall", "tea", "--store", f"{URL}?shcema=x", code=2)
    assert "schema" in found.stderr
    assert "sslmode" in found.stderr
    assert SECRET not in found.output
