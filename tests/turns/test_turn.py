"""Tests of a turn: its steps, and the order of them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.turns import ALEX, Spy, Talker, a_spec, kinds_of, tool_calls

from omoide import action, memory
from omoide.errors import (
    Diverged,
    Invalid,
    MissingStore,
    ModelFailed,
    ModelMisbehaved,
    ModelOverloaded,
    ModelTimedOut,
    OmoideError,
)
from omoide.turns import Decision, Journal, Reply, Request, Snapshot, Usage, chat, model, replay, turn, write

CONVERSATION = {"capture": "conversation"}


@action(effectful=True)
def note(ctx: Any, text: str) -> str:
    """Note something."""
    return f"noted {text}"


async def test_a_turn_recalls_then_asks_then_captures() -> None:
    """The store is asked before the model, and written to after it has answered."""
    store = Spy()

    def talk(request: Request, journal: Any) -> str:
        store.log.append("model")
        return "Hi."

    await turn(a_spec(memory=CONVERSATION), "hello", model=talk, store=store)
    assert store.log == ["recall", "model", "write"]


async def test_bad_input_is_refused_before_anything_happens() -> None:
    """An input that is empty or no text changes nothing and asks nobody."""
    store, talker = Spy(), Talker()
    for bad in ("", "   ", None, 7, b"hello", "a\0b", "a\ud800b"):
        with pytest.raises(Invalid, match="input"):
            await turn(a_spec(memory=CONVERSATION), bad, model=talker, store=store)  # type: ignore[arg-type]
    assert (store.log, talker.requests) == ([], [])


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("context", ["not", "a", "mapping"]),
        ("context", {7: "seven"}),
        ("model", 7),
        ("store", object()),
        ("session_id", 7),
        ("request_id", ""),
        ("history", "hello"),
        ("controls", [object()]),
    ],
)
async def test_bad_options_are_refused_before_anything_happens(option: str, value: Any) -> None:
    """An option of another kind is an error that names it, and neither store nor model is asked."""
    store, talker = Spy(), Talker()
    options: dict[str, Any] = {"model": talker, "store": store, option: value}
    with pytest.raises(Invalid, match=option):
        await turn(a_spec(), "hello", **options)
    assert (store.log, talker.requests) == ([], [])


async def test_events_tell_what_happened_in_order() -> None:
    """A turn with memory, a tool and capture says so, each thing where it happened."""
    store, spec = Spy(), a_spec(memory=CONVERSATION, tools=[note])
    await write(spec, ALEX, store=store)
    talker = Talker(tool_calls(("note", {"text": "tea"})), "Done.")
    result = await turn(spec, "hello", model=talker, store=store)
    assert kinds_of(result) == [
        "turn_started",
        "memory_recalled",
        "prompt_assembled",
        "model_called",
        "model_replied",
        "tool_started",
        "tool_finished",
        "prompt_assembled",
        "model_called",
        "model_replied",
        "turn_finished",
        "memory_written",
    ]


async def test_an_empty_recall_is_no_event() -> None:
    """`memory_recalled` is there only when something was."""
    result = await turn(a_spec(), "hello", model=Talker(), store=Spy())
    assert "memory_recalled" not in kinds_of(result)
    assert "memory_written" not in kinds_of(result)
    assert result.recalled is not None
    assert result.recalled.entries == ()


async def test_events_say_what_happened_and_not_what_was_said() -> None:
    """Neither input, memory, parameters, results nor the answer stand in an event."""
    store, spec = Spy(), a_spec(memory=CONVERSATION, tools=[note])
    await write(spec, "the walrus remembers", store=store)
    talker = Talker(tool_calls(("note", {"text": "walrus tea"})), "The walrus is fine.")
    result = await turn(spec, "walrus?", model=talker, store=store, context={"about": "walrus"})
    assert "walrus" not in repr(result.events)


async def test_a_listener_that_fails_ends_the_turn() -> None:
    """What a listener raises comes out as an error of ours with its cause, and nothing is captured."""
    store, trouble = Spy(), KeyError("mine")

    def listen(event: Any) -> None:
        if event.kind == "model_replied":
            raise trouble

    with pytest.raises(OmoideError) as failed:
        await turn(a_spec(memory=CONVERSATION), "hello", model=Talker(), store=store, on_event=listen)
    assert failed.value.__cause__ is trouble
    assert store.writes == []


async def test_a_model_that_stumbles_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a passing failure the same prompt is sent again, and the events say so."""
    monkeypatch.setattr(model, "backoff", lambda tried: 0.0)
    talker = Talker(ModelOverloaded("test", "is busy", "wait"), "Hi.")
    result = await turn(a_spec(), "hello", model=talker)
    assert (result.content, result.rounds, len(talker.requests)) == ("Hi.", 1, 2)
    assert talker.prompts[0] == talker.prompts[1]
    assert kinds_of(result).count("model_retried") == 1


