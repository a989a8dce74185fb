"""Nothing crosses from one scope into another through REST, MCP, the verbs without `await`, or the shell."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from click.testing import CliRunner
from mcp.shared.exceptions import MCPError
from tests.support.isolation import (
    AGENTS,
    NAMESPACES,
    PROJECTS,
    USERS,
    Owned,
    StoreTries,
    World,
    attempt,
    has_same_user,
    holds,
    seed_of,
    state_of,
    tries,
)
from tests.support.mcp_clients import connect_client

from omoide import Agent, Scope, blocking, memory, open_store
from omoide.cli.app import app as cli
from omoide.runtime.checkpoints import DocumentCheckpointStore, save_agent
from omoide.service import auth
from omoide.sessions import Session
from omoide.turns import AgentSpec
from omoide.web import create_app, openapi_document

PATHS = openapi_document()["paths"]
ROUTES = [
    (path, method)
    for path, methods in PATHS.items()
    for method, operation in methods.items()
    if operation["x-right"] is not None and path not in ("/v1/events", "/v1/sparql")
] * 12 + [("/v1/sparql", "post")]
"""An event stream does not end, and a query starts a process of its own: it is rarely tried."""
SPARQL = "SELECT * WHERE { ?s ?p ?o }"
INDEX_URI = "memory://index"
QUESTION = "secret tea of Café"


class KeptSession(NamedTuple):
    """A session of the world: where it is kept, whose it is, and where it remembers."""

    id: str
    scope: Scope
    memory: Scope


async def add_sessions(store: Any, world: World, count: int = 12) -> list[KeptSession]:
    """Sessions with something said and something to promote; some remember in the other namespace."""
    kept = []
    for _ in range(count):
        home, away = world.random.choice(NAMESPACES), world.random.choice(NAMESPACES)
        agent, user = world.random.choice(AGENTS), world.random.choice(USERS)
        project = world.random.choice(PROJECTS)
        id = world.mark("d")
        scope = Scope(namespace=home, agent_id=agent, user_id=user, session_id=id, project_id=project)
        world.share(id, scope)
        spec = AgentSpec.new({"id": agent, "memory": {"namespace": away}})
        session = await Session.start(
            spec, id, store=store, namespace=home, user_id=user, project_id=project, llm=no_model
        )
        session.set_promotion(enabled=False)
        async with session:
            await session.add_message("user", world.text(scope))
            session.propose(world.text(scope), type="fact", confidence=1.0, importance=0.9)
        kept.append(KeptSession(id, scope, Scope(namespace=away, agent_id=agent, user_id=user)))
    return kept


def no_model(request: object, journal: object) -> str:
    """No try calls a model."""
    raise NotImplementedError


async def add_agents(store: Any, world: World) -> None:
    """A stored agent with a memory of its own, under the same id in both namespaces and for each user."""
    for namespace, id, user in product(NAMESPACES, AGENTS, USERS):
        text = world.text(Scope(namespace=namespace, agent_id=id, user_id=user))
        agent = memory.world_put(Agent.new("stored", id=id), "drink", text)
        await save_agent(agent, DocumentCheckpointStore(store, namespace=namespace, user_id=user))


class RestTries:
    """Requests with a token of one namespace."""

    def __init__(self, http: Any, world: World, sessions: list[KeptSession], secrets: dict[str, str]) -> None:
        self.http, self.world, self.sessions, self.secrets = http, world, sessions, secrets

    async def run(self) -> None:
        """Try once: any route, with ids of others, and with the namespace of another now and then."""
        world, random = self.world, self.world.random
        asker = world.asker()
        path, method = random.choice(ROUTES)
        victim, kept = world.foreign(asker), random.choice(self.sessions)
        taken = {one["name"] for one in PATHS[path][method]["parameters"]}
        parameters = {
            name: value
            for name, value in fields_of(asker).items()
            if name in taken and (name != "session" or random.random() < 0.3)
        }
        if path in ("/v1/context", "/v1/transcript", "/v1/preflight", "/v1/promote", "/v1/undo-promotion"):
            parameters.pop("session", None)
        asker = scope_of(parameters)
        victim = world.foreign(asker)
        ids = {"/v1/transcript": kept.id, "/v1/context": kept.id}
        if path in ("/v1/identity", "/v1/spaces"):
            ids[path] = random.choice(AGENTS)
        if "id" in taken:
            parameters["id"] = ids.get(path, victim.id)
        body = self.body(path, victim, kept, asker)
        if body is not None and random.random() < 0.1:
            body["namespace"] = victim.scope.namespace  # no field of a body is about the scope
        token_of = asker.namespace if random.random() < 0.8 else random.choice(NAMESPACES)
        answer = await self.http.request(
            method.upper(),
            path,
            params=parameters,
            json=body,
            headers={"Authorization": f"Bearer {self.secrets[token_of]}"},
        )
        reached: list[Scope] = [asker]
        if token_of != asker.namespace:
            assert answer.status_code in (400, 403), f"seed {world.seed}: {path}"
            reached = []
        if holds(asker, kept.scope):  # what a session of the asker remembers is the asker's
            reached += [kept.memory] if kept.memory.namespace == token_of else []
        named = [victim.id, kept.id, *(world.linked_from(asker) if path == "/v1/sparql" else ())]
        shown = answer.text.replace(json.dumps(world.text_of(victim.id)), "")
        world.check(reached, named, shown, f"{method} {path} {parameters} {body}")

    def body(self, path: str, victim: Owned, kept: KeptSession, asker: Scope) -> dict[str, Any] | None:
        """The body of a request, with ids of others in it."""
        world, random = self.world, self.world.random
        own_write = {"content": "My own tea.", "id": f"own-{random.randrange(50)}"}
        writes: list[dict[str, Any]] = [own_write]
        writer = asker if asker.agent_id is not None else None
        if writer is not None:
            if victim.scope.namespace == asker.namespace:
                writes.append({"content": "Mine.", "id": victim.id})
                writes.append({**own_write, "evidence": [{"kind": "entry", "ref": victim.id}]})
            if not has_same_user(asker, victim.scope):
                writes.append({**own_write, "supersedes": victim.id})
        write = random.choice(writes)
        if path == "/v1/remember" and writer is not None and "evidence" in write:
            world.share(victim.id, writer)
        bodies: dict[str, dict[str, Any]] = {
            "/v1/remember": write,
            "/v1/recall": {"query": random.choice((QUESTION, victim.id)), "limit": 20},
            "/v1/forget": {"id": victim.id, "replacement": random.choice((None, victim.id))},
            "/v1/restore": {"id": victim.id},
            "/v1/pin": {"id": victim.id},
            "/v1/unpin": {"id": victim.id},
            "/v1/erase": {"id": victim.id},
            "/v1/relate": {"source": victim.id, "relation": "refines", "target": world.foreign(asker).id},
            "/v1/prune": {"max_access": 0},
            "/v1/sparql": {"query": SPARQL},
            "/v1/promote": {"session": kept.id},
            "/v1/undo-promotion": {"session": kept.id},
            "/v1/preflight": {"session": kept.id, "message": QUESTION},
            "/v1/who-can": {},
        }
        return dict(bodies[path]) if path in bodies else None


def fields_of(scope: Scope) -> dict[str, str]:
    """The parameters of a scope in a request."""
    named = {
        "namespace": scope.namespace,
        "agent": scope.agent_id,
        "user": scope.user_id,
        "session": scope.session_id,
        "project": scope.project_id,
    }
    return {name: value for name, value in named.items() if value is not None}


def scope_of(parameters: dict[str, str]) -> Scope:
    """The scope that parameters name."""
    return Scope(
        namespace=parameters["namespace"],
        agent_id=parameters.get("agent"),
        user_id=parameters.get("user"),
        session_id=parameters.get("session"),
        project_id=parameters.get("project"),
    )


async def test_nothing_crosses_through_rest(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No route shows or changes what the scope and the token of a request do not reach."""
    world = World(seed_of(request))
    async with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as store:
        world.fill(store.sync)
        sessions = await add_sessions(store, world)
        await add_agents(store, world)
        secrets = {
            namespace: (await auth.create(store, "test", ["admin"], [namespace]))[0]
            for namespace in NAMESPACES
        }
        before = state_of(store.sync, world)
        app: Any = create_app(store, requests_per_minute=None)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            rest = RestTries(http, world, sessions, secrets)
            for _ in range(tries(100, 200)):
                await rest.run()
        assert state_of(store.sync, world) == before, f"seed {world.seed}"


