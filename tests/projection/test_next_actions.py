"""Tasks are extracted from messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.projection import NOW, add_entries, agent, coverage_of, entries, message, splits

from omoide import Agent, Thread, memory, thread
from omoide.errors import Invalid, WrongType
from omoide.projection import ACTION_RULES, ActionRule, NextActions, project
from omoide.projection.engine import SPACE
from omoide.projection.projectors import MAX_SENTENCE_LENGTH, MAX_TASKS_PER_MESSAGE


def project_actions(given: Agent, now: int = NOW, **options: Any) -> Agent:
    after, directives = project(given, [NextActions(**options)], now=now)
    assert directives == []
    return after


def texts(given: Agent) -> list[str]:
    return [task["text"] for task in memory.tasks(given)]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("TODO: write the minutes.", ["write the minutes"]),
        ("Action item: call Ada", ["call Ada"]),
        ("Next step: deploy!", ["deploy"]),
        ("- [ ] TODO: check the log", ["check the log"]),
        ("Next I will call Ada.", ["call Ada"]),
        ("Next, we’ll order paper; thanks.", ["order paper; thanks"]),
        ("Next I'm going to rest.", ["rest"]),
        ("After that we should test it.", ["test it"]),
        ("We still need to order paper.", ["order paper"]),
        ("I think you have to restart it.", ["restart it"]),
        ("Please remember to lock the door.", ["lock the door"]),
        ("Don't forget to write. We need to talk.", ["write", "talk"]),
        ("We need to talk. We need to talk.", ["talk"]),
    ],
)
def test_what_is_to_be_done_is_found(said: str, wanted: list[str]) -> None:
    """Each sentence that says so gives one task, in the words that were used."""
    assert texts(project_actions(agent(said))) == wanted


@pytest.mark.parametrize(
    "said",
    [
        "Hello there.",
        "What do we need to do?",
        "We don't need to hurry.",
        "Tell me when we need to leave.",
        "If you have to go, go.",
        "Next I will not call.",
        "The next I saw was red.",
        "> TODO: a quotation",
        "```\nTODO: code\n```",
        "TODO: ",
        "TODO: x",
        "You need to " + "really " * MAX_SENTENCE_LENGTH + "listen.",
    ],
)
def test_what_is_only_mentioned_is_no_task(said: str) -> None:
    """Questions, conditions, negations, quotations, code and endless sentences say nothing to be done."""
    assert texts(project_actions(agent(said))) == []


def test_a_task_says_where_it_comes_from() -> None:
    """A task is open, and its evidence is the thread and the position."""
    given = project_actions(agent("Hello.", "TODO: write"))
    (task,) = memory.tasks(given)
    assert task["status"] == "open"
    assert task["evidence"] == {"thread": thread.of(given).id, "seq": 1}


def test_an_open_task_is_not_added_twice() -> None:
    """What waits already, in whatever capitals, is not added; what was done is, when it is said anew."""
    given = memory.tasks_add(agent("We need to  ORDER paper!"), "order paper.")
    given = project_actions(given)
    assert texts(given) == ["order paper."]
    given = memory.tasks_complete(given, memory.tasks(given)[0]["id"])
    assert texts(project_actions(add_entries(given, [message("We need to order paper.")]))) == [
        "order paper.",
        "order paper",
    ]


def test_a_task_that_was_done_does_not_come_back_from_the_same_place() -> None:
    """Even where the mark is lost, what was found in a message before is known by its id."""
    given = project_actions(agent("TODO: write"))
    given = memory.tasks_complete(given, memory.tasks(given)[0]["id"])
    given = memory.delete_space(given, SPACE)
    assert texts(project_actions(given)) == ["write"]
    assert memory.tasks_open(project_actions(given)) == []


def test_another_thread_can_ask_for_the_same_again() -> None:
    """The same words at the same place of another thread are another task."""
    given = project_actions(agent("TODO: write"))
    given = memory.tasks_complete(given, memory.tasks(given)[0]["id"])
    other = thread.put(given, Thread.new(id="other").append(message("TODO: write")))
    assert len(memory.tasks(project_actions(other))) == 2


def test_what_tools_and_prompts_say_is_no_task() -> None:
    """Only users and assistants say what is to be done, unless a rule says otherwise."""
    said = [message("TODO: one", "tool"), message("TODO: two", "system"), message("TODO: three", "assistant")]
    assert texts(project_actions(add_entries(agent(), said))) == ["three"]
    rule = ActionRule(name="any", pattern="todo: (.+)", roles=["tool"])
    assert texts(project_actions(add_entries(agent(), said), rules=[rule])) == ["one"]


def test_tasks_that_somebody_wrote_in_another_form_are_no_hindrance() -> None:
    """Raw items among the tasks, with or without text, are passed over."""
    given = agent("TODO: write")
    for raw in ("words", {"id": "t1"}, {"id": "t2", "text": 5}):
        given = memory.append_to_space(given, "tasks", raw)
    assert memory.tasks(project_actions(given))[-1]["text"] == "write"


def test_one_message_gives_only_so_many_tasks() -> None:
    """A message full of them does not fill the list."""
    said = "\n".join(f"- TODO: number {at}" for at in range(MAX_TASKS_PER_MESSAGE + 5))
    assert len(texts(project_actions(agent(said)))) == MAX_TASKS_PER_MESSAGE


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"pattern": "("}, Invalid),
        ({"pattern": "todo"}, Invalid),
        ({"pattern": "(x)", "unless": "["}, Invalid),
        ({"pattern": "(x)", "roles": ["boss"]}, Invalid),
        ({"pattern": ""}, Invalid),
    ],
)
def test_a_wrong_rule_is_refused(options: dict[str, Any], problem: type[Exception]) -> None:
    """A rule has a regular expression with a group, and roles that exist."""
    with pytest.raises(problem):
        ActionRule(name="x", **options)


def test_rules_are_rules() -> None:
    """Anything else in their place is refused."""
    with pytest.raises(WrongType):
        NextActions(rules=["todo"])  # type: ignore[arg-type]
    assert NextActions(rules=[*ACTION_RULES]) == NextActions()  # type: ignore[arg-type]


@given(entries, st.data())
def test_however_the_thread_is_parted_the_tasks_are_the_same(
    said: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Ids, order, texts and evidence do not depend on when the projection ran, or how often."""
    start = thread.put(agent(), Thread.new(id="t"))
    parted = start
    for run in data.draw(splits(said)):
        parted = project_actions(project_actions(add_entries(parted, run)))
    whole = project_actions(add_entries(start, said))
    assert memory.tasks(parted) == memory.tasks(whole)
    assert coverage_of(parted, "next_actions") == coverage_of(whole, "next_actions")