async def test_a_model_that_never_answers_is_not_waited_for() -> None:
    """After its time, and no retries, the turn fails with an error that says so."""

    async def hang(request: Request, journal: Any) -> str:
        await anyio.sleep_forever()
        return "never"

    with anyio.fail_after(10), pytest.raises(ModelTimedOut, match=r"0\.05 s"):
        await turn(a_spec(limits={"model_timeout_ms": 50, "retries": 0}), "hello", model=hang)


async def test_an_answer_of_a_shape_comes_as_data() -> None:
    """Where the spec asks for a result of some shape, the prompt says so, and the result has it as data."""
    shape = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    talker = Talker('{"name": "Alex"}')
    result = await turn(a_spec(result=shape), "hello", model=talker)
    assert talker.prompts[0].result is not None
    assert talker.prompts[0].result["properties"] == shape["properties"]
    assert (result.content, result.value) == ('{"name": "Alex"}', {"name": "Alex"})


@pytest.mark.parametrize("answer", ["Alex", '{"name": 7}', "{}", '["Alex"]', '{"name": "Alex"'])
async def test_an_answer_of_another_shape_is_none(answer: str) -> None:
    """What does not fit the shape that was asked for is a failure of the model, and is not captured."""
    shape = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    store = Spy()
    with pytest.raises(ModelMisbehaved):
        await turn(a_spec(result=shape, memory=CONVERSATION), "hello", model=Talker(answer), store=store)
    assert store.writes == []


async def test_events_are_told_while_they_happen() -> None:
    """`on_event` gets every event of the result, in the same order, before the turn is over."""
    heard: list[Any] = []
    during: list[int] = []

    def talk(request: Request, journal: Any) -> str:
        during.append(len(heard))
        return "Hi."

    result = await turn(a_spec(), "hello", model=talk, on_event=heard.append)
    assert heard == list(result.events)
    assert during[0] > 0


@pytest.mark.parametrize(
    "reply",
    [
        "Hi.",
        Reply(content="Hi."),
        {"type": "final", "content": "Hi."},
        {"content": "Hi."},
        ("ok", {"type": "final", "content": "Hi."}),
    ],
)
async def test_a_function_may_answer_in_several_forms(reply: Any) -> None:
    """Text, a reply, a mapping, and a mapping marked as fine all are an answer."""
    assert await chat(a_spec(), "hello", model=Talker(reply)) == "Hi."


async def test_a_model_may_take_the_request_the_journal_and_the_context() -> None:
    """Functions of one, two and three arguments are served, plain or async."""
    heard: list[Any] = []

    def one(request: Request) -> str:
        heard.append(request.round)
        return "1"

    def two(request: Request, journal: Any) -> str:
        heard.append(journal is not None)
        return "2"

    async def three(request: Request, journal: Any, context: Any) -> str:
        heard.append(context.data["locale"])
        return "3"

    told = [await chat(a_spec(), "hello", model=llm, context={"locale": "fr"}) for llm in (one, two, three)]
    assert (told, heard) == (["1", "2", "3"], [0, True, "fr"])


async def test_an_operation_is_a_wish_for_a_tool() -> None:
    """One operation, or several, are run, and the model is asked again."""
    single = {"type": "operation", "name": "note", "params": {"text": "a"}}
    talker = Talker(single, tool_calls(("note", {"text": "b"}), ("note", {"text": "c"})), "Done.")
    result: Any = await turn(a_spec(tools=[note]), "hello", model=talker)
    answers = [message.content for message in result.prompt.messages if message.role == "tool"]
    assert [answer for answer in answers if "noted" in answer] == answers
    assert (len(answers), result.rounds, result.content) == (3, 3, "Done.")


