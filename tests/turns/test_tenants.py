"""Tests of tenants: no turn sees the memories of another tenant.

`OMOIDE_TURNS` says how many turns of two tenants are mixed in each store; `make soak` sets it high.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.turns import KINDS, Talker, a_spec, a_store

from omoide import Scope, turns
from omoide.errors import Invalid, MissingNamespace
from omoide.turns import Request, preflight, turn, write

TURNS = int(os.environ.get("OMOIDE_TURNS", "100"))
TENANTS = ("acme", "Acme")
"""Names that a careless comparison takes for one."""
MARKS = {"acme": "zebra", "Acme": "walrus"}
WORDS = ("invoice", "password", "meeting", "colour", "name", "order")
POLICY = {"namespace": ("context", "tenant_id"), "capture": "conversation"}


class Office:
    """Two tenants that use one agent, one store and the same words, and a check of what each is shown."""

    def __init__(self, store: Any, chance: random.Random) -> None:
        self.store = store
        self.chance = chance
        self.specs = [
            a_spec(memory={**POLICY, "scope": scope, "inject": inject, "max_entries": 8})
            for scope in ("agent", "session")
            for inject in ("instructions", "context")
        ]
        self.turns = 0

    async def use(self, tenant: str) -> None:
        """One tenant does something, and sees nothing of the other's."""
        spec = self.chance.choice(self.specs)
        word = self.chance.choice(WORDS)
        said = f"The {word} of {MARKS[tenant]} is {self.turns}."
        self.turns += 1
        # The same sessions, requests and ids are used by both.
        session = f"conv-{self.chance.randrange(3)}"
        options: dict[str, Any] = {
            "store": self.store,
            "session_id": session,
            "context": {"tenant_id": tenant},
        }
        match self.chance.randrange(6):
            case 0:
                await write(spec, said, id=f"{word}-{spec.memory and spec.memory.scope}-{session}", **options)
            case 1:
                found = await turns.recall(spec, f"Which {word}?", **options)
                self.check(tenant, repr(found))
            case 2:
                seen = await preflight(spec, f"Which {word}?", **options)
                self.check(tenant, repr(seen) + str(seen))
            case _:
                result = await turn(
                    spec, said, model=self.answering(tenant), request_id=f"req_{self.turns // 2}", **options
                )
                self.check(tenant, repr(result))

    def answering(self, tenant: str) -> Any:
        """A model that looks at what it is shown."""

        async def answer(request: Request, journal: Any) -> str:
            self.check(tenant, repr(request.prompt) + repr(journal))
            await anyio.lowlevel.checkpoint()
            return f"I know that {MARKS[tenant]}."

        return answer

    def check(self, tenant: str, shown: str) -> None:
        """Nothing of the other tenant is there."""
        for other in TENANTS:
            assert other == tenant or MARKS[other] not in shown


