"""How is it asked over HTTP whether everything is in order?"""

from __future__ import annotations

from importlib.metadata import version

from litestar.datastructures import State

from omoide.core.scope import Scope
from omoide.service.answers import Status
from omoide.stores.local import LocalStore, hop, masked
from omoide.stores.protocols import Counts
from omoide.verbs import offering
from omoide.web.asking import reads


@reads("/status")
async def status(state: State, within: Scope) -> Status:
    """How much the scope holds, and whether the store is sound."""
    able: Counts = offering(state.store, Counts, "tell figures about itself")
    stats = await able.stats(within)
    problems: tuple[str, ...] = ()
    if isinstance(state.store, LocalStore):
        problems = tuple(await hop(state.store.sync.check))
    return Status(version=version("omoide"), store=masked(str(state.store)), stats=stats, problems=problems)


HANDLERS = [status]
