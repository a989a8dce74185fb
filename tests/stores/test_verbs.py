"""The verbs do the same in an event loop and without one, over any store."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.custom_stores import ListStore
from tests.support.stores import KINDS, url

import omoide
from omoide import (
    AgentSpec,
    Entry,
    Filter,
    RecallRequest,
    Scope,
    Thread,
    blocking,
    clock,
    turns,
    verbs,
)
from omoide.errors import Closed, Conflict, Invalid, NotFound, WrongType
from omoide.stores import open_store
from omoide.testing import FrozenClock

VERBS = ("remember", "recall", "forget", "reinstate", "erase", "erase_user")
SUPPORT = Scope(agent_id="support", session_id="conv-1", project_id="shop", namespace="acme")


def do(face: str, verb: str) -> Callable[..., Any]:
    """A verb, with or without an event loop around it."""
    if face == "blocking":
        call: Callable[..., Any] = getattr(blocking, verb)
        return call
    return lambda *args, **fields: anyio.run(partial(getattr(verbs, verb), *args, **fields))


@pytest.fixture(params=["blocking", "async"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[*KINDS, "own"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "own":
        yield ListStore()
        return
    with open_store(url(request.param, tmp_path), embedder="none") as store:
        yield store


@pytest.fixture(params=KINDS)
def able(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store that has more than the three methods."""
    with open_store(url(request.param, tmp_path), embedder="none") as store:
        yield store


def test_what_is_remembered_is_recalled(face: str, store: Any) -> None:
    """In its scope, with its fields, and with a reason for each hit."""
    receipt = do(face, "remember")(
        store, "User prefers the name Alex.", SUPPORT, type="fact", confidence=0.9, tags=["name"]
    )
    entry = receipt.entry
    assert (receipt.status, receipt.outcome, entry.scope) == ("ok", "stored", SUPPORT)
    assert (entry.type, entry.confidence, entry.tags) == ("fact", 0.9, ("name",))
    result = do(face, "recall")(store, "what should I call the user?", SUPPORT, limit=3)
    assert result.entries == (entry,)
    assert (result.hits[0].entry, result.hits[0].rank) == (entry, 1)
    assert str(result.hits[0].why)
    assert result.request.limit == 3


def test_the_same_words_are_one_memory(face: str, store: Any) -> None:
    """Unless they get an id of their own, or deduplication is turned off."""
    remember = do(face, "remember")
    first = remember(store, "Tea.", SUPPORT)
    again = remember(store, "Tea.", SUPPORT)
    assert (again.outcome, again.id) == ("duplicate_of", first.id)
    assert remember(store, "Tea.", SUPPORT, id="mine").outcome == "stored"
    assert remember(store, "Tea.", SUPPORT, dedupe=False).outcome == "stored"
    assert remember(store, "Tea.", Scope(agent_id="other")).outcome == "stored"


def test_remembering_takes_the_fields_of_the_request(face: str, store: Any) -> None:
    """Expected revisions, idempotency keys and what is replaced are passed on."""
    remember = do(face, "remember")
    first = remember(store, "Tea.", SUPPORT, idempotency_key="k")
    assert remember(store, "Tea.", SUPPORT, idempotency_key="k").entry == first.entry
    replaced = remember(store, "Coffee.", SUPPORT, supersedes=first.id)
    assert replaced.outcome == "superseded"
    assert do(face, "recall")(store, "tea", SUPPORT).entries == (replaced.entry,)
    with pytest.raises(Conflict):
        remember(store, "Cocoa.", SUPPORT, id=replaced.id, expected_rev=7)


def test_recalling_takes_the_fields_of_the_filter(face: str, store: Any) -> None:
    """By name, or as a filter, and not both."""
    do(face, "remember")(store, "Tea.", SUPPORT, type="fact")
    bug = do(face, "remember")(store, "Tea is cold.", SUPPORT, type="bug").entry
    recall = do(face, "recall")
    assert recall(store, "tea", SUPPORT, types=["error"]).entries == (bug,)
    assert recall(store, "tea", SUPPORT, filter=Filter(types=("error",))).entries == (bug,)
    with pytest.raises(Invalid, match="filter is given beside types"):
        recall(store, "tea", SUPPORT, types=["error"], filter=Filter())


