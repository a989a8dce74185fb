"""Summarize conversations, extract tasks and entities, and send messages to a memory provider.

`MessageEmbedder` upserts messages into a memory provider, each under a stable key; an entry is covered when
the provider has confirmed it. `NextActions` extracts tasks by rules, each with the message as evidence.
`EntityFacts` keeps the names, addresses and paths that were mentioned in `world.facts`.
`ConversationSummary` keeps an extractive summary in `world.summary`, without a model; the previous summary
stands for the older messages, so that no entry is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from itertools import islice
from typing import Any, ClassVar, TypeAlias

from omoide.core.action import Directive, MemoryUpsert
from omoide.core.codec import TextsField
from omoide.core.entry import check_positive
from omoide.core.frozen import FrozenMap
from omoide.core.memory import Memory
from omoide.core.thread import Thread
from omoide.core.value import Count, Name, Record, Value, check_choice, check_function, check_tuple, set_field
from omoide.errors import Invalid, WrongType
from omoide.ids import MAX_BYTES
from omoide.projection.engine import MESSAGE_KINDS, RETRY_MS, ProjectionContext, ThreadMessage, messages_in
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.shortterm.memory import ROLES, BufferMessage
from omoide.shortterm.summary import sentences, summarize_messages

EmbedFunction: TypeAlias = Callable[[str], Sequence[float]]


class MessageEmbedder(Value, frozen=True, kw_only=True):
    """Upserts new messages into a memory provider, in batches."""

    confirmed: ClassVar[bool] = True

    name: Name = "message_embedder"
    provider: Name = "semantic"
    batch_size: Count = 50
    """Messages in one directive."""
    kinds: TextsField = MESSAGE_KINDS
    max_length: Count = 20_000
    """Characters of a message that are sent; the thread keeps all of them."""
    embed: EmbedFunction | None = None
    """A pure function from a text to its vector; by default the provider embeds."""
    retry_ms: Count = RETRY_MS
    """Time to wait for an answer before a request is repeated."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.batch_size, "batch_size")
        check_positive(self.max_length, "max_length")
        if self.embed is not None:
            check_function(self.embed, "embed")

    def project(
        self, memory: Memory, thread: Thread, ctx: ProjectionContext
    ) -> tuple[Memory, list[Directive]]:
        """Return the same memory, and a directive for each batch of fresh messages."""
        items = [
            self._item(key_of(thread.id, message.entry.seq), message.text[: self.max_length])
            for message in messages_in(ctx.fresh, self.kinds)
        ]
        batches = [items[at : at + self.batch_size] for at in range(0, len(items), self.batch_size)]
        return memory, [MemoryUpsert(items=batch, provider=self.provider) for batch in batches]

    def _item(self, key: str, text: str) -> dict[str, Any]:
        item: dict[str, Any] = {"key": key, "value": text}
        return item if self.embed is None else item | {"embedding": [float(x) for x in self.embed(text)]}


def key_of(thread_id: str, seq: int) -> str:
    """Return the key of a message: thread and position, hashed where that is too long."""
    key = f"{thread_id}:{seq}"
    return key if len(key.encode()) <= MAX_BYTES else f"{sha256(thread_id.encode()).hexdigest()}:{seq}"


MIN_TASK_LENGTH, MAX_SENTENCE_LENGTH = 3, 400
"""Characters of a task at least, and of a sentence at most."""
MAX_TASKS_PER_MESSAGE = 10
"""Tasks that are extracted from one message."""


class ActionRule(Record, frozen=True, kw_only=True):
    """A pattern of sentences that contain a task."""

    LABEL: ClassVar[str] = "action rule"

    name: Name
    pattern: Name
    """A case-insensitive regular expression; its first group is the task."""
    unless: str | None = None
    """A regular expression that the sentence must not match."""
    roles: TextsField = ("user", "assistant")
    """Roles whose messages it applies to."""

    def _check(self) -> None:
        for role in self.roles:
            check_choice(role, "roles", ROLES)
        for field in ("pattern", "unless"):
            written = getattr(self, field)
            try:
                groups = _compile(written or "").groups
            except re.error as error:
                raise Invalid(field, f"is not a valid regular expression ({error})", "correct it") from error
            if field == "pattern" and groups == 0:
                raise Invalid(field, "has no group", "put parentheses around the task")

    def find_task(self, sentence: str, role: str) -> str | None:
        """Return the task in a sentence, if the rule matches."""
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
"""Conditions and questions, which contain no task."""

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
"""The default rules; the first that matches a sentence decides."""


