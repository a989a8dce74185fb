"""What did a turn do to the world, and what came back?

The journal names every effect of a turn: what was recalled, what the model replied, what each tool answered.
A turn that is run again with its journal takes the answers from there and calls nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

from omoide.core.codec import Frozen
from omoide.core.contract import check_choice, check_tuple
from omoide.core.recalling import RecallResult
from omoide.core.thread import ThreadEntry
from omoide.core.value import Id, Name, Value, force
from omoide.turns.transcript import Course, course

EFFECTS = ("recall", "model", "tool")
STATUSES = ("finished", "failed", "unknown")


class Effect(Value, frozen=True, kw_only=True):
    """One thing a turn did, and how it ended; `unknown` is what began and is not known to have ended."""

    key: Name
    kind: str
    status: str = "finished"
    name: str | None = None
    params: Frozen = None
    output: Frozen = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.kind, "kind", EFFECTS)
        check_choice(self.status, "status", STATUSES)


class Journal(Value, frozen=True, kw_only=True):
    """The effects of a turn in the order in which they began, with the entries they were read from."""

    request_id: Id
    entries: tuple[ThreadEntry, ...] = ()
    recalled: RecallResult | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        force(self, "entries", check_tuple(self.entries, "entries", ThreadEntry))

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What was done, in order."""
        return (*self._recall(), *_effects(course(self.entries, self.request_id)))

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.effects)

    def __len__(self) -> int:
        return len(self.effects)

    def get(self, key: str) -> Effect | None:
        """The effect of this key: `recall`, `model:0`, `tool:<call id>`."""
        return next((effect for effect in self.effects if effect.key == key), None)

    def _recall(self) -> tuple[Effect, ...]:
        if self.recalled is None:
            return ()
        found = [entry.id for entry in self.recalled.entries]
        return (Effect(key="recall", kind="recall", params=self.recalled.request.query, output=found),)


def _effects(done: Course) -> Iterator[Effect]:
    for at in sorted(done.replies):
        reply = done.replies[at]
        calls = [{"id": call.id, "name": call.name, "params": call.params} for call in reply.calls]
        output = {"content": reply.content, "calls": calls}
        yield Effect(key=f"model:{at}", kind="model", name=reply.model, output=output)
        for call in reply.calls:
            ran = done.began.get(call.id)
            answered = done.ended.get(call.id)
            if ran is None and answered is None:
                continue
            status = "unknown" if answered is None else "finished" if answered.ok else "failed"
            yield Effect(
                key=f"tool:{call.id}",
                kind="tool",
                name=call.name,
                status=status,
                params=(ran or call).params,
                output=None if answered is None else answered.content,
            )
    if done.final is not None:
        output = {"content": done.final.content, "calls": []}
        yield Effect(key=f"model:{done.rounds - 1}", kind="model", name=done.final.model, output=output)
