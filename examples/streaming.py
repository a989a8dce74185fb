"""A chat that streams its answer and remembers.

Without an argument a small model of our own answers, which recalls what it was told and says so; the
conversation is written below. With the name of a provider's model, such as `openai:gpt-4o-mini`, you chat
with that one: `python examples/streaming.py openai:gpt-4o-mini`. An empty line ends it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import NamedTuple

import anyio

from omoide import AgentSpec, Session, open_store
from omoide.turns import Model, Reply, Request, Usage

SPEC = AgentSpec(
    id="companion",
    instructions="You are good company. Answer in a sentence or two.",
    memory={"capture": "conversation", "max_entries": 2},
)
LINES = ["My sister Clara keeps bees.", "I should call her on Sunday.", "What does Clara keep?"]


class Chat(NamedTuple):
    """What was answered, in how many pieces, and what happened on the way."""

    answers: list[str]
    pieces: int
    events: list[str]
    tokens: int


class Listener:
    """A model that has no opinions, but listens: it says what it remembers."""

    name = "listener"

    async def complete(self, request: Request) -> Reply:
        """The answer, in one piece."""
        memory = request.prompt.memory
        asked = request.prompt.messages[-1].content
        if "?" not in asked:
            said = "I will remember that."
        elif memory is not None and memory["entries"]:
            heard = memory["entries"][0]["content"].splitlines()[0]
            said = f"You once told me: {heard.removeprefix('User: ')}"
        else:
            said = "You did not tell me."
        tokens = request.prompt.tokens["total"]
        return Reply(content=said, usage=Usage(input_tokens=tokens, output_tokens=len(said.split())))

    async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        """The answer, word by word."""
        reply = await self.complete(request)
        for at, word in enumerate(reply.content.split(" ")):
            yield f" {word}" if at else word
        yield reply


async def talk(model: Model | str, lines: Iterable[str]) -> Chat:
    """Answer each line while it is being said; each conversation begins anew, and memory goes on."""
    answers, pieces, events, tokens = [], 0, [], 0
    async with open_store("memory://", embedder="local") as store:
        for number, line in enumerate(lines):
            async with (
                Session.open(SPEC, f"evening-{number}", store=store, model=model) as session,
                session.stream(line) as answer,
            ):
                print("< ", end="", flush=True)
                async for event in answer:
                    if event.kind == "text":
                        print(event.data["text"], end="", flush=True)
                        pieces += 1
                print()
            events += [event.kind for event in answer.result.events]
            answers.append(answer.result.content)
            tokens += answer.result.usage.total_tokens
    return Chat(answers, pieces, events, tokens)


def shown(lines: Iterable[str]) -> Iterator[str]:
    """Lines as somebody would have typed them."""
    for line in lines:
        print(f"> {line}")
        yield line


def typed() -> Iterator[str]:
    """Lines from the keyboard, until an empty one."""
    while line := input("> ").strip():
        yield line


def main(model: str | None = None) -> Chat:
    """Chat with a provider's model, or show how it would be."""
    chat = anyio.run(talk, model or Listener(), typed() if model else shown(LINES))
    print(f"{len(chat.answers)} answers in {chat.pieces} pieces")
    return chat


if __name__ == "__main__":
    main(*sys.argv[1:2])