@pytest.mark.parametrize(
    "reply",
    [None, 7, ["Hi."], {"type": "song"}, {"type": "operation"}, {"type": "final", "content": 7}, "a\0b"],
)
async def test_an_answer_that_is_none_is_said_to_be(reply: Any) -> None:
    """What cannot be read as an answer is a typed error, and the turn is not captured."""
    store = Spy()
    with pytest.raises(ModelMisbehaved):
        await turn(a_spec(memory=CONVERSATION), "hello", model=Talker(reply), store=store)
    assert store.writes == []


@pytest.mark.parametrize("reply", [RuntimeError("no network"), ("error", "no network")])
async def test_a_model_that_fails_is_our_error_with_its_cause(reply: Any) -> None:
    """Whatever a function raises or reports comes out as `ModelFailed`, with the original as its cause."""
    with pytest.raises(ModelFailed, match="no network") as failed:
        await turn(a_spec(), "hello", model=Talker(reply))
    assert isinstance(failed.value, OmoideError)
    if isinstance(reply, Exception):
        assert failed.value.__cause__ is reply


async def test_a_store_that_fails_is_our_error_with_its_cause() -> None:
    """Whatever an own store raises during recall comes out as an error of ours that keeps the cause."""
    store = Spy()
    store.recall_fails = trouble = RuntimeError("the disk is on fire")
    with pytest.raises(OmoideError) as failed:
        await turn(a_spec(), "hello", model=Talker(), store=store)
    assert failed.value.__cause__ is trouble


async def test_our_own_errors_keep_their_type() -> None:
    """An error of ours that a store raises is raised as it is."""
    store = Spy()
    store.recall_fails = trouble = MissingStore()
    with pytest.raises(MissingStore) as failed:
        await turn(a_spec(), "hello", model=Talker(), store=store)
    assert failed.value is trouble


async def test_a_turn_needs_a_model() -> None:
    """With neither a function nor a model in the spec there is nobody to ask, and the error says so."""
    store = Spy()
    with pytest.raises(Invalid, match=r"llm|model"):
        await turn(a_spec(), "hello", store=store)
    assert store.log == []


async def test_a_result_says_what_became_of_the_turn() -> None:
    """Status, ids, rounds and usage are those of the turn."""
    reply = Reply(content="Hi.", usage=Usage(input_tokens=10, output_tokens=2, requests=1))
    result = await turn(a_spec(), "hello", model=Talker(reply), session_id="conv-1", request_id="req_7")
    assert (result.content, result.status, result.rounds) == ("Hi.", "finished", 1)
    assert (result.request_id, result.session_id) == ("req_7", "conv-1")
    assert (result.usage.input_tokens, result.usage.output_tokens) == (10, 2)
    assert (result.memory, result.reviews, result.snapshot) == (None, (), None)


async def test_usage_is_that_of_all_rounds() -> None:
    """Tokens of every request of the turn are added up."""
    usage = {"input_tokens": 10, "output_tokens": 2, "requests": 1}
    talker = Talker(
        {**tool_calls(("note", {"text": "a"})), "usage": usage}, {"content": "Hi.", "usage": usage}
    )
    result = await turn(a_spec(tools=[note]), "hello", model=talker)
    assert (result.usage.input_tokens, result.usage.output_tokens, result.usage.requests) == (20, 4, 2)


async def test_a_request_has_an_id_of_its_own() -> None:
    """Where none is given, each turn gets a new request id, and the model is told it."""
    talker = Talker()
    first = await turn(a_spec(), "hello", model=talker)
    second = await turn(a_spec(), "hello", model=talker)
    assert first.request_id.startswith("req_")
    assert first.request_id != second.request_id
    assert [request.request_id for request in talker.requests] == [first.request_id, second.request_id]
    assert talker.requests[0].agent_id == "memory_agent"


async def test_a_turn_leaves_the_spec_alone() -> None:
    """A spec is data: the same before and after."""
    spec = a_spec(memory=CONVERSATION, tools=[note])
    before = spec.to_json()
    await turn(spec, "hello", model=Talker(tool_calls(("note", {"text": "a"})), "Hi."), store=Spy())
    assert spec.to_json() == before


