"""Aliases resolve to configured providers, and to no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from tests.support.strategies import data

from omoide import Agent, Scope, memory
from omoide.errors import Invalid, NotFound, OmoideError, StoreFailed, WrongType
from omoide.runtime.providers import InlineProvider, ProviderResult, Providers, StoreProvider, TableProvider
from omoide.stores import open_store


class Vectors(InlineProvider):
    """A backend with a name of its own."""

    name = "pgvector"


def agent(**pointers: Any) -> Agent:
    """An agent whose memory points to providers."""
    ada = Agent.new("writer", id="ada")
    return memory.world_put(ada, "pointers", pointers) if pointers else ada


def test_an_alias_means_what_was_configured() -> None:
    """A provider as it is; the words for those that come with Omoide; options beside it."""
    mine = Vectors()
    providers = Providers({"semantic": mine, "cache": ("table", {"table": "t"}), "self": "inline"})
    found = providers.resolve("semantic", agent())
    assert (found.alias, found.provider) == ("semantic", mine)
    assert found.opts == {"agent_id": "ada", "alias": "semantic"}
    cache = providers.resolve("cache", agent())
    assert isinstance(cache.provider, TableProvider)
    assert cache.opts == {"agent_id": "ada", "alias": "cache", "table": "t"}
    assert isinstance(providers.resolve("self", agent()).provider, InlineProvider)


def test_the_words_are_aliases_themselves() -> None:
    """Without any configuration there are the agent itself and the tables of the process."""
    providers = Providers()
    assert isinstance(providers.resolve("inline", agent()).provider, InlineProvider)
    assert isinstance(providers.resolve("table", agent()).provider, TableProvider)
    with pytest.raises(NotFound, match=r"use one of inline, table$"):
        providers.resolve("store", agent())


def test_a_pointer_chooses_among_what_is_known() -> None:
    """By word, by alias or by the backend's own name, with options of its own."""
    mine = Vectors()
    providers = Providers({"semantic": mine, "other": ("table", {"table": "fixed"})})
    pointing = agent(
        semantic={"provider": "table", "table": "notes"},
        facts={"provider": "pgvector", "index": "agent_123"},
        same={"provider": "semantic"},
        fixed={"provider": "other", "table": "elsewhere", "x": 1},
    )
    chosen = providers.resolve("semantic", pointing)
    assert isinstance(chosen.provider, TableProvider)
    assert chosen.opts == {"agent_id": "ada", "alias": "semantic", "table": "notes"}
    facts = providers.resolve("facts", pointing)
    assert facts.provider is mine
    assert facts.opts == {"agent_id": "ada", "alias": "facts", "index": "agent_123"}
    assert providers.resolve("same", pointing).provider is mine
    assert providers.resolve("fixed", pointing).opts["table"] == "fixed"  # what was configured counts more
    assert providers.resolve("fixed", pointing).opts["x"] == 1


def test_a_pointer_without_a_provider_adds_options() -> None:
    """The alias itself then says which provider it is."""
    found = Providers({"semantic": Vectors()}).resolve("semantic", agent(semantic={"index": "i"}))
    assert found.provider.name == "pgvector"
    assert found.opts["index"] == "i"


def test_a_pointer_cannot_say_who_asks() -> None:
    """The agent is the one whose memory it is."""
    pointing = agent(semantic={"provider": "inline", "agent_id": "eve", "alias": "other"})
    assert Providers().resolve("semantic", pointing).opts == {"agent_id": "ada", "alias": "semantic"}


