"""Hypothesis strategies for memories with every field, their links and their access counts."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.support.strategies import maps, names, text

from omoide import Entry, Evidence, clock
from omoide.core import MEMORY_TYPES, MessageRef
from omoide.core.entry import EVIDENCE_KINDS, ROOT_TYPE, SOURCES
from omoide.graph.vocabulary import RELATIONS
from omoide.stores import Access, Link

NOW = 1_763_000_000_123

awkward = st.sampled_from(
    (
        "my_mem_1",
        "memory_memory_1",
        "a/b?c=d#e",
        "100%",
        "%41",
        "a:b",
        "é–漢",
        "urn:x:y",
        "https://jido.ai/ontology#memory_1",
        "x.",
        '<>"{}|^`\\',
        "😀",
    )
)
ids = awkward | st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(
    lambda id: id != "deleted"
)
texts = names | st.sampled_from(
    (
        'say "hi"\r\n\tback\\slash\\n',
        "\x01\x1f\x7f\x85\u2028\ufeff\uffff",
        "שלום עולם",
        "'''\"\"\"",
        "<b>&amp;</b>",
    )
)
# What an entry takes for seconds is refused, and so is an occurrence after the year 2999.
moments = st.integers(0, 999_999_999) | st.integers(10_000_000_000, clock.MAX_TIMESTAMP)
occurrences = st.integers(0, 999_999_999) | st.integers(10_000_000_000, 32_503_680_000_000)
units = st.floats(0, 1)

evidence = st.builds(
    Evidence,
    kind=st.sampled_from(EVIDENCE_KINDS),
    ref=st.sampled_from(("t1:4", "mem_1")) | texts,
    quote=st.none() | st.just("so it is") | text,
)
messages = st.builds(
    MessageRef,
    thread=ids,
    seq=st.integers(0, 2**63 - 1),
    role=st.none() | texts,
    speaker=st.none() | texts,
)
entry_fields = st.fixed_dictionaries(
    {},
    optional={
        "convention_scope": st.sampled_from(("global", "AgentScope", "nowhere")),
        "enforcement_level": st.sampled_from(("strict", "Required", 3)),
        "error_status": st.sampled_from(("resolved", "odd")),
        "task_status": st.sampled_from(("planned", "in_progress", "InProgress", "completed", "Abandoned")),
        "assigned_to": st.sampled_from(("bob", "", 3, ["bob", "eve"], [])),
        "decision_status": texts,
        "impact_level": texts,
        "severity_level": texts,
    },
)
entries: st.SearchStrategy[Entry] = st.builds(
    Entry,
    id=ids,
    agent_id=ids,
    session_id=st.none() | ids,
    project_id=st.none() | ids,
    user_id=st.none() | ids,
    key=st.none() | st.sampled_from(("city", "Stadt ☕", '"k" <x>')),
    namespace=st.just("default") | ids,
    content=texts,
    metadata=st.just({}) | entry_fields | maps,
    type=st.none() | st.sampled_from((ROOT_TYPE, *MEMORY_TYPES)),
    confidence=units,
    importance=st.none() | units,
    source=st.none() | st.sampled_from(SOURCES),
    tags=st.lists(texts, max_size=4),
    rationale=st.none() | st.sampled_from(("", " \n")) | text,
    message=st.none() | messages,
    evidence=st.lists(evidence, max_size=4).map(tuple),
    created_at=moments,
    occurred_at=st.none() | occurrences,
    expires_at=st.none() | moments,
    superseded_by=st.none() | st.just("deleted") | ids,
    superseded_at=st.none() | moments,
    superseded_reason=st.none() | text,
    stale=st.booleans(),
    rev=st.integers(0, 2**63 - 1),
)
accesses: st.SearchStrategy[Access | None] = st.none() | st.builds(
    Access, count=st.integers(0, 2**63 - 1), last=st.none() | moments
)
relations = st.sampled_from((*RELATIONS, "superseded_by", "supersedes", "likes", "a b/c#d")) | texts


@st.composite
def memories(draw: Any) -> tuple[Entry, tuple[Link, ...], Access | None]:
    """An entry with links that begin at it, each relation to each target once, and its use."""
    entry = draw(entries)
    ends = draw(st.lists(st.tuples(relations, ids), max_size=4, unique=True))
    links = [
        Link(source=entry.id, relation=relation, target=target, created_at=draw(moments))
        for relation, target in ends
    ]
    return (
        entry,
        tuple(sorted(links, key=lambda link: (link.created_at, link.relation, link.target))),
        draw(accesses),
    )
