"""The service keeps to its OpenAPI document, whatever it is sent.

`OMOIDE_SCHEMA_EXAMPLES` says how many requests each route gets.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.support.rest import SECRET, Service, bearer, open_test_store, serve

from omoide import ids
from omoide.web import openapi_document

EXAMPLES = int(os.environ.get("OMOIDE_SCHEMA_EXAMPLES", "8"))
OPEN = ("/health", "/schema")
LEFT_OUT: list[Any] = [positive_data_acceptance]  # no schema says that a text is more than blanks


def document_without_tokens() -> dict[str, Any]:
    """The document without what it says about tokens: every request here has a good one."""
    return openapi_document() | {"security": []}


KNOWN = schemathesis.openapi.from_dict(document_without_tokens()).exclude(
    path="/v1/events"
)  # its answers do not end


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with (
        open_test_store(tmp_path_factory.mktemp("served")) as store,
        serve(store, requests_per_minute=None) as server,
    ):
        yield server


def at_home(case: schemathesis.Case[Any]) -> None:
    """Let a request that means some namespace mean the one that its token allows."""
    namespace = case.query.get("namespace")
    if isinstance(namespace, str) and namespace and not ids.has_control_characters(namespace):
        del case.query["namespace"]


@KNOWN.parametrize()
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_every_route_does_what_its_description_says(case: schemathesis.Case[Any], service: Service) -> None:
    """No server error, no undocumented status, no answer of another shape, and nothing of others."""
    at_home(case)
    response = case.call_and_validate(
        base_url=service.url,
        headers=bearer(service.secrets.all),
        excluded_checks=LEFT_OUT,
    )
    assert SECRET not in response.text
    theirs = case.call(base_url=service.url, headers=bearer(service.secrets.other))
    assert case.path in OPEN or theirs.status_code != 200
    assert "Ada drinks" not in theirs.text


class _Followed(KNOWN.as_state_machine()):  # type: ignore[misc]
    """Requests that use what earlier ones answered, as the links of the document say."""

    running: Service

    def get_call_kwargs(self, case: schemathesis.Case[Any]) -> dict[str, Any]:
        at_home(case)
        return {"base_url": self.running.url, "headers": bearer(self.running.secrets.all)}

    def validate_response(self, response: Any, case: schemathesis.Case[Any], **options: Any) -> None:
        assert SECRET not in response.text
        case.validate_response(response, excluded_checks=LEFT_OUT, recorder=self.recorder)


def test_what_the_links_lead_to_does_what_its_description_says(service: Service) -> None:
    """A memory that was kept is read, forgotten, restored and erased by the id that was answered."""
    _Followed.running = service
    run_state_machine_as_test(
        _Followed,
        settings=settings(
            max_examples=max(EXAMPLES // 2, 3),
            stateful_step_count=8,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
