"""Tests of controls: where a turn stops, and how it continues."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.turns import ALEX, Spy, Talker, a_spec, kinds_of, tool_calls

from omoide import action, directives
from omoide.errors import Blocked, Invalid, OmoideError, ReviewNeeded
from omoide.turns import Control, Decision, Interrupt, Refuse, Rewrite, Snapshot, chat, turn, write

CONVERSATION = {"capture": "conversation"}
APPROVE = Decision(verdict="approve")


class Says(Control):
    """Gives these answers, and keeps what it was asked."""

    def __init__(self, input: Any = None, tool: Any = None, output: Any = None) -> None:
        self.answers = {"input": input, "tool": tool, "output": output}
        self.seen: list[tuple[str, Any]] = []

    def _answer(self, boundary: str, subject: Any) -> Any:
        self.seen.append((boundary, subject))
        answer = self.answers[boundary]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def at_input(self, text: str, ctx: Any) -> Any:
        return self._answer("input", text)

    def at_tool(self, call: Any, ctx: Any) -> Any:
        return self._answer("tool", call.name)

    async def at_output(self, text: str, ctx: Any) -> Any:
        return self._answer("output", text)


class Shop:
    """An agent with a tool that must not be used lightly, and all that happened there."""

    def __init__(self, *replies: Any, **fields: Any) -> None:
        self.sold: list[Any] = []

        @action(effectful=True)
        async def sell(ctx: Any, item: str) -> str:
            """Sell something."""
            self.sold.append(item)
            return f"sold {item}"

        self.store = Spy()
        self.talker = Talker(*(replies or (tool_calls(("sell", {"item": "tea"})), "Sold.")))
        self.spec = a_spec(**{"memory": CONVERSATION, "tools": [sell], **fields})

    async def turn(self, input: Any = "One tea.", **options: Any) -> Any:
        return await turn(self.spec, input, model=self.talker, store=self.store, **options)

    @property
    def told(self) -> list[str]:
        """What the model was told by its tools."""
        return [one.content for one in self.talker.prompts[-1].messages if one.role == "tool"]


async def test_controls_see_everything_that_passes() -> None:
    """Input, each tool and the answer are shown to a control in this order, and pass if it says nothing."""
    shop, control = Shop(), Says()
    result = await shop.turn(controls=[control])
    assert control.seen == [("input", "One tea."), ("tool", "sell"), ("output", "Sold.")]
    assert (result.content, shop.sold) == ("Sold.", ["tea"])
    assert "control_applied" not in kinds_of(result)


async def test_a_refused_input_goes_nowhere() -> None:
    """Nothing is recalled, asked or kept, and the error says at which boundary and why."""
    shop = Shop()
    with pytest.raises(Blocked, match="no orders today") as blocked:
        await shop.turn(controls=[Says(input=Refuse("no orders today"))])
    assert blocked.value.boundary == "input"
    assert (shop.store.log, shop.talker.requests) == ([], [])


async def test_a_refused_tool_does_not_run() -> None:
    """The model is told the reason instead of a result, and the turn goes on."""
    shop = Shop()
    result = await shop.turn(controls=[Says(tool=Refuse("sold out"))])
    assert (shop.sold, result.content) == ([], "Sold.")
    assert "sold out" in shop.told[0]
    assert "control_applied" in kinds_of(result)


async def test_a_refused_answer_is_not_given_and_not_kept() -> None:
    """The turn fails with the reason; neither the error nor the store holds the answer."""
    shop = Shop("The code is 1234.")
    with pytest.raises(Blocked, match="too frank") as blocked:
        await shop.turn(controls=[Says(output=Refuse("too frank"))])
    assert blocked.value.boundary == "output"
    assert "1234" not in str(blocked.value)
    assert shop.store.writes == []


async def test_rewritten_words_are_the_ones_that_count() -> None:
    """Recall, model and capture get the input as rewritten, and the reader the answer as rewritten."""
    shop = Shop("The code is 1234.")
    control = Says(input=Rewrite("One coffee."), output=Rewrite("The code is ****."))
    result = await shop.turn("My card is 4711.", controls=[control])
    assert shop.store.recalls[0].query == "One coffee."
    assert shop.talker.prompts[0].messages[-1].content == "One coffee."
    assert result.content == "The code is ****."
    assert shop.store.kept[0].content == "User: One coffee.\nAssistant: The code is ****."
    assert "4711" not in repr(shop.talker.prompts)


async def test_rewritten_parameters_are_the_ones_that_run() -> None:
    """A tool runs with the parameters a control put in place of the model's."""
    shop = Shop()
    await shop.turn(controls=[Says(tool=Rewrite({"item": "water"}))])
    assert (shop.sold, shop.told) == (["water"], ["sold water"])


