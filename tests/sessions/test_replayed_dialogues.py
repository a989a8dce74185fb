"""Conversations replayed through sessions: what was said stands in the prompt when it is asked for.

`OMOIDE_DIALOGUES` sets how many conversations are replayed.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.turns import Talker

from omoide import clock, open_store
from omoide.sessions import Session
from omoide.turns import AgentSpec
from omoide.turns.prompt import quote

DIALOGUES = Path(__file__).parents[2] / "training" / "data" / "dialogues.jsonl"
COUNT = int(os.environ.get("OMOIDE_DIALOGUES", "3"))
KINDS = ("single", "update", "preference")
MINUTE = 60_000


class Outcome(NamedTuple):
    """What the prompt showed for one question."""

    kind: str
    found: bool
    ordered: bool
    """False where an older value stands before the newer one."""


def read_dialogues(count: int) -> list[dict[str, Any]]:
    """Return the first conversations between a user and an assistant."""
    lines = map(json.loads, DIALOGUES.read_text("utf-8").splitlines())
    return [line for line in lines if line["kind"] == "assistant"][:count]


async def replay(dialogue: dict[str, Any], capture: str, **policy: Any) -> list[Outcome]:
    """Say everything in sessions, ask each question in a session of its own, and look at the prompts."""
    spec = AgentSpec(id="ada", memory={"capture": capture, **policy})
    texts: dict[str, str] = {}
    now, answer = [0], [""]
    async with open_store("memory://") as store:
        for number, session in enumerate(dialogue["sessions"], 1):
            now[0] = int(datetime.fromisoformat(session["date"]).replace(tzinfo=UTC).timestamp() * 1000)
            turns = session["turns"]
            texts |= {f"{number}:{at}": turn["t"] for at, turn in enumerate(turns, 1)}
            model = Talker(lambda _: answer[0])
            with clock.override(lambda: now[0]):
                async with Session.open(spec, f"s{number}", store=store, model=model) as opened:
                    for at, turn in enumerate(turns):
                        if turn["s"] != "user":
                            continue
                        now[0] += MINUTE
                        follows = at + 1 < len(turns) and turns[at + 1]["s"] != "user"
                        answer[0] = turns[at + 1]["t"] if follows else "All right."
                        await opened.chat(turn["t"])
        outcomes = []
        for number, question in enumerate(dialogue["questions"]):
            if question["type"] not in KINDS or not question["gold"]:
                continue
            now[0] += MINUTE
            model = Talker("I see.")
            with clock.override(lambda: now[0]):
                async with Session.open(spec, f"q{number}", store=store, model=model) as opened:
                    await opened.chat(question["q"])
            outcomes.append(look(question, texts, model.prompts[0].messages[0].content))
    return outcomes


def look(question: dict[str, Any], texts: dict[str, str], prompt: str) -> Outcome:
    """Return what a prompt shows for a question."""
    gold, old = (
        [prompt.find(quote(texts[ref])[1:-1]) for ref in question.get(field, ())] for field in ("gold", "old")
    )
    newest, oldest = gold[-1], [at for at in old if at >= 0]
    ordered = newest < 0 or question.get("both", False) or all(newest < at for at in oldest)
    return Outcome(question["type"], max(gold) >= 0, ordered)


async def test_gold_text_stands_in_the_prompt() -> None:
    """What answers a question is in its prompt in at least 85 %, and the newer value before the older."""
    outcomes = [one for dialogue in read_dialogues(COUNT) for one in await replay(dialogue, "messages")]
    found = sum(one.found for one in outcomes)
    assert found >= 0.85 * len(outcomes), (found, len(outcomes))
    updates = [one for one in outcomes if one.kind == "update"]
    assert sum(one.ordered for one in updates) >= 0.85 * len(updates)
