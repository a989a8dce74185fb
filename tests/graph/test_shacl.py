"""The shapes report what is incomplete or wrong, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import EXAMPLES
from tests.support.graph_memories import NOW, entries, ids

from omoide import Entry
from omoide.core import MEMORY_TYPES
from omoide.errors import InvalidRDF, MissingExtra
from omoide.graph import MemoryBatch, ValidationProblem, to_nquads
from omoide.graph.shacl import validate
from omoide.graph.vocabulary import FACETS, JIDO, OPEN_STATUSES, TYPE, assignees
from omoide.longterm import conflicts
from omoide.stores import Link

FOUND_BY = {
    "project_id": "ProjectShape",
    "session_id": "ProvenanceShape",
    "rationale": "DecisionRationaleShape",
    "metadata.assigned_to": "TaskShape",
    "metadata.task_status": "SupersededShape",
    "has_root_cause": "RootCauseShape",
}


def entry(**fields: Any) -> Entry:
    given: dict[str, Any] = {"id": "m1", "agent_id": "a1", "session_id": "s1", "project_id": "p1"}
    return Entry(**given | {"content": "c", "created_at": NOW} | fields)


def nquads(*triples: tuple[str, str, str]) -> str:
    names = [[f"<{TYPE}>" if word == "a" else f"<{JIDO}{word}>" for word in triple] for triple in triples]
    return "".join(f"{' '.join(words)} .\n" for words in names)


def shapes(memories: Any, *, strict: bool = True) -> list[tuple[str, str]]:
    return [(item.id, item.shape) for item in validate(memories, strict=strict).problems]


def missing_fields(entry: Entry, links: Iterable[Link] = ()) -> tuple[str, ...]:
    """Return the fields that the shapes require and the memory lacks, computed without SHACL."""
    missing = dict.fromkeys(conflicts.missing_fields(entry))
    (status,) = FACETS["task"]
    if entry.type == "task":
        if not assignees(entry.metadata):
            missing["metadata.assigned_to"] = None
        if entry.superseded_by is not None and status.value(entry.metadata) in OPEN_STATUSES:
            missing[f"metadata.{status.key}"] = None
    causes = [link for link in links if link.relation == "has_root_cause" and link.target == entry.id]
    if entry.type == "root_cause" and not causes:
        missing["has_root_cause"] = None
    return tuple(missing)


@pytest.mark.parametrize("type", [None, *MEMORY_TYPES])
def test_a_complete_memory_conforms(type: str | None) -> None:
    """A memory of any type that has all it needs passes strictly."""
    told = entry(type=type, rationale="because", metadata={"assigned_to": "bob"})
    cause = Link(source="e1", relation="has_root_cause", target="m1", created_at=NOW)
    error = entry(id="e1", type="error")
    report = validate(MemoryBatch(entries=(told, error), links=(cause,)), strict=True)
    assert report.problems == ()
    assert report.conforms


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ({"project_id": None}, "ProjectShape"),
        ({"session_id": None}, "ProvenanceShape"),
        ({"type": "decision"}, "DecisionRationaleShape"),
        ({"type": "architectural_decision"}, "DecisionRationaleShape"),
        ({"type": "decision", "rationale": " "}, "DecisionRationaleShape"),
        ({"type": "task"}, "TaskShape"),
        ({"type": "root_cause"}, "RootCauseShape"),
    ],
)
def test_what_is_incomplete_is_a_warning_or_strictly_a_violation(fields: Any, shape: str) -> None:
    """Leniently an incomplete memory conforms, with a warning; strictly it does not, subclasses included."""
    lenient, strict = validate([entry(**fields)]), validate([entry(**fields)], strict=True)
    assert lenient.conforms
    assert not strict.conforms
    assert [(item.shape, item.severity) for item in lenient.problems] == [(shape, "warning")]
    assert [(item.id, item.shape, item.severity) for item in strict.problems] == [("m1", shape, "violation")]


@pytest.mark.parametrize(
    ("type", "property", "shape"),
    [
        *(("fact", name, "CertaintyShape") for name in ("hasConfidence", "hasTimestamp")),
        *(("fact", name, "ProvenanceShape") for name in ("assertedBy", "assertedIn", "summary")),
        ("fact", "appliesToProject", "ProjectShape"),
        ("implementation_decision", "rationale", "DecisionRationaleShape"),
        ("task", "assignedTo", "TaskShape"),
        ("failure", "hasErrorStatus", "ErrorShape"),
        *(("agent_rule", name, "ConventionShape") for name in ("hasConventionScope", "hasEnforcementLevel")),
    ],
)
def test_each_thing_that_is_needed_is_missed(type: str, property: str, shape: str) -> None:
    """A complete memory that loses one of its properties no longer conforms, for that reason alone."""
    told = to_nquads(entry(type=type, rationale="because", metadata={"assigned_to": "bob"}))
    assert shapes(told) == []
    without = [line for line in told.splitlines(keepends=True) if f"<{JIDO}{property}>" not in line]
    assert shapes("".join(without)) == [("m1", shape)]


@pytest.mark.parametrize("property", ["hasRole", "hasCapability"])
def test_an_agent_has_a_role_and_a_capability(property: str) -> None:
    """Each of the two is missed by itself."""
    has = {"hasRole": "Planner", "hasCapability": "CanPlan"}
    told = [("agent_x", "a", "Agent"), *(("agent_x", name, value) for name, value in has.items())]
    assert shapes(nquads(*told)) == []
    assert shapes(nquads(*(one for one in told if one[1] != property))) == [("x", "AgentShape")]


@pytest.mark.parametrize("status", ["Planned", "InProgress", "Blocked", "Active"])
def test_a_superseded_task_that_is_open_is_wrong(status: str) -> None:
    """It is a violation even leniently, also with the session's status that was given by mistake."""
    told = to_nquads(entry(type="task", metadata={"assigned_to": "bob"}, superseded_by="deleted"))
    assert shapes(told) == []
    wrong = told + nquads(("memory_m1", "hasTaskStatus", status))
    assert shapes(wrong) == shapes(wrong, strict=False) == [("m1", "SupersededShape")]
    assert not validate(wrong).conforms


