"""How is a change of the graph told in SPARQL?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from omoide.graph.asking import State, Subject
from omoide.graph.iris import META_GRAPH, encoded
from omoide.graph.terms import check_iri, quoted
from omoide.graph.vocabulary import JIDO, OMOIDE

_STATE = f"{OMOIDE}state:"


def removing(subjects: Iterable[Subject], owned: Iterable[Subject] = ()) -> list[str]:
    """The steps that forget these subjects, and then those of the owned nodes that nothing names any more."""
    steps = [f"DELETE WHERE {{ GRAPH {named(graph)} {{ {named(node)} ?p ?o }} }}" for graph, node in subjects]
    for graph, node in owned:
        said = f"GRAPH {named(graph)} {{ {named(node)} ?p ?o"
        steps.append(
            f"DELETE {{ {said} }} }} WHERE {{ {said} FILTER NOT EXISTS {{ ?any ?names {named(node)} }} }} }}"
        )
    return steps


def adding(graph: str, triples: Iterable[str]) -> str:
    """The step that takes in triples: subject, predicate and object as SPARQL writes them.

    As a table of values, because a server that reads slowly reads a table much faster than a template.
    """
    rows = "\n".join(f"({triple})" for triple in triples)
    table = f"{{ VALUES (?s ?p ?o) {{\n{rows}\n}} }}"
    return f"INSERT {{ GRAPH {named(graph)} {{ ?s ?p ?o }} }}\nWHERE {table}"


def copying(sources: Sequence[str], target: str) -> list[str]:
    """The steps that make one graph say what several say together."""
    steps = [f"DROP SILENT GRAPH {named(target)}"]
    if sources:
        found = f"{{ VALUES ?g {{ {' '.join(map(named, sources))} }} GRAPH ?g {{ ?s ?p ?o }} }}"
        steps.append(f"INSERT {{ GRAPH {named(target)} {{ ?s ?p ?o }} }}\nWHERE {found}")
    return steps


def dropping(graphs: Iterable[str]) -> list[str]:
    """The steps that forget whole graphs."""
    return [f"DROP SILENT GRAPH {named(graph)}" for graph in graphs]


def counting(prefixes: Iterable[str], uses: Iterable[tuple[str, str, str]]) -> list[str]:
    """The steps that say how often memories were used: each one's IRI, a number and a moment as literals.

    Prefixes are those of the graphs that may speak of them.
    """
    used = [*uses]
    ours = " || ".join(f"STRSTARTS(STR(?g), {quoted(prefix)})" for prefix in prefixes)
    count, last = f"<{JIDO}accessCount>", f"<{JIDO}lastAccessed>"
    memories = " ".join(named(iri) for iri, _, _ in used)
    figures = " ".join(f"({named(iri)} {number} {moment})" for iri, number, moment in used)
    return [
        f"DELETE {{ GRAPH ?g {{ ?m ?p ?o }} }} WHERE {{ VALUES ?m {{ {memories} }} "
        f"VALUES ?p {{ {count} {last} }} GRAPH ?g {{ ?m ?p ?o }} FILTER ({ours}) }}",
        f"INSERT {{ GRAPH ?g {{ ?m {count} ?n ; {last} ?t }} }} WHERE {{ VALUES (?m ?n ?t) {{ {figures} }} "
        f"GRAPH ?g {{ ?m a ?type }} FILTER ({ours}) }}",
    ]


def state_iri(namespace: str) -> str:
    """The IRI of how far a namespace has been followed."""
    return _STATE + encoded(namespace)


def stating(namespace: str, state: State) -> list[str]:
    """The steps that write down how far a namespace has been followed."""
    subject = state_iri(namespace)
    facts = (
        ("life", state.life),
        ("seq", str(state.seq)),
        ("used", str(state.used)),
        ("mark", state.mark),
        ("build", state.build),
    )
    said = [f"<{subject}> <{OMOIDE}{name}> {quoted(value)}" for name, value in facts]
    return [*removing([(META_GRAPH, subject)]), adding(META_GRAPH, said)]


def state_from(facts: Mapping[str, str]) -> State | None:
    """The state that facts about it tell; None where they are not whole."""
    try:
        names = ("life", "seq", "used", "mark", "build")
        life, seq, used, mark, build = (facts[OMOIDE + name] for name in names)
        return State(life, int(seq), int(used), mark, build)
    except (KeyError, ValueError):
        return None


def named(iri: str) -> str:
    """An IRI as SPARQL writes it."""
    return f"<{check_iri(iri)}>"
