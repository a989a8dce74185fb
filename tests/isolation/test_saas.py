"""A service with customers, their people and several agents: nobody sees the memory of anybody else.

It follows the recipe of the page about tenants, users, agents and sessions: the namespace is the customer and
comes from the context of each turn, the user comes from the login, and the agents share what they know of a
user.
"""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from tests.support.isolation import render
from tests.support.mcp_clients import connect_client
from tests.support.rest import bearer
from tests.support.stores import url

from omoide import AgentSpec, Scope, Session, erase_user, graph, open_store, recall, remember
from omoide.errors import Invalid, MissingNamespace, MissingScope
from omoide.service import auth
from omoide.service.transfer import export_jsonl, import_jsonl
from omoide.testing import ScriptedModel
from omoide.tools import memory_tools
from omoide.turns import recall as recall_for_turn
from omoide.web import create_app

MARK = re.compile(r"order-(?:\w+-){3}\d")
QUESTION = "What is my order number?"
AGENTS = {
    id: AgentSpec(
        id=id,
        memory={"namespace": ("context", "tenant"), "scope": "user", "capture": "conversation"},
        tools=memory_tools(),
    )
    for id in ("support", "sales")
}


class Person(NamedTuple):
    """A user of a tenant; users of two tenants may have the same id."""

    tenant: str
    user: str

    @property
    def scope(self) -> Scope:
        """All that is theirs."""
        return Scope(namespace=self.tenant, user_id=self.user)

    def order(self, agent: str, at: int = 1) -> str:
        """A number that only they were told."""
        return f"order-{self.tenant}-{self.user}-{agent}-{at}"


PEOPLE = [Person(tenant, user) for tenant, user in product(("acme", "zen"), ("ann", "ben"))]
TOLD = len(AGENTS) * 2


def open_conversation(store: Any, person: Person, agent: str, name: str, model: Any) -> Session:
    """Open a conversation of somebody who is logged in."""
    return Session.open(
        AGENTS[agent],
        f"{person.user}/{agent}/{name}",
        store=store,
        user_id=person.user,
        context={"tenant": person.tenant},
        model=model,
    )


def check_seen(person: Person, seen: object, at_least: int = 1) -> None:
    """Check that the order numbers in what somebody saw are theirs, and that there are some."""
    marks = {*MARK.findall(render(seen))}
    own = {mark for mark in marks if mark.startswith(f"order-{person.tenant}-{person.user}-")}
    assert marks == own
    assert len(marks) >= at_least


async def tell(store: Any, person: Person, agent: str) -> None:
    """Say an order number in a first conversation, and have the model remember another one by a tool."""
    note = {"content": f"The second is {person.order(agent, 2)}.", "key": "second"}
    call = {"type": "operation", "id": "c1", "name": "remember", "params": note}
    async with open_conversation(store, person, agent, "1", ScriptedModel(call, "Noted.")) as session:
        await session.chat(f"My order number is {person.order(agent)}.", request_id="1")


async def ask(store: Any, person: Person, agent: str) -> None:
    """Ask in a second conversation: the prompt, and what the tools answer, hold what is theirs."""
    call = {"type": "operation", "id": "c1", "name": "recall", "params": {"query": "order"}}
    review = {"type": "operation", "id": "c2", "name": "review", "params": {}}
    model = ScriptedModel(call, review, "It is above.")
    async with open_conversation(store, person, agent, "2", model) as session:
        await session.chat(QUESTION, request_id="1")
        check_seen(person, (await session.assemble_context(QUESTION, reach="user")).text)
    check_seen(person, [request.prompt.messages for request in model.requests], TOLD)
    own = {"store": store, "context": {"tenant": person.tenant}}
    other = "ben" if person.user == "ann" else "ann"
    with pytest.raises(Invalid, match="not of this user"):
        await Session.load(f"{person.user}/{agent}/1", AGENTS[agent], user_id=other, **own)


async def everybody(action: Any, store: Any) -> None:
    """Do something for each person and agent at the same time."""
    async with anyio.create_task_group() as group:
        for person, agent in product(PEOPLE, AGENTS):
            group.start_soon(action, store, person, agent)


async def check_rest(store: Any) -> None:
    """A token of a tenant reaches its people one by one, and nobody of the other tenant."""
    secrets = {
        tenant: (await auth.create(store, "test", ["admin"], [tenant]))[0] for tenant in ("acme", "zen")
    }
    app: Any = create_app(store, requests_per_minute=None)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        for person in PEOPLE:
            own = {"namespace": person.tenant, "user": person.user}
            headers = bearer(secrets[person.tenant])
            body = {"query": QUESTION, "limit": 50}
            found = await http.post("/v1/recall", params=own, json=body, headers=headers)
            check_seen(person, found.text, TOLD)
            for path in ("/v1/entries", "/v1/review", "/v1/conflicts"):
                check_seen(person, (await http.get(path, params=own, headers=headers)).text, 0)
            listed = (await http.get("/v1/sessions", params=own, headers=headers)).json()["sessions"]
            assert {one["user_id"] for one in listed} == {person.user}
            for one in listed:
                said = await http.get(
                    "/v1/transcript", params=own | {"id": one["session_id"]}, headers=headers
                )
                check_seen(person, said.text)
            foreign = bearer(secrets["zen" if person.tenant == "acme" else "acme"])
            refused = await http.post("/v1/recall", params=own, json=body, headers=foreign)
            assert refused.status_code == 403