def tool_calls(world: World, victim: Owned, other: Owned) -> list[tuple[str, dict[str, Any]]]:
    """Calls of the tools with ids of others, and with scope fields that no tool has."""
    fields = {**fields_of(victim.scope), "agent_id": victim.scope.agent_id, "scope": victim.scope.namespace}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("recall", {"query": QUESTION, "limit": 20}),
        ("recall", {"query": ""}),
        ("memory_status", {}),
        ("who_can", {}),
        ("get", {"memory_id": victim.id}),
        ("list", {"limit": 50, "forgotten": True}),
        ("relate", {"source_id": victim.id, "relation": "refines", "target_id": other.id}),
        ("related", {"memory_id": victim.id, "depth": 3}),
        ("provenance", {"memory_id": victim.id}),
        ("review", {}),
        ("restore", {"memory_id": victim.id}),
        ("history", {"memory_id": victim.id}),
        ("forget", {"memory_id": victim.id, "replacement_id": other.id, "reason": "mine"}),
    ]
    if world.random.random() < 0.02:
        calls = [("sparql", {"query": SPARQL})]
    return [(name, {**fields, **arguments}) for name, arguments in calls]


async def try_mcp(client: Any, scope: Scope, world: World) -> None:
    """Call a tool, or read a resource or the prompt, with ids of others."""
    random = world.random
    victim, other = world.foreign(scope), world.foreign(scope)
    tool, arguments = random.choice(tool_calls(world, victim, other))
    named = [victim.id, other.id, *(world.linked_from(scope) if tool == "sparql" else ())]
    uris = (INDEX_URI, f"memory://entries/{victim.id}", f"memory://spaces/{random.choice(AGENTS)}/world")
    what = random.choice((tool, tool, tool, tool, "prompt", *uris))
    answer: object
    try:
        if what == tool:
            answer = await client.call_tool(tool, arguments)
        elif what == "prompt":
            answer = await client.get_prompt("review", {"limit": "20"})
        else:
            answer = await client.read_resource(what)
    except MCPError as error:  # a server without an agent has no tools that write
        answer = error
    # The spaces of an agent belong to all of its projects.
    seen = scope.replace(project_id=None) if what.endswith("/world") else scope
    world.check(seen, named, repr(answer), f"{what} {arguments}")


