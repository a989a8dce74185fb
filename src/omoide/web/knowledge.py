"""How is it asked over HTTP what memories rest on, and what they have to do with each other?"""

from __future__ import annotations

from typing import Annotated

from litestar import Response
from litestar.datastructures import State
from litestar.params import QueryParameter

from omoide.core.recalling import Filter
from omoide.core.scope import Scope
from omoide.longterm import conflicts as disagreeing
from omoide.longterm import pruning, relating, relatives, reviewing
from omoide.longterm.provenance import Provenance
from omoide.longterm.provenance import provenance as traced
from omoide.longterm.pruning import PruneReport
from omoide.longterm.relations import Relation
from omoide.longterm.reviewing import ReviewReport
from omoide.service.answers import Conflicts, Relatives
from omoide.web import bodies
from omoide.web.asking import asks, reads, writes
from omoide.web.describing import RESULTS

Limit = Annotated[int, QueryParameter(ge=1, le=200, description="At most so many.")]


@reads("/related", 404, 410)
async def related(
    state: State,
    within: Scope,
    id: str,
    relation: str | None = None,
    depth: Annotated[int, QueryParameter(ge=1, le=relatives.DEEPEST)] = 1,
    limit: Limit = 100,
) -> Relatives:
    """What a memory is related to, nearest first."""
    found = await relatives.related(state.store, id, within, relation, depth=depth, limit=limit)
    return Relatives(related=tuple(found))


@writes("/relate", 404, 409, 410)
async def relate(state: State, within: Scope, asked: bodies.Relate) -> Relation:
    """Say how one memory is related to another."""
    return await relating.relate(state.store, asked.source, asked.relation, asked.target, within)


@reads("/provenance", 404, 410)
async def provenance(state: State, within: Scope, id: str) -> Provenance:
    """Where a memory comes from, back to what was said."""
    return await traced(state.store, id, within)


@reads("/conflicts")
async def conflicts(state: State, within: Scope, limit: Limit = 100) -> Conflicts:
    """Memories that cannot be true together."""
    return Conflicts(conflicts=await disagreeing.conflicts(state.store, within, limit=limit))


@reads("/review")
async def review(state: State, within: Scope, limit: Limit = 50) -> ReviewReport:
    """What contradicts, what no longer holds, what is not known, and what will soon expire."""
    return await reviewing.review(state.store, within, limit=limit)


@writes("/prune")
async def prune(state: State, within: Scope, asked: bodies.Prune) -> PruneReport:
    """Find memories that are old, unsure or unused; with `dry_run` false they are forgotten."""
    Filter(types=asked.types)  # says which types there are, where one is none
    return await pruning.prune(state.store, within, **asked.given())


@asks("/sparql", 501, 504)
async def sparql(state: State, within: Scope, asked: bodies.Sparql) -> Response[bytes]:
    """Ask what the scope holds in SPARQL; nothing can be changed, and what takes too long is stopped."""
    view = await state.graph()
    answer = await view.sparql(
        asked.query,
        within,
        limit=asked.limit,
        timeout=asked.timeout,
        isolated=True,
        bindings=asked.bindings or {},
    )
    headers = {"Omoide-Truncated": "true"} if answer.truncated else {}
    return Response(answer.to_json(), media_type=RESULTS, headers=headers)


HANDLERS = [related, relate, provenance, conflicts, review, prune, sparql]