@pytest.mark.parametrize("status", ["Completed", "Abandoned"])
def test_a_superseded_task_may_be_done_or_given_up(status: str) -> None:
    """A status that is not open says nothing against supersession, nor does an open one without it."""
    told = to_nquads(entry(type="task", metadata={"assigned_to": "bob"}, superseded_by="m2"))
    assert shapes(told + nquads(("memory_m1", "hasTaskStatus", status))) == []
    current = entry(type="task", metadata={"assigned_to": "bob", "task_status": "planned"})
    assert shapes([current]) == []


def test_a_decision_has_one_successor_and_a_memory_one_project() -> None:
    """Two successors or two projects are violations even leniently."""
    decision = entry(type="implementation_decision", rationale="r", superseded_by="m2")
    two = to_nquads(decision) + nquads(("memory_m1", "supersededBy", "memory_m3"))
    assert shapes(two, strict=False) == [("m1", "DecisionSuccessorShape")]
    projects = to_nquads(entry()) + nquads(("memory_m1", "appliesToProject", "project_p2"))
    assert shapes(projects, strict=False) == [("m1", "ProjectShape")]
    assert not validate(projects).conforms


def test_what_others_left_out_is_found() -> None:
    """Of a convention, an error and an agent without what they need, each lack is named, strictly."""
    told = nquads(
        ("memory_c", "a", "CodingStandard"), ("memory_e", "a", "Incident"), ("agent_x", "a", "SubAgent")
    )
    found = shapes(told)
    assert found.count(("c", "ConventionShape")) == 2
    assert ("e", "ErrorShape") in found
    assert found.count(("x", "AgentShape")) == 2
    assert {shape for id, shape in found if id == "c"} == {
        "ConventionShape",
        "ProjectShape",
        "CertaintyShape",
        "ProvenanceShape",
    }


