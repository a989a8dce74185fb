"""Tests of turns that combine snapshots, decisions, schemas, histories and long memories."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest
from tests.support.turns import Spy, Talker, a_spec, system_of, tool_calls

from omoide import action
from omoide.errors import Invalid, InvalidDefinition, ModelMisbehaved, OverBudget
from omoide.stores import open_store
from omoide.turns import (
    Control,
    Decision,
    Exchange,
    Interrupt,
    Message,
    Rewrite,
    Snapshot,
    capture_turn,
    preflight,
    turn,
    write,
)

APPROVE = Decision(verdict="approve")


def conversation_in(prompt: Any) -> list[str]:
    """The conversation that a model was shown, without the system's words."""
    return [f"{one.role}: {one.content}" for one in prompt.messages if one.role != "system"]


# Snapshots


class Three:
    """Three tools that a person has to approve, and what they did."""

    def __init__(self) -> None:
        self.log: list[str] = []

        def made(name: str) -> Any:
            async def run(ctx: Any) -> str:
                self.log.append(name)
                return name

            run.__name__, run.__doc__ = name, f"Do {name}."
            return action(effectful=True)(run)

        tools = [made(name) for name in ("a", "b", "c")]
        self.spec = a_spec(memory=None, tools=tools, approve=["a", "b", "c"])

    async def wait(self) -> Any:
        """A turn that waits for all three."""
        return await turn(self.spec, "go", model=Talker(tool_calls(("a", {}), ("b", {}), ("c", {}))))


@pytest.mark.parametrize("order", list(permutations(range(3)))[::2])
async def test_what_was_decided_stays_decided_from_snapshot_to_snapshot(order: Any) -> None:
    """Reviews may be decided one after the other, each in its own process; nothing runs before the last."""
    three = Three()
    waits = await three.wait()
    ids = [review.id for review in waits.reviews]
    left = [*ids]
    for at in order:
        assert three.log == []
        assert [one.id for one in waits.reviews] == left
        saved = Snapshot.from_json(waits.snapshot.to_json())
        waits = await turn(three.spec, saved, model=Talker("Done."), decisions={ids[at]: APPROVE})
        left.remove(ids[at])
    assert (waits.status, waits.content, sorted(three.log)) == ("finished", "Done.", ["a", "b", "c"])


async def test_a_later_decision_replaces_the_one_in_the_snapshot() -> None:
    """Who changes their mind while another review is open is heard."""
    three = Three()
    waits: Any = await three.wait()
    a, b, c = (review.id for review in waits.reviews)
    waits = await turn(three.spec, waits.snapshot, model=Talker("x"), decisions={a: APPROVE, b: APPROVE})
    no = Decision(verdict="deny", reason="not that")
    done = await turn(three.spec, waits.snapshot, model=Talker("Done."), decisions={a: no, c: APPROVE})
    assert (done.status, sorted(three.log)) == ("finished", ["b", "c"])


@pytest.mark.parametrize("option", ["session_id", "project_id", "request_id"])
async def test_what_a_snapshot_says_cannot_be_said_otherwise(option: str) -> None:
    """An option that the snapshot has another value for is refused, and nothing runs."""
    three = Three()
    waits = await three.wait()
    decisions = {review.id: APPROVE for review in waits.reviews}
    model = Talker("Done.")
    other: Any = {option: "another"}
    with pytest.raises(Invalid, match=option):
        await turn(three.spec, waits.snapshot, model=model, decisions=decisions, **other)
    assert (three.log, model.requests) == ([], [])


@pytest.mark.parametrize("verdict", ["settle", "approve"])
async def test_a_settled_action_is_not_computed_from_a_snapshot(verdict: str) -> None:
    """A pure tool that a person answered for has no effect, also when the turn pauses once more."""

    @action
    def bump(ctx: Any) -> Any:
        """Count."""
        return {"n": ctx.state.get("n", 0) + 1}

    spec = a_spec(memory=None, tools=[bump], approve=["bump"])
    waits: Any = await turn(spec, "go", model=Talker(tool_calls(("bump", {}))))
    first = Decision(verdict=verdict, result="not done" if verdict == "settle" else None)
    again = Talker(tool_calls(("bump", {}), prefix="more_"))
    waits = await turn(spec, waits.snapshot, model=again, decisions={waits.reviews[0].id: first})
    decisions = {waits.reviews[0].id: Decision(verdict="settle", result="not done")}
    done = await turn(spec, waits.snapshot, model=Talker("Done."), decisions=decisions)
    assert done.agent is not None
    assert (done.content, done.agent.state.get("n", 0)) == ("Done.", 0 if verdict == "settle" else 1)


