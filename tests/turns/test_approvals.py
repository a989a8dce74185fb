"""Tests of approvals: decisions of people, and turns that are resumed after them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.turns import Talker, a_spec, tool_calls

from omoide import action
from omoide.errors import Blocked, Invalid, ReviewNeeded, TurnFailed
from omoide.turns import Control, Decision, Interrupt, Refuse, Rewrite, Snapshot, chat, turn

APPROVE = Decision(verdict="approve")
BOUNDARIES = ("input", "tool", "output")


class Says(Control):
    """Says at one boundary what the function says to what is there."""

    def __init__(self, at: str, answer: Any) -> None:
        self.at, self.answer = at, answer

    def _said(self, at: str, subject: Any) -> Any:
        return self.answer(subject) if self.at == at else None

    def at_input(self, text: str, ctx: Any) -> Any:
        return self._said("input", text)

    def at_tool(self, call: Any, ctx: Any) -> Any:
        return self._said("tool", call)

    def at_output(self, text: str, ctx: Any) -> Any:
        return self._said("output", text)


class Rising(Says):
    """Rewrites what is there, each time it is asked to something else."""

    def __init__(self, at: str) -> None:
        super().__init__(at, self._next)
        self.times = 0

    def _next(self, subject: Any) -> Any:
        self.times += 1
        return Rewrite({"sum": self.times} if self.at == "tool" else f"version {self.times}")


class Bank:
    """An agent that pays, and all that it paid, was asked and answered."""

    def __init__(self) -> None:
        self.paid: list[int] = []

        @action(effectful=True)
        async def pay(ctx: Any, sum: int) -> str:
            """Pay."""
            self.paid.append(sum)
            return f"paid {sum}"

        self.pay = pay
        self.spec = a_spec(memory=None, tools=[pay])
        self.asked: list[Talker] = []
        self.controls: Any = []

    async def turn(self, input: Any, *replies: Any, **options: Any) -> Any:
        """A turn with these replies; a snapshot goes on under the controls that it began with."""
        self.asked.append(Talker(*replies))
        self.controls = options.setdefault("controls", self.controls if isinstance(input, Snapshot) else [])
        return await turn(options.pop("spec", self.spec), input, model=self.asked[-1], **options)

    async def waiting(self, at: str, *controls: Control, **options: Any) -> Any:
        """A turn that waits at a boundary."""
        replies = ("Draft.",) if at == "output" else (tool_calls(("pay", {"sum": 5})), "Paid.")
        asks = Says(at, lambda subject: Interrupt("Sure?"))
        result = await self.turn("Pay five.", *replies, controls=[*controls, asks], **options)
        assert (result.status, [one.boundary for one in result.reviews], self.paid) == ("waiting", [at], [])
        return result


# Nobody decided


@pytest.mark.parametrize("at", BOUNDARIES)
@pytest.mark.parametrize("decisions", [{}, {"something else": APPROVE}], ids=["none", "typo"])
async def test_who_decides_nothing_does_not_get_past_the_controls(at: str, decisions: Any) -> None:
    """A turn that waits still waits when it is resumed without a decision, whatever the controls say now."""
    bank = Bank()
    waits = await bank.waiting(at)
    bank.controls = [Says("nowhere", None)]
    for _ in range(2):
        again = await bank.turn(waits.snapshot, "Something else.", decisions=decisions)
        assert (again.status, again.content, bank.paid) == ("waiting", "", [])
        assert [one.id for one in again.reviews] == [one.id for one in waits.reviews]
        assert bank.asked[-1].requests == []
        waits = again
    done = await bank.turn(waits.snapshot, "Paid.", decisions={waits.reviews[0].id: APPROVE})
    assert (done.status, bank.paid) == ("finished", [5] if at == "tool" else [])


@pytest.mark.parametrize("at", BOUNDARIES)
async def test_a_turn_goes_on_only_under_the_controls_it_began_with(at: str) -> None:
    """Who resumes it without them is told to pass them again; nothing is called."""
    bank = Bank()
    waits = await bank.waiting(at)
    with pytest.raises(Invalid, match="controls lack Says"):
        await bank.turn(waits.snapshot, "x", controls=[], decisions={waits.reviews[0].id: APPROVE})
    assert (bank.paid, bank.asked[-1].requests) == ([], [])


async def test_a_tool_that_no_longer_needs_approval_still_waits_for_it() -> None:
    """A spec that asks for no approval any more does not approve what was asked before."""
    bank = Bank()
    waits = await bank.turn(
        "Pay five.", tool_calls(("pay", {"sum": 5})), spec=bank.spec.replace(approve=("pay",))
    )
    again = await bank.turn(waits.snapshot, "Paid.")
    assert (again.status, bank.paid) == ("waiting", [])


@pytest.mark.parametrize("at", BOUNDARIES)
async def test_a_turn_that_waits_again_can_be_written_down_again(at: str) -> None:
    """Through JSON, any number of times, the question and what it is about stay."""
    bank = Bank()
    waits = await bank.waiting(at)
    for _ in range(2):
        waits = await bank.turn(Snapshot.from_json(waits.snapshot.to_json()), "Something else.")
    review = waits.reviews[0]
    denied = Decision(verdict="deny", reason="too much")
    if at == "tool":
        done = await bank.turn(waits.snapshot, "Not paid.", decisions={review.id: denied})
        assert (done.content, bank.paid) == ("Not paid.", [])
    else:
        with pytest.raises(Blocked, match="too much"):
            await bank.turn(waits.snapshot, "x", decisions={review.id: denied})


# What was shown is what happens


@pytest.mark.parametrize("silent", [False, True], ids=["asked-again", "silent"])
async def test_the_parameters_that_were_approved_are_the_ones_that_run(silent: bool) -> None:
    """A control that makes something else of the call by now, or nothing, does not change what was shown."""
    bank = Bank()
    rising = Rising("tool")
    waits = await bank.waiting("tool", rising)
    shown = waits.reviews[0].call.params["sum"]
    quiet = [rising.__class__("nowhere"), Says("nowhere", None)]
    controls = quiet if silent else [rising, Says("tool", lambda call: Interrupt("Sure?"))]
    await bank.turn(waits.snapshot, "Paid.", controls=controls, decisions={waits.reviews[0].id: APPROVE})
    assert bank.paid == [shown] == [1]


@pytest.mark.parametrize("silent", [False, True], ids=["asked-again", "silent"])
async def test_the_words_that_were_approved_are_the_ones_that_are_said(silent: bool) -> None:
    """An input is rewritten once: what the person saw is what the model is asked."""
    bank = Bank()
    before = Says("input", lambda text: Rewrite(f"Please: {text}"))
    waits = await bank.waiting("input", before)
    assert waits.reviews[0].draft == "Please: Pay five."
    quiet = [Says("nowhere", None)]
    controls = quiet if silent else [before, Says("input", lambda text: Interrupt("Sure?"))]
    done = await bank.turn(
        waits.snapshot, "Yes.", controls=controls, decisions={waits.reviews[0].id: APPROVE}
    )
    assert bank.asked[-1].prompts[0].messages[-1].content == "Please: Pay five."
    assert done.journal.entries[0].payload["content"] == "Please: Pay five."


async def test_words_that_change_with_each_look_are_said_as_shown() -> None:
    """A control that counts, or looks at a clock, does not put other words in place of the approved ones."""
    bank = Bank()
    rising = Rising("input")
    waits = await bank.waiting("input", rising)
    controls = [rising, Says("input", lambda text: Interrupt("Sure?"))]
    await bank.turn(waits.snapshot, "Yes.", controls=controls, decisions={waits.reviews[0].id: APPROVE})
    assert bank.asked[-1].prompts[0].messages[-1].content == waits.reviews[0].draft == "version 1"


@pytest.mark.parametrize("at", ["input", "tool"])
async def test_a_control_may_still_refuse_what_was_approved(at: str) -> None:
    """Between the question and the yes the rules may have changed, and a refusal counts more."""
    bank = Bank()
    waits = await bank.waiting(at)
    options: Any = {
        "controls": [Says(at, lambda subject: Refuse("The bank is closed."))],
        "decisions": {waits.reviews[0].id: APPROVE},
    }
    if at == "input":
        with pytest.raises(Blocked, match="closed"):
            await bank.turn(waits.snapshot, "Yes.", **options)
    else:
        await bank.turn(waits.snapshot, "Not paid.", **options)
        assert "closed" in bank.asked[-1].prompts[-1].messages[-1].content
    assert bank.paid == []


async def test_what_was_approved_runs_once_beside_what_nobody_was_asked_about() -> None:
    """Of two calls one waits; after the yes both run once, each with what it was to run with."""
    bank = Bank()
    asks = Says("tool", lambda call: Interrupt("Sure?") if call.params["sum"] > 10 else None)
    both = tool_calls(("pay", {"sum": 1}), ("pay", {"sum": 100}))
    waits = await bank.turn("Pay both.", both, controls=[asks])
    assert (waits.status, bank.paid) == ("waiting", [])
    done = await bank.turn(waits.snapshot, "Paid.", decisions={waits.reviews[0].id: APPROVE})
    assert (done.content, sorted(bank.paid)) == ("Paid.", [1, 100])


# Answers by hand


@pytest.mark.parametrize(
    ("result", "answer"),
    [("Better.", "Better."), ({"a": 1}, '{"a":1}'), (["x", 2], '["x",2]'), (7, "7"), (False, "false")],
)
async def test_an_answer_by_hand_is_told_like_any_result(result: Any, answer: str) -> None:
    """Text is the answer as it is, and data is JSON."""
    bank = Bank()
    waits = await bank.waiting("output")
    decision = Decision(verdict="settle", result=result)
    done = await bank.turn(waits.snapshot, decisions={waits.reviews[0].id: decision})
    assert done.content == answer


@pytest.mark.parametrize("result", [None, "", "  "])
async def test_nothing_is_no_answer_by_hand(result: Any) -> None:
    """Whoever settles an answer has to say what it is."""
    bank = Bank()
    waits = await bank.waiting("output")
    decision = Decision(verdict="settle", result=result)
    with pytest.raises(Invalid, match="result"):
        await bank.turn(waits.snapshot, decisions={waits.reviews[0].id: decision})


# Chat


async def test_chat_says_that_a_turn_was_put_aside() -> None:
    """A turn that was told to stop needs nobody's decision, and the error does not speak of one."""
    with pytest.raises(TurnFailed, match="is suspended") as aside:
        await chat(a_spec(memory=None), "hello", model=Talker(), checkpoint="after_prompt")
    assert not isinstance(aside.value, ReviewNeeded)
    assert "resume" in str(aside.value)
    assert "approve" not in str(aside.value)
