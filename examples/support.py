"""A support agent that remembers a customer when the conversation outgrows the context window.

The agent keeps every turn of a conversation as a memory of that conversation. Its window is small, so old
turns soon leave the prompt; what they said comes back when it is asked for. The program ends in between. A
function stands for the model and knows nothing but what it is shown.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import anyio

from omoide import AgentSpec, Session, open_store
from omoide.turns import Journal, Preflight, Request

SUPPORT = AgentSpec(
    id="support_agent",
    instructions="Answer support questions tersely. Use what you remember of the customer.",
    memory={"scope": "session", "capture": "conversation", "max_entries": 1, "max_tokens": 80},
    window={"max_tokens": 175, "reserve_output_tokens": 40},
)

MORNING = [
    "Hello, I am Alex and my order is A-7.",
    "It should have come on Monday, and the parcel service says that it was never handed over to them.",
    "I have asked them twice now, and they sent me back to you both times, which is not very helpful.",
    "By the way, the lamp in it is a present, so please do not put an invoice into the parcel.",
]
EVENING = ["What is the number of my order?", "May you put an invoice into the parcel?"]


class Talk(NamedTuple):
    """What was said, and what the last prompt of each part was made of."""

    answers: list[str]
    other: str
    turns: int
    in_window: int
    preview: Preflight


def answer(request: Request, journal: Journal) -> str:
    """What a model might say that reads its prompt."""
    messages = request.prompt.messages
    question, read = messages[-1].content, "\n".join(message.content for message in messages[:-1])
    if "number of my order" in question:
        order = re.search(r"\b[A-Z]-\d+\b", read)
        return f"Your order is {order.group()}." if order else "I do not know your order."
    if "?" in question:
        return "No: it is a present." if "is a present" in read else "Yes."
    return "Noted."


async def morning(url: str) -> None:
    """The first program: the customer tells a story."""
    async with (
        open_store(url, embedder="local") as store,
        Session.open(SUPPORT, "alex", store=store, model=answer) as session,
    ):
        for line in MORNING:
            await session.chat(line)


async def evening(url: str) -> Talk:
    """The second program: the same customer asks, and then another one."""
    async with open_store(url, embedder="local") as store:
        async with Session.open(SUPPORT, "alex", store=store, model=answer) as session:
            preview = await session.preflight(EVENING[0])
            answers = [await session.chat(line) for line in EVENING]
            turns = session.record.turns
        async with Session.open(SUPPORT, "sam", store=store, model=answer) as session:
            other = await session.chat(EVENING[0])
    said = [message.content for message in preview.prompt.messages if message.role == "user"]
    return Talk(answers, other, turns, len(said) - 1, preview)


def main() -> Talk:
    """Let one program listen and another one answer."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'memory.db').as_posix()}"
        anyio.run(morning, url)
        talk = anyio.run(evening, url)
    print(talk.preview)
    for question, told in zip(EVENING, talk.answers, strict=True):
        print(f"{question}\n  {told}")
    print(f"The same, asked by somebody else:\n  {talk.other}")
    return talk


if __name__ == "__main__":
    main()