@pytest.mark.parametrize(
    "word",
    [
        "sqlite:///stolen.db",
        "memory://",
        "stolen.db",
        "../stolen.db",
        "",
        "omoide.runtime",
        3,
        None,
        ["table"],
    ],
)
def test_a_pointer_opens_nothing(word: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a model may have written into memory names a provider that is known, or it is not found."""
    monkeypatch.chdir(tmp_path)
    providers = Providers({"notes": "inline"})
    with pytest.raises(NotFound, match="use one of inline, notes, table"):
        providers.resolve("semantic", agent(semantic={"provider": word}))
    assert [*tmp_path.iterdir()] == []


def test_what_nobody_knows_is_not_found() -> None:
    """The error says what there is, and quotes no long word."""
    providers = Providers({"notes": Vectors()})
    with pytest.raises(NotFound, match="inline, notes, pgvector, table"):
        providers.resolve("semantic", agent())
    with pytest.raises(NotFound) as caught:
        providers.resolve("semantic", agent(semantic={"provider": "x" * 10_000}))
    assert len(str(caught.value)) < 300


def test_a_name_that_two_have_says_nothing() -> None:
    """Which of two stores is meant cannot be guessed."""
    providers = Providers({"a": Vectors(), "b": Vectors()})
    assert providers.available_names() == ["a", "b", "inline", "table"]
    with pytest.raises(NotFound):
        providers.resolve("semantic", agent(semantic={"provider": "pgvector"}))


@pytest.mark.parametrize("pointer", [3, "table", ["table"], True])
def test_a_pointer_is_a_map(pointer: Any) -> None:
    """Anything else is told as wrong, at its place; pointers that are no map at all point nowhere."""
    with pytest.raises(WrongType, match=r"world\.pointers\.semantic"):
        Providers({"semantic": "inline"}).resolve("semantic", agent(semantic=pointer))
    odd = memory.world_put(Agent.new("writer", id="ada"), "pointers", pointer)
    assert isinstance(Providers({"semantic": "inline"}).resolve("semantic", odd).provider, InlineProvider)


@given(data, data)
def test_whatever_memory_says_a_provider_is_found_or_an_error_of_ours_is_raised(word: Any, more: Any) -> None:
    """And what is found is one of those that the program knows."""
    providers = Providers({"semantic": Vectors()})
    pointing = agent(semantic={"provider": word, "more": more}, other=more)
    for alias in ("semantic", "other"):
        try:
            found = providers.resolve(alias, pointing)
        except OmoideError:
            continue
        assert found.provider.name in ("inline", "table", "pgvector")


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("nonsense", Invalid),
        ("store", Invalid),
        (3, WrongType),
        (None, WrongType),
        (object(), WrongType),
        (("table",), Invalid),
        (("table", 3), WrongType),
        (("memory://", {"type": "nonsense"}), OmoideError),
    ],
)
def test_a_wrong_configuration_is_told_at_once(value: Any, error: type[Exception]) -> None:
    """Before any agent asks."""
    with pytest.raises(error):
        Providers({"semantic": value})
    with pytest.raises(WrongType):
        Providers(["table"])  # type: ignore[arg-type]


async def test_the_store_of_the_runtime_is_a_provider() -> None:
    """Under the word `store`, also with a scope of its own; what the program opened it does not close."""
    async with open_store("memory://", embedder="none") as store:
        providers = Providers(
            {"team": ("store", {"agent_id": "team", "tags": ["kv"], "erase": True})}, store=store
        )
        await providers.open()
        own, team = providers.resolve("store", agent()), providers.resolve("team", agent())
        await own.provider.put(None, "k", "mine", own.opts)
        await team.provider.put(None, "k", "ours", team.opts)
        assert [entry.agent_id for entry in await store.list_entries(Scope())] == ["ada", "team"]
        assert (await store.list_entries(Scope(agent_id="team")))[0].tags == ("kv",)
        assert team.opts == {"agent_id": "ada", "alias": "team", "erase": True}
        await providers.close()
        assert len(await store.list_entries(Scope())) == 2


async def test_a_url_is_opened_at_the_start_and_closed_in_the_end(tmp_path: Path) -> None:
    """What is kept there is there the next time."""
    for time in range(2):
        providers = Providers({"facts": f"sqlite:///{tmp_path / 'facts.db'}"})
        await providers.open()
        assert (tmp_path / "facts.db").exists()
        found = providers.resolve("facts", agent())
        if time == 0:
            assert isinstance(await found.provider.put(None, "k", {"x": 1}, found.opts), ProviderResult)
        else:
            assert await found.provider.get(None, "k", found.opts) == ProviderResult(None, {"x": 1})
        kept = await found.provider.open()
        await providers.close()
        with pytest.raises(StoreFailed):
            await kept.list_entries(Scope())


async def test_all_stores_are_opened_or_none(tmp_path: Path) -> None:
    """One that cannot be opened is told at the start, and the others are closed again."""
    good = StoreProvider(f"sqlite:///{tmp_path / 'facts.db'}")
    providers = Providers({"facts": good, "wrong": f"sqlite:///{tmp_path}"})
    with pytest.raises(StoreFailed, match="is a folder"):
        await providers.open()
    assert good._store is None
