"""Filters, recall requests and recall results of the store contract."""

from __future__ import annotations

from typing import Any

import pytest

from omoide import Entry, Filter, RecallRequest, RecallResult, Scope, clock
from omoide.core import Hit, Reason, Why
from omoide.errors import Invalid, InvalidRecord
from omoide.testing import FrozenClock

TEA = Entry(id="tea", agent_id="ada", content="Tea.")
COFFEE = Entry(id="coffee", agent_id="ada", content="Coffee.")


def ask(**fields: Any) -> RecallRequest:
    return RecallRequest.new({"agent_id": "ada", "query": "tea", **fields})


def test_a_request_needs_an_agent_and_a_query() -> None:
    """The rest has defaults: the agent's scope, five entries, the present."""
    with clock.override(FrozenClock(9_000)):
        request = ask()
    assert (request.session_id, request.scope, request.limit, request.metadata) == (None, "agent", 5, {})
    assert (request.namespace, request.project_id, request.max_tokens) == ("default", None, None)
    assert (request.filter, request.at) == (Filter(), 9_000)
    for missing in ("agent_id", "query"):
        with pytest.raises(InvalidRecord, match=f"^invalid memory recall request: {missing} is missing"):
            RecallRequest.new({name: "x" for name in ("agent_id", "query") if name != missing})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("agent_id", ""),
        ("agent_id", "a\0"),
        ("query", ""),
        ("query", "  "),
        ("query", "a\0b"),
        ("query", None),
        ("scope", "global"),
        ("scope", "Agent"),
        ("scope", None),
        ("limit", 0),
        ("limit", -1),
        ("limit", 2.0),
        ("limit", "5"),
        ("limit", True),
        ("limit", None),
        ("max_tokens", 0),
        ("session_id", ""),
        ("namespace", ""),
        ("metadata", [1]),
        ("filter", {"types": ["opinion"]}),
        ("filter", {"min_confidence": 2}),
        ("filter", {"colour": "red"}),
        ("filter", "fact"),
        ("at", -1),
        ("colour", "red"),
    ],
    ids=lambda part: repr(part)[:24],
)
def test_a_wrong_request_says_what_is_wrong(field: str, value: Any) -> None:
    """The error names the record and gives a remedy."""
    with pytest.raises(Invalid) as caught:
        ask(**{field: value})
    assert str(caught.value).startswith(("invalid memory recall request: ", "invalid memory filter: "))
    assert caught.value.remedy


def test_a_project_has_to_be_named() -> None:
    """A request for a whole project without its name is refused."""
    with pytest.raises(InvalidRecord, match="project_id is missing"):
        ask(scope="project")


@pytest.mark.parametrize("reach", ["agent", "session", "project", "namespace"])
def test_the_scope_of_a_request_is_one_of_four_words(reach: str) -> None:
    """Each is kept as it is said."""
    assert ask(scope=reach, session_id="s", project_id="p").scope == reach


def test_a_request_sees_what_its_scope_says() -> None:
    """Agent ignores the session, session needs one, project and namespace ignore the agent."""
    assert ask(session_id="s").effective_scope() == Scope(agent_id="ada")
    assert ask(scope="session", session_id="s").effective_scope() == Scope(agent_id="ada", session_id="s")
    assert ask(scope="session").effective_scope() is None
    assert ask(scope="project", project_id="p").effective_scope() == Scope(project_id="p")
    assert ask(scope="namespace", namespace="n", project_id="p").effective_scope() == Scope(namespace="n")
    assert ask(project_id="p").effective_scope() == Scope(agent_id="ada", project_id="p")


@pytest.mark.parametrize(
    "scope",
    [
        Scope(agent_id="ada"),
        Scope(agent_id="ada", session_id="s"),
        Scope(agent_id="ada", project_id="p", namespace="n"),
        Scope(agent_id="ada", project_id="p", session_id="s"),
        Scope(project_id="p"),
        Scope(namespace="n"),
    ],
    ids=str,
)
def test_a_request_can_be_made_for_a_scope(scope: Scope) -> None:
    """It sees exactly what the scope holds."""
    assert RecallRequest.for_scope(scope, "tea").effective_scope() == scope


def test_a_session_belongs_to_an_agent() -> None:
    """A scope with a session and no agent cannot be asked as a whole."""
    with pytest.raises(Invalid, match=r"scope\.agent_id is missing"):
        RecallRequest.for_scope(Scope(session_id="s"), "tea")


def test_a_filter_is_checked() -> None:
    """Times in the wrong order are refused."""
    assert Filter(since=1, until=1).since == 1
    with pytest.raises(InvalidRecord, match=r"^invalid memory filter: since is after until"):
        Filter(since=2, until=1)


def test_a_result_echoes_the_request() -> None:
    """It holds the request, and entries in the order of the store; nothing found is an empty one."""
    request = ask()
    empty = RecallResult.new(request=request)
    assert (empty.request, empty.entries, empty.metadata, empty.hits) == (request, (), {}, ())
    result = RecallResult.new(request=request, entries=[COFFEE, TEA])
    assert result.entries == (COFFEE, TEA)
    assert [(hit.entry.id, hit.rank) for hit in result.hits] == [("coffee", 1), ("tea", 2)]
    assert RecallResult.new(request=request, hits=[Hit(entry=TEA, score=2.0)]).entries == (TEA,)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"request": "tea"},
        {"request": {"agent_id": "ada"}},
        {"request": {"agent_id": "ada", "query": "x", "limit": 0}},
        {"entries": "tea"},
        {"entries": ["tea"]},
        {"entries": [{"id": "x"}]},
    ],
    ids=str,
)
def test_a_wrong_result_is_refused(fields: dict[str, Any]) -> None:
    """What is inside is checked too, and the error names the record that is wrong."""
    if "request" not in fields and fields:
        fields = {"request": ask(), **fields}
    with pytest.raises(Invalid, match=r"^invalid memory (recall result|recall request|entry): "):
        RecallResult.new(fields)


def test_a_result_is_made_from_what_comes_out_of_json() -> None:
    """Mappings become the records they describe, at every depth."""
    result = RecallResult.new(request=ask(at=1), entries=[TEA])
    again = RecallResult.new(
        request={"agent_id": "ada", "query": "tea", "at": 1},
        entries=[{"id": "tea", "agent_id": "ada", "content": "Tea.", "created_at": TEA.created_at}],
    )
    assert again == result
    assert RecallResult.from_json(result.to_json()) == result


def test_why_reads_as_a_line() -> None:
    """Parts with their value and rank, then what the memory rests on."""
    why = Why(reasons=(Reason(part="words", value=1.25, rank=2, note="tea"),), evidence=("t:3",))
    assert str(why) == "words +1.25 (#2): tea; from t:3"
    assert "newest" in str(Why())
