"""What does it mean to link entries?"""

from __future__ import annotations

from omoide import clock
from omoide.core.scope import Scope
from omoide.stores.arguments import checked
from omoide.stores.records import Link
from omoide.stores.reference_held import MemoryHeld
from omoide.stores.standing import INVALIDATED_BY, LIVE


@checked
class MemoryLinks(MemoryHeld):
    """Links that last as long as the process."""

    def link(self, link: Link, scope: Scope) -> Link:
        """Keep a link between two entries."""
        with self._open() as state:
            source = self._get(state, link.source, scope)
            self._get(state, link.target, scope)
            key = (scope.namespace, link.source, link.relation, link.target)
            if key not in state.links:
                was_out, now = source.standing != LIVE, clock.now()
                state.add_link(key, link)
                self._note(state, source.entry, "link", now)
                if link.relation == INVALIDATED_BY:
                    self._settle(state, scope.namespace, {link.source: was_out}, now)
            return state.links[key]

    def unlink(self, link: Link, scope: Scope) -> bool:
        """Remove a link; whether there was one."""
        with self._open() as state:
            source = self._get(state, link.source, scope)
            self._get(state, link.target, scope)
            was_out, now = source.standing != LIVE, clock.now()
            found = state.drop_link((scope.namespace, link.source, link.relation, link.target))
            if found:
                self._note(state, source.entry, "unlink", now)
                if link.relation == INVALIDATED_BY:
                    self._settle(state, scope.namespace, {link.source: was_out}, now)
            return found

    def links(self, id: str, scope: Scope, *, relation: str | None = None) -> list[Link]:
        """The links from and to an entry."""
        with self._open() as state:
            self._get(state, id, scope)
            found = []
            for (namespace, source, name, target), link in state.links.items():
                if namespace != scope.namespace or id not in (source, target) or relation not in (None, name):
                    continue
                if scope.holds(state.kept[namespace, target if source == id else source].entry):
                    found.append(link)
            return sorted(found, key=lambda link: (link.created_at, link.source, link.relation, link.target))