class Masked(Control):
    """Asks about the input, and takes a word out of each answer."""

    def at_input(self, text: str, ctx: Any) -> Any:
        return Interrupt("Fine?")

    def at_output(self, text: str, ctx: Any) -> Any:
        return Rewrite(text.replace("secret", "***"))


async def test_a_snapshot_needs_the_controls_that_it_was_made_under() -> None:
    """A turn that stopped at one boundary is still watched at the others when it goes on."""
    waits = await turn(a_spec(), "hello", model=Talker(), controls=[Masked()])
    options: Any = {"model": Talker("the secret"), "decisions": {waits.reviews[0].id: APPROVE}}
    assert waits.snapshot is not None
    with pytest.raises(Invalid, match="controls lack Masked"):
        await turn(a_spec(), waits.snapshot, **options)
    done = await turn(a_spec(), waits.snapshot, controls=[Masked()], **options)
    assert done.content == "the ***"


# Answers as data


class Label(msgspec.Struct):
    """What an answer is to look like."""

    label: str


LABEL = {"type": "object", "properties": {"label": {"type": "string"}}, "required": ["label"]}
SAID = {
    "fenced after words": 'Here it is:\n```json\n{"label": "x"}\n```',
    "fence closed at once": '```\n{"label": "x"}```',
    "after words": 'Sure! {"label": "x"}',
    "between words": 'Sure! {"label": "x"} Anything else?',
    "another field": '{"label": "x", "why": "it is"}',
    "the last of two": '```json\n{"label": "draft"}\n```\nBetter:\n```json\n{"label": "x"}\n```',
    "a fence with words after": '```json\n{"label": "x"}\n```\nI put it into {braces}.',
}


@pytest.mark.parametrize("shape", [Label, LABEL], ids=["type", "schema"])
@pytest.mark.parametrize("said", SAID.values(), ids=SAID.keys())
async def test_data_is_found_in_what_models_say_around_it(said: str, shape: Any) -> None:
    """Fences, words before and after, and fields nobody asked for do not fail a turn."""
    done = await turn(a_spec(memory=None, result=shape), "which?", model=Talker(said))
    assert done.value == (Label("x") if shape is Label else {"label": "x"})


@pytest.mark.parametrize("said", ["x", "{x}", '["x"]', '{"label": 3}', '{"other": "x"}', '"{}"', "{" * 5_000])
async def test_what_is_not_the_data_that_was_asked_for_is_still_refused(said: str) -> None:
    """Reading leniently makes no value up."""
    with pytest.raises(ModelMisbehaved):
        await turn(a_spec(memory=None, result=LABEL), "which?", model=Talker(said))


ODD = [
    {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}},
    {"type": "array", "items": {"type": "string"}},
]


@pytest.mark.parametrize("shape", ODD, ids=["elsewhere", "array"])
@pytest.mark.parametrize("verb", [turn, preflight])
async def test_a_shape_that_cannot_be_checked_is_found_out_first(verb: Any, shape: Any) -> None:
    """Neither memory nor the model is asked for an answer that nobody could check."""
    model, store = Talker('{"a": "x"}'), Spy()
    with pytest.raises(InvalidDefinition):
        await verb(a_spec(result=shape), "which?", model=model, store=store)
    assert (model.requests, store.log) == ([], [])


# What goes before


@pytest.mark.parametrize("verb", [turn, preflight])
async def test_an_agent_brings_its_conversation_along(verb: Any) -> None:
    """Who passes the agent of the last result goes on with what was said."""
    spec = a_spec(memory=None)
    first = await turn(spec, "I am Bob.", model=Talker("Hello, Bob."))
    again = await verb(spec, "Who am I?", model=Talker("Bob."), agent=first.agent)
    assert conversation_in(again.prompt) == ["user: I am Bob.", "assistant: Hello, Bob.", "user: Who am I?"]


async def test_a_conversation_goes_on_over_several_turns_and_a_pause() -> None:
    """Agent after agent, what was said before is there once, also where one of the turns rested."""
    spec = a_spec(memory=None)
    agent = None
    for word in ("one", "two"):
        rests = await turn(spec, word, model=Talker(), agent=agent, checkpoint="after_prompt")
        assert rests.snapshot is not None
        agent = (await turn(spec, rests.snapshot, model=Talker(word.upper()))).agent
    last = await turn(spec, "three", model=Talker("THREE"), agent=agent)
    assert last.prompt is not None
    talk = ["user: one", "assistant: ONE", "user: two", "assistant: TWO", "user: three"]
    assert conversation_in(last.prompt) == talk


