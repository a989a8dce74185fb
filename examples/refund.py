"""A refund that needs an approval and happens once, although the program crashes twice.

An agent wants to refund an order. The turn waits until a person has said yes, in another program. That one
loses its power right after the money has moved, before anybody could note it. The third program finds a
refund that began and did not report, looks into the bank's books, says what it found, and the turn goes on.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio

from omoide import AgentSpec, Session, action, open_store
from omoide.turns import Journal, Request, TurnContext


class PowerCut(BaseException):
    """Stands for the end of a program; nothing in it gets to clean up after itself."""


class Refund(NamedTuple):
    """What happened, program by program."""

    statuses: list[str]
    questions: list[str]
    books: list[str]
    answer: str
    transcript: list[str]


books: list[str] = []
"""What the bank knows; it outlives every program here."""


@action(effectful=True)
async def refund(ctx: TurnContext, order: str, amount: float) -> dict[str, Any]:
    """Give the money for an order back."""
    books.append(f"{ctx.idempotency_key}: {amount:.2f} for {order}")
    if ctx.secrets.get("power") == "fails":
        raise PowerCut
    return {"order": order, "refunded": amount}


CASHIER = AgentSpec(
    id="cashier",
    instructions="Refund what arrived broken.",
    tools=[refund],
    approve=[refund],
)


def model(request: Request, journal: Journal) -> Any:
    """What a model might say: first the tool, then what came of it."""
    if request.round == 0:
        params = {"order": "A-7", "amount": 40}
        return {"type": "operation", "id": "call_1", "name": "refund", "params": params}
    return f"Done: {request.prompt.messages[-1].content}"


async def ask(url: str) -> tuple[str, str]:
    """The first program: the customer asks. It ends while the turn waits for a yes."""
    async with (
        open_store(url, embedder="none") as store,
        Session.open(CASHIER, "case-7", store=store, model=model) as session,
    ):
        result = await session.run("My lamp arrived broken. The order is A-7.", request_id="lamp")
        return session.status, result.reviews[0].question


async def agree(url: str) -> None:
    """The second program: a person says yes, the refund begins, and the power goes."""
    async with (
        open_store(url, embedder="none") as store,
        Session.open(CASHIER, "case-7", store=store, model=model) as session,
    ):
        await session.approve(session.pending_reviews[0].id)
        await session.resume(secrets={"power": "fails"})


async def clear_up(url: str) -> tuple[str, str, str, list[str]]:
    """The third program: nobody knows whether the money has moved, so somebody looks."""
    async with (
        open_store(url, embedder="none") as store,
        Session.open(CASHIER, "case-7", store=store, model=model) as session,
    ):
        found = session.status
        review = (await session.resume()).reviews[0]
        assert review.call is not None
        if any(line.startswith(f"case-7:lamp:{review.call.id}") for line in books):
            await session.settle(review.id, {"order": "A-7", "refunded": 40})
        else:
            await session.approve(review.id)
        result = await session.resume()
        return found, review.question, result.content, [entry.kind for entry in session.thread.entries]


def main() -> Refund:
    """Run the three programs, one after the other."""
    books.clear()
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'memory.db').as_posix()}"
        waiting, first = anyio.run(ask, url)
        print(f"1. The session is {waiting}: {first}")
        try:
            anyio.run(agree, url)
        except PowerCut:
            print("2. Somebody says yes, the bank pays, and the power goes.")
        running, second, answer, transcript = anyio.run(clear_up, url)
        print(f"3. The session is {running}: {second}")
    print("   The books say:", *books)
    print("   So it is settled, and the agent answers:", answer)
    return Refund([waiting, running], [first, second], [*books], answer, transcript)


if __name__ == "__main__":
    main()
