"""What does it mean to link entries?"""

from __future__ import annotations

from omoide import clock
from omoide.core.scope import Scope
from omoide.stores.arguments import checked
from omoide.stores.records import Link
from omoide.stores.reference_held import MemoryHeld
from omoide.stores.reference_state import State
from omoide.stores.standing import INVALIDATED_BY, LIVE


@checked
class MemoryLinks(MemoryHeld):
    """Links that last as long as the process."""

    def link(self, link: Link, scope: Scope) -> Link:
        """Keep a link between two entries."""
        key = (scope.namespace, link.source, link.relation, link.target)

        def work(state: State) -> Link:
            source = self._get(state, link.source, scope)
            self._get(state, link.target, scope)
            known = state.link_of(key)
            if known is not None:
                return known
            was_out, now = source.standing != LIVE, clock.now()
            state.add_link(key, link)
            state.note(source.entry, "link", now)
            if link.relation == INVALIDATED_BY:
                self._settle(state, scope.namespace, {link.source: was_out}, now)
            return link

        return self._do(work)

    def unlink(self, link: Link, scope: Scope) -> bool:
        """Remove a link; whether there was one."""

        def work(state: State) -> bool:
            source = self._get(state, link.source, scope)
            self._get(state, link.target, scope)
            was_out, now = source.standing != LIVE, clock.now()
            found = state.drop_link((scope.namespace, link.source, link.relation, link.target))
            if found:
                state.note(source.entry, "unlink", now)
                if link.relation == INVALIDATED_BY:
                    self._settle(state, scope.namespace, {link.source: was_out}, now)
            return found

        return self._do(work)

    def links(self, id: str, scope: Scope, *, relation: str | None = None) -> list[Link]:
        """The links from and to an entry."""

        def work(state: State) -> list[Link]:
            self._get(state, id, scope)
            found = {
                link: key[3] if key[1] == id else key[1]
                for key, link in state.links_at(scope.namespace, id).items()
                if relation in (None, link.relation)
            }
            held = state.among(scope.namespace, {*found.values()})
            return [link for link, other in found.items() if scope.holds(held[other].entry)]

        return sorted(
            self._look(work), key=lambda link: (link.created_at, link.source, link.relation, link.target)
        )
