"""What does it mean to erase?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from omoide import clock
from omoide.core.scope import Scope
from omoide.stores import rules, standing, transcripts
from omoide.stores.arguments import checked
from omoide.stores.records import EraseReceipt, Version
from omoide.stores.reference_documents import MemoryDocuments
from omoide.stores.reference_state import LinkKey, State
from omoide.stores.standing import LIVE


@checked
class MemoryErasing(MemoryDocuments):
    """How entries leave a store in memory."""

    UNREACHABLE: ClassVar[tuple[str, ...]] = ("graphs that have not caught up", "what other programs read")

    def erase(self, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
        """Remove an entry, or everything in a scope, for good."""
        now, reason = clock.now(), self.settings.admitted_reason(reason)
        return self._do(lambda state: self._erase(state, scope, id, reason, now))

    def _erase(
        self, state: State, scope: Scope, id: str | None, reason: str | None, now: int
    ) -> EraseReceipt:
        gone = state.leaving(state.inside(scope) if id is None else [self._get(state, id, scope)])
        documents = self._erase_documents(state, scope) if id is None else []
        said = [version.entry for one in gone for version in one.versions if version.entry is not None]
        was_out = {one.entry.id: one.standing != LIVE for one in gone}
        stones = [Version(id=one.entry.id, rev=one.entry.rev, at=now, reason=reason) for one in gone]
        cut = {key for pair in zip(gone, stones, strict=True) for key in state.remove(*pair)}
        self._settle_erased(state, scope.namespace, was_out, cut, now)
        return EraseReceipt(
            ids=tuple(was_out),
            versions=sum(len(one.versions) for one in gone),
            links=len(cut),
            documents=len(documents),
            at=now,
            reason=reason,
            scrubbed=True,
            unreachable=(
                *self._quoting(state, scope, [*was_out]),
                *transcripts.named(said, documents),
                *self.UNREACHABLE,
            ),
        )

    def _settle_erased(
        self, state: State, namespace: str, was_out: dict[str, bool], cut: set[LinkKey], now: int
    ) -> None:
        """Note which entries lost a link, and which have lost what they rest on."""
        left = [key for key in cut if key[1] not in was_out]
        held = state.among(namespace, {key[1] for key in left})
        for source in sorted(held):
            state.note(held[source].entry, "unlink", now)
        # Whatever was invalidated was out.
        invalidated = {key[1]: True for key in left if key[2] == standing.INVALIDATED_BY}
        self._settle(state, namespace, {**was_out, **invalidated}, now)

    def _quoting(self, state: State, scope: Scope, gone: Sequence[str]) -> list[str]:
        """What is left in the store that may repeat what was erased."""
        found = [rules.quoting(other, id) for id in gone for other in state.quoting(scope.namespace, id)]
        owners = state.owners(scope.namespace).values()
        documents = sum(
            None
            in (
                scope.agent_id,
                one.agent_id,
            )
            or one.agent_id == scope.agent_id
            for one in owners
        )
        return rules.named(found, documents)

    def scrub(self) -> EraseReceipt:
        """Nothing is left anywhere."""
        return EraseReceipt(scrubbed=True, unreachable=self.UNREACHABLE)