class NextActions(Value, frozen=True, kw_only=True):
    """Extracts open tasks from messages; none twice while it is open."""

    name: Name = "next_actions"
    rules: tuple[ActionRule, ...] = ACTION_RULES
    kinds: TextsField = MESSAGE_KINDS

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "rules", check_tuple(self.rules, "rules", ActionRule))

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
        """Return the memory with the tasks of the fresh messages."""
        # By text among open tasks, so that a task which was done may come up again; by id among all tasks, so
        # that an entry which is projected twice does not.
        known = {
            _normalize(text) for task in memory.tasks_open() if isinstance(text := task.get("text"), str)
        }
        taken = {task.get("id") for task in memory.tasks() if isinstance(task, FrozenMap)}
        for message in messages_in(ctx.fresh, self.kinds):
            for text in self._tasks_in(message):
                task_id = _task_id(thread.id, message.entry.seq, text)
                if _normalize(text) in known or task_id in taken:
                    continue
                known.add(_normalize(text))
                fields = {"evidence": {"thread": thread.id, "seq": message.entry.seq}}
                memory = memory.tasks_add(text, id=task_id, fields=fields, now=ctx.now)
        return memory

    def _tasks_in(self, message: ThreadMessage) -> list[str]:
        return [*dict.fromkeys(self._match_sentences(message))][:MAX_TASKS_PER_MESSAGE]

    def _match_sentences(self, message: ThreadMessage) -> Iterator[str]:
        for sentence in sentences(message.text):
            if len(sentence) > MAX_SENTENCE_LENGTH or sentence.rstrip("\"')]”’").endswith("?"):
                continue
            # Patterns use the ASCII apostrophe.
            plain = sentence.replace("’", "'")
            text = next((found for rule in self.rules if (found := rule.find_task(plain, message.role))), "")
            if len(text) >= MIN_TASK_LENGTH:
                yield text


def _normalize(text: str) -> str:
    """Return the text in a form that equal tasks share."""
    return " ".join(text.casefold().split()).rstrip(".!")


def _task_id(thread_id: str, seq: int, text: str) -> str:
    """Return a stable id for a task at a position of a thread."""
    return "task_" + sha256(f"{thread_id}\0{seq}\0{_normalize(text)}".encode()).hexdigest()[:32]


FACTS = "facts"
PROJECTED = "projector"
"""The `source` of what a projector wrote into the world."""


