"""Use a store that is served over HTTP, with the verbs of the library.

`requests` builds the request of each verb, `client` sends it, with an event loop or without. The HTTP library
is loaded when an attribute is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.client.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]

__getattr__, __dir__ = attach(__name__, attributes={"client": __all__}, extra=("the client", "client"))
