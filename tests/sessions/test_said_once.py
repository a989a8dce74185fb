"""Tests that what was said once stays in the prompt, however often it is asked for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.sessions import KINDS
from tests.support.turns import Talker

from omoide import clock, open_store
from omoide.sessions import Session
from omoide.turns import AgentSpec

CAPTURES = ("conversation", "messages", "user")
DAY = 86_400_000


def answer_from_prompt(request: Any) -> str:
    """Answer with the town of the first memory that names one."""
    system = request.prompt.messages[0].content
    found = re.search(r"(?:live in|moved to) (\w+)", system)
    return f"You live in {found[1]}." if found else "I do not know where you live."


def memory_lines(request: Any) -> list[str]:
    """Return the lines of memory in the prompt, as they are ordered."""
    return [line for line in request.prompt.messages[0].content.splitlines() if line.startswith("- ")]


@pytest.mark.parametrize("capture", CAPTURES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_fact_is_not_shadowed_by_its_questions(kind: str, capture: str, tmp_path: Path) -> None:
    """A fact said once comes first in the prompts of 30 later sessions, and its update in the next."""
    spec, model = AgentSpec(id="ada", memory={"capture": capture}), Talker(answer_from_prompt)
    timing = {"at": 1_767_225_600_000}

    async def chat(session: int, input: str) -> str:
        timing["at"] += DAY
        with clock.override(lambda: timing["at"]):
            async with Session.open(spec, f"s{session}", store=store, model=model) as opened:
                return await opened.chat(input)

    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'memory.db'}"
    async with open_store(url) as store:
        await chat(0, "I live in Lyon.")
        for number in range(1, 31):
            assert await chat(number, "Where do I live?") == "You live in Lyon."
            assert "I live in Lyon." in memory_lines(model.requests[-1])[0]
        await chat(31, "I moved to Paris.")
        assert await chat(32, "Where do I live?") == "You live in Paris."
        first, *rest = memory_lines(model.requests[-1])
        assert "I moved to Paris." in first
        assert sum("Where do I live?" in line for line in rest) <= 1


@pytest.mark.parametrize("capture", CAPTURES)
async def test_what_is_said_again_is_newer(capture: str) -> None:
    """A value that is said again, in the same words and session, stands before the one said in between."""
    spec, model = AgentSpec(id="ada", memory={"capture": capture}), Talker("Noted.")
    now = [1_767_225_600_000]
    async with open_store("memory://") as store:
        for number, towns in enumerate([("Lyon", "Paris", "Lyon"), (None,)]):
            async with Session.open(spec, f"s{number}", store=store, model=model) as session:
                for town in towns:
                    now[0] += DAY
                    with clock.override(lambda: now[0]):
                        await session.chat(f"I live in {town}." if town else "Where do I live?")
    first, second, *_ = memory_lines(model.requests[-1])
    assert "I live in Lyon." in first
    assert "said 2 times" in first
    assert "I live in Paris." in second
