"""What did somebody say is to be done next?

`NextActions` makes tasks of it, each with the place where it was said. Rules are data: give others, or add
some.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from typing import ClassVar

from omoide.core.codec import TextsField
from omoide.core.contract import Record, check_choice, check_tuple
from omoide.core.frozen import FrozenMap
from omoide.core.memory import Memory
from omoide.core.thread import Thread
from omoide.core.value import Name, Value, force
from omoide.errors import Invalid
from omoide.projection.messages import MESSAGE, Said, said
from omoide.projection.projector import ProjectionContext
from omoide.shortterm.buffer import ROLES
from omoide.shortterm.sentences import sentences

SHORTEST, LONGEST = 3, 400
"""How many characters a task has, and a sentence that is looked at."""
MOST = 10
"""How many tasks one message is taken for, at most."""


class ActionRule(Record, frozen=True, kw_only=True):
    """A pattern of sentences that say what is to be done."""

    LABEL: ClassVar[str] = "action rule"

    name: Name
    pattern: Name
    """A regular expression without regard to case; its first group is the task."""
    unless: str | None = None
    """Another one, which the sentence must not have."""
    roles: TextsField = ("user", "assistant")
    """Whose sentences it is for."""

    def _check(self) -> None:
        for role in self.roles:
            check_choice(role, "roles", ROLES)
        for field in ("pattern", "unless"):
            written = getattr(self, field)
            try:
                groups = _compiled(written or "").groups
            except re.error as error:
                raise Invalid(field, f"is no regular expression ({error})", "correct it") from error
            if field == "pattern" and groups == 0:
                raise Invalid(field, "has no group", "put brackets around what is to be done")

    def found(self, sentence: str, role: str) -> str | None:
        """What a sentence says is to be done, if it is one of these."""
        match = _compiled(self.pattern).search(sentence) if role in self.roles else None
        if match is None or (self.unless is not None and _compiled(self.unless).search(sentence)):
            return None
        return (match[1] or "").strip(" \t.!;,:–-")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_WE = r"(?:i|we|you)"
_IDLE = (
    r"\b(?:if|when|whenever|unless|whether|until|before|once|why|how|what|where|in case|suppose|imagine)\b"
    r"[^,]* (?:i|we|you)\b"
)
"""Words that make a need less than one."""

ACTION_RULES: tuple[ActionRule, ...] = (
    ActionRule(
        name="todo",
        pattern=r"^(?:todo|to do|to-do|fixme|action items?|next (?:steps?|actions?)): *(.+)",
    ),
    ActionRule(
        name="next",
        pattern=r"^(?:and |so |then )?next,? (?:i|we)(?:'ll| will| can| should| must| need to| have to|"
        r" want to|(?:'m|'re| am| are) going to) (.+)",
        unless=r"\bnext,? (?:i|we) (?:will|can|should) (?:not|never)\b",
    ),
    ActionRule(
        name="then",
        pattern=r"^(?:after that|afterwards),? (?:i|we)(?:'ll| will| should| must| need to) (.+)",
        unless=r"\b(?:will|should|must) (?:not|never)\b",
    ),
    ActionRule(
        name="need",
        pattern=rf"\b{_WE} (?:still |also |now |really |then )?(?:need|have) to (.+)",
        unless=_IDLE,
    ),
    ActionRule(
        name="reminder",
        pattern=r"^(?:please,? |and |also,? |so )?(?:remember|do not forget|don't forget|make sure) to (.+)",
    ),
)
"""What is looked for unless other rules are given; the first that fits a sentence decides."""


class NextActions(Value, frozen=True, kw_only=True):
    """Makes open tasks of what messages say is to be done; none twice while it is open."""

    name: Name = "next_actions"
    rules: tuple[ActionRule, ...] = ACTION_RULES
    kinds: TextsField = MESSAGE

    def __post_init__(self) -> None:
        super().__post_init__()
        force(self, "rules", check_tuple(self.rules, "rules", ActionRule))

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
        """The memory with a task for each thing to do in the fresh messages."""
        known = {_same(text) for task in memory.tasks_open() if isinstance(text := task.get("text"), str)}
        taken = {task.get("id") for task in memory.tasks() if isinstance(task, FrozenMap)}
        for one in said(ctx.fresh, self.kinds):
            for text in self._stated(one):
                task_id = _task_id(thread.id, one.entry.seq, text)
                if _same(text) in known or task_id in taken:
                    continue
                known.add(_same(text))
                fields = {"evidence": {"thread": thread.id, "seq": one.entry.seq}}
                memory = memory.tasks_add(text, id=task_id, fields=fields, now=ctx.now)
        return memory

    def _stated(self, one: Said) -> list[str]:
        return [*dict.fromkeys(self._found(one))][:MOST]

    def _found(self, one: Said) -> Iterator[str]:
        for sentence in sentences(one.text):
            if len(sentence) > LONGEST or sentence.rstrip("\"')]”’").endswith("?"):
                continue
            plain = sentence.replace("’", "'")
            text = next((found for rule in self.rules if (found := rule.found(plain, one.role))), "")
            if len(text) >= SHORTEST:
                yield text


def _same(text: str) -> str:
    """What two tasks that say the same have in common."""
    return " ".join(text.casefold().split()).rstrip(".!")


def _task_id(thread_id: str, seq: int, text: str) -> str:
    """The id of a task: the same, however often it is found in the same place."""
    return "task_" + sha256(f"{thread_id}\0{seq}\0{_same(text)}".encode()).hexdigest()[:32]