@pytest.mark.parametrize("kind", KINDS)
async def test_no_entry_ever_crosses(kind: str, tmp_path: Path) -> None:
    """However turns, writes, recalls and preflights of two tenants are mixed, each sees its own only."""
    chance = random.Random(TURNS)
    async with a_store(kind, tmp_path) as store:
        office = Office(store, chance)
        while office.turns < TURNS:
            async with anyio.create_task_group() as group:
                for _ in range(chance.randint(1, 4)):
                    group.start_soon(office.use, chance.choice(TENANTS))
        found = {tenant: await store.list_entries(Scope(namespace=tenant)) for tenant in TENANTS}
        for tenant, entries in found.items():
            assert entries
            assert {entry.namespace for entry in entries} == {tenant}
            office.check(tenant, repr(entries))
        assert await store.list_entries(Scope()) == []


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_id_is_another_memory_for_another_tenant(kind: str, tmp_path: Path) -> None:
    """Writing under an id that another tenant uses neither fails nor changes the other's entry."""
    spec = a_spec(memory=POLICY)
    async with a_store(kind, tmp_path) as store:
        for tenant in TENANTS:
            await write(spec, MARKS[tenant], id="m-1", store=store, context={"tenant_id": tenant})
            await turn(
                spec,
                f"hello {MARKS[tenant]}",
                model=Talker("Hi."),
                store=store,
                request_id="req_1",
                context={"tenant_id": tenant},
            )
        for tenant in TENANTS:
            entries = await store.list_entries(Scope(namespace=tenant))
            assert [entry.content for entry in entries] == [
                MARKS[tenant],
                f"User: hello {MARKS[tenant]}\nAssistant: Hi.",
            ]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_without_a_tenant_does_nothing(kind: str, tmp_path: Path) -> None:
    """Without the tenant in the context nothing is recalled, sent or kept, in any namespace."""
    spec, talker = a_spec(memory=POLICY), Talker()
    async with a_store(kind, tmp_path) as store:
        await write(spec, MARKS["acme"], store=store, context={"tenant_id": "acme"})
        for context in ({}, {"tenant_id": None}, {"tenant_id": ""}):
            with pytest.raises(MissingNamespace, match="tenant_id"):
                await turn(spec, "hello", model=talker, store=store, context=context)
        assert talker.requests == []
        assert len(await store.list_entries(Scope(namespace="acme"))) == 1
        assert await store.list_entries(Scope()) == []


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_turn_that_slept_for_one_tenant_is_not_woken_for_another(
    kind: str, remembers: bool, tmp_path: Path
) -> None:
    """Whatever the context says when it is resumed, a turn never writes what one tenant said for another."""
    spec = a_spec(memory=POLICY)
    async with a_store(kind, tmp_path) as store:
        options: dict[str, Any] = {"model": Talker("Hi."), "store": store}
        mine, other = ({"tenant_id": tenant} for tenant in TENANTS)
        first = options if remembers else {"model": Talker()}
        asleep: Any = await turn(spec, "hello zebra", context=mine, checkpoint="after_prompt", **first)
        try:
            await turn(spec, asleep.snapshot, context=other, **options)
        except Invalid:
            await turn(spec, asleep.snapshot, **options)
        assert await store.list_entries(Scope(namespace="Acme")) == []
        assert len(await store.list_entries(Scope(namespace="acme"))) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_a_tenant_called_default_does_not_meet_the_default_namespace(kind: str, tmp_path: Path) -> None:
    """No tenant, whatever it is called, shares a namespace with another or with none."""
    open_to_all, spec = a_spec(memory=True), a_spec(memory=POLICY)
    names = ("default", "tenant_id:default", "tenant_id:tenant_id:default", "tenant_id:", "other:default")
    seen = {"default"}
    async with a_store(kind, tmp_path) as store:
        await write(open_to_all, "The password of nobody is zebra.", store=store)
        for name in names:
            receipt = await write(
                spec, f"The password is {name}.", store=store, context={"tenant_id": name}, dedupe=False
            )
            seen.add(receipt.entry.namespace)
            found = await turns.recall(spec, "password", store=store, context={"tenant_id": name})
            assert found is not None
            assert [entry.content for entry in found.entries] == [f"The password is {name}."]
    assert len(seen) == len(names) + 1


async def test_a_turn_of_a_tenant_called_default_is_resumed_in_its_namespace(tmp_path: Path) -> None:
    """What slept for it wakes for it, whether the context is given again or not."""
    spec = a_spec(memory=POLICY)
    async with a_store("memory", tmp_path) as store:
        options: dict[str, Any] = {"model": Talker("Hi."), "store": store}
        for context in ({}, {"tenant_id": "default"}):
            asleep: Any = await turn(
                spec, "hello", context={"tenant_id": "default"}, checkpoint="after_prompt", **options
            )
            assert (await turn(spec, asleep.snapshot, context=context, **options)).status == "finished"
        assert await store.list_entries(Scope()) == []
        assert len(await store.list_entries(Scope(namespace="tenant_id:default"))) == 2
