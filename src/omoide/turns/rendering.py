"""How is a prompt shown to a person?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from omoide.core import codec
from omoide.turns.messages import Message
from omoide.turns.prompt import Prompt
from omoide.turns.quoting import visible
from omoide.turns.spec import AgentSpec

WIDTH = 24
"""How many characters the longest bar has."""

PARTS = ("instructions", "memory", "history", "input", "turn", "tools")


def rendered(spec: AgentSpec, prompt: Prompt, plan: Sequence[str], diagnostics: Sequence[str]) -> str:
    """A prompt as a page of plain text."""
    sections = [
        (f"Prompt of {spec.id}", [*_messages(prompt)]),
        ("Memory", [*_memory(prompt)]),
        ("Tokens", [*_tokens(prompt)]),
        ("Left out", [f"{cut.part} {cut.ref}: {cut.reason}" for cut in prompt.cut]),
        ("Then", [*plan]),
        ("Note", [*diagnostics]),
    ]
    return "\n".join(line for title, lines in sections if lines for line in (title, *_indented(lines), ""))


def _indented(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        for part in line.split("\n"):
            yield f"  {visible(part)}".rstrip()


def _messages(prompt: Prompt) -> Iterator[str]:
    for at, message in enumerate(prompt.messages):
        if at:
            yield ""
        yield f"[{_who(message)}]"
        if message.content:
            yield message.content
        for call in message.calls:
            yield f"→ {call.name} {codec.encode(call.params).decode()}"


def _who(message: Message) -> str:
    return message.role if message.name is None else f"{message.role} {message.name}"


def _memory(prompt: Prompt) -> Iterator[str]:
    entries: Sequence[Any] = () if prompt.memory is None else prompt.memory["entries"]
    for at, entry in enumerate(entries, 1):
        date = datetime.fromtimestamp(entry["at"] / 1000, UTC)
        yield f"{at}. {entry['id']} ({date:%Y-%m-%d}, score {entry['score']:.2f})"
        yield f"   {_short(entry['content'])}"
        yield f"   because: {entry['why']}"


def _short(text: str, length: int = 90) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length - 1]}…"


def _tokens(prompt: Prompt) -> Iterator[str]:
    counted = {part: prompt.tokens[part] for part in PARTS if prompt.tokens[part]}
    most = max(counted.values(), default=1)
    for part, tokens in counted.items():
        bar = "█" * max(1, round(WIDTH * tokens / most))
        yield f"{part:<13}{tokens:>8,}  {bar}"
    yield f"{'total':<13}{prompt.tokens['total']:>8,}  of {prompt.tokens['allowed']:,} allowed"
