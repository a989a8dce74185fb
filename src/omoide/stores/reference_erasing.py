"""What does it mean to erase?"""

from __future__ import annotations

from collections.abc import Sequence

from omoide import clock
from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.stores import rules, standing, transcripts
from omoide.stores.arguments import checked
from omoide.stores.records import EraseReceipt, Version
from omoide.stores.reference_held import MemoryHeld
from omoide.stores.reference_state import Kept, LinkKey, State
from omoide.stores.standing import LIVE

UNREACHABLE = ("graphs that have not caught up", "what other programs read")


@checked
class MemoryErasing(MemoryHeld):
    """How entries leave a store in memory."""

    def erase(self, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
        """Remove an entry, or everything in a scope, for good."""
        now, reason = clock.now(), self.settings.admitted_reason(reason)
        with self._open() as state:
            gone = self._in(state, scope) if id is None else [self._get(state, id, scope)]
            documents = self._erase_documents(scope) if id is None else []
            said = [version.entry for one in gone for version in one.versions if version.entry is not None]
            was_out = {one.entry.id: one.standing != LIVE for one in gone}
            cut = {key for one in gone for key in self._erase_one(state, one, reason, now)}
            self._settle_erased(state, scope.namespace, was_out, cut, now)
            return EraseReceipt(
                ids=tuple(one.entry.id for one in gone),
                versions=sum(len(one.versions) for one in gone),
                links=len(cut),
                documents=len(documents),
                at=now,
                reason=reason,
                scrubbed=True,
                unreachable=(
                    *self._quoting(state, scope, gone),
                    *transcripts.named(said, documents),
                    *UNREACHABLE,
                ),
            )

    def _erase_one(self, state: State, one: Kept, reason: str | None, now: int) -> list[LinkKey]:
        """Remove an entry; the links that went with it."""
        entry = one.entry
        state.rest(entry, None)
        state.erased.add((entry.namespace, entry.id))
        del state.kept[entry.namespace, entry.id]
        cut = [key for key in state.links if key[0] == entry.namespace and entry.id in (key[1], key[3])]
        for key in cut:
            state.drop_link(key)
        for name, (_, receipt, _) in [*state.receipts.items()]:
            if name[0] == entry.namespace and receipt.entry.id == entry.id:
                del state.receipts[name]
        blank = Entry(
            id=entry.id, agent_id=entry.agent_id, session_id=entry.session_id, content="-",
            project_id=entry.project_id, namespace=entry.namespace, created_at=0,
        )  # fmt: skip
        state.stones.append((blank, Version(id=entry.id, rev=entry.rev, at=now, reason=reason)))
        self._note(state, entry, "erase", now)
        return cut

    def _settle_erased(
        self, state: State, namespace: str, was_out: dict[str, bool], cut: set[LinkKey], now: int
    ) -> None:
        """Note which entries lost a link, and which have lost what they rest on."""
        left = [key for key in cut if key[1] not in was_out]
        for source in sorted({key[1] for key in left}):
            self._note(state, state.kept[namespace, source].entry, "unlink", now)
        # Whatever was invalidated was out.
        invalidated = {key[1]: True for key in left if key[2] == standing.INVALIDATED_BY}
        self._settle(state, namespace, {**was_out, **invalidated}, now)

    def _quoting(self, state: State, scope: Scope, gone: Sequence[Kept]) -> list[str]:
        """What is left in the store that may repeat what was erased."""
        held = self._in(state, Scope(namespace=scope.namespace))
        found = [
            rules.quoting(one.entry.id, erased.entry.id)
            for erased in gone
            for one in held
            if any(
                version.entry is not None and rules.rests_on(version.entry, erased.entry.id)
                for version in one.versions
            )
        ]
        documents = sum(
            one.namespace == scope.namespace
            and (None in (scope.agent_id, one.agent_id) or one.agent_id == scope.agent_id)
            for one in self._documents.values()
        )
        return rules.named(found, documents)

    def scrub(self) -> EraseReceipt:
        """Nothing is left anywhere."""
        return EraseReceipt(scrubbed=True, unreachable=UNREACHABLE)
