"""How do all entries get new terms and vectors, while the store is in use?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from omoide.core.entry import Entry
from omoide.embedders import Embedder
from omoide.retrieval import features
from omoide.stores.indexing import Indexed, index, text_of
from omoide.stores.redis.known import held, portions
from omoide.stores.redis.units import Unit
from omoide.stores.redis.working import Work
from omoide.stores.reference_state import State

_PORTION = 256

Progress = Callable[[int, int], None]


def reindex(
    work: Work, namespaces: Sequence[str], embedder: Embedder | None, progress: Progress | None
) -> None:
    """Give every entry new terms, and vectors of this embedder, a portion at a time.

    When it is interrupted, the next time goes on where it was.
    """
    lists = {name: _members(work, name) for name in namespaces}
    total, done = sum(map(len, lists.values())), 0
    for namespace, ids in lists.items():
        if embedder is not None and ids:
            work.do(partial(_claim, namespace=namespace, model=work.model))
        for some in portions(ids, _PORTION):
            _renew(work, namespace, some, embedder)
            done += len(some)
            if progress is not None:
                progress(done, total)


def _members(work: Work, namespace: str) -> list[str]:
    (found,) = work.server.read([["ZRANGE", work.keys(namespace)("time", "*"), "0", "-1"]])
    return [member[16:].decode() for member in found]


def _claim(state: State, namespace: str, model: str) -> None:
    """Say whose vectors the namespace holds from now on."""
    assert isinstance(state, Unit)
    part = state.part(namespace)
    part.do("HSET", part.keys("meta"), "model", model)


def _renew(work: Work, namespace: str, ids: Sequence[str], embedder: Embedder | None) -> None:
    seen = work.look(lambda state: _todo(state, namespace, ids, work.model))
    if not seen:
        return
    fresh = dict(zip(seen, index([*seen.values()], embedder), strict=True))
    work.do(lambda state: _put(state, namespace, seen, fresh, work.model))


def _todo(state: State, namespace: str, ids: Sequence[str], model: str) -> dict[str, Entry]:
    """The entries whose terms or vectors are not those that they should have."""
    return {
        one.entry.id: one.entry
        for one in state.describe([*state.among(namespace, ids).values()])
        if (model and held(one).model != model) or _terms(one.entry) != one.found.features
    }


def _terms(entry: Entry) -> bytes:
    return bytes(features.read(text_of(entry)).to_bytes())


def _put(state: State, namespace: str, seen: dict[str, Entry], fresh: dict[str, Indexed], model: str) -> None:
    """Keep what was made of entries that are still as they were; others were indexed when they changed."""
    assert isinstance(state, Unit)
    now = state.among(namespace, seen.keys())
    state.describe([*now.values()])
    for id, one in now.items():
        if one.entry.rev != seen[id].rev or one.entry.created_at != seen[id].created_at:
            continue
        mine, found = held(one), fresh[id]
        if found.pooled is None or (mine.given and mine.model == model):
            old = mine.found
            found = found._replace(pooled=old.pooled, tokens=old.tokens, given=old.given)
        else:
            mine.model, mine.given = model, False
        mine.found, mine.renewed = found, True
        state.part(namespace).dirty[id] = mine
