"""Sessions, agents, projects and what memories are about are described in the graph, and in its files."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from pyoxigraph import RdfFormat, parse

import omoide
from omoide import Agent, AgentSpec, Scope, Session, graph, identity, longterm, open_store
from omoide.core.entry import ABOUT_KINDS
from omoide.errors import Invalid
from omoide.graph import PREFIXES, files
from omoide.graph.resources import ImportSurvey
from omoide.graph.vocabulary import ABOUT_CLASSES, JIDO, TYPE
from omoide.runtime.checkpoints import DocumentCheckpointStore, save_agent
from omoide.testing import ScriptedModel

HEAD = "".join(f"@prefix {name}: <{iri}> .\n" for name, iri in PREFIXES.items())
HEAD += "@prefix ex: <https://example.org/> .\n"
ADA = Scope(agent_id="ada", session_id="s2", project_id="shop")
SHOP = Scope(project_id="shop")
FOREIGN = f"""{HEAD}
jido:memory_m a jido:Fact ; jido:summary "We sell lamps." ;
    jido:hasTimestamp "2026-01-01T08:30:00Z"^^xsd:dateTime ; jido:assertedBy jido:agent_ada ;
    jido:assertedIn jido:session_s2 ; jido:appliesToProject jido:project_shop ; ex:near [ ex:far 1 ] .
jido:session_s2 a jido:WorkSession ; jido:hasStatus jido:Closed ; jido:hasPhase jido:ReviewPhase ;
    jido:startedAt "2026-01-01T08:00:00Z"^^xsd:dateTime ; jido:endedAt "2026-01-01T09:00:00Z"^^xsd:dateTime ;
    jido:hasParticipatingAgent jido:agent_ada, jido:agent_bob ; jido:continuesSession jido:session_s1 .
jido:session_s1 a jido:WorkSession ; jido:hasStatus jido:Abandoned .
jido:agent_ada a jido:PrimaryAgent ; jido:hasRole jido:Planner ; jido:hasCapability jido:CanPlan ;
    jido:agentName "Ada" .
