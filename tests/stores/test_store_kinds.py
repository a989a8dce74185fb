"""A store is an object, a module or a class, alone or with options, with async or plain functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import anyio
import pytest
from tests.support.custom_stores import ListStore

import omoide
from omoide import (
    AgentSpec,
    Entry,
    Evidence,
    RecallRequest,
    RecallResult,
    Scope,
    Session,
    WriteRequest,
    WriteResult,
    blocking,
    open_store,
)
from omoide.errors import Invalid, InvalidRecord, WrongType
from omoide.graph import open as open_graph
from omoide.stores import Store
from omoide.testing import ScriptedModel

DEMO = Scope(agent_id="demo")
everything: Any = Store.list_entries
"""The call of the documents, which names no scope."""


class PlainList:
    """A store in the simplest Python: a list and three plain functions."""

    def __init__(self, kept: list[Entry] | None = None) -> None:
        self.kept = [] if kept is None else kept

    def write(self, request: WriteRequest) -> WriteResult:
        self.kept.append(request.entry)
        return WriteResult(request=request, entry=request.entry)

    def recall(self, request: RecallRequest) -> RecallResult:
        return RecallResult(request=request, entries=tuple(self.kept[::-1][: request.limit]))

    def list_entries(self, scope: Scope) -> list[Entry]:
        return [entry for entry in self.kept if scope.contains(entry)]


class MapStore:
    """The custom store of the guide: functions that take a request and the options."""

    @staticmethod
    def write(request: WriteRequest, opts: Mapping[str, Any]) -> WriteResult:
        opts["pid"].append(request.entry)
        return WriteResult(request=request, entry=request.entry)

    @staticmethod
    async def recall(request: RecallRequest, opts: Mapping[str, Any]) -> RecallResult:
        return RecallResult(request=request, entries=tuple(opts["pid"][: request.limit]))

    @staticmethod
    def list_entries(opts: Mapping[str, Any]) -> list[Entry]:
        return [*opts["pid"]]


def in_module() -> ModuleType:
    """The same as a module, whose functions name the option that they take."""

    def write(request: WriteRequest, pid: list[Entry]) -> WriteResult:
        return MapStore.write(request, {"pid": pid})

    async def recall(request: RecallRequest, **options: Any) -> RecallResult:
        return await MapStore.recall(request, options)

    def list_entries(scope: Scope, *, pid: list[Entry]) -> list[Entry]:
        return [entry for entry in pid if scope.contains(entry)]

    module = ModuleType("map_store")
    vars(module).update(write=write, recall=recall, list_entries=list_entries)
    return module


def global_module() -> ModuleType:
    """A module that keeps its list itself, and takes no options."""
    module, kept = ModuleType("global_store"), PlainList()
    vars(module).update(write=kept.write, recall=kept.recall, list_entries=kept.list_entries)
    return module


MAKERS: dict[str, Callable[[], Any]] = {
    "memory": lambda: open_store("memory://", embedder="none"),
    "async": ListStore,
    "plain": PlainList,
    "class with options": lambda: (MapStore, {"pid": []}),
    "module with options": lambda: (in_module(), {"pid": []}),
    "module": global_module,
    "made class": lambda: (PlainList, {"kept": []}),
    "object with options": lambda: (ListStore(), {}),
}


@pytest.fixture(params=MAKERS)
def store(request: pytest.FixtureRequest) -> Any:
    return MAKERS[request.param]()


async def test_the_calls_of_the_documents_work_on_any_store(store: Any) -> None:
    """`Store.write`, `Store.recall` and `Store.list_entries` write and read, whatever kind the store is."""
    entry = Entry.new(agent_id="demo", content="hello")
    receipt = await Store.write(store, WriteRequest.new(entry=entry))
    assert (receipt.status, receipt.entry.content) == ("ok", "hello")
    request = RecallRequest.new(agent_id="demo", query="hello", limit=5)
    recalled = await Store.recall(store, request)
    assert [one.content for one in recalled.entries] == ["hello"]
    assert [one.content for one in await everything(store)] == ["hello"]
    assert [one.content for one in await Store.list_entries(store, DEMO)] == ["hello"]
    assert await Store.list_entries(store, Scope(agent_id="other")) == []


async def test_verbs_and_turns_take_any_store(store: Any) -> None:
    """What is remembered by a verb is recalled by one, and stands in the prompt of a turn."""
    await omoide.remember(store, "User prefers the name Alex.", DEMO)
    found = await omoide.recall(store, "which name does the user prefer?", DEMO)
    assert [one.content for one in found.entries] == ["User prefers the name Alex."]
    spec = AgentSpec(id="demo", instructions="Greet.", memory={"min_relevance": None})
    await omoide.write(spec, "The user has a cat.", memory_store=store)
    model = ScriptedModel("Hi Alex.")
    await omoide.turn(spec, "hello, which name?", model=model, memory_store=store)
    assert "Alex" in model.requests[0].prompt.messages[0].content
    home, model = open_store("memory://", embedder="none"), ScriptedModel("Hi.")
    async with home, Session.open(spec, "s", store=home, memory_store=store, model=model) as session:
        await session.chat("hello, which name?")
    assert "Alex" in model.requests[0].prompt.messages[0].content


def test_any_store_works_without_an_event_loop(store: Any) -> None:
    """The blocking verbs take the same stores."""
    blocking.remember(store, "The shop opens at nine.", DEMO)
    assert blocking.recall(store, "when does the shop open?", DEMO).entries


async def test_any_store_is_seen_as_a_graph() -> None:
    """A graph lists the entries of a store of plain functions."""
    plain = PlainList()
    await omoide.remember(plain, "The shop opens at nine.", DEMO, id="m")
    async with open_graph(plain) as view:
        assert (await view.sparql("SELECT ?s { ?m jido:summary ?s }", DEMO)).values("s")


def test_a_class_with_equal_options_is_one_store() -> None:
    """The store that is made of a class and its options is the same one at the next call."""
    folder: list[Entry] = []
    blocking.remember((PlainList, {"kept": folder}), "one", DEMO)
    assert [entry.content for entry in folder] == ["one"]
    blocking.remember((ListStore, {}), "kept", DEMO, id="only-here")
    assert "only-here" in [one.id for one in anyio.run(everything, (ListStore, None))]


class Lacking(Store):
    """A store that forgot a method."""

    async def write(self, request: WriteRequest) -> WriteResult:
        return WriteResult(request=request, entry=request.entry)

    async def recall(self, request: RecallRequest) -> RecallResult:
        return RecallResult(request=request)


class Whole(Lacking):
    """The same with all three."""

    async def list_entries(self, scope: Scope) -> list[Entry]:
        return []


def test_a_subclass_that_lacks_a_method_is_refused_when_it_is_made() -> None:
    """A store without `list_entries` cannot be made, and the error names the method."""
    with pytest.raises(TypeError, match="list_entries"):
        Lacking()  # type: ignore[abstract]
    assert anyio.run(everything, Whole()) == []


@pytest.mark.parametrize("wrong", ["I like tea.", None, 7, (sys, {}), ("a", "b"), object(), DEMO])
async def test_what_is_no_store_is_named_as_that(wrong: Any) -> None:
    """Verbs, and the calls of the documents, say that a store is missing and how one is made."""
    for call in (
        lambda: omoide.remember(wrong, "x", DEMO),
        lambda: omoide.recall(wrong, "x", DEMO),
        lambda: Store.recall(wrong, RecallRequest(agent_id="a", query="q")),
        lambda: everything(wrong),
    ):
        with pytest.raises(WrongType, match=r"store must be a store, not \w+; open one with open_store"):
            await call()


def test_a_class_says_which_options_it_lacks() -> None:
    """A class that cannot be made with the options is refused with the reason."""

    class Needy(PlainList):
        def __init__(self, path: str) -> None:
            super().__init__()

    with pytest.raises(Invalid, match=r"Needy.*path"):
        blocking.remember((Needy, {}), "x", DEMO)


def test_evidence_may_be_plain_text() -> None:
    """A text among the evidence of an entry names a document, wherever the entry comes from."""
    expected = (Evidence(kind="document", ref="docs/adr.md"), Evidence(kind="entry", ref="m0"))
    given: list[Any] = ["docs/adr.md", {"kind": "entry", "ref": "m0"}]
    assert Entry.new(agent_id="a", content="c", evidence=given).evidence == expected
    texts: Any = ["docs/adr.md"]
    assert Entry(agent_id="a", content="c", evidence=texts).evidence == expected[:1]
    receipt = blocking.remember(PlainList(), "c", DEMO, evidence=given)
    assert receipt.entry.evidence == expected
    with pytest.raises(InvalidRecord, match=r"evidence must be a list of Evidence or texts.*\['a.md'\]"):
        Entry.new(agent_id="a", content="c", evidence="a.md")