class EntityRule(Record, frozen=True, kw_only=True):
    """A pattern of entities of one kind."""

    LABEL: ClassVar[str] = "entity rule"

    name: Name
    """The kind of the entities."""
    pattern: Name
    """A regular expression; its first group, or the whole match, is the entity."""

    def _check(self) -> None:
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise Invalid("pattern", f"is not a valid regular expression ({error})", "correct it") from error

    def find(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield the entities in a text, each with the span of its match."""
        for match in re.finditer(self.pattern, text):
            entity = match[1] if match.re.groups else match[0]
            if entity:
                yield entity, match.start(), match.end()


ENTITY_RULES: tuple[EntityRule, ...] = (
    EntityRule(name="url", pattern=r"\bhttps?://[^\s<>\"']{1,500}[^\s<>\"'.,;:!?)\]}]"),
    EntityRule(name="email", pattern=r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}"),
    EntityRule(name="path", pattern=r"(?<![\w/.~-])[\w.~-]{0,100}(?:/[\w.~-]{1,100}){1,20}\.\w{1,8}\b"),
)
"""The default rules; what one has found, those behind it do not read. Names are found besides."""

MAX_ENTITIES_PER_MESSAGE = 50
MAX_NAME_WORDS = 6
_WORD = re.compile(r"[^\W\d_](?:[\w]|['’-](?=\w))*")


class EntityFacts(Value, frozen=True, kw_only=True):
    """Keeps the entities that messages mention as facts in `world.facts`, by their names.

    A fact has its `kind`, the number of messages that mention it, and their first and last position in the
    thread. Facts that were written by others stay as they are.
    """

    name: Name = "entity_facts"
    rules: tuple[EntityRule, ...] | None = None
    """Rules in place of the default ones and of the names."""
    kinds: TextsField = MESSAGE_KINDS
    max_facts: Count = 200
    """Facts that are kept: those mentioned last."""
    key: Name = FACTS
    """The key of the facts in the world space."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.max_facts, "max_facts")
        if self.rules is not None:
            set_field(self, "rules", check_tuple(self.rules, "rules", EntityRule))

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
        """Return the memory with the entities of the fresh messages."""
        stored = memory.world_get(self.key)
        if stored is not None and not isinstance(stored, FrozenMap):
            raise WrongType(f"world.{self.key}", "a mapping", stored, "move that value to another key")
        facts: dict[str, Any] = dict(stored or {})
        for message in messages_in(ctx.fresh, self.kinds):
            for entity, kind in self._entities_in(message.text).items():
                old = facts.get(entity)
                if old is None or _is_projected(old):
                    facts[entity] = _mentioned(old, kind, thread.id, message.entry.seq, ctx.now)
        own = [entity for entity, fact in facts.items() if _is_projected(fact)]
        own.sort(key=lambda entity: (facts[entity]["projected_at"], facts[entity]["last_seq"], entity))
        for entity in own[: -self.max_facts]:
            del facts[entity]
        return memory if facts == (stored or {}) else memory.world_put(self.key, facts, now=ctx.now)

    def _entities_in(self, text: str) -> dict[str, str]:
        """Return the entities of a text with their kinds."""
        found: dict[str, str] = {}
        for rule in ENTITY_RULES if self.rules is None else self.rules:
            matches = [*rule.find(text)]
            for entity, _, _ in matches:
                found.setdefault(entity, rule.name)
            if self.rules is None:
                text = _blank(text, [(start, end) for _, start, end in matches])
        if self.rules is None:
            for sentence in sentences(text):
                for name in _names_in(sentence):
                    found.setdefault(name, "name")
        return dict(islice(found.items(), MAX_ENTITIES_PER_MESSAGE))


def _blank(text: str, spans: list[tuple[int, int]]) -> str:
    """Return a text with spaces in place of some spans."""
    parts, at = [], 0
    for start, end in spans:
        parts += [text[at:start], " " * (end - start)]
        at = end
    return "".join([*parts, text[at:]])


def _is_projected(fact: object) -> bool:
    return isinstance(fact, (FrozenMap, dict)) and fact.get("source") == PROJECTED


def _mentioned(old: Any, kind: str, thread_id: str, seq: int, now: int) -> Any:
    """Return a fact after another mention; one that it counts already changes nothing."""
    new = {"kind": kind, "source": PROJECTED, "mentions": 1, "thread": thread_id, "first_seq": seq}
    if old is not None and old["thread"] == thread_id:
        if seq <= old["last_seq"]:
            return old
        new |= {"mentions": old["mentions"] + 1, "first_seq": old["first_seq"]}
    return new | {"last_seq": seq, "projected_at": now}


def _names_in(sentence: str) -> Iterator[str]:
    """Yield runs of capitalized words; the word that begins a sentence is part of a longer run at most."""
    run: list[re.Match[str]] = []
    for word in [*_WORD.finditer(sentence), None]:
        follows = word is not None and run and sentence[run[-1].end() : word.start()] == " "
        if run and not (follows and word is not None and _is_capitalized(word[0])):
            yield from _name_of(run, sentence)
            run = []
        if word is not None and _is_capitalized(word[0]):
            run.append(word)


def _name_of(run: list[re.Match[str]], sentence: str) -> Iterator[str]:
    starts = not any(char.isalnum() for char in sentence[: run[0].start()])
    if starts and (len(run) == 1 or run[0][0].lower() in _SENTENCE_STARTS):
        run = run[1:]
    words = [match[0] for match in run]
    if words and len(words) <= MAX_NAME_WORDS and not (len(words) == 1 and len(words[0]) == 1):
        yield " ".join(words).removesuffix("'s").removesuffix("’s")


def _is_capitalized(word: str) -> bool:
    return word[0].isupper() and word != "I" and not word.startswith(("I'", "I’"))


_SENTENCE_STARTS = frozenset({
    "a", "after", "all", "also", "an", "and", "another", "any", "ask", "at", "before", "both", "but", "by",
    "call", "did", "do", "does", "each", "every", "for", "from", "how", "if", "in", "is", "it", "let", "my",
    "next", "no", "not", "now", "of", "on", "once", "one", "or", "our", "please", "see", "she", "so",
    "some", "tell", "that", "the", "then", "there", "these", "they", "this", "those", "to", "today",
    "tomorrow", "until", "was", "we", "what", "when", "where", "which", "while", "who", "why", "will",
    "with", "yesterday", "yes", "you", "your",
})  # fmt: skip
"""Words that begin a sentence in front of a name."""

SUMMARY = "summary"

_LINE = re.compile(rf"- ({'|'.join(ROLES)}): (.+)")


class ConversationSummary(Value, frozen=True, kw_only=True):
    """Keeps a summary of the messages in `world.summary`, at most `max_tokens` long."""

    name: Name = "conversation_summary"
    max_tokens: Count = 200
    kinds: TextsField = MESSAGE_KINDS
    batch_size: Count = 50
    """Messages that are summarized at a time."""
    count: TokenCounter = estimate_tokens
    """The token counter."""
    key: Name = SUMMARY
    """The key of the summary in the world space."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.max_tokens, "max_tokens")
        check_positive(self.batch_size, "batch_size")
        check_function(self.count, "count")

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
        """Return the memory with a summary of the fresh messages and the previous summary."""
        messages = [*messages_in(ctx.fresh, self.kinds)]
        if not messages:
            return memory
        # The previous summary is summarized again with the new messages, in their order.
        text, first = self._previous_summary(memory, thread.id, ctx.since) or ("", messages[0].entry.seq)
        for start in range(0, len(messages), self.batch_size):
            part = [_to_buffer_message(message) for message in messages[start : start + self.batch_size]]
            text = summarize_messages([*_parse_summary(text), *part], self.max_tokens, count=self.count)
        summary = {
            "content": text,
            "source": PROJECTED,
            "thread": thread.id,
            "projected_at": ctx.now,
            "covers_seq": [first, messages[-1].entry.seq],
        }
        return memory.world_put(self.key, summary, now=ctx.now)

    def _previous_summary(self, memory: Memory, thread_id: str, since: int) -> tuple[str, int] | None:
        """Return text and first position of the previous summary; None if it is not one of ours."""
        match memory.world_get(self.key):
            case {"thread": str(other)} if other != thread_id:
                return None
            case {"source": "projector", "content": str(text), "covers_seq": [int(first), int(last)]}:
                # Entries from `since` on are in the summary if the cursor moved back; they would count twice.
                return (text, first) if 0 <= first <= last < since else None
            case _:
                return None


def _parse_summary(summary: str) -> list[BufferMessage]:
    """Return the lines of a summary as the messages that they stand for."""
    # Token counts are not used: `summarize_messages` counts by itself.
    found = map(_LINE.fullmatch, summary.split("\n"))
    return [
        BufferMessage(id=f"line_{at}", role=line[1], content=line[2], timestamp=0, token_count=1)
        for at, line in enumerate(found)
        if line is not None
    ]


def _to_buffer_message(message: ThreadMessage) -> BufferMessage:
    return BufferMessage(
        id=message.entry.id,
        role=message.role,
        content=message.text,
        timestamp=message.entry.at,
        token_count=1,
    )