@pytest.mark.parametrize("params", [{}, {"item": 7}, {"item": "tea", "price": 1}])
async def test_parameters_rewritten_wrongly_do_not_run(params: dict[str, Any]) -> None:
    """A control is checked like a model: what does not fit the tool is an answer, and nothing runs."""
    shop = Shop()
    result = await shop.turn(controls=[Says(tool=Rewrite(params))])
    assert (shop.sold, result.content, len(shop.told)) == ([], "Sold.", 1)


@pytest.mark.parametrize("boundary", ["input", "tool", "output"])
@pytest.mark.parametrize("answer", [RuntimeError("broken"), "no", False, Rewrite(7)])
async def test_a_broken_control_lets_nothing_pass(boundary: str, answer: Any) -> None:
    """A control that raises, or answers nonsense, stops the turn with an error of ours."""
    shop = Shop()
    with pytest.raises(OmoideError):
        await shop.turn(controls=[Says(**{boundary: answer})])
    assert shop.sold == [] or boundary == "output"
    assert shop.store.writes == []


async def test_several_controls_are_asked_in_turn() -> None:
    """Each sees what the one before it left, and the first refusal ends it."""
    shop = Shop()
    first, second, third = Says(input=Rewrite("One coffee.")), Says(input=Refuse("closed")), Says()
    with pytest.raises(Blocked, match="closed"):
        await shop.turn(controls=[first, second, third])
    assert second.seen == [("input", "One coffee.")]
    assert third.seen == []


async def test_a_refusal_counts_more_than_a_question() -> None:
    """Where one control wants to ask and a later one refuses, nobody is asked."""
    shop = Shop()
    with pytest.raises(Blocked, match="closed"):
        await shop.turn(controls=[Says(input=Interrupt("Really?")), Says(input=Refuse("closed"))])


async def test_a_tool_waits_for_approval() -> None:
    """A tool that needs a person has not run when the turn comes back, and runs once when approved."""
    shop = Shop(approve=["sell"])
    waiting = await shop.turn()
    assert (waiting.status, waiting.content, shop.sold) == ("waiting", "", [])
    review = waiting.reviews[0]
    assert (review.boundary, review.call.name, review.call.params) == ("tool", "sell", {"item": "tea"})
    assert kinds_of(waiting)[-1] == "review_requested"
    assert shop.store.writes == []
    result = await shop.turn(waiting.snapshot, decisions={review.id: APPROVE})
    assert (result.status, result.content, shop.sold) == ("finished", "Sold.", ["tea"])
    assert len(shop.talker.requests) == 2
    assert [entry.content for entry in shop.store.kept] == ["User: One tea.\nAssistant: Sold."]


@pytest.mark.parametrize("call", [("sell", {"item": 7}), ("sell", {}), ("give_away", {})])
async def test_nobody_is_asked_about_a_call_that_cannot_run(call: Any) -> None:
    """A call that is wrong in itself is answered at once, and no control and no person is bothered."""
    shop, control = Shop(tool_calls(call), "Sorry.", approve=["sell"]), Says(tool=Interrupt("May it?"))
    result = await shop.turn(controls=[control])
    assert (result.status, result.content, shop.sold) == ("finished", "Sorry.", [])
    assert "tool" not in {boundary for boundary, _ in control.seen}