def test_bad_input_is_refused(face: str, store: Any) -> None:
    """With the field's name; nothing is kept."""
    for fields in ({"content": ""}, {"colour": "red"}, {"type": "opinion"}, {"confidence": 3.0}):
        with pytest.raises(Invalid):
            do(face, "remember")(store, **{"content": "Tea.", "scope": SUPPORT, **fields})
    with pytest.raises(Invalid, match="agent_id"):
        do(face, "remember")(store, "Tea.", Scope())
    with pytest.raises(Invalid):
        do(face, "remember")(store, "Tea.", "support")
    for wrong in ({"query": ""}, {"limit": 0}, {"colour": "red"}):
        with pytest.raises(Invalid):
            do(face, "recall")(store, **{"query": "tea", "scope": SUPPORT, **wrong})
    assert do(face, "recall")(store, "tea", SUPPORT).entries == ()


def test_what_is_forgotten_comes_back(face: str, able: Any) -> None:
    """It keeps its reason while it is gone, and is recalled when restored."""
    id = do(face, "remember")(able, "Tea.", SUPPORT).id
    other = do(face, "remember")(able, "Coffee.", SUPPORT).id
    gone = do(face, "forget")(able, id, SUPPORT, reason="moved on")
    assert (gone.superseded_by, gone.superseded_reason) == ("deleted", "moved on")
    assert [entry.id for entry in do(face, "recall")(able, "tea", SUPPORT).entries] == [other]
    assert do(face, "reinstate")(able, id, SUPPORT, expected_rev=2).rev == 3
    assert do(face, "forget")(able, id, SUPPORT, replacement=other).superseded_by == other
    with pytest.raises(Conflict):
        do(face, "reinstate")(able, id, SUPPORT, expected_rev=1)
    with pytest.raises(NotFound):
        do(face, "forget")(able, "nobody's", SUPPORT)
    with pytest.raises(NotFound):
        do(face, "forget")(able, id, Scope(agent_id="other", namespace="acme"))


def test_what_is_erased_is_gone(face: str, able: Any) -> None:
    """One memory, or all that a scope holds."""
    id = do(face, "remember")(able, "Tea.", SUPPORT).id
    do(face, "remember")(able, "Coffee.", SUPPORT)
    with clock.override(FrozenClock(9_000)):
        receipt = blocking.erase(able, SUPPORT, id=id, reason="asked to")
    assert (receipt.ids, receipt.at, receipt.reason) == ((id,), 9_000, "asked to")
    assert len(do(face, "erase")(able, SUPPORT).ids) == 1
    assert do(face, "recall")(able, "tea", SUPPORT).entries == ()


def test_a_user_is_erased_in_one_namespace(face: str, able: Any) -> None:
    """Of all agents; nobody else, not the user of the same name elsewhere, and never all of them."""
    owners = [
        Scope(agent_id=agent, user_id=user, namespace=namespace)
        for agent in ("a", "b") for user in ("ann", "ben", None) for namespace in ("default", "acme")
    ]  # fmt: skip
    for owner in owners:
        do(face, "remember")(able, "Tea.", owner)
    for wrong in ("", None, 5, "a\nb"):
        with pytest.raises(Invalid, match="user_id"):
            do(face, "erase_user")(able, wrong, namespace="acme")
    receipt = do(face, "erase_user")(able, "ann", namespace="acme", reason="asked to")
    assert (len(receipt.ids), receipt.reason) == (2, "asked to")
    left = [
        entry.scope
        for namespace in ("default", "acme")
        for entry in able.sync.list_entries(Scope(namespace=namespace))
    ]
    gone = [owner for owner in owners if (owner.user_id, owner.namespace) == ("ann", "acme")]
    assert sorted(map(repr, left)) == sorted(repr(owner) for owner in owners if owner not in gone)


@pytest.mark.parametrize("verb", ["forget", "reinstate", "erase"])
def test_a_store_that_cannot_is_named(face: str, verb: str) -> None:
    """The error says which protocol is missing."""
    args = (SUPPORT,) if verb == "erase" else ("id", SUPPORT)
    with pytest.raises(Invalid, match=f"cannot {verb}"):
        do(face, verb)(ListStore(), *args)


@pytest.mark.parametrize("verb", VERBS)
def test_both_faces_take_the_same_arguments(verb: str) -> None:
    """Names, order and defaults are those of the other."""
    ours, theirs = (inspect.signature(getattr(module, verb)) for module in (verbs, blocking))
    assert ours.parameters == theirs.parameters
    assert ours.return_annotation == theirs.return_annotation


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_can_be_sent_to_another_process(verb: str) -> None:
    """It is known by its module and its name, as `multiprocessing` wants it."""
    for module in (verbs, blocking):
        function = getattr(module, verb)
        assert (function.__module__, function.__qualname__) == (module.__name__, verb)


