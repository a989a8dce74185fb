"""Summary, next actions, embedding projectors.

`MessageEmbedder` asks for them to be put into a memory provider, each under a key that is always the same. An
entry counts as covered when the provider said that it has it.

`NextActions` makes tasks of it, each with the place where it was said. Rules are data: give others, or add
some.

`ConversationSummary` keeps the gist in `world.summary`. It takes sentences as they were said, and needs no
model. An older summary counts as what was said before, so that no entry is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from typing import Any, ClassVar, TypeAlias

from omoide.core.action import Directive, MemoryUpsert
from omoide.core.codec import TextsField
from omoide.core.entry import check_positive
from omoide.core.frozen import FrozenMap
from omoide.core.memory import Memory
from omoide.core.thread import Thread
from omoide.core.value import Count, Name, Record, Value, check_choice, check_function, check_tuple, set_field
from omoide.errors import Invalid
from omoide.ids import MAX_BYTES
from omoide.projection.engine import MESSAGE_KINDS, RETRY_MS, ProjectionContext, ThreadMessage, messages_in
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.shortterm.memory import ROLES, BufferMessage
from omoide.shortterm.summary import sentences, summarize_messages

# embedding: How do messages get to where they can be searched by meaning?


EmbedFunction: TypeAlias = Callable[[str], Sequence[float]]


class MessageEmbedder(Value, frozen=True, kw_only=True):
    """Puts new messages into a memory provider, in batches."""

    confirmed: ClassVar[bool] = True

    name: Name = "message_embedder"
    provider: Name = "semantic"
    batch_size: Count = 50
    """How many messages one directive holds at most."""
    kinds: TextsField = MESSAGE_KINDS
    max_length: Count = 20_000
    """How many characters of a message are kept; the rest of a longer one stays in the thread."""
    embed: EmbedFunction | None = None
    """A pure function from a text to its vector; without it the provider makes one."""
    retry_ms: Count = RETRY_MS
    """How long an answer is waited for before the same is asked again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.batch_size, "batch_size")
        check_positive(self.max_length, "max_length")
        if self.embed is not None:
            check_function(self.embed, "embed")

    def project(
        self, memory: Memory, thread: Thread, ctx: ProjectionContext
    ) -> tuple[Memory, list[Directive]]:
        """The memory as it was, and a directive for each batch of fresh messages."""
        items = [
            self._item(key_of(thread.id, one.entry.seq), one.text[: self.max_length])
            for one in messages_in(ctx.fresh, self.kinds)
        ]
        batches = [items[at : at + self.batch_size] for at in range(0, len(items), self.batch_size)]
        return memory, [MemoryUpsert(items=batch, provider=self.provider) for batch in batches]

    def _item(self, key: str, text: str) -> dict[str, Any]:
        item: dict[str, Any] = {"key": key, "value": text}
        return item if self.embed is None else item | {"embedding": [float(x) for x in self.embed(text)]}


def key_of(thread_id: str, seq: int) -> str:
    """The key of a message: the thread and its place there, shortened where that would be too long."""
    key = f"{thread_id}:{seq}"
    return key if len(key.encode()) <= MAX_BYTES else f"{sha256(thread_id.encode()).hexdigest()}:{seq}"


# next actions: What did somebody say is to be done next?


