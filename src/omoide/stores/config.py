"""StoreConfig and token budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from omoide.core.entry import Entry, Hit, WriteRequest, check_positive
from omoide.core.value import check_choice, check_instance, check_number
from omoide.errors import Invalid, WrongType
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.stores import semantics

# budget: How much room do recalled entries take where they will be read?


def prompt_line(hit: Hit) -> str:
    """An entry as it will stand in a prompt: on a line of its own, dated."""
    return f"- [0000-00-00] {hit.entry.content}\n"


def fit_budget(hits: Sequence[Hit], budget: int, count: TokenCounter) -> tuple[list[Hit], int]:
    """The best hits that fit, and how many do not; a long one is passed over for shorter ones after it."""
    kept, used = [], 0
    for hit in hits:
        size = count(prompt_line(hit))
        if used + size <= budget:
            used += size
            kept.append(hit)
    return kept, len(hits) - len(kept)


# settings: How does a store behave?


Guard = Callable[[Entry], Entry]
"""Sees every entry before it is written: gives back what may be kept, or raises `Refused`."""


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be chosen when a store is opened."""

    durability: str = "crash"
    """`crash`: what was acknowledged survives the death of the process; `power`: also that of the machine."""
    max_content: int = semantics.MAX_CONTENT
    """Bytes that an entry's content may have."""
    session_limit: int | None = None
    """Entries that count which a session may hold; no limit by default."""
    guard: Guard | None = None
    count_tokens: TokenCounter = estimate_tokens
    timeout: float = 60.0
    """Seconds to wait for other processes."""
    read_only: bool = False
    max_pages: int | None = None
    """Pages that a file may have."""

    def __post_init__(self) -> None:
        check_choice(self.durability, "durability", ("crash", "power"))
        check_positive(self.max_content, "max_content")
        for field in ("session_limit", "max_pages"):
            if getattr(self, field) is not None:
                check_positive(getattr(self, field), field)
        for name in ("guard", "count_tokens"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise WrongType(name, "a function", getattr(self, name))
        check_number(self.timeout, "timeout")
        if type(self.read_only) is not bool:
            raise WrongType("read_only", "True or False", self.read_only)
        if not 0 < self.timeout < 1e6:
            raise Invalid("timeout", f"is {self.timeout}", "pass seconds to wait for other processes")

    def guard_reason(self, reason: str | None) -> str | None:
        """A reason as it may be kept: the guard sees it as it sees content."""
        if reason is None or not reason.strip() or self.guard is None:
            return reason
        seen = self.guard(Entry(id="reason", agent_id="reason", content=reason, created_at=0))
        return str(check_instance(seen, "what the guard gave back", kind=Entry).content)

    def guard_request(self, request: WriteRequest) -> WriteRequest:
        """A request for what may be kept, if it may."""
        entry = request.entry
        if self.guard is not None:
            entry = check_instance(self.guard(entry), "what the guard gave back", kind=Entry)
            reason = self.guard_reason(entry.superseded_reason)
            if reason != entry.superseded_reason:
                entry = entry.replace(superseded_reason=reason)
        semantics.check_size(entry, self.max_content)
        return request if entry is request.entry else request.replace(entry=entry)