@pytest.mark.parametrize("verb", [turn, preflight])
async def test_a_history_that_is_given_stands_for_the_agents_own(verb: Any) -> None:
    """Plain mappings are messages, and what a program passes is what is shown."""
    spec = a_spec(memory=None)
    first = await turn(spec, "I am Bob.", model=Talker("Hello, Bob."))
    history: Any = [{"role": "user", "content": "I am Ann."}, {"role": "assistant", "content": "Hello, Ann."}]
    again = await verb(spec, "Who am I?", model=Talker("Ann."), agent=first.agent, history=history)
    assert conversation_in(again.prompt) == ["user: I am Ann.", "assistant: Hello, Ann.", "user: Who am I?"]


@pytest.mark.parametrize(
    "odd",
    [{"role": "king", "content": "x"}, {"content": "x"}, {"role": "user", "text": "x"}, {}],
    ids=["role", "no-role", "field", "empty"],
)
async def test_a_mapping_that_is_no_message_is_refused(odd: Any) -> None:
    """It is told as an error of ours, before the model is asked."""
    model = Talker()
    with pytest.raises(Invalid):
        await turn(a_spec(memory=None), "x", model=model, history=[odd])
    assert model.requests == []


# Much of everything


HOST = "The database host is db7, which Ann has chosen."


async def test_a_long_conversation_is_not_dragged_along_as_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two recalls at most, a few memories kept of them, and one line about those that are in sight anyway."""
    spec = a_spec(memory={"capture": "conversation", "max_entries": 3})
    history, asked = [], []
    async with open_store("memory://", embedder="none") as store:
        await write(spec, HOST, store=store)
        for at in range(150):
            said, answer = f"Tell me about the database host {at}.", "The database host, again."
            await capture_turn(spec, said, answer, request_id=f"r{at}", store=store)
            words = (Message(role="user", content=said), Message(role="assistant", content=answer))
            history.append(Exchange(request_id=f"r{at}", messages=words))
        recall = store.recall

        async def counted(request: Any) -> Any:
            asked.append(request.limit)
            return await recall(request)

        monkeypatch.setattr(store, "recall", counted)
        options: Any = {"store": store, "history": history, "model": Talker("db7.")}
        done = await turn(spec, "Tell me about the database host.", **options)
        preview = await preflight(spec, "Tell me about the database host.", **options)
    assert done.recalled is not None
    assert done.prompt is not None
    assert (len(asked) <= 4, max(asked) <= 103, len(done.recalled.entries) <= 6) == (True, True, True)
    cuts = [cut for cut in done.prompt.cut if cut.part == "memory"]
    assert [(cut.reason, cut.count) for cut in cuts] == [("it is in the conversation below", 3)]
    assert str(preview).count("it is in the conversation below") == 1


async def test_memory_is_asked_with_the_beginning_of_a_long_input() -> None:
    """An input that fits the window and is long all the same does not become a query of its length."""
    store = Spy()
    said = "lamp order " * 5_000
    done = await turn(a_spec(), said, model=Talker("Yes."), store=store)
    assert [request.query for request in store.recalls] == [said[:8_000]]
    assert done.prompt is not None
    assert done.prompt.messages[-1].content == said


@pytest.mark.parametrize("verb", [turn, preflight])
async def test_an_input_that_can_never_fit_is_refused_before_memory_is_asked(verb: Any) -> None:
    """Nobody waits for a recall whose result cannot be sent."""
    model, store = Talker(), Spy()
    with pytest.raises(OverBudget):
        await verb(a_spec(), "lamp order " * 100_000, model=model, store=store)
    assert (model.requests, store.log) == ([], [])


async def test_memories_and_the_conversation_of_an_agent_do_not_repeat_each_other() -> None:
    """What was captured from a turn that the agent brings along is shown once, as conversation."""
    spec = a_spec(memory={"capture": "conversation"})
    async with open_store("memory://", embedder="none") as store:
        first = await turn(spec, "I am Bob.", model=Talker("Hello, Bob."), store=store)
        again = await turn(spec, "Am I Bob?", model=Talker("Yes."), store=store, agent=first.agent)
    assert again.prompt is not None
    assert "Hello, Bob." not in system_of(again.prompt)
    assert conversation_in(again.prompt)[:2] == ["user: I am Bob.", "assistant: Hello, Bob."]