MIN_TASK_LENGTH, MAX_SENTENCE_LENGTH = 3, 400
"""How many characters a task has, and a sentence that is looked at."""
MAX_TASKS_PER_MESSAGE = 10
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
                groups = _compile(written or "").groups
            except re.error as error:
                raise Invalid(field, f"is no regular expression ({error})", "correct it") from error
            if field == "pattern" and groups == 0:
                raise Invalid(field, "has no group", "put brackets around what is to be done")

    def find_task(self, sentence: str, role: str) -> str | None:
        """What a sentence says is to be done, if it is one of these."""
        match = _compile(self.pattern).search(sentence) if role in self.roles else None
        if match is None or (self.unless is not None and _compile(self.unless).search(sentence)):
            return None
        return (match[1] or "").strip(" \t.!;,:–-")


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_SUBJECT = r"(?:i|we|you)"
_CONDITIONAL = (
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
        pattern=rf"\b{_SUBJECT} (?:still |also |now |really |then )?(?:need|have) to (.+)",
        unless=_CONDITIONAL,
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
    kinds: TextsField = MESSAGE_KINDS

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "rules", check_tuple(self.rules, "rules", ActionRule))

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
        """The memory with a task for each thing to do in the fresh messages."""
        known = {
            _normalize(text) for task in memory.tasks_open() if isinstance(text := task.get("text"), str)
        }
        taken = {task.get("id") for task in memory.tasks() if isinstance(task, FrozenMap)}
        for one in messages_in(ctx.fresh, self.kinds):
            for text in self._tasks_in(one):
                task_id = _task_id(thread.id, one.entry.seq, text)
                if _normalize(text) in known or task_id in taken:
                    continue
                known.add(_normalize(text))
                fields = {"evidence": {"thread": thread.id, "seq": one.entry.seq}}
                memory = memory.tasks_add(text, id=task_id, fields=fields, now=ctx.now)
        return memory

    def _tasks_in(self, one: ThreadMessage) -> list[str]:
        return [*dict.fromkeys(self._match_sentences(one))][:MAX_TASKS_PER_MESSAGE]

    def _match_sentences(self, one: ThreadMessage) -> Iterator[str]:
        for sentence in sentences(one.text):
            if len(sentence) > MAX_SENTENCE_LENGTH or sentence.rstrip("\"')]”’").endswith("?"):
                continue
            plain = sentence.replace("’", "'")
            text = next((found for rule in self.rules if (found := rule.find_task(plain, one.role))), "")
            if len(text) >= MIN_TASK_LENGTH:
                yield text


def _normalize(text: str) -> str:
    """What two tasks that say the same have in common."""
    return " ".join(text.casefold().split()).rstrip(".!")


def _task_id(thread_id: str, seq: int, text: str) -> str:
    """The id of a task: the same, however often it is found in the same place."""
    return "task_" + sha256(f"{thread_id}\0{seq}\0{_normalize(text)}".encode()).hexdigest()[:32]


# summary: What was the conversation about so far?


SUMMARY = "summary"

_LINE = re.compile(rf"- ({'|'.join(ROLES)}): (.+)")


class ConversationSummary(Value, frozen=True, kw_only=True):
    """Keeps a summary of the messages in `world.summary`, never longer than `max_tokens`."""

    name: Name = "conversation_summary"
    max_tokens: Count = 200
    kinds: TextsField = MESSAGE_KINDS
    batch_size: Count = 50
    """How many messages are weighed against each other at a time."""
    count: TokenCounter = estimate_tokens
    """What counts tokens."""
    key: Name = SUMMARY
    """Where in the world it is kept."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.max_tokens, "max_tokens")
        check_positive(self.batch_size, "batch_size")
        check_function(self.count, "count")

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
        """The memory with the fresh messages summed up together with what it knew of the older ones."""
        messages = [*messages_in(ctx.fresh, self.kinds)]
        if not messages:
            return memory
        text, first = self._previous_summary(memory, thread.id, ctx.since) or ("", messages[0].entry.seq)
        for start in range(0, len(messages), self.batch_size):
            part = [_to_buffer_message(one) for one in messages[start : start + self.batch_size]]
            text = summarize_messages([*_parse_summary(text), *part], self.max_tokens, count=self.count)
        summary = {
            "content": text,
            "source": "projector",
            "thread": thread.id,
            "projected_at": ctx.now,
            "covers_seq": [first, messages[-1].entry.seq],
        }
        return memory.world_put(self.key, summary, now=ctx.now)

    def _previous_summary(self, memory: Memory, thread_id: str, since: int) -> tuple[str, int] | None:
        """The summary of what came before, and where it begins; anybody may have written another."""
        match memory.world_get(self.key):
            case {"thread": str(other)} if other != thread_id:
                return None
            case {"source": "projector", "content": str(text), "covers_seq": [int(first), int(last)]}:
                return (text, first) if 0 <= first <= last < since else None
            case _:
                return None


def _parse_summary(summary: str) -> list[BufferMessage]:
    """What a summary says, line by line, as the messages it stands for."""
    found = map(_LINE.fullmatch, summary.split("\n"))
    return [
        BufferMessage(id=f"line_{at}", role=line[1], content=line[2], timestamp=0, token_count=1)
        for at, line in enumerate(found)
        if line is not None
    ]


def _to_buffer_message(one: ThreadMessage) -> BufferMessage:
    return BufferMessage(
        id=one.entry.id, role=one.role, content=one.text, timestamp=one.entry.at, token_count=1
    )