async def test_a_denied_tool_does_not_run() -> None:
    """The model is told that it was denied and why."""
    shop = Shop(approve=["sell"])
    waiting = await shop.turn()
    decision = Decision(verdict="deny", reason="too late")
    result = await shop.turn(waiting.snapshot, decisions={waiting.reviews[0].id: decision})
    assert (shop.sold, result.content) == ([], "Sold.")
    assert "too late" in shop.told[0]


async def test_a_settled_tool_does_not_run_either() -> None:
    """What a person did by hand is told to the model as the result."""
    shop = Shop(approve=["sell"])
    waiting = await shop.turn()
    decision = Decision(verdict="settle", result="sold by hand")
    await shop.turn(waiting.snapshot, decisions={waiting.reviews[0].id: decision})
    assert (shop.sold, shop.told) == ([], ["sold by hand"])


async def test_a_turn_waits_until_everything_is_decided() -> None:
    """With one of two reviews decided the turn waits for the other, and nothing runs twice."""
    shop = Shop(tool_calls(("sell", {"item": "tea"}), ("sell", {"item": "milk"})), "Sold.", approve=["sell"])
    waiting = await shop.turn()
    first, second = waiting.reviews
    still = await shop.turn(waiting.snapshot, decisions={first.id: APPROVE})
    assert (still.status, [review.id for review in still.reviews]) == ("waiting", [second.id])
    result = await shop.turn(still.snapshot, decisions={first.id: APPROVE, second.id: APPROVE})
    assert (result.content, sorted(shop.sold)) == ("Sold.", ["milk", "tea"])


async def test_nothing_decided_is_still_waiting() -> None:
    """Resuming without a decision asks the same again and calls nothing."""
    shop = Shop(approve=["sell"])
    waiting = await shop.turn()
    again = await shop.turn(waiting.snapshot)
    assert (again.status, again.reviews[0].id) == ("waiting", waiting.reviews[0].id)
    assert (len(shop.talker.requests), shop.sold) == (1, [])


async def test_chat_says_that_somebody_has_to_decide() -> None:
    """Where only text was asked for, a turn that waits is an error that names the reviews."""
    shop = Shop(approve=["sell"])
    with pytest.raises(ReviewNeeded) as needed:
        await chat(shop.spec, "One tea.", model=shop.talker)
    assert len(needed.value.reviews) == 1


async def test_an_input_may_wait_for_approval() -> None:
    """Until it is approved nobody sees the input; then the turn remembers, answers and captures as ever."""
    shop, control = Shop("Fine."), Says(input=Interrupt("May they?"))
    await write(shop.spec, ALEX, store=shop.store)
    shop.store.log.clear()
    waiting = await shop.turn(controls=[control])
    assert (waiting.status, waiting.reviews[0].boundary) == ("waiting", "input")
    assert (shop.store.log, shop.talker.requests) == ([], [])
    result = await shop.turn(waiting.snapshot, controls=[control], decisions={waiting.reviews[0].id: APPROVE})
    assert result.content == "Fine."
    assert "prefers the name Alex" in shop.talker.prompts[0].messages[0].content
    assert shop.store.log == ["recall", "write"]


async def test_an_input_may_be_denied() -> None:
    """A denied input ends the turn, and the model never sees it."""
    shop, control = Shop("Fine."), Says(input=Interrupt("May they?"))
    waiting = await shop.turn(controls=[control])
    with pytest.raises(Blocked, match="not them"):
        await shop.turn(
            waiting.snapshot,
            controls=[control],
            decisions={waiting.reviews[0].id: Decision(verdict="deny", reason="not them")},
        )
    assert shop.talker.requests == []