def beliefs_of(result: Any) -> list[str]:
    """What the agent of a result came to believe, in order."""
    return list(memory.get_in_space(result.agent, "world", "believed", ()))


class Machine:
    """An agent whose tools count how often they were used."""

    def __init__(self) -> None:
        self.used: list[str] = []

        @action(effectful=True)
        async def once(ctx: Any, text: str) -> str:
            """Do what must not be done twice."""
            self.used.append(ctx.idempotency_key)
            return f"did {text}"

        @action(effectful=True, idempotent=True)
        async def often(ctx: Any, text: str) -> str:
            """Do what may be done twice."""
            self.used.append(ctx.idempotency_key)
            return f"did {text}"

        @action
        def believe(ctx: Any, text: str) -> Any:
            """Take something for true."""
            said = ctx.memory.world_get("believed", ())
            return ctx.memory.world_put("believed", [*said, text])

        @action(effectful=True)
        def fail(ctx: Any, text: str) -> str:
            """Go wrong."""
            self.used.append(ctx.idempotency_key)
            raise RuntimeError(text)

        self.store = Spy()
        self.tools = [once, often, believe, fail]
        self.spec = a_spec(tools=self.tools, memory=CONVERSATION)

    async def ran(self, *calls: tuple[str, dict[str, Any]]) -> tuple[Talker, Any]:
        """A model that asked for these, and what came of the turn."""
        talker = Talker(tool_calls(*calls), "Done.")
        return talker, await turn(self.spec, "hello", model=talker, store=self.store, request_id="req_1")

    async def crashed(self, tool: str) -> tuple[Talker, Any]:
        """A turn whose program ended while the tool ran: it began, and nobody knows how it ended."""
        talker = Talker(tool_calls((tool, {"text": "tea"})), "Done.")
        options: dict[str, Any] = {"model": talker, "store": self.store, "request_id": "req_1"}
        asleep: Any = await turn(self.spec, "hello", checkpoint="before_tool", **options)
        whole = await turn(self.spec, asleep.snapshot, model=talker, store=Spy())
        began = [at for at, entry in enumerate(whole.journal.entries) if entry.kind == "tool_call"]
        known = whole.journal.entries[: began[0] + 1]
        return talker, asleep.snapshot.replace(entries=known).with_digest()


async def test_a_journal_replays_without_calling_anything() -> None:
    """Answer, rounds and agent come out the same; model, tools and store are not asked again."""
    machine = Machine()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("once", {"text": "tea"}),
        ("believe", {"text": "tea"}),
        ("nowhere", {}),
    ]
    talker, result = await machine.ran(*calls)
    asked, used, log = len(talker.requests), [*machine.used], [*machine.store.log]
    journal = Journal.from_json(result.journal.to_json())
    again: Any = await replay(machine.spec, journal)
    assert (again.content, again.rounds, again.usage) == (result.content, result.rounds, result.usage)
    assert beliefs_of(again) == ["tea"]
    assert [*again.journal] == [*result.journal]
    assert (len(talker.requests), machine.used, machine.store.log) == (asked, used, log)


async def test_a_journal_that_ends_early_says_so() -> None:
    """A replay that needs what the journal does not hold is an error, never a call."""
    machine = Machine()
    _, result = await machine.ran(("once", {"text": "tea"}))
    used = [*machine.used]
    for kept in range(len(result.journal.entries)):
        part = result.journal.replace(entries=result.journal.entries[:kept])
        with pytest.raises(Diverged):
            await replay(machine.spec, part)
    assert machine.used == used


async def test_an_effect_of_unknown_outcome_is_not_repeated() -> None:
    """A tool that had begun when the program ended waits for somebody to decide, and is not run."""
    machine = Machine()
    talker, snapshot = await machine.crashed("once")
    used = [*machine.used]
    waiting: Any = await turn(machine.spec, snapshot, model=talker, store=machine.store)
    assert (waiting.status, machine.used) == ("waiting", used)
    review = waiting.reviews[0]
    assert (review.unknown, review.call.name, review.call.params) == (True, "once", {"text": "tea"})
    assert [effect.status for effect in waiting.journal if effect.kind == "tool"] == ["unknown"]
    assert machine.store.writes == []