def test_all_arguments_have_names(face: str, store: Any) -> None:
    """The store as well."""
    do(face, "remember")(store=store, content="Tea.", scope=SUPPORT)
    found = do(face, "recall")(store=store, query="tea", scope=SUPPORT)
    assert [entry.content for entry in found.entries] == ["Tea."]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_is_open_for_a_block(kind: str, tmp_path: Path) -> None:
    """Afterwards it says that it is closed."""
    async with open_store(url(kind, tmp_path), embedder="none") as store:
        await verbs.remember(store, "Tea.", SUPPORT)
    with pytest.raises(Closed):
        await verbs.recall(store, "tea", SUPPORT)


@pytest.mark.parametrize("kind", KINDS)
async def test_many_tasks_share_a_store(kind: str, tmp_path: Path) -> None:
    """Tasks that remember at once all keep their memory, under the clock of the caller."""
    async with open_store(url(kind, tmp_path), embedder="none") as store:
        with clock.override(FrozenClock(5_000)):
            async with anyio.create_task_group() as group:
                for n in range(40):
                    group.start_soon(partial(verbs.remember, store, f"Tea {n}.", SUPPORT, id=f"e{n}"))
        kept = await store.list_entries(SUPPORT)
        assert {entry.id for entry in kept} == {f"e{n}" for n in range(40)}
        assert {entry.created_at for entry in kept} == {5_000}


async def test_a_file_is_there_after_it_was_closed(tmp_path: Path) -> None:
    """What was remembered is recalled by whoever opens the file next, from a path with odd letters too."""
    path = tmp_path / "a folder" / "thé & 100%25.db"
    async with open_store(f"sqlite:///{path}", embedder="none") as store:
        entry = (await verbs.remember(store, "Tea.", SUPPORT)).entry
    async with open_store(f"sqlite:///{path}", embedder="none") as store:
        assert (await verbs.recall(store, "tea", SUPPORT)).entries == (entry,)


@pytest.mark.parametrize("face", [omoide, blocking], ids=["async", "blocking"])
def test_the_function_for_agents_and_that_for_stores_name_each_other(face: Any) -> None:
    """Given the first argument of the other one, each says what it takes, and which function was meant."""

    def run(call: Callable[[], Any]) -> None:
        result = call()
        if inspect.isawaitable(result):

            async def wait() -> None:
                await result

            anyio.run(wait)

    store, spec = ListStore(), AgentSpec(id="ada", memory=True)
    to_store = r"spec must be an AgentSpec, not ListStore; .*omoide\.remember\(store, content, scope\)"
    for_agent = r"store must be a store, not AgentSpec; .*omoide\.write\(spec, content, store=…\)"
    recalled = r"store must be a store, not AgentSpec; .*omoide\.turns\.recall\(spec, input, store=…\)"
    for call, expected in (
        (lambda: face.write(store, "I like tea.", SUPPORT), to_store),
        (lambda: face.write(store, "I like tea."), to_store),
        (lambda: face.remember(spec, "I like tea.", store=store), for_agent),
        (lambda: face.remember(spec, "I like tea.", SUPPORT), for_agent),
        (lambda: face.recall(spec, "tea", store=store), recalled),
        (lambda: face.recall(spec, "tea", SUPPORT), recalled),
    ):
        with pytest.raises(WrongType, match=expected):
            run(call)
    with pytest.raises(WrongType, match=r"spec must be an AgentSpec.*omoide\.recall\(store, query, scope\)"):
        run(lambda: turns.recall(store, "tea", SUPPORT))  # type: ignore[arg-type, call-arg]
    assert store.kept == []


@pytest.mark.parametrize(
    "call",
    [
        lambda: Entry(agent_id="", content="x"),
        lambda: RecallRequest(agent_id="", query="x"),
        lambda: Scope(namespace=""),
        lambda: blocking.erase_user(ListStore(), ""),
        lambda: Entry.new(content="x", agent_id="a", id_generator=lambda prefix: ""),
        lambda: Entry(agent_id="a", content="x", expires_at=-1),
        lambda: clock.check("soon", "at"),
        lambda: Thread(id=""),
    ],
    ids=("entry", "request", "namespace", "user", "generated", "expiry", "time", "thread"),
)
def test_no_remedy_says_to_leave_out_what_is_required(call: Callable[[], Any]) -> None:
    """The error for a wrong required field, or a wrong time, says what to pass."""
    with pytest.raises(Invalid) as raised:
        call()
    assert "pass" in raised.value.remedy
    assert "leave" not in str(raised.value)