async def test_an_answer_may_wait_for_approval() -> None:
    """The reviewer sees the draft; approved, it is the answer, and the model is not asked again."""
    shop, control = Shop("Fine."), Says(output=Interrupt("Send it?"))
    waiting = await shop.turn(controls=[control])
    assert (waiting.status, waiting.content, waiting.reviews[0].draft) == ("waiting", "", "Fine.")
    assert shop.store.writes == []
    result = await shop.turn(waiting.snapshot, controls=[control], decisions={waiting.reviews[0].id: APPROVE})
    assert (result.content, len(shop.talker.requests)) == ("Fine.", 1)
    assert shop.store.kept[0].content == "User: One tea.\nAssistant: Fine."


async def test_an_approved_answer_is_the_one_that_was_shown() -> None:
    """A control that rewrites is not applied a second time to what a person approved."""

    class Signs(Control):
        def at_output(self, text: str, ctx: Any) -> Any:
            return Rewrite(f"{text} (signed)")

    shop, control = Shop("Fine."), Says(output=Interrupt("Send it?"))
    waiting = await shop.turn(controls=[Signs(), control])
    assert waiting.reviews[0].draft == "Fine. (signed)"
    result = await shop.turn(
        waiting.snapshot, controls=[Signs(), control], decisions={waiting.reviews[0].id: APPROVE}
    )
    assert result.content == "Fine. (signed)"


async def test_an_answer_may_be_written_by_hand() -> None:
    """Settled with other words, these are the answer."""
    shop, control = Shop("Fine."), Says(output=Interrupt("Send it?"))
    waiting = await shop.turn(controls=[control])
    decision = Decision(verdict="settle", result="Better.")
    result = await shop.turn(
        waiting.snapshot, controls=[control], decisions={waiting.reviews[0].id: decision}
    )
    assert (result.content, len(shop.talker.requests)) == ("Better.", 1)
    assert shop.store.kept[0].content == "User: One tea.\nAssistant: Better."


async def test_an_answer_may_be_denied() -> None:
    """A denied answer is neither given nor kept."""
    shop, control = Shop("Fine."), Says(output=Interrupt("Send it?"))
    waiting = await shop.turn(controls=[control])
    with pytest.raises(Blocked, match="not like this"):
        await shop.turn(
            waiting.snapshot,
            controls=[control],
            decisions={waiting.reviews[0].id: Decision(verdict="deny", reason="not like this")},
        )
    assert shop.store.writes == []


async def test_a_snapshot_outlives_the_program() -> None:
    """Written as JSON and read again, a snapshot resumes the same turn."""
    shop = Shop(approve=["sell"])
    await write(shop.spec, ALEX, store=shop.store)
    waiting = await shop.turn(session_id="conv-1", context={"locale": "fr"})
    snapshot = Snapshot.from_json(waiting.snapshot.to_json())
    assert snapshot == waiting.snapshot
    result = await shop.turn(snapshot, decisions={waiting.reviews[0].id: APPROVE})
    assert (result.content, result.session_id, result.request_id) == ("Sold.", "conv-1", waiting.request_id)
    assert "prefers the name Alex" in shop.talker.prompts[-1].messages[0].content
    assert shop.talker.prompts[-1].context == {"locale": "fr"}
    assert len(shop.store.recalls) == 1


async def test_a_snapshot_that_was_changed_is_refused() -> None:
    """Another word, tool or version in a snapshot is noticed before anything happens."""
    shop = Shop(approve=["sell"])
    waiting = await shop.turn()
    asked = len(shop.talker.requests)
    written = waiting.snapshot.to_json()
    for old, new in ((b"One tea.", b"Two teas"), (b'"schema_version":1', b'"schema_version":2')):
        assert old in written.replace(b" :", b":").replace(b": ", b":") or old in written
        forged = Snapshot.from_json(written.replace(old, new))
        with pytest.raises(Invalid, match="snapshot"):
            await shop.turn(forged, decisions={waiting.reviews[0].id: APPROVE})
    assert (shop.sold, len(shop.talker.requests)) == ([], asked)


