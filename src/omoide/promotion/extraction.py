"""Extract memories from messages: the `Extractor` protocol, and the rules.

An extractor reads messages and returns typed memories with confidence, evidence and rationale; it may also
say how each relates to what is known. What it returns is checked as a whole: an extraction with one invalid
memory changes nothing.

Rules are regular expressions for sentences that state a decision, a convention, a finding and so on. Each
proposed memory has the sentence as evidence. Rules are data: callers can pass their own, and sessions extract
nothing unless asked to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from types import MappingProxyType
from typing import ClassVar, Protocol, runtime_checkable
from unicodedata import category

import msgspec

from omoide import clock
from omoide.core.codec import TextsField
from omoide.core.entry import Entry, Evidence, check_type
from omoide.core.frozen import check_str
from omoide.core.value import (
    Count,
    Id,
    Name,
    Record,
    Value,
    check_choice,
    check_count,
    check_instance,
    check_tuple,
    check_unit,
    set_field,
)
from omoide.errors import Invalid, WrongType
from omoide.shortterm.importance import DEFAULT_WEIGHTS, Weights, score
from omoide.shortterm.memory import RELATIONS, BufferMessage, PendingItem
from omoide.shortterm.summary import sentences

MIN_SENTENCE_CHARS, MAX_SENTENCE_CHARS = 12, 400
"""Length limits of a sentence that rules are applied to."""
MAX_ITEMS = 20
"""Maximum number of memories from one message."""
# The confidence that JidoCode gives to what it extracts from the replies of a model.
MAX_AGENT_CONFIDENCE = 0.6
"""Upper limit of the confidence in an assistant's own statement."""

SOURCES = MappingProxyType({"user": "user", "assistant": "agent"})
"""Roles whose messages are examined, and the source that a memory from each gets."""

_RATIONALE = re.compile(r"\b(?:because(?: of)?|due to|so that)\s+(.{3,})", re.IGNORECASE)
_QUESTION = re.compile(r"\?[\"')\]]{0,3}$")


MAX_USER_CONFIDENCE = 0.9
"""Upper limit of the confidence in what an extractor takes from a user's message."""


_JOINERS = frozenset("\u00ad\u200b\u200c\u200d\u200e\u200f")
"""Invisible characters that scripts such as Persian, Thai and Arabic need."""


class Quotation(Value, frozen=True, kw_only=True):
    """A position in a thread as evidence, with the words there."""

    position: Count
    """Number of the message in its thread."""
    quote: str | None = None


class ExtractedMemory(Record, frozen=True, kw_only=True):
    """A memory that an extractor found in messages, and its relation to what is known."""

    LABEL: ClassVar[str] = "extracted memory"

    content: Name
    type: str
    confidence: float
    evidence: tuple[Quotation, ...]
    rationale: str | None = None
    relation: str = "adds"
    """`adds`, or what it does to the known memory `target`: `confirms`, `updates` or `contradicts`."""
    target: Id | None = None

    def _check(self) -> None:
        for field in ("content", "rationale"):
            text = getattr(self, field) or ""
            if len(text) > MAX_SENTENCE_CHARS:
                raise Invalid(field, f"has {len(text)} characters", f"use at most {MAX_SENTENCE_CHARS}")
            if not _is_plain(text):
                raise Invalid(field, "contains a control character or line break", "use one line of text")
        set_field(self, "type", check_type(self.type))
        set_field(self, "confidence", check_unit(self.confidence, "confidence"))
        set_field(self, "evidence", check_tuple(self.evidence, "evidence", Quotation))
        if not self.evidence:
            raise Invalid("evidence", "is empty", "name the messages that it comes from")
        check_choice(self.relation, "relation", RELATIONS)
        if (self.target is None) != (self.relation == "adds"):
            raise Invalid(
                "target", f"does not go with relation {self.relation!r}", "name what is known for it"
            )


def _is_plain(text: str) -> bool:
    """Return True for text on one line without characters that control a terminal or hide something."""
    return all(char.isprintable() or category(char) == "Zs" or char in _JOINERS for char in text)


class ExtractionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Messages to read, oldest first, and memories that they may be about."""

    messages: tuple[BufferMessage, ...]
    known: tuple[Entry, ...] = ()


class Extraction(msgspec.Struct, frozen=True, kw_only=True):
    """What an extractor found, and what that cost."""

    memories: tuple[ExtractedMemory, ...] = ()
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@runtime_checkable
class Extractor(Protocol):
    """Finds memories in messages, when a session pauses, closes or promotes on demand."""

    async def extract(self, request: ExtractionRequest) -> Extraction:
        """Return what the messages say that is worth remembering; an error leaves them unread."""


class ExtractionReport(msgspec.Struct, frozen=True, kw_only=True):
    """One extraction before a promotion, in figures."""

    messages: int
    memories: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    end: int = 0
    """Position in the thread up to which messages were read."""
    problem: str | None = None
    """Why nothing was extracted; the messages are read again next time."""


def check_extraction(extraction: object, request: ExtractionRequest) -> Extraction:
    """Return an extraction, or raise `Invalid` unless all of it is about the messages of the request."""
    checked: Extraction = check_instance(extraction, "extraction", kind=Extraction)
    if len(checked.memories) > MAX_ITEMS:
        raise Invalid("memories", f"has {len(checked.memories)} items", f"use at most {MAX_ITEMS}")
    said = {message.seq: _normalize(message.content) for message in request.messages}
    known, targets = {entry.id for entry in request.known}, set[str]()
    for at, memory in enumerate(checked.memories):
        if not isinstance(memory, ExtractedMemory):
            raise WrongType(f"memories[{at}]", "an ExtractedMemory", memory)
        for quoted in memory.evidence:
            if quoted.position not in said:
                raise Invalid(f"memories[{at}].evidence", f"names {quoted.position}", "name what was shown")
            if quoted.quote is not None and _normalize(quoted.quote) not in said[quoted.position]:
                raise Invalid(
                    f"memories[{at}].evidence", "quotes what was not said", "quote it to the letter"
                )
        if memory.target is not None and (memory.target not in known or memory.target in targets):
            raise Invalid(
                f"memories[{at}].target", "is unknown, or named twice", "name each known memory once"
            )
        if memory.target is not None:
            targets.add(memory.target)
    return checked


def _normalize(text: str) -> str:
    """Return text in which quotations are found: case, spaces and the form of apostrophes do not matter."""
    return " ".join(text.replace("’", "'").casefold().split())


def items_of(
    extraction: Extraction,
    request: ExtractionRequest,
    *,
    thread: str,
    agent_id: str,
    now: int,
    weights: Weights = DEFAULT_WEIGHTS,
) -> list[PendingItem]:
    """Return the memories of a checked extraction as pending items.

    What only the agent said adds at most a memory of low confidence: it may repeat what it was shown, so it
    neither confirms nor replaces anything.
    """
    roles = {message.seq: message.role for message in request.messages}
    times = {message.seq: message.timestamp for message in request.messages}
    known = {_normalize(entry.content) for entry in request.known}
    items: dict[str, PendingItem] = {}
    for memory in extraction.memories:
        positions = sorted({quoted.position for quoted in memory.evidence})
        by_user = any(roles[position] == "user" for position in positions)
        if memory.relation == "adds" and _normalize(memory.content) in known:
            continue
        if memory.relation != "adds" and not by_user:
            continue
        limit = MAX_USER_CONFIDENCE if by_user else MAX_AGENT_CONFIDENCE
        confidence = min(memory.confidence, limit)
        # The same finding in the same messages is one item, however often they are read.
        key = "\0".join([thread, *map(str, positions), memory.type, memory.relation, memory.content])
        entry = Entry(
            id="mem_" + sha256(key.encode()).hexdigest()[:32],
            agent_id=agent_id,
            content=memory.content,
            type=memory.type,
            confidence=confidence,
            importance=score(now, 1, confidence, memory.type, now, weights).total,
            source="user" if by_user else "agent",
            rationale=memory.rationale or None,
            evidence=tuple(
                Evidence(kind="message", ref=f"{thread}:{quoted.position}", quote=quoted.quote)
                for quoted in memory.evidence
            ),
            created_at=max(times[position] for position in positions),
        )
        item = PendingItem(entry=entry, access_count=1, relation=memory.relation, target=memory.target)
        items.setdefault(item.id, item)
    return [*items.values()]


class RuleExtractor:
    """The rules as an `Extractor`."""

    def __init__(self, rules: Iterable[Rule] | None = None) -> None:
        self._rules = RULES if rules is None else tuple(rules)

    async def extract(self, request: ExtractionRequest) -> Extraction:
        """Return the sentences of the messages that a rule matches."""
        found: list[ExtractedMemory] = []
        for message in request.messages:
            seq = message.seq or 0
            items = extract(
                message.content, role=message.role, thread="-", seq=seq, agent_id="-", rules=self._rules
            )
            found += [_extracted(item, seq) for item in items]
        return Extraction(memories=tuple(found[:MAX_ITEMS]))


def _extracted(item: PendingItem, seq: int) -> ExtractedMemory:
    entry = item.entry
    return ExtractedMemory(
        content=" ".join(entry.content.split()),
        type=entry.type or "fact",
        confidence=entry.confidence,
        evidence=(Quotation(position=seq, quote=entry.content),),
        rationale=entry.rationale and " ".join(entry.rationale.split()),
    )


class Rule(Record, frozen=True, kw_only=True):
    """A pattern for the sentences of one memory type."""

    LABEL: ClassVar[str] = "rule"

    name: Name
    type: str
    pattern: Name
    """Regular expression, searched in a sentence ignoring case."""
    unless: str | None = None
    """Regular expression that must not match."""
    confidence: float = 0.7
    roles: TextsField = ("user", "assistant")
    """Roles whose sentences the rule applies to."""
    questions: bool = False
    """Apply the rule to questions as well."""
    reasons: bool = False
    """Store what follows a "because" as the rationale."""

    def _check(self) -> None:
        set_field(self, "type", check_type(self.type))
        set_field(self, "confidence", check_unit(self.confidence, "confidence"))
        for role in self.roles:
            check_choice(role, "roles", tuple(SOURCES))
        for field in ("pattern", "unless"):
            pattern = getattr(self, field)
            try:
                _compile(pattern or "")
            except re.error as error:
                raise Invalid(field, f"is not a valid regular expression ({error})", "correct it") from error

    def matches(self, sentence: str, role: str) -> bool:
        """Return True if the rule applies to a sentence said by this role."""
        if role not in self.roles or (_QUESTION.search(sentence) and not self.questions):
            return False
        if not _compile(self.pattern).search(sentence):
            return False
        return self.unless is None or not _compile(self.unless).search(sentence)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def extract(
    text: str,
    *,
    role: str,
    thread: str,
    seq: int,
    agent_id: str,
    at: int | None = None,
    rules: Iterable[Rule] | None = None,
) -> tuple[PendingItem, ...]:
    """Return the memories that a message suggests; the first rule that matches a sentence decides its type.

    The ids are derived from the message, so the same message always gives the same items.

    Args:
        text: text of the message.
        role: `user` or `assistant`; other roles give nothing.
        thread: thread of the message.
        seq: number of the message in its thread.
        agent_id: agent that will own the memories.
        at: timestamp in milliseconds.
        rules: rules to apply instead of `RULES`.
    """
    check_str(text, "text")
    message_ref, now = f"{thread}:{check_count(seq, 'seq')}", clock.resolve(at)
    # Tool results and system prompts are data and instructions, not statements of a person or an agent.
    if role not in SOURCES:
        return ()
    applied = RULES if rules is None else tuple(rules)
    items: dict[str, PendingItem] = {}
    for sentence in sentences(text):
        if MIN_SENTENCE_CHARS <= len(sentence) <= MAX_SENTENCE_CHARS:
            # Patterns use the ASCII apostrophe; the memory keeps the sentence as it was written.
            plain = sentence.replace("’", "'")
            rule = next((rule for rule in applied if rule.matches(plain, role)), None)
            if rule is not None:
                item = _pending_item(rule, sentence, role, message_ref, agent_id, now)
                items.setdefault(item.id, item)
    return tuple(items.values())[:MAX_ITEMS]


def _pending_item(
    rule: Rule, sentence: str, role: str, message_ref: str, agent_id: str, now: int
) -> PendingItem:
    confidence = rule.confidence if role == "user" else min(rule.confidence, MAX_AGENT_CONFIDENCE)
    reason = _RATIONALE.search(sentence) if rule.reasons else None
    # The same message extracted twice, as after a crash, gives the same ids and thus no second memory.
    key = f"{message_ref}\0{rule.name}\0{sentence}"
    entry = Entry(
        id="mem_" + sha256(key.encode()).hexdigest()[:32],
        agent_id=agent_id,
        content=sentence,
        type=rule.type,
        confidence=confidence,
        importance=score(now, 1, confidence, rule.type, now).total,
        source=SOURCES[role],
        rationale=None if reason is None else reason[1].rstrip(" .!"),
        evidence=(Evidence(kind="message", ref=message_ref, quote=sentence),),
        created_at=now,
    )
    return PendingItem(entry=entry, access_count=1)


_HEDGES = (
    r"\b(?:if|unless|whether|suppose|imagine|would|could|should|might|may|maybe|perhaps|probably|used to)\b"
)
"""Words that turn a statement into a possibility."""
_WHEN = (
    r"\b(?:before|until|once|if|when|whether|unless|why|what|how|wish|suppose|imagine) (?:we|i|the team)\b"
)
_NOT = r"(?:n't|\bnot|\bnever|\bno longer)\b"
_WE = r"\b(?:we|i|the team)(?:'ve|'re| have| has| are)?(?: all| both| also| just| finally| now)? "
_DO = (
    r"(?:add|answer|ask|assume|avoid|back|build|call|catch|change|check|close|commit|confirm|create|delete|"
    r"deploy|disable|do|document|edit|encrypt|ensure|escape|expose|format|handle|hard-?code|import|include|keep|"
    r"leave|let|lint|log|make|mention|merge|mix|mock|name|open|order|pass|pin|prefer|push|put|quote|raise|rebase|"
    r"rely|reply|respond|return|review|round|run|sanitise|sanitize|send|set|show|skip|sort|squash|start|store|"
    r"tag|tell|test|throw|touch|treat|trust|update|use|validate|verify|wrap|write)"
)
_THING = (
    r"(?:api|app|application|back ?end|build|client|cluster|code ?base|company|database|front ?end|library|"
    r"pipeline|project|queue|repo|repository|server|service|site|stack|system|team|test suite|website|worker)"
)

# The first match decides, so specific statements come first: one of a root cause may match `error` and
# `fact` as well. `unknown` is the only rule for questions.
RULES: tuple[Rule, ...] = (
    Rule(
        name="decision",
        type="decision",
        pattern=r"^(?:final )?decision: |^(?:ok(?:ay)?|so|then|right)?,? ?let's go with |"
        + _WE
        + r"(?:decided (?:to|on|that|against|in favou?r)|agreed (?:to|on|that)|opted (?:to|for)|settled on|"
        r"chose|picked(?! up| on)|went with|going with|choosing)\b",
        unless=_NOT + r" (?:yet |really |quite )?(?:have |been )?(?:decided|agreed|settled|going)|" + _WHEN,
        confidence=0.8,
        reasons=True,
    ),
    Rule(
        name="convention",
        type="convention",
        pattern=r"^(?:please,? |and |so )?(?:always|never) " + _DO + r"\b|"
        r"\b(?:we|you|agents?|everyone|everybody) (?:must|should) (?:always|never) |"
        r"\b(?:we|you|agents?|everyone|everybody) must(?: not)? " + _DO + r"\b|"
        r"\bour (?:convention|rule|policy|standard|style) is\b",
        unless=r"\?",
        roles=("user",),
        confidence=0.8,
        reasons=True,
    ),
    Rule(
        name="stated convention",
        type="convention",
        pattern=r"^(?:convention|house rule|coding standard|rule|policy): \w",
        confidence=0.8,
        reasons=True,
    ),
    Rule(
        name="lesson",
        type="lesson_learned",
        pattern=r"^(?:note to self|lessons?(?: learn(?:ed|t))?|takeaway|til): |"
        r"\b(?:we|i) (?:have |'ve )?learn(?:ed|t) (?:that|the hard way)\b|"
        r"\b(?:the|a|one) lesson (?:here |learn(?:ed|t) )?(?:is|was)\b|"
        r"^next time,? (?:we|i|let's|you|remember|check|make sure)\b|^in hindsight,? \w",
        unless=_NOT + r" (?:have )?learn",
        confidence=0.8,
        reasons=True,
    ),
    Rule(
        name="risk",
        type="risk",
        pattern=r"^risks?: |\bthere(?:'s| is| are) (?:an?|some|the|real) (?:\w+ )?(?:risks?|danger)\b|"
        r"\b(?:could|might|may|can|would|will) (?:easily |silently |also |well )?"
        r"(?:break|corrupt|leak|lose|deadlock|overload|exhaust|crash|overwrite|wipe|take down)\b",
        unless=_NOT
        + r" (?:break|corrupt|leak|lose|crash|be)|\bno (?:risk|danger)\b|\bhow (?:could|might|can)\b",
    ),
    Rule(
        name="hypothesis",
        type="hypothesis",
        pattern=r"^(?:hypothesis|theory): |\bmy (?:guess|hypothesis|theory|hunch) is\b|\b(?:i|we) suspect\b|"
        r"\b(?:might|may|could|probably|possibly|maybe|perhaps)(?: \w+){0,3} "
        r"(?:because|due to|caused by|the (?:root )?cause|the culprit|to blame)\b|"
        r"\b(?:maybe|perhaps|possibly) (?:it|this|that|the)(?:'s| \w+){0,4} "
        r"(?:because|due to|causing|a race)\b",
        unless=_NOT + r" (?:because|due to|caused)",
        confidence=0.6,
    ),
    Rule(
        name="root cause",
        type="root_cause",
        pattern=r"^root cause: |\b(?:root|the) cause (?:of \S+(?: \S+){0,6} )?(?:is|was|turned out to be) |"
        r"\b(?:bug|crash|error|failure|issue|leak|outage|problem|slowdown|timeout)s? "
        r"(?:is|was|were) caused by ",
        unless=_HEDGES + r"|" + _NOT + r"|\bunknown\b|\bunclear\b",
        confidence=0.8,
    ),
    Rule(
        name="bug",
        type="bug",
        pattern=r"^bug: |\b(?:has|have) a bug\b|"
        r"\b(?:there(?:'s| is)|found|hit|it's|it is|this is) (?:an?|another|the) (?:\w+ )?bug\b",
        unless=_NOT + r"|\b(?:no bug|fixed|solved|closed)\b|" + _HEDGES,
    ),
    Rule(
        name="error",
        type="error",
        pattern=r"^\w*(?:error|exception): |"
        r"\b(?:fails|failed|crashes|crashed|throws|threw|raises|raised|hangs|panics|times out|timed out) "
        r"(?:with|on|when|whenever|while|during|after|for|at|in) ",
        unless=_NOT + r"|\b(?:fixed|solved|raised (?:in|at))\b|" + _HEDGES,
    ),
    Rule(
        name="discovery",
        type="discovery",
        pattern=r"^(?:so |and |ah,? |well,? |oh,? )?(?:it )?turns out,? |^(?:finding|discovery): |"
        r"\b(?:we|i)(?:'ve| have)?(?: just| also)? "
        r"(?:(?:found(?: out)?|discovered|noticed|realised|realized) that"
        r"|(?:found|discovered) (?:an? )?(?:undocumented|hidden|unused|secret))\b",
        unless=_NOT + r" (?:found|discovered|noticed|realised|realized)|" + _WHEN,
    ),
    Rule(
        name="unknown",
        type="unknown",
        pattern=r"^(?:open question|unknown|unclear|tbd|question)s?: |\ban open question\b|"
        r"\b(?:is|are|it's|still|remains?) (?:still |yet )?(?:unclear|unknown|undecided|tbd)\b|"
        r"\b(?:we|i) (?:still )?(?:do not|don't) (?:yet |actually )?"
        r"know (?:if|whether|why|how|which|what|where|who)\b|"
        r"\b(?:we|i) (?:have not|haven't) (?:yet )?"
        r"decided (?:yet )?(?:if|whether|which|what|how|on|between)\b|"
        r"\b(?:need|needs|have) to (?:find out|figure out|clarify)\b",
        unless=r"\bknow (?:if|why|what|how) (?:you|i|i'd|we|to (?:say|thank|do))\b|\bno longer\b",
        questions=True,
    ),
    Rule(name="task", type="task", pattern=r"^(?:todo|fixme|action item|next step)s?: \w"),
    Rule(
        name="fact",
        type="fact",
        pattern=r"\b(?:the|this|our|my) (?:[\w-]+ ){0,2}?" + _THING + r" (?:currently |already |now )?"
        r"(?:uses|runs (?:on|in|under)|depends on|requires|targets|lives (?:in|at)|talks to|stores|"
        r"is (?:built|written|implemented|deployed|hosted|based|running) (?:with|on|in|to|at))\b|"
        r"^(?:currently,? |today,? |here,? )?we(?:'re| are)? (?:currently |already |now )?"
        r"(?:use|using|run|deploy) \S+|^(?:fact|fyi): \w",
        unless=_HEDGES
        + r"|"
        + _NOT
        + r"|\b(?:plan|planning|want|going|hope|like) to\b|\bus(?:e|ing) (?:it|that|them)\b",
        confidence=0.8,
    ),
    Rule(
        name="preference",
        type="fact",
        pattern=r"\bi (?:strongly |really |usually |generally |always )?prefer \w|\bmy name is \w|"
        r"^(?:please )?call me \w+|\bi(?:'m| am) allergic to\b",
        unless=_HEDGES + r"|\bcall me (?:after|at|back|crazy|if|in|later|on|today|tomorrow|tonight|when)\b",
        roles=("user",),
        confidence=0.9,
    ),
)
"""Default rules, in order of precedence."""
