"""A script of many turns, answered by a model that knows nothing but its prompt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.turns import tool_calls

from omoide import Scope, action, clock, open_store
from omoide.documents import add_document
from omoide.retrieval.text import terms
from omoide.sessions import Session
from omoide.turns import AgentSpec, Prompt

DAY, MINUTE = 86_400_000, 60_000


@action(effectful=True)
def open_file(ctx: Any, name: str) -> str:
    """Open a file."""
    ctx.context.put("active_file", name, source="tool", confidence=1.0)
    return "opened"


@action(effectful=True)
def check_out(ctx: Any, branch: str) -> str:
    """Check out a branch."""
    ctx.context.put("branch", branch, source="tool", confidence=1.0)
    return "done"


class Reader:
    """A model that answers with the line of its prompt that shares most words with the question.

    Of equal lines it takes the first: values, then the conversation from its end, then memories as they are
    ranked. It calls a tool where it is told to.
    """

    def __init__(self) -> None:
        self.prompts: list[Prompt] = []

    def __call__(self, request: Any, journal: Any) -> Any:
        self.prompts.append(request.prompt)
        *earlier, last = request.prompt.messages
        if last.role == "tool":
            return "Done."
        if found := re.match(r"Open (\S+)\.$", last.content):
            return tool_calls(("open_file", {"name": found[1]}), prefix=f"call{len(self.prompts)}_")
        if found := re.match(r"Check out (\S+)\.$", last.content):
            return tool_calls(("check_out", {"branch": found[1]}), prefix=f"call{len(self.prompts)}_")
        if not last.content.endswith("?"):
            return "All right."
        system = earlier[0].content if earlier and earlier[0].role == "system" else ""
        shown, _, memories = system.partition("<memory>")
        said = [one.content for one in reversed(earlier) if one.role == "user"]
        said = [text for text in said if not text.endswith("?")]
        lines = [
            line
            for line in (*shown.splitlines(), *said, *memories.splitlines())
            if not line.rstrip('"').endswith("?")
        ]
        asked = {*terms(last.content)}
        best = max(lines, key=lambda line: len(asked & {*terms(line)}), default="")
        return best if asked & {*terms(best)} else "I do not know."


# Sessions, each with its values and turns; a turn with an answer is a question.
SCRIPT: list[tuple[dict[str, str], list[tuple[str, str | None]]]] = [
    (
        {"framework": "Phoenix 1.7"},
        [
            ("My name is Ines and I work on the billing service.", None),
            ("We decided to store invoices in Postgres because of pgvector.", None),
            ("Which framework do we use?", "Phoenix 1.7"),
            ("I prefer short answers without emoji.", None),
            ("Where do we store invoices?", "Postgres"),
        ],
    ),
    (
        {},
        [
            ("Which service do I work on?", "billing"),
            ("The nightly export starts at 02:00.", None),
            ("Open billing.py.", None),
            ("Which active file is open?", "billing.py"),
            ("When does the nightly export start?", "02:00"),
        ],
    ),
    (
        {"ticket": "OPS-17"},
        [
            ("Which ticket is it about?", "OPS-17"),
            ("Correction: the nightly export starts at 04:30 now.", None),
            ("When does the nightly export start?", "04:30"),
            ("The staging server is called kestrel.", None),
            ("What do I prefer for answers?", "short answers"),
        ],
    ),
    (
        {},
        [
            ("When does the nightly export start?", "04:30"),
            ("What is the staging server called?", "kestrel"),
            ("Check out fix-rounding.", None),
            ("Which branch is checked out?", "fix-rounding"),
            ("Our rounding rule is half to even.", None),
        ],
    ),
    (
        {"deadline": "12 March"},
        [
            ("What is our rounding rule?", "half to even"),
            ("What is the deadline?", "12 March"),
            ("We decided to store invoices in MySQL now instead of Postgres.", None),
            ("Where do we store invoices?", "MySQL"),
            ("The contact at the bank is Mr Okafor.", None),
        ],
    ),
    (
        {},
        [
            ("Where do we store invoices?", "MySQL"),
            ("Who is the contact at the bank?", "Okafor"),
            ("When does the nightly export start?", "04:30"),
            ("The staging server is called osprey now.", None),
            ("What is the staging server called?", "osprey"),
        ],
    ),
    (
        {},
        [
            ("What is the staging server called?", "osprey"),
            ("Open ledger.py.", None),
            ("Which active file is open?", "ledger.py"),
            ("The new contact at the bank is Ms Adler.", None),
            ("Who is the contact at the bank?", "Adler"),
        ],
    ),
    (
        {"reviewer": "Tomasz"},
        [
            ("Who is the reviewer?", "Tomasz"),
            ("Who is the contact at the bank?", "Adler"),
            ("Where do we store invoices?", "MySQL"),
            ("How long must paper receipts be kept?", "ten years"),
            ("Which service do I work on?", "billing"),
        ],
    ),
]
HANDBOOK = "# Handbook\n\n## Archive\n\nPaper receipts must be kept for ten years, in the cellar.\n"


@pytest.mark.parametrize(
    ("kind", "capture"),
    [("memory", "conversation"), ("memory", "user"), ("memory", "messages"), ("sqlite", "messages")],
)
async def test_what_was_said_is_answered(kind: str, capture: str, tmp_path: Path) -> None:
    """Every question whose answer was said is answered, and each prompt is the one that preflight showed."""
    spec = AgentSpec(id="ada", memory={"capture": capture}, tools=[open_file, check_out])
    assert (len(SCRIPT), sum(len(turns) for _, turns in SCRIPT)) == (8, 40)
    model, now = Reader(), [1_767_225_600_000]
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'memory.db'}"
    wrong = []
    async with open_store(url) as store:
        await add_document(store, HANDBOOK.encode(), Scope(agent_id="ada"), name="handbook.md")
        for number, (values, turns) in enumerate(SCRIPT):
            now[0] += DAY
            with clock.override(lambda: now[0]):
                async with Session.open(spec, f"s{number}", store=store, model=model) as session:
                    for key, value in values.items():
                        session.context.put(key, value, source="explicit", confidence=1.0)
                    for input, expected in turns:
                        now[0] += MINUTE
                        before = len(model.prompts)
                        seen = await session.preflight(input)
                        answer = await session.chat(input)
                        assert model.prompts[before].messages == seen.prompt.messages
                        if expected is not None and expected not in answer:
                            wrong.append((number, input, answer))
    assert wrong == []