@pytest.mark.parametrize(
    ("decision", "times", "told"),
    [
        (Decision(verdict="approve"), 2, "did tea"),
        (Decision(verdict="deny", reason="it broke"), 1, "it broke"),
        (Decision(verdict="settle", result="did tea by hand"), 1, "did tea by hand"),
    ],
)
async def test_somebody_decides_about_an_unknown_outcome(decision: Decision, times: int, told: str) -> None:
    """Approved, it runs again under the same key; otherwise it does not, and the model is told."""
    machine = Machine()
    talker, snapshot = await machine.crashed("once")
    options: dict[str, Any] = {"model": talker, "store": machine.store}
    waiting: Any = await turn(machine.spec, snapshot, **options)
    result = await turn(
        machine.spec, waiting.snapshot, decisions={waiting.reviews[0].id: decision}, **options
    )
    assert (result.status, len(machine.used), len({*machine.used})) == ("finished", times, 1)
    assert told in talker.prompts[-1].messages[-1].content
    assert len(machine.store.kept) == 1


async def test_what_may_happen_twice_is_repeated_after_a_crash() -> None:
    """An idempotent tool runs again under the same key, and nobody is asked."""
    machine = Machine()
    talker, snapshot = await machine.crashed("often")
    result = await turn(machine.spec, snapshot, model=talker, store=machine.store)
    assert (result.content, len(machine.used), len({*machine.used})) == ("Done.", 2, 1)


async def test_calls_have_keys_of_their_own() -> None:
    """Two calls of one turn never share an idempotency key."""
    machine = Machine()
    await machine.ran(("once", {"text": "tea"}), ("once", {"text": "tea"}))
    assert len({*machine.used}) == 2


CALLS = st.tuples(
    st.sampled_from(("once", "often", "believe", "fail", "nowhere")),
    st.sampled_from(({"text": "tea"}, {"text": "milk"}, {"text": 7}, {})),
)
CHECKPOINTS = st.sampled_from((None, "after_prompt", "before_tool"))
ROUNDS = st.lists(st.lists(CALLS, min_size=1, max_size=3), max_size=3)


async def finish_turn(machine: Machine, talker: Talker, **options: Any) -> Any:
    """What comes of a turn in the end, if every pause is written down, and every question approved."""
    fixed: dict[str, Any] = {"model": talker, "store": machine.store}
    result: Any = await turn(machine.spec, "hello", request_id="req_1", **fixed, **options)
    decisions: dict[str, Decision] = {}
    while result.status != "finished":
        decisions |= {review.id: Decision(verdict="approve") for review in result.reviews}
        snapshot = Snapshot.from_json(result.snapshot.to_json())
        result = await turn(machine.spec, snapshot, decisions=decisions, **fixed)
    return result


@given(rounds=ROUNDS, approve=st.sets(st.sampled_from(("once", "believe", "fail"))), checkpoint=CHECKPOINTS)
async def test_pauses_change_nothing(rounds: list[Any], approve: set[str], checkpoint: str | None) -> None:
    """However often a turn is put aside, it asks, runs, captures and becomes what it would have in one go."""
    script = [*(tool_calls(*calls, prefix=f"call_{at}_") for at, calls in enumerate(rounds)), "Done."]
    straight, paused = Machine(), Machine()
    paused.spec = a_spec(tools=paused.tools, memory=CONVERSATION, approve=sorted(approve))
    told, heard = Talker(*script), Talker(*script)
    first = await finish_turn(straight, told)
    second = await finish_turn(paused, heard, checkpoint=checkpoint)
    assert [prompt.messages for prompt in heard.prompts] == [prompt.messages for prompt in told.prompts]
    assert sorted(paused.used) == sorted(straight.used)
    assert beliefs_of(second) == beliefs_of(first)
    assert (second.content, second.rounds) == (first.content, first.rounds)
    assert [entry.content for entry in paused.store.kept] == [entry.content for entry in straight.store.kept]
    again: Any = await replay(paused.spec, Journal.from_json(second.journal.to_json()))
    assert (again.content, beliefs_of(again)) == (first.content, beliefs_of(first))