async def check_copies(store: Any, folder: Path) -> None:
    """Files, graphs and tools of a person hold what is theirs, and come back as they were."""
    async with graph.open(store) as view:
        for person in PEOPLE:
            answer = await view.sparql("SELECT ?text { ?memory jido:summary ?text }", person.scope)
            check_seen(person, repr(answer.rows), TOLD)
            for name in ("memories.jsonl", "memories.ttl"):
                path = folder / name
                if name.endswith("jsonl"):
                    await export_jsonl(store, path, person.scope)
                else:
                    await view.export(path, person.scope)
                check_seen(person, path.read_text("utf-8"), TOLD)
                own = await store.list_entries(person.scope)
                async with open_store("memory://", embedder="none") as copy, graph.open(copy) as target:
                    others = person.scope.replace(user_id="somebody")
                    with pytest.raises(Invalid):
                        await _import(copy, target, path, others)
                    await _import(copy, target, path, person.scope)
                    assert sorted(await copy.list_entries(Scope(namespace=person.tenant)), key=_id) == sorted(
                        own, key=_id
                    )
            async with connect_client(store, person.scope.replace(agent_id="support")) as client:
                told = await client.call_tool("recall", {"query": QUESTION, "limit": 50})
                check_seen(person, repr(told))


async def _import(store: Any, view: Any, path: Path, scope: Scope) -> None:
    if path.suffix == ".jsonl":
        await import_jsonl(store, path, scope)
    else:
        await view.load(path, scope)


def _id(entry: Any) -> str:
    return str(entry.id)


async def everything_in(store: Any, tenant: str) -> str:
    """All entries, with their history, and all documents of a tenant, as text."""
    scope = Scope(namespace=tenant)
    found: list[Any] = [
        [version.entry for version in await store.history(entry.id, scope)]
        for entry in await store.list_entries(scope)
    ]
    for kind in await store.kinds(tenant):
        page = await store.documents(kind, scope, limit=1_000)
        found += [await store.load(kind, document.id, scope) for document in page]
    return render(found)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "postgres"])
async def test_nobody_sees_the_memory_of_anybody_else(kind: str, tmp_path: Path) -> None:
    """In prompts, tools, files, graphs and answers; and erasing one person leaves all others as they were."""
    async with open_store(url(kind, tmp_path), embedder="none") as store:
        await everybody(tell, store)
        await everybody(ask, store)
        with pytest.raises(MissingNamespace):
            await recall_for_turn(AGENTS["support"], QUESTION, store=store, user_id="ann")
        with pytest.raises(MissingScope, match="user_id"):
            await recall_for_turn(AGENTS["support"], QUESTION, store=store, context={"tenant": "acme"})
        for person in PEOPLE:
            found = await recall(store, QUESTION, person.scope, limit=50)
            check_seen(person, found.hits, TOLD)
        if kind == "sqlite":
            await check_rest(store)
            await check_copies(store, tmp_path)

        gone, *others = PEOPLE
        before = {person: await recall(store, QUESTION, person.scope, limit=50) for person in others}
        receipt = await erase_user(store, gone.user, namespace=gone.tenant, reason="the account was closed")
        assert (len(receipt.ids) >= TOLD, receipt.documents > 0) == (True, True)
        assert f"order-{gone.tenant}-{gone.user}-" not in await everything_in(store, gone.tenant)
        assert f"order-zen-{gone.user}-" in await everything_in(store, "zen")
        for person in others:
            after = await recall(store, QUESTION, person.scope, limit=50, at=before[person].request.at)
            assert [hit.entry for hit in after.hits] == [hit.entry for hit in before[person].hits]
        async with open_conversation(store, gone, "support", "1", ScriptedModel("Welcome.")) as session:
            prompt = (await session.preflight(QUESTION)).prompt
            assert MARK.findall(f"{prompt.messages} {prompt.memory}") == []
            assert session.record.turns == 0


async def test_knowledge_for_everybody_is_seen_by_who_asks_for_it(tmp_path: Path) -> None:
    """What belongs to no user is in no answer about one: it takes a second question, in another scope."""
    async with open_store(url("sqlite", tmp_path), embedder="none") as store:
        ann = Scope(namespace="acme", agent_id="support", user_id="ann")
        shared = ann.replace(user_id=None)
        await remember(store, "Returns take 14 days.", shared)
        await remember(store, "Ann returned a kettle.", ann)
        own = await recall(store, "How long do returns take?", ann)
        assert [entry.content for entry in own.entries] == ["Ann returned a kettle."]
        every = await recall(store, "How long do returns take?", shared)
        assert len(every.entries) == 2
        assert json.loads((await store.stats(ann)).to_json())["entries"] == 1