async def test_a_sleeping_turn_goes_on_where_it_stopped() -> None:
    """A turn that sleeps before its tools has not run them, and then runs each once."""
    shop = Shop()
    asleep = await shop.turn(checkpoint="before_tool")
    assert (asleep.status, shop.sold, len(shop.talker.requests)) == ("hibernated", [], 1)
    assert kinds_of(asleep)[-1] == "hibernated"
    result = await shop.turn(asleep.snapshot)
    assert (result.content, shop.sold, len(shop.talker.requests)) == ("Sold.", ["tea"], 2)
    assert kinds_of(result)[0] == "resumed"


async def test_a_pure_action_counts_once_however_often_the_turn_sleeps() -> None:
    """What was computed before a pause is part of the agent once, after any number of resumes."""

    @action
    def count(ctx: Any) -> Any:
        """Count."""
        seen = ctx.state.get("count", 0) + 1
        return {"count": seen}, [directives.Stop()]

    shop = Shop()
    spec = a_spec(tools=[count, *shop.spec.actions], approve=["sell"], memory=None)
    talker = Talker(tool_calls(("count", {})), tool_calls(("sell", {"item": "tea"}), ("count", {})), "Done.")
    result: Any = await turn(spec, "hello", model=talker)
    for _ in range(2):
        assert (result.status, result.agent.state["count"], len(result.directives)) == ("waiting", 1, 1)
        result = await turn(spec, Snapshot.from_json(result.snapshot.to_json()), model=talker)
    decision = {result.reviews[0].id: APPROVE}
    result = await turn(spec, result.snapshot, model=talker, decisions=decision)
    assert (result.status, result.agent.state["count"], len(result.directives)) == ("finished", 2, 2)
    assert (shop.sold, len(talker.requests)) == (["tea"], 3)


async def test_a_usage_is_counted_once_however_often_the_turn_sleeps() -> None:
    """The tokens of replies before and after a pause are added up, also those of an answer that waited."""
    usage = {"input_tokens": 10, "output_tokens": 2, "requests": 1}
    replies = (
        {**tool_calls(("sell", {"item": "tea"})), "usage": usage},
        {"content": "Sold.", "usage": usage},
    )
    shop, control = Shop(*replies, approve=["sell"]), Says(output=Interrupt("Send it?"))
    result = await shop.turn(controls=[control])
    decisions: dict[str, Decision] = {}
    for _ in range(2):
        decisions[result.reviews[0].id] = APPROVE
        result = await shop.turn(result.snapshot, controls=[control], decisions=decisions)
    assert (result.status, result.usage.input_tokens, result.usage.requests) == ("finished", 20, 2)


async def test_secrets_do_not_sleep() -> None:
    """A snapshot holds no secret, and a resumed turn gets those it is given anew."""
    seen: list[Any] = []

    @action(effectful=True)
    async def pay(ctx: Any) -> str:
        """Pay."""
        seen.append(ctx.secrets.get("key"))
        return "paid"

    talker = Talker(tool_calls(("pay", {})), "Paid.")
    spec = a_spec(tools=[pay], approve=["pay"], memory=None)
    context = {"locale": "fr", "api_key": "sk-hunter2hunter2hunter2hunter2"}
    waiting: Any = await turn(spec, "Pay.", model=talker, secrets={"key": "hunter2"}, context=context)
    assert b"hunter2" not in waiting.snapshot.to_json()
    await turn(
        spec,
        waiting.snapshot,
        model=talker,
        secrets={"key": "swordfish"},
        decisions={waiting.reviews[0].id: APPROVE},
    )
    assert seen == ["swordfish"]
