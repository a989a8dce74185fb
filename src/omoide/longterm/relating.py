"""What happens when somebody says how two memories are related?"""

from __future__ import annotations

from typing import Any

from omoide.core.entry import Entry, Evidence
from omoide.core.scope import Scope
from omoide.core.value import check_instance
from omoide.core.writing import WriteRequest
from omoide.errors import Invalid
from omoide.longterm import reading
from omoide.longterm.relations import Relation, check, check_ends
from omoide.stores.protocols import Links, Store
from omoide.stores.records import Link
from omoide.verbs import forget, offering


async def relate(
    store: Any,
    source: str,
    relation: str,
    target: str,
    scope: Scope,
    *,
    strict: bool = False,
    reason: str | None = None,
) -> Relation:
    """Relate one memory to another, so that it counts wherever memories are looked at.

    `derived_from` becomes evidence, and `superseded_by` and `supersedes` replace a memory; all others are
    links. `strict` refuses memories of other types than the ontology connects.
    """
    check_instance(scope, "scope", kind=Scope)
    wanted = check(relation)
    if source == target:
        raise Invalid("target", "is the same memory as the source", "name two memories")
    one, other = await reading.get(store, source, scope), await reading.get(store, target, scope)
    if strict:
        check_ends(wanted, one, other)
    match wanted.name:
        case "derived_from":
            await _rest(store, one, other)
        case "superseded_by":
            await forget(store, source, scope, replacement=target, reason=reason)
        case "supersedes":
            await forget(store, target, scope, replacement=source, reason=reason)
        case name:
            able: Links = offering(store, Links, "relate memories")
            await able.link(Link(source=source, relation=name, target=target), scope)
    return wanted


async def _rest(store: Any, entry: Entry, premise: Entry) -> None:
    """Name a premise in the evidence of a memory: when it goes out, the memory does not hold any more."""
    if premise.id in reading.premises(entry):
        return
    able: Store = offering(store, Store, "keep memories")
    evidence = (*entry.evidence, Evidence(kind="entry", ref=premise.id))
    await able.write(WriteRequest(entry=entry.replace(evidence=evidence), expected_rev=entry.rev))
