"""Serve a store over HTTP: REST routes and the inspector, on Starlette.

`app` builds the ASGI application, `endpoints` runs a request, `routes` has the REST handlers, `schemas` their
parameters and request bodies, `middleware` host checks, tokens, rate limits and error responses, `openapi`
the OpenAPI document, and `inspector` the pages for browsers. Starlette is loaded when an attribute is first
used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.web.app import create_app, openapi_document
    from omoide.web.inspector import InspectorSessions

__all__ = ["InspectorSessions", "create_app", "openapi_document"]

__getattr__, __dir__ = attach(
    __name__,
    attributes={"app": ("create_app", "openapi_document"), "inspector": ("InspectorSessions",)},
    extra=("REST", "server"),
)