async def test_nothing_crosses_through_mcp(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """No tool, resource or prompt of a server shows or changes what its scope does not reach."""
    world = World(seed_of(request))
    async with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as store:
        world.fill(store.sync)
        await add_sessions(store, world)
        await add_agents(store, world)
        before = state_of(store.sync, world)
        left, failure = tries(100, 150), None
        while left > 0 and failure is None:
            scope = world.asker()
            async with connect_client(store, scope, all_tools=True) as client:
                try:
                    for _ in range(min(left, 30)):
                        await try_mcp(client, scope, world)
                except AssertionError as error:  # the client would wrap it into groups
                    failure = error
            left -= 30
        if failure is not None:
            raise failure
        assert state_of(store.sync, world) == before, f"seed {world.seed}"


def try_verb(store: Any, world: World, hostile: StoreTries) -> None:
    """Call a verb without `await`, with ids of others."""
    random = world.random
    asker = world.asker()
    victim, other = world.foreign(asker), world.foreign(asker)
    spec = AgentSpec.new({"id": asker.agent_id or "a0", "memory": {"namespace": asker.namespace}})
    reach = Scope(namespace=asker.namespace, agent_id=spec.id, user_id=asker.user_id)
    shared: dict[str, Any] = {"store": store, "user_id": asker.user_id}
    writer = hostile.own(asker)
    own = f"own-{writer.namespace}-{random.randrange(50)}"
    answer: object
    seen = asker
    match random.choice(("recall", "preflight", "forget", "reinstate", "erase", "overwrite", "supersede")):
        case "recall":
            answer = attempt(
                lambda: blocking.recall(store, QUESTION, asker, 20, include_superseded=True).hits
            )
        case "preflight":
            seen = reach  # a turn of the agent recalls what the agent knows
            answer = attempt(lambda: blocking.preflight(spec, QUESTION, **shared))
        case "forget":
            answer = hostile.refused(lambda: blocking.forget(store, victim.id, asker, replacement=other.id))
        case "reinstate":
            answer = hostile.refused(lambda: blocking.reinstate(store, victim.id, asker))
        case "erase":
            answer = hostile.refused(lambda: blocking.erase(store, asker, id=victim.id))
        case "overwrite" if victim.scope.namespace == writer.namespace and victim.scope != writer:
            answer = hostile.refused(lambda: blocking.remember(store, "Mine.", writer, id=victim.id))
        case "supersede" if not has_same_user(writer, victim.scope):
            answer = hostile.refused(
                lambda: blocking.remember(store, "Mine.", writer, id=own, supersedes=victim.id)
            )
        case _:
            answer = attempt(lambda: blocking.write(spec, "My own tea.", id=own, **shared))
    world.check(seen, [victim.id, other.id], answer, "verb")


def test_nothing_crosses_through_the_verbs_without_await(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """No verb of `blocking` shows or changes what its scope does not reach."""
    world = World(seed_of(request))
    with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as store:
        world.fill(store.sync)
        before = state_of(store.sync, world)
        hostile = StoreTries(store.sync, world)
        for _ in range(tries(100, 150)):
            try_verb(store, world, hostile)
        assert state_of(store.sync, world) == before, f"seed {world.seed}"


def test_nothing_crosses_through_the_shell(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command shows or changes what the options select not."""
    world = World(seed_of(request))
    random = world.random
    monkeypatch.setenv("OMOIDE_STORE", str(tmp_path / "memory.db"))
    monkeypatch.setenv("OMOIDE_EMBEDDER", "none")
    with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as store:
        world.fill(store.sync)
        before = state_of(store.sync, world)
        for _ in range(tries(5_000, 20)):
            asker = world.asker()
            victim, other = world.foreign(asker), world.foreign(asker)
            exported = tmp_path / f"{world.tries}.jsonl"
            commands = [
                ["list", "--forgotten", "--stale"],
                ["recall", QUESTION],
                ["show", victim.id],
                ["history", victim.id],
                ["provenance", victim.id],
                ["related", victim.id],
                ["review"],
                ["conflicts"],
                ["prune", "--max-access", "0"],
                ["export", str(exported)],
                ["forget", victim.id],
                ["restore", victim.id],
                ["pin", victim.id],
                ["pin", "--list"],
                ["unpin", victim.id],
                ["erase", victim.id, "--yes"],
                ["relate", victim.id, "refines", other.id],
                ["sessions"],
            ]
            command = random.choice(commands)
            scope = {"agent": "", "project": "", **fields_of(asker)}
            options = [part for name, value in scope.items() for part in (f"--{name}", value)]
            result = CliRunner().invoke(cli, [*command, *options, *random.choice(([], ["--json"]))])
            assert result.exit_code in range(4), (world.seed, command, result.output)
            output = result.output + (exported.read_text() if exported.exists() else "")
            named = [victim.id, other.id]
            world.check(asker, named, output, " ".join([*command, *options]))
        assert state_of(store.sync, world) == before, f"seed {world.seed}"
