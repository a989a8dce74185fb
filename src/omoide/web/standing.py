"""How is it asked over HTTP whether everything is in order?"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

from litestar.datastructures import State
from litestar.params import QueryParameter

from omoide.core.scope import Scope
from omoide.service.answers import Status
from omoide.stores.local import LocalStore, hop
from omoide.stores.masking import masked
from omoide.stores.protocols import Counts
from omoide.verbs import offering
from omoide.web.asking import reads


@reads("/status")
async def status(
    state: State,
    within: Scope,
    check: Annotated[bool, QueryParameter(description="Whether to look if the store is sound.")] = False,
) -> Status:
    """How much the scope holds, and with `check` whether the store is sound, which takes a while."""
    able: Counts = offering(state.store, Counts, "tell figures about itself")
    stats = await able.stats(within)
    problems: tuple[str, ...] = ()
    if check and isinstance(state.store, LocalStore):
        problems = tuple(await hop(state.store.sync.check))
    name = masked(str(state.store)).removeprefix("<store ").removesuffix(">")
    return Status(version=version("omoide"), store=name, stats=stats, problems=problems)


HANDLERS = [status]
