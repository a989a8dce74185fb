"""IRIs are safe, unique, and can be turned back into ids."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import NamedNode
from tests.support.graph_memories import ids, texts

from omoide.core.entry import Scope
from omoide.graph import vocabulary
from omoide.ids import check

KINDS = [
    (vocabulary.memory_iri, vocabulary.MEMORY, "memory"),
    (vocabulary.session_iri, vocabulary.SESSION, "session"),
    (vocabulary.agent_iri, vocabulary.AGENT, "agent"),
    (vocabulary.project_iri, vocabulary.PROJECT, "project"),
]
HOSTILE = ("a> <b", 'a"b', "a b", "a\\b", "a{b}", "a|b^`", "../../etc", "a#b?c", "%41", "é", "a:b", "x.")


@pytest.mark.parametrize(("iri", "prefix", "word"), KINDS)
def test_plain_ids_stand_as_they_are(iri: object, prefix: str, word: str) -> None:
    """An id of letters, digits, - and _ follows the name of its kind unchanged."""
    assert callable(iri)
    assert iri("my_mem-1") == f"https://jido.ai/ontology#{word}_my_mem-1"


@pytest.mark.parametrize(("iri", "prefix", "word"), KINDS)
@given(id=ids)
def test_every_id_comes_back_from_its_iri(iri: object, prefix: str, word: str, id: str) -> None:
    """Only the known prefix is taken off, so ids with underscores, prefixes or escapes in them stay whole."""
    assert callable(iri)
    assert vocabulary.id_of(iri(id), prefix) == id


@pytest.mark.parametrize("id", HOSTILE)
def test_no_id_breaks_out_of_its_iri(id: str) -> None:
    """Whatever an id holds, its IRI is one valid IRI in the namespace of the ontology."""
    iri = vocabulary.memory_iri(id)
    assert NamedNode(iri).value == iri
    assert iri.removeprefix(vocabulary.MEMORY).replace("%", "").replace(".", "").isalnum()


@given(ids, ids)
def test_different_ids_have_different_iris(one: str, other: str) -> None:
    """No two ids share an IRI."""
    assert (vocabulary.memory_iri(one) == vocabulary.memory_iri(other)) == (one == other)


@given(ids, ids, st.none() | ids, st.none() | ids, st.none() | ids)
def test_a_graph_knows_its_owner(
    namespace: str, agent: str, session: str | None, project: str | None, user: str | None
) -> None:
    """Namespace, agent, session, project and user come back from the name of their graph."""
    graph = vocabulary.graph_iri(namespace, agent, session, project, user)
    assert NamedNode(graph).value == graph
    assert vocabulary.owner_of(graph) == Scope(
        namespace=namespace, user_id=user, agent_id=agent, session_id=session, project_id=project
    )
    assert graph.startswith(vocabulary.namespace_prefix(namespace))


def test_graphs_of_others_have_no_owner_of_ours() -> None:
    """The ontology's graph, the bookkeeping and the graphs of users belong to no one here."""
    for graph in (
        vocabulary.ONTOLOGY_GRAPH,
        vocabulary.META_GRAPH,
        "https://example.org/g",
        f"{vocabulary.OWNER_GRAPH}a:b",
        "",
    ):
        assert vocabulary.owner_of(graph) is None


def test_one_namespace_is_not_the_beginning_of_another() -> None:
    """The graphs of the namespace "a" are told from those of "ab" and of "a:b" by how they begin."""
    for other in ("ab", "a:b", "a%3Ab"):
        assert not vocabulary.graph_iri(other, "x").startswith(vocabulary.namespace_prefix("a"))


@given(texts)
def test_evidence_is_named_by_a_digest_of_its_reference(ref: str) -> None:
    """The name of evidence ends in the first 16 hexadecimal digits of the SHA-256 of its reference."""
    assert (
        vocabulary.evidence_iri(ref) == f"{vocabulary.JIDO}evidence_{sha256(ref.encode()).hexdigest()[:16]}"
    )


@given(texts, texts, texts)
def test_passages_quoted_from_one_reference_stay_apart(ref: str, one: str, other: str) -> None:
    """Another quote from the same place is another piece of evidence."""
    assert vocabulary.evidence_iri(ref, one) != vocabulary.evidence_iri(ref)
    assert (vocabulary.evidence_iri(ref, one) == vocabulary.evidence_iri(ref, other)) == (one == other)


@pytest.mark.parametrize(
    "iri",
    [
        "https://example.org/things/7",
        f"{vocabulary.MEMORY}%ff",
        vocabulary.MEMORY,
        f"{vocabulary.MEMORY}%00",
        f"{vocabulary.MEMORY}{'x' * 600}",
        f"https://example.org/{'x' * 600}",
    ],
)
def test_every_iri_of_others_gives_an_id(iri: str) -> None:
    """An IRI that is not made of a prefix and an id still gives a valid id, the same each time."""
    id = vocabulary.id_of(iri, vocabulary.MEMORY)
    assert check(id) == id == vocabulary.id_of(iri, vocabulary.MEMORY)
