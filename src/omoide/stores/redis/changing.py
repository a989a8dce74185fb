"""What will an operation change?

A unit is the part of a store's state that one operation has asked for, and what is to become of it. A commit
makes sure that the one still holds and does the other, all at once.
"""

from __future__ import annotations

from omoide.core.entry import Entry
from omoide.errors import Invalid
from omoide.stores import rules, standing
from omoide.stores.indexing import Indexed
from omoide.stores.records import Link, Version
from omoide.stores.redis import packing
from omoide.stores.redis.held import FRESH
from omoide.stores.redis.keys import about, joined
from omoide.stores.redis.known import held
from omoide.stores.redis.looking import Looking
from omoide.stores.reference_state import Kept, LinkKey, Receipt
from omoide.stores.reference_state import Key as Name
from omoide.stores.standing import INVALIDATED_BY


class Changing(Looking):
    """Entries, and what becomes of them."""

    @property
    def changes(self) -> bool:
        """Whether anything is to be changed."""
        return any(part.changes for part in self.parts.values())

    def note(self, entry: Entry, op: str, now: int) -> int:
        """Write a change into the log; its number is not known before the commit."""
        notes = self.part(entry.namespace).notes
        notes.append(packing.note(entry.id, op, entry.rev, now))
        return FRESH + len(notes)

    def add(self, entry: Entry, found: Indexed, now: int) -> Kept:
        """Keep a new entry."""
        one = super().add(entry, self._claimed(entry.namespace, found), now)
        self._absent.discard((entry.namespace, entry.id))
        self.part(entry.namespace).dirty[entry.id] = held(one)
        return one

    def revise(self, one: Kept, new: Entry, op: str, now: int, found: Indexed | None = None) -> None:
        """Keep the next version of an entry, with what is found of it if that was written anew."""
        mine = held(one)
        mine.older.append(mine.versions[-1])
        if found is not None:
            found = self._claimed(new.namespace, found)
            mine.renewed = True
            mine.model, mine.given = self._model if found.pooled is not None else "", found.given
        super().revise(one, new, op, now, found)
        self.part(new.namespace).dirty[new.id] = mine

    def _claimed(self, namespace: str, found: Indexed) -> Indexed:
        """What an entry is found by, without vectors where the namespace holds those of another embedder."""
        if found.pooled is None:
            return found
        part = self.part(namespace)
        if namespace not in self._models:
            (told,) = self.ask([["HMGET", part.keys("meta"), "model", "vectors"]])
            self._know_model(namespace, told)
        model, vectors = self._models[namespace]
        part.check_whole("meta", "model", model.encode())
        if model == self._model:
            return found
        if int(vectors or 0) > 0:
            if found.given:
                raise Invalid("vector", "is not of the embedder that the store has by now", "open it again")
            return found._replace(pooled=None, tokens=None)
        part.check_whole("meta", "vectors", vectors)
        part.do("HSET", part.keys("meta"), "model", self._model)
        self._models[namespace] = (self._model, vectors)
        return found

    def flip(self, one: Kept, now: int, *, stale: bool) -> None:
        """Note that an entry is stale from now on, or current again."""
        super().flip(one, now, stale=stale)
        self.part(one.entry.namespace).dirty[one.entry.id] = held(one)

    def use(self, one: Kept, count: int, last: int | None) -> None:
        """Note that an entry was used so many times more."""
        part, id = self.part(one.entry.namespace), one.entry.id
        part.do("HINCRBY", part.keys("access"), id, str(count))
        if last is not None:
            part.do("ZADD", part.keys("used"), str(last), id)

    def remove(self, one: Kept, stone: Version) -> list[LinkKey]:
        """Leave nothing of an entry but a tombstone; the links that went with it."""
        entry = one.entry
        part, versions = self.part(entry.namespace), [*one.versions]
        cut = super().remove(one, stone)
        part.remove(held(one), versions)
        ever = {ref for old in versions if old.entry is not None for ref in standing.premises(old.entry)}
        for premise in ever:
            part.do("ZREM", part.keys("on", premise), entry.id)
        self._removed.add((entry.namespace, entry.id))
        self._absent.add((entry.namespace, entry.id))
        return cut

    def bury(self, like: Entry, stone: Version) -> None:
        """Keep a tombstone that belongs to whom an entry belongs."""
        self.erased(like.namespace, [stone.id])
        super().bury(like, stone)
        part = self.part(like.namespace)
        told = self.stones[like.namespace, stone.id]
        part.do("HSET", part.keys("stones"), stone.id, packing.put_stones(told))
        part.count("stones", 1)

    def rest(self, old: Entry | None, new: Entry | None) -> None:
        """Note what an entry rests on now, instead of what it rested on."""
        before = frozenset[str]() if old is None else standing.premises(old)
        after = frozenset[str]() if new is None else standing.premises(new)
        entry = new if new is not None else old
        assert entry is not None
        part = self.part(entry.namespace)
        for premise in sorted(before ^ after):
            key, present = (entry.namespace, premise), premise in after
            self._rested.setdefault(key, {})[entry.id] = present
            if key in self.resting:
                (self.resting[key].add if present else self.resting[key].discard)(entry.id)
            part.do("ZADD", part.keys("on", premise), "1" if present else "0", entry.id)
            part.watch(about(premise))

    def add_link(self, key: LinkKey, link: Link) -> None:
        """Keep a link."""
        namespace, source, relation, target = key
        self.links[key] = link
        self._unlinked.discard(key)
        part, field = self.part(namespace), joined(source, target, relation)
        part.do("HSET", part.keys("links"), field, str(link.created_at))
        for end in {source, target}:
            part.do("SADD", part.keys("ends", end), field)
            part.watch(about(end))
        if relation == INVALIDATED_BY:
            self._invalidate(namespace, source, 1)

    def drop_link(self, key: LinkKey) -> bool:
        """Remove a link; whether there was one."""
        if self.link_of(key) is None:
            return False
        namespace, source, relation, target = key
        del self.links[key]
        self._unlinked.add(key)
        part, field = self.part(namespace), joined(source, target, relation)
        part.free("HDEL", part.keys("links"), [field])
        for end in {source, target}:
            part.free("SREM", part.keys("ends", end), [field])
            part.watch(about(end))
        if relation == INVALIDATED_BY:
            self._invalidate(namespace, source, -1)
        return True

    def _invalidate(self, namespace: str, id: str, by: int) -> None:
        self.invalidated(namespace, [id])
        count = self._invalid[namespace, id] = self._invalid[namespace, id] + by
        part = self.part(namespace)
        if count > 0:
            part.do("HSET", part.keys("invalid"), id, str(count))
        else:
            part.do("HDEL", part.keys("invalid"), id)

    def keep_receipt(self, name: Name, receipt: Receipt) -> None:
        """Remember what was answered under an idempotency key, and forget what is too old."""
        namespace, key = name
        _, result, at = receipt
        id = result.entry.id
        self.receipts[name] = receipt
        part = self.part(namespace)
        keys = part.keys
        for old, of, kept in self._oldest.pop(namespace, []):
            if kept < at - rules.KEY_LIFETIME_MS and old != key:
                part.do("HDEL", keys("receipts"), old)
                part.do("SREM", keys("keys", of), old)
                part.do("ZREM", keys("kept"), joined(old, of))
        part.do("HSET", keys("receipts"), key, packing.put_receipt(receipt))
        part.do("SADD", keys("keys", id), key)
        part.do("ZADD", keys("kept"), str(at), joined(key, id))
        part.watch(about(id))

    def drop_receipts(self, of: Name) -> None:
        """Forget what was answered about an entry."""
        namespace, id = of
        self._look_around(namespace, [id])
        part = self.part(namespace)
        names = self._answered[of]
        if names:
            part.free("HDEL", part.keys("receipts"), names)
            part.free("ZREM", part.keys("kept"), [joined(name, id) for name in names])
            part.forget(part.keys("keys", id))
            part.watch(about(id))
