"""How does everything get from one store to another?

Memories come as they are, with what was forgotten and why, what no longer holds, links and figures of use;
documents come with what was appended to them. Earlier versions of memories, and what was erased, stay behind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from omoide import ids
from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.core.value import check_texts
from omoide.errors import IdTaken, Invalid
from omoide.service import access, holdings
from omoide.service.holdings import Holdings, Progress, quiet
from omoide.stores import rules, transcripts
from omoide.stores.local import LocalStore
from omoide.stores.masking import masked
from omoide.stores.protocols import Documents, ListsDocuments, Namespaces, Store, Takes
from omoide.stores.records import Document
from omoide.stores.sqlite.opening import path_of
from omoide.verbs import offering

PRIVATE = access.PLACE.namespace
REMEDY = "erase one of them, or copy into an empty store"
NO_DOCUMENTS = "documents (sessions, agents at rest) were not copied: a store cannot keep or list them"


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied."""

    namespaces: tuple[str, ...] = ()
    memories: int = 0
    new: int = 0
    """How many of them were not there before."""
    documents: int = 0
    new_documents: int = 0
    notices: tuple[str, ...] = ()


async def copy(
    source: Any,
    target: Any,
    *,
    namespaces: Iterable[str] | None = None,
    tokens: bool = False,
    progress: Progress | None = None,
) -> Copied:
    """Copy some namespaces, or all, from one store to another; what is there already is left as it is.

    Nothing is written where the target holds something else under an id. Tokens are copied only with
    `tokens`. What was copied before a failure stays, and copying again goes on from there.
    """
    refuse_same(source, target)
    offering(target, Takes, "take memories over")
    offering(target, Store, "list its memories")
    chosen = await _chosen(source, namespaces, tokens=tokens)
    able = _documents_fit(source, target)
    total = 0
    for namespace in chosen:
        total += await _check(source, target, namespace, documents=able)
    told = progress or quiet
    done = Copied(namespaces=tuple(chosen), notices=() if able else (NO_DOCUMENTS,))
    for namespace in chosen:
        for part in (await holdings.of(source, namespace)).parts():
            new = await _taken(target, part)
            done = _more(done, memories=len(part.entries), new=new)
            told("memories", done.memories, max(total, done.memories))
        if able:
            async for document in _each(source, namespace):
                saved = await _saved(target, document)
                done = _more(done, documents=1, new_documents=int(saved))
                told("documents", done.documents, None)
    return done


def refuse_same(source: Any, target: Any) -> None:
    """Raise where both are one store."""
    if source is target or (_place(source) is not None and _place(source) == _place(target)):
        raise Invalid("target", f"{target!r} is the source itself", "name another store")


def _place(store: Any) -> str | None:
    """What tells one store from another, if anything does."""
    if not isinstance(store, LocalStore):
        return None
    scheme = urlsplit(store.url).scheme
    if scheme == "memory":  # each is another
        return None
    return str(path_of(store.url).resolve()) if scheme == "sqlite" else masked(store.url)


async def _chosen(source: Any, named: Iterable[str] | None, *, tokens: bool) -> list[str]:
    if named is not None:
        return check_namespaces(named, tokens=tokens)
    able: Namespaces = offering(source, Namespaces, "list its namespaces")
    return [name for name in await able.namespaces() if tokens or name != PRIVATE]


def check_namespaces(named: Iterable[str], *, tokens: bool) -> list[str]:
    """The namespaces that are named, each once, if they may be copied."""
    chosen = [*dict.fromkeys(ids.check(name, "namespaces") for name in check_texts(named, "namespaces"))]
    if PRIVATE in chosen and not tokens:
        raise Invalid("namespaces", f"hold {PRIVATE!r}, where tokens are", "ask for the tokens as well")
    return chosen


def _documents_fit(source: Any, target: Any) -> bool:
    lists = all(isinstance(source, part) for part in (Documents, ListsDocuments, Namespaces))
    return lists and isinstance(target, Documents)


async def _check(source: Any, target: Any, namespace: str, *, documents: bool) -> int:
    """Raise where the target holds something else under an id; how many memories there are to copy."""
    found = await holdings.of(source, namespace)
    there = {entry.id: entry for entry in await target.list_entries(Scope(namespace=namespace))}
    differing = [
        rules.changed(entry, stale=False)
        for id, entry in found.entries.items()
        if id in there and not _is_same(entry, there[id])
    ]
    # The target has the last word: its guard may have changed what it was given before.
    await _taken(target, Holdings(entries={entry.id: entry for entry in differing}))
    if documents:
        async for document in _each(source, namespace):
            await _known(target, document)
    return len(found.entries)


def _is_same(one: Entry, other: Entry) -> bool:
    return rules.changed(one, stale=False) == rules.changed(other, stale=False)


async def _taken(target: Any, part: Holdings) -> int:
    try:
        return int(await target.take([*part.entries.values()], part.links, part.access))
    except IdTaken as error:
        raise Invalid(f"memory {error.id!r}", "is another one in the target", REMEDY) from error


async def _each(source: Any, namespace: str) -> AsyncIterator[Document]:
    """The documents of a namespace, transcripts first, so that nothing ever points to one that is missing."""
    scope = Scope(namespace=namespace)
    for kind in sorted(await source.kinds(namespace), key=lambda kind: kind != transcripts.KIND):
        after: str | None = None
        while page := await source.documents(kind, scope, after=after):
            for listed in page:
                document = await source.load(kind, listed.id, scope)
                if document is not None:  # it may have been erased meanwhile
                    yield document
            after = page[-1].id


async def _known(target: Any, document: Document) -> bool:
    """Whether the target has a document already; raises where it has another one of that id."""
    kept = await target.load(document.kind, document.id, Scope(namespace=document.namespace))
    if kept is None:
        return False
    if document.replace(rev=kept.rev, updated_at=kept.updated_at) != kept:
        raise Invalid(f"{document.kind} {document.id!r}", "is another one in the target", REMEDY)
    return True


async def _saved(target: Any, document: Document) -> bool:
    """Keep a document; whether it was new."""
    if await _known(target, document):
        return False
    await target.save(document, expected_rev=0)
    return True


def _more(done: Copied, **counts: int) -> Copied:
    changes = {name: getattr(done, name) + count for name, count in counts.items()}
    return msgspec.structs.replace(done, **changes)