def test_lenient_validation_supplies_the_defaults() -> None:
    """Leniently a convention holds in its project, an error is reported, and an agent writes memories."""
    told = nquads(("memory_c", "a", "AgentRule"), ("memory_e", "a", "Bug"), ("agent_x", "a", "Agent"))
    report = validate(told)
    assert report.conforms
    assert not {"ConventionShape", "ErrorShape", "AgentShape"} & {item.shape for item in report.problems}


def test_a_value_of_the_wrong_type_is_wrong() -> None:
    """A time that is no xsd:dateTime and a rationale that is no text are violations even leniently."""
    told = to_nquads(entry()).replace("dateTime>", "string>")
    assert shapes(told, strict=False) == [("m1", "CertaintyShape")]
    assert not validate(told).conforms
    decision = to_nquads(entry(type="decision", rationale="because"))
    wrong = decision.replace('"because"', f"<{JIDO}memory_m2>")
    assert ("m1", "DecisionRationaleShape") in shapes(wrong, strict=False)
    assert not validate(wrong).conforms


@settings(max_examples=max(10, EXAMPLES // 3))
@given(st.lists(entries, min_size=1, max_size=6, unique_by=lambda told: told.id), st.data())
def test_what_is_missing_can_be_said_without_shapes(several: list[Entry], data: st.DataObject) -> None:
    """The quick check and the shapes agree on every memory, whatever it holds."""
    several = [told.replace(namespace="default") for told in several]
    names = st.sampled_from([told.id for told in several]) | ids
    ends = data.draw(st.sets(st.tuples(st.sampled_from([told.id for told in several]), names), max_size=3))
    links = [Link(source=one, relation="has_root_cause", target=two, created_at=NOW) for one, two in ends]
    found = set(shapes(MemoryBatch(entries=tuple(several), links=tuple(links))))
    assert found == {(told.id, FOUND_BY[name]) for told in several for name in missing_fields(told, links)}


def test_missing_fields_are_named_as_they_are_given() -> None:
    """The quick check names the fields, keys of the metadata and relations that a memory still needs."""
    assert missing_fields(entry()) == ()
    assert missing_fields(entry(project_id=None, session_id=None)) == ("project_id", "session_id")
    assert missing_fields(entry(type="architectural_decision")) == ("rationale",)
    open_task = entry(type="task", metadata={"task_status": "blocked"}, superseded_by="m2")
    assert missing_fields(open_task) == ("metadata.assigned_to", "metadata.task_status")
    assert missing_fields(open_task.replace(superseded_by=None)) == ("metadata.assigned_to",)
    cause = Link(source="e", relation="has_root_cause", target="m1", created_at=NOW)
    assert missing_fields(entry(type="root_cause")) == ("has_root_cause",)
    assert missing_fields(entry(type="root_cause"), [cause]) == ()


def test_a_report_can_be_read() -> None:
    """A report says in words whether all is well and, line by line, what is not."""
    assert str(validate([entry()])) == "conforms"
    report = validate([entry(project_id=None)], strict=True)
    message = "applies to exactly one project"
    assert report.problems == (ValidationProblem(id="m1", shape="ProjectShape", message=message),)
    assert str(report) == f"does not conform\nviolation: m1: {message} (ProjectShape)"


def test_broken_quads_are_an_error() -> None:
    """What cannot be read is refused."""
    with pytest.raises(InvalidRDF, match="cannot be read"):
        validate("<a> <b")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package for shapes the error says which extra to install."""
    monkeypatch.setitem(sys.modules, "pyshacl", None)
    with pytest.raises(MissingExtra, match="shacl"):
        validate([entry()])