jido:agent_bob a jido:SubAgent ; jido:reportsTo jido:agent_ada .
jido:project_shop a jido:Project ; jido:projectName "The shop" ; jido:hasRepository ex:repo .
ex:repo a jido:Repository ; jido:repoBranch "main" .
ex:note a ex:Note ; ex:said "hm" .
""".encode()


def triples(data: bytes, format: RdfFormat = RdfFormat.N_QUADS) -> set[str]:
    return {f"{quad.subject} {quad.predicate} {quad.object}" for quad in parse(data, format)}


def resource_triples(data: bytes, format: RdfFormat = RdfFormat.N_QUADS) -> set[str]:
    """What is said of sessions, agents, projects and repositories."""
    kinds = ("session", "agent", "project")
    starts = (*(f"<{JIDO}{kind}_" for kind in kinds), "<https://example.org/repo")
    return {one for one in triples(data, format) if one.startswith(starts)}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_what_a_file_says_of_resources_comes_out_again(kind: str, tmp_path: Path) -> None:
    """Sessions, agents, projects and what they refer to go out as they came in, twice over."""
    given, format = FOREIGN, "turtle"
    wanted = resource_triples(FOREIGN, RdfFormat.TURTLE)
    for turn in range(2):
        url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / str(turn)}.db"
        async with open_store(url, embedder="none") as store, graph.open(store) as view:
            new = await view.load(given, SHOP, format=format)
            assert (new, new.resources, await view.load(given, SHOP, format=format)) == (1, 6, 0)
            target = BytesIO()
            await view.export(target, SHOP, format="nquads")
            asked = "ASK { ?m jido:assertedIn/jido:continuesSession/jido:hasStatus jido:Abandoned }"
            assert (await view.sparql(asked, SHOP)).truth
        given, format = target.getvalue(), "nquads"
        superclass = f"<{JIDO}agent_ada> <{TYPE}> <{JIDO}Agent>"
        assert resource_triples(given) == wanted | {superclass}


async def test_what_was_passed_over_is_reported() -> None:
    """What cannot be kept is named, and an export of our own leaves nothing over."""
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        strange = FOREIGN + b"jido:memory_m jido:hasSourceType ex:Rumour ; jido:hasConfidence ex:Some ."
        report = (await view.load(strange, SHOP, format="turtle")).passed_over
        for part in (
            "near",
            "hasSourceType",
            "hasConfidence",
            "1 of class https://example.org/Note",
            "no class",
        ):
            assert [notice for notice in report if part in notice], part
        target = BytesIO()
        await view.export(target, SHOP, format="trig")
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        assert (await view.load(target.getvalue(), SHOP, format="trig")).passed_over == ()


def test_large_files_are_surveyed_alike(tmp_path: Path) -> None:
    """Through a triple store on disk the same resources are found, and the same is passed over."""
    found = []
    for size in (0, 1 << 20):
        survey = ImportSurvey()
        [*files.read_pages(FOREIGN, "turtle", max_in_memory=size, survey=survey)]
        found.append((sorted(survey.resources(), key=lambda one: one.iri), {*survey.notices()}))
    assert [one.iri for one in found[0][0]] == [one.iri for one in found[1][0]]
    assert [{*one.statements} for one in found[0][0]] == [{*one.statements} for one in found[1][0]]
    assert len(found[0][1]) == len(found[1][1])


async def test_a_session_of_the_store_is_described(tmp_path: Path) -> None:
    """Its status, phase, times, participants and the session it continues stand in the graph."""
    spec = AgentSpec(id="ada", memory={"scope": "session"})
    options: dict[str, Any] = {"model": ScriptedModel("Hi."), "project_id": "shop"}
    about = {"phase": "planning", "continues": "s1", "participants": ["bob"]}
    asked = """
        SELECT ?status ?phase ?from ?agent ?start ?end {
          ?m jido:assertedIn ?s . ?s jido:hasStatus ?status ; jido:hasPhase ?phase ;
            jido:continuesSession ?from ; jido:hasPrimaryAgent ?agent ; jido:startedAt ?start .
          OPTIONAL { ?s jido:endedAt ?end }
        }"""
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        async with Session.open(spec, "s2", store=store, metadata=about, **options) as session:
            await session.remember("We sell lamps.")
            (row,) = (await view.sparql(asked, SHOP)).rows
            names = [str(row[name]).removeprefix(JIDO) for name in ("status", "phase", "from", "agent")]
            assert names == ["Active", "PlanningPhase", "session_s1", "agent_ada"]
            assert row["end"] is None
        await view.rebuild("default")
        (row,) = (await view.sparql(asked, SHOP)).rows
        assert (row["status"], row["end"] is None) == (f"{JIDO}Closed", False)
        both = "SELECT ?who { ?s jido:hasParticipatingAgent ?who } ORDER BY ?who"
        assert len(await view.sparql(both, SHOP)) == 2
        # A change of a memory brings the session up to date, and leaves nothing of its former state.
        async with Session.open(spec, "s2", store=store, **options) as session:
            await session.remember("And chairs.")
            (status,) = {row["status"] for row in (await view.sparql(asked, SHOP)).rows}
            assert status == f"{JIDO}Active"


async def test_the_sessions_of_others_are_not_described() -> None:
    """Whatever others say of a session, its own state is seen beside its memories only."""
    spec = AgentSpec(id="ada", memory={"scope": "session"})
    ann, bob = (Scope(agent_id="ada", user_id=user) for user in ("ann", "bob"))
    states = "SELECT ?s { ?s jido:hasStatus ?status }"
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        for user, metadata in (("bob", {}), ("ann", {"continues": "of-bob"})):
            options: dict[str, Any] = {"store": store, "user_id": user, "model": ScriptedModel("Hi.")}
            async with Session.open(spec, f"of-{user}", metadata=metadata, **options) as session:
                foreign = {"rdf": {"https://example.org/near": [f"<{JIDO}session_of-bob>"]}}
                await session.remember("Something.", metadata=foreign if user == "ann" else {})
        for scope, names in ((ann, ["of-ann"]), (bob, ["of-bob"]), (Scope(), ["of-ann", "of-bob"])):
            found = (await view.sparql(states, scope)).values("s")
            assert sorted(str(one).removeprefix(f"{JIDO}session_") for one in found) == names
            target = BytesIO()
            await view.export(target, scope, format="nquads")
            assert sum(f"{JIDO}hasStatus" in one for one in triples(target.getvalue())) == len(names)


async def test_a_damaged_description_states_nothing() -> None:
    """What stands in the documents of resources becomes a statement about the resource, or none."""
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        await view.load(FOREIGN, SHOP, format="turtle")
        (document,) = [
            one
            for one in await store.documents("resource", Scope())
            if one.body["iri"] == f"{JIDO}project_shop"
        ]
        odd = ["<urn:a> <urn:b> .\n<urn:c> <urn:d> <urn:e", "x", 7, '<urn:a> "\x01 \t ok"', "<urn:a>", None]
        for body in ({"statements": odd}, {"statements": 3}, "text", None):
            document = await store.save(document.replace(body=body), expected_rev=document.rev)
            await view.rebuild("default")
            found = await view.sparql("SELECT ?p ?o { jido:project_shop ?p ?o }", SHOP)
            assert len(found) == (2 if body == {"statements": odd} else 1)
            assert not (await view.sparql("ASK { <urn:c> ?p ?o }", SHOP)).truth


async def test_an_imported_session_is_erased_with_its_memories() -> None:
    """Erasing a session takes what a file said of it, and leaves what it said of others."""
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        await view.load(FOREIGN, SHOP, format="turtle")
        before = await store.documents("resource", Scope())
        await omoide.erase(store, Scope(agent_id="ada", session_id="s2"))
        after = await store.documents("resource", Scope())
        gone = {one.body["iri"] for one in before} - {one.body["iri"] for one in after}
        assert gone == {f"{JIDO}session_s2"}


async def test_what_the_store_knows_of_a_session_outlasts_what_a_file_said() -> None:
    """An export that is imported again does not keep a session in the state that it had."""
    spec = AgentSpec(id="ada", memory={"scope": "session"})
    asked = "SELECT ?status ?end { ?s jido:hasStatus ?status OPTIONAL { ?s jido:endedAt ?end } }"
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        for _ in range(2):
            async with Session.open(spec, "s2", store=store, model=ScriptedModel("Hi.")) as session:
                await session.remember(f"Thing {_}.")
                target = BytesIO()
                await view.export(target, Scope(), format="nquads")
                assert (await view.load(target.getvalue(), Scope(), format="nquads")).resources == 1
                await view.rebuild("default")
                (row,) = (await view.sparql(asked, Scope())).rows
                assert (row["status"], row["end"]) == (f"{JIDO}Active", None)
            await view.rebuild("default")
            (row,) = (await view.sparql(asked, Scope())).rows
            assert (row["status"], row["end"] is None) == (f"{JIDO}Closed", False)


async def test_agents_have_the_roles_and_capabilities_of_their_identity() -> None:
    """What the identity of a stored agent declares replaces what is assumed of one without."""
    asked = "SELECT ?what { jido:agent_ada jido:hasRole|jido:hasCapability ?what } ORDER BY ?what"
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        await omoide.remember(store, "We sell lamps.", ADA)
        found = [str(one).removeprefix(JIDO) for one in (await view.sparql(asked, ADA)).values("what")]
        assert found == ["CanWriteMemory", "MemoryWriter"]
        agent = identity.ensure(
            Agent(id="ada", name="ada"),
            profile={"role": "architect"},
            capabilities={"actions": ["recall"], "tags": ["can_plan", "reviewer", "unknown"]},
        )
        await save_agent(agent, DocumentCheckpointStore(store))
        await omoide.remember(store, "And chairs.", ADA)
        found = [str(one).removeprefix(JIDO) for one in (await view.sparql(asked, ADA)).values("what")]
        assert found == ["Architect", "CanPlan", "CanQueryMemory", "Reviewer"]


async def test_which_decisions_touch_a_file_is_one_query() -> None:
    """What a memory is about is a tag: it is found by recall, by listing and by SPARQL."""
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        web = {"file": ["lib/web.ex", "lib/router.ex"], "module": "Shop.Web"}
        await omoide.remember(store, "Requests are JSON.", ADA, id="json", type="decision", about=web)
        await omoide.remember(
            store, "Pages are cached.", ADA, id="cache", type="decision", about="lib/cache.ex"
        )
        await omoide.remember(store, "No HTML.", ADA, id="rule", type="convention", about="module:Shop.Web")
        await omoide.remember(
            store, "Web is fast.", ADA, id="fast", type="fact", about="lib/web.ex", tags=["b"]
        )
        (found,) = await longterm.query_by_type(store, "decision", SHOP, about="lib/web.ex")
        assert found.id == "json"
        assert found.about == ("file:lib/web.ex", "file:lib/router.ex", "module:Shop.Web")
        assert {one.id for one in await longterm.query_all(store, SHOP, about="lib/web.ex")} == {
            "json",
            "fast",
        }
        recalled = await omoide.recall(store, "requests pages", SHOP, about=["lib/web.ex", "lib/router.ex"])
        assert [one.id for one in recalled.entries] == ["json"]
        asked = """SELECT ?what { ?m a/rdfs:subClassOf* jido:Decision ; jido:summary ?what ;
                   omoide:about/jido:filePath "lib/web.ex" }"""
        assert (await view.sparql(asked, SHOP)).values("what") == ("Requests are JSON.",)
        ruled = "SELECT ?what { ?m jido:appliesToModule/rdfs:label 'Shop.Web' ; jido:summary ?what }"
        assert (await view.sparql(ruled, SHOP)).values("what") == ("No HTML.",)
        await omoide.erase(store, ADA, id="cache")
        assert not (await view.sparql("ASK { ?file jido:filePath 'lib/cache.ex' }", SHOP)).truth


@pytest.mark.parametrize("wrong", ["", " ", {"colour": "red"}, ["lib/web.ex", ""], 7, {"file": ""}, "file: "])
async def test_what_a_memory_is_about_is_named(wrong: Any) -> None:
    """An empty name and an unknown kind are refused by name, and nothing is kept."""
    async with open_store("memory://", embedder="none") as store:
        for call in (
            lambda: omoide.remember(store, "x", ADA, about=wrong),
            lambda: omoide.recall(store, "x", ADA, about=wrong),
            lambda: longterm.query_all(store, ADA, about=wrong),
        ):
            with pytest.raises(Invalid, match="about"):
                await call()
        assert await store.list_entries(ADA) == []


def test_every_kind_of_thing_has_a_class() -> None:
    """The kinds of things that memories are about are those that the graph can name."""
    assert {*ABOUT_KINDS} == {*ABOUT_CLASSES}
