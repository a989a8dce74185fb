"""The REST page documents every route, verb, status and limit."""

import inspect
import re
from pathlib import Path

import pytest

from omoide.client.client import ClientMethods
from omoide.service import requests
from omoide.web import app, create_app, openapi_document
from omoide.web.middleware import PROBLEM_TITLES

PAGE = (Path(__file__).parent.parent.parent / "docs" / "rest.md").read_text("utf-8")
PATHS = openapi_document()["paths"]
ROUTES = [(path, method) for path, methods in PATHS.items() for method in methods]


@pytest.mark.parametrize(("path", "method"), ROUTES)
def test_every_route_is_documented(path: str, method: str) -> None:
    """The table has each route of the OpenAPI document, with its right and its words."""
    operation = PATHS[path][method]
    row = f"| `{method.upper()} {path}` | {operation['x-right'] or 'none'} | {operation['summary']} |"
    assert row in PAGE


def test_no_route_is_documented_that_there_is_not() -> None:
    """The table has nothing else."""
    shown = re.findall(r"^\| `([A-Z]+) (/\S+)` \|", PAGE, re.MULTILINE)
    assert sorted(shown) == sorted((method.upper(), path) for path, method in ROUTES)


def test_every_verb_of_the_client_is_documented() -> None:
    """Each has its place in the table of verbs."""
    names = [name for name in vars(ClientMethods) if not name.startswith("_")] + ["list", "events"]
    assert [name for name in names if f"`{name}`" not in PAGE] == []


def test_every_status_is_documented() -> None:
    """Each status that a route may answer with has a row, and each word of the service's own stands there."""
    operations = [one for methods in PATHS.values() for one in methods.values()]
    codes = {status for one in operations for status in one["responses"]}
    shown = set(re.findall(r"^\| (\d{3}) \|", PAGE, re.MULTILINE))
    assert codes - {"200"} <= shown
    assert [word for word, _ in PROBLEM_TITLES.values() if f"`{word}`" not in PAGE] == []


def test_every_limit_is_documented() -> None:
    """Each option of the application has a row, with the number that the code has."""
    options = [name for name in inspect.signature(create_app).parameters if name != "store"]
    assert [name for name in options if f"| `{name}` |" not in PAGE] == []
    for number in (
        app.REQUESTS_PER_MINUTE,
        requests.MAX_BODY_BYTES,
        requests.BODY_TIMEOUT,
        requests.REQUEST_TIMEOUT,
        app.POLL_INTERVAL,
    ):
        assert f"| {number:,g}" in PAGE or f"| {number:,}" in PAGE
