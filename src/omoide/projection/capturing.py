"""Which signals are worth remembering?

Rules say it, by patterns of signal types: the most specific one that matches decides. What is captured goes
to a memory provider under a key made from the signal, so that one which comes twice is kept once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from omoide.core import codec, memory_types, pattern
from omoide.core.codec import MapField, TextsField
from omoide.core.context import Context
from omoide.core.contract import Record
from omoide.core.directives import MEMORY_RESULT, Directive, MemoryUpsert
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.plugin import Plugin
from omoide.core.signal import Signal
from omoide.core.value import Name, check_function
from omoide.errors import Invalid, NotFound, WrongType

LONGEST = 20_000
"""How many characters of a signal are kept."""
PROVIDER = "memory"
"""Where captured signals go unless a rule says otherwise."""
NEVER = (MEMORY_RESULT, "jido.agent.error")
"""Signals that tell what became of a capture: capturing them would go on for ever."""
OWN = "jido"
"""Signals of the runtime itself begin so; only a pattern that begins so, too, captures them."""

Content: TypeAlias = str | Callable[[Signal], str | None]

_FIELD = re.compile(r"\{([A-Za-z_][\w.\-]*)\}")
_ABOUT = ("type", "id", "source", "subject", "time", "data")


@runtime_checkable
class Captures(Protocol):
    """A plugin that is shown every signal once it was handled."""

    def capture(self, signal: Signal, ctx: Context) -> list[Directive]:
        """What is to be done to keep it."""
        ...


class CaptureRule(Record, frozen=True, kw_only=True):
    """Which signals are kept, and as what."""

    LABEL: ClassVar[str] = "capture rule"

    pattern: Name
    content: Content | None = None
    """A text with `{data.city}` or `{subject}` in it, or a function of the signal; else what its data says.

    A signal without a field that is named is not kept, nor one for which the function returns None.
    """
    type: str | None = None
    """The type of memory it becomes."""
    tags: TextsField = ()
    metadata: MapField = EMPTY_MAP
    provider: Name | None = None
    skip: bool = False
    """Whether these signals are not kept."""
    merge: bool = False
    """Whether what it does not say, and tags and metadata besides, come from the next rule that matches."""

    def _check(self) -> None:
        pattern.check(self.pattern)
        if self.content is not None and not isinstance(self.content, str):
            check_function(self.content, "content")
        if self.type is not None:
            try:
                memory_types.check(self.type)
            except NotFound as error:
                raise Invalid("type", f"is {self.type!r}", error.remedy) from error

    def over(self, wider: CaptureRule) -> CaptureRule:
        """This rule with what a wider one adds to it."""
        return self.replace(
            content=wider.content if self.content is None else self.content,
            type=self.type or wider.type,
            tags=tuple(dict.fromkeys((*wider.tags, *self.tags))),
            metadata=wider.metadata.update(self.metadata),
            provider=self.provider or wider.provider,
            merge=wider.merge,
        )


class SignalCapture(Plugin):
    """Keeps signals as memories, once they were handled."""

    name = "signal_capture"
    description = "Keeps signals as memories, by rules"

    def __init__(
        self,
        config: Mapping[str, Any] = EMPTY_MAP,
        *,
        rules: Iterable[CaptureRule | Mapping[str, Any]] | None = None,
        alias: str | None = None,
    ) -> None:
        super().__init__(config, alias=alias)
        given = self.config.get("rules", ()) if rules is None else rules
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise WrongType("rules", "a list of CaptureRules", given)
        known = [CaptureRule.new(rule) for rule in given]
        self.rules = tuple(sorted(known, key=lambda rule: pattern.specificity(rule.pattern), reverse=True))

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, SignalCapture) and other.rules == self.rules

    __hash__ = Plugin.__hash__

    def capture(self, signal: Signal, ctx: Context) -> list[Directive]:
        """The directive that keeps a signal, if a rule says so."""
        rule = self.rule_for(signal)
        text = None if rule is None else _text(rule.content, signal)
        if rule is None or text is None or not text.strip():
            return []
        told = {"type": rule.type, "tags": rule.tags, "metadata": rule.metadata}
        item = {"key": self.key_of(signal), "value": text[:LONGEST]}
        return [
            MemoryUpsert(
                items=[item],
                provider=rule.provider or PROVIDER,
                opts={name: value for name, value in told.items() if value},
            )
        ]

    def rule_for(self, signal: Signal) -> CaptureRule | None:
        """The rule that decides about a signal, complete; None where it is not kept."""
        found = [rule for rule in self.rules if _speaks_of(rule.pattern, signal.type)]
        if not found:
            return None
        rule, *wider = found
        for other in wider:
            if not rule.merge or other.skip:
                break
            rule = rule.over(other)
        return None if rule.skip else rule

    def key_of(self, signal: Signal) -> str:
        """The key of a signal, which is the same whenever it comes."""
        place = f"{self.label}\0{signal.source}\0{signal.id}"
        return f"signal_{sha256(place.encode()).hexdigest()[:32]}"


def _speaks_of(wanted: str, signal_type: str) -> bool:
    if signal_type in NEVER or (_begins(signal_type) and not _begins(wanted)):
        return False
    return pattern.matches(wanted, signal_type)


def _begins(dotted: str) -> bool:
    return dotted.split(".", 1)[0] == OWN


def _text(content: Content | None, signal: Signal) -> str | None:
    if content is None:
        return _plain(signal.data)
    if isinstance(content, str):
        fields = {name: _field(name, signal) for name in _FIELD.findall(content)}
        if None in fields.values():
            return None
        return _FIELD.sub(lambda match: str(fields[match[1]]), content)
    text = content(signal)
    if text is not None and not isinstance(text, str):
        raise WrongType("the content of a captured signal", "a string or None", text)
    return text


def _field(path: str, signal: Signal) -> str | None:
    first, *rest = path.split(".")
    if first not in _ABOUT:
        return None
    found = getattr(signal, first)
    for key in rest:
        found = found.get(key) if isinstance(found, FrozenMap) else None
    return _plain(found)


def _plain(data: Any) -> str | None:
    """Data as text: its own words where it has some, else JSON; bytes have none."""
    if isinstance(data, FrozenMap):
        words = next((data[key] for key in ("text", "content") if isinstance(data.get(key), str)), None)
        if words is not None:
            return str(words)
    if data is None or isinstance(data, bytes):
        return None
    if isinstance(data, str):
        return data
    return codec.encode(data).decode()
