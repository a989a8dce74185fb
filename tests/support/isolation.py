"""A world of many owners, and tries to reach from one of them what belongs to another.

Every id and every content in the world has a mark of its own. After each try the marks in the answer are
looked up: each must be of the asker's scope, or have been named by the asker. After a number of tries
everything that lies in the world is compared with what it was.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from random import Random, SystemRandom
from typing import Any, NamedTuple

import msgspec

from omoide import Entry, Filter, RecallRequest, Scope, WriteRequest, clock
from omoide.core import codec
from omoide.errors import OmoideError
from omoide.stores import Document, Link, Query

NAMESPACES = ("n0", "n1")
AGENTS = ("a0", "a1", "a2")
USERS = (None, "u0", "u1", "U0")
SESSIONS = (None, "s0", "s1")
PROJECTS = (None, "p0", "p1")
KINDS = ("note", "draft")
MARK = re.compile(r"[mdt]-[0-9a-f]{10}")
"""An entry, a document, and the text of either."""
COMMON_TEXT = "The kettle is on."
EVERYTHING = Filter(include_superseded=True, include_stale=True, include_expired=True)


class Owned(NamedTuple):
    """Something in the world: its id and its owner."""

    id: str
    scope: Scope


class World:
    """What lies in a store, and to whom each mark belongs."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.entries: list[Owned] = []
        self.documents: list[tuple[str, Owned]] = []
        self.linked: list[tuple[Scope, str]] = []
        """The owner of the source of each link, and the id of its target."""
        self.tries = 0
        self._owners: dict[str, list[Scope]] = {}
        self._texts: dict[str, str] = {}

    def mark(self, letter: str, *owners: Scope) -> str:
        """A new mark that belongs to these scopes."""
        mark = f"{letter}-{self.random.getrandbits(40):010x}"
        self._owners[mark] = [*owners]
        return mark

    def share(self, mark: str, owner: Scope) -> None:
        """Note that a scope has a mark by its own doing: it wrote the id that it named."""
        if mark in self._owners and owner not in self._owners[mark]:
            self._owners[mark].append(owner)

    def owner(self) -> Scope:
        """The scope of an entry, drawn at random."""
        choose = self.random.choice
        return Scope(
            namespace=choose(NAMESPACES),
            agent_id=choose(AGENTS),
            user_id=choose(USERS),
            session_id=choose(SESSIONS),
            project_id=choose(PROJECTS),
        )

    def asker(self) -> Scope:
        """The scope of a try: any fields may be open; often all but the user are those of an entry."""
        owner = self.owner()
        if self.entries and self.random.random() < 0.3:
            owner = self.random.choice(self.entries).scope.replace(user_id=owner.user_id)
        drop = [
            name for name in ("agent_id", "user_id", "session_id", "project_id") if self.random.random() < 0.4
        ]
        return owner.replace(**dict.fromkeys(drop))

    def text(self, owner: Scope) -> str:
        """A content that only its owner may see, or one that many have."""
        if self.random.random() < 0.2:
            return COMMON_TEXT
        return f"The secret tea of Café {self.mark('t', owner)} is in the blue tin."

    def text_of(self, id: str) -> str:
        """The content of an entry of the world."""
        return self._texts[id]

    def fill(self, store: Any, count: int = 60) -> None:
        """Write entries of many owners, some derived from others', and documents."""
        for _ in range(count):
            scope = self.owner()
            id = self.mark("m", scope)
            self._texts[id] = text = self.text(scope)
            evidence = []
            near = [one for one in self.entries if one.scope.namespace == scope.namespace]
            if near and self.random.random() < 0.3:
                premise = self.random.choice(near)
                evidence = [{"kind": "entry", "ref": premise.id}]
                self.share(premise.id, scope)
            key = self.random.choice((None, None, "drink"))
            entry = Entry.new(
                id=id, content=text, type="fact", tags=["tea"], evidence=evidence, key=key,
                agent_id=scope.agent_id or "a0", user_id=scope.user_id, session_id=scope.session_id,
                project_id=scope.project_id, namespace=scope.namespace,
            )  # fmt: skip
            result = store.write(WriteRequest(entry=entry))
            if result.outcome == "duplicate_of":  # of the value that its slot has already
                continue
            self.entries.append(Owned(id, scope))
        for source, target in zip(self.entries, self.entries[1:], strict=False):
            if source.scope.namespace == target.scope.namespace:
                link = Link(source=source.id, relation="refines", target=target.id)
                store.link(link, Scope(namespace=source.scope.namespace))
                self.linked.append((source.scope, target.id))
        for _ in range(count // 4):
            scope = self.owner().replace(project_id=None)
            id, kind = self.mark("d", scope), self.random.choice(KINDS)
            store.save(
                Document(
                    kind=kind, id=id, namespace=scope.namespace, agent_id=scope.agent_id,
                    user_id=scope.user_id, session_id=scope.session_id, body={"text": self.text(scope)},
                )
            )  # fmt: skip
            self.documents.append((kind, Owned(id, scope)))

    def linked_from(self, asker: Scope) -> list[str]:
        """The ids to which entries of the asker are linked; a graph has them, wherever they are."""
        return [target for source, target in self.linked if holds(asker, source)]

    def foreign(self, asker: Scope) -> Owned:
        """An entry that is not of the asker."""
        return self._outside(asker, self.entries)

    def foreign_document(self, asker: Scope) -> tuple[str, Owned]:
        """A document that is not of the asker; documents belong to no project."""
        owned = self._outside(asker.replace(project_id=None), [one for _, one in self.documents])
        return next(pair for pair in self.documents if pair[1] is owned)

    def _outside(self, asker: Scope, things: list[Owned]) -> Owned:
        while True:
            found = self.random.choice(things)
            if not holds(asker, found.scope):
                return found

    def check(self, asker: Scope | Iterable[Scope], named: Iterable[str], answer: object, what: str) -> None:
        """Assert that every mark in an answer is of the asker, or was named in the try."""
        self.tries += 1
        scopes = (asker,) if isinstance(asker, Scope) else tuple(asker)
        allowed = set(named)
        for mark in set(MARK.findall(render(answer))) - allowed:
            owners = self._owners.get(mark, ())
            place = f"seed {self.seed}, try {self.tries}: {what}"
            is_own = any(holds(scope, owner) for scope in scopes for owner in owners)
            assert is_own, f"{place} of {scopes} shows {mark} of {owners}"


def holds(asker: Scope, owner: Scope) -> bool:
    """Whether the scope of an asker has what belongs to an owner."""
    return asker.contains(owner)


def has_same_user(one: Scope, other: Scope) -> bool:
    """Whether two scopes are of the same agent and user of a namespace."""
    fields = ("namespace", "agent_id", "user_id")
    return all(getattr(one, name) == getattr(other, name) for name in fields)


def render(answer: object) -> str:
    """All that an answer says, as text."""
    if isinstance(answer, (str, bytes)):
        return answer if isinstance(answer, str) else answer.decode()
    if isinstance(answer, msgspec.Struct):
        return codec.encode(answer).decode()
    if isinstance(answer, OmoideError):
        return f"{answer} {vars(answer)}"
    if isinstance(answer, (list, tuple)):
        return " ".join(map(render, answer))
    return repr(answer)


def attempt(call: Callable[[], object]) -> object:
    """The answer of a call, or the error that it raised."""
    try:
        return call()
    except OmoideError as error:
        return error


def state_of(store: Any, world: World, *, uses: bool = False) -> dict[str, Any]:
    """All that can be read of what lies in the world; with `uses`, also access counts."""
    found: dict[str, Any] = {}
    for id, scope in world.entries:
        found[id] = (
            store.get(id, scope),
            store.history(id, scope),
            store.access(id, scope) if uses else None,
            [
                link
                for link in store.links(id, Scope(namespace=scope.namespace))
                if link.source in found or link.target in found
            ],
        )
    for kind, (id, scope) in world.documents:
        found[f"{kind} {id}"] = store.load(kind, id, scope)
    return found


Answer = tuple[Iterable[str], object] | None
"""What a try named and what came of it; None where it was none, or is checked already."""


class StoreTries:
    """Tries of every kind of operation on the synchronous core of a store."""

    def __init__(self, store: Any, world: World) -> None:
        self.store = store
        self.world = world
        self._operations: list[Callable[[Scope, Owned], Answer]] = []
        for weight, operation in (
            (8, self.get), (4, self.list), (6, self.query), (6, self.recall), (4, self.history),
            (4, self.links), (3, self.access), (3, self.changes), (2, self.feed), (2, self.stats),
            (4, self.supersede), (4, self.reinstate), (4, self.erase), (4, self.link), (3, self.unlink),
            (4, self.use), (4, self.overwrite), (2, self.write), (2, self.take_over), (1, self.derive),
            (3, self.pair), (3, self.take_in), (2, self.erase_stranger), (1, self.repeat),
            (4, self.load), (3, self.documents), (3, self.append), (3, self.save), (3, self.claim),
        ):  # fmt: skip
            self._operations += [operation] * weight

    def run(self, count: int) -> None:
        """Try so often."""
        world = self.world
        end = world.tries + count
        while world.tries < end:
            asker = world.asker()
            operation = world.random.choice(self._operations)
            answer = operation(asker, world.foreign(asker))
            if answer is not None:
                world.check(asker, *answer, operation.__name__)

    def own(self, asker: Scope) -> Scope:
        """The scope in which an asker writes."""
        return asker if asker.agent_id is not None else asker.replace(agent_id="a0")

    def new_entry(self, scope: Scope, id: str | None = None, **fields: Any) -> Entry:
        """An entry of the asker's own; its ids are few, so that the store does not grow."""
        if id is None:
            names = (scope.namespace, scope.agent_id, scope.user_id, scope.session_id, scope.project_id)
            id = f"own-{'-'.join(map(str, names))}-{self.world.random.randrange(2)}"
        owner = {name: getattr(scope, name) for name in Scope.__struct_fields__}
        return Entry.new({"id": id, "content": "My own tea.", **owner, **fields})

    # Reading

    def get(self, asker: Scope, victim: Owned) -> Answer:
        moment = self.world.random.choice((None, clock.MAX_TIMESTAMP))
        return [victim.id], attempt(lambda: self.store.get(victim.id, asker, as_of=moment))

    def list(self, asker: Scope, victim: Owned) -> Answer:
        return (), self.store.list_entries(asker)

    def query(self, asker: Scope, victim: Owned) -> Answer:
        random = self.world.random
        filter = random.choice((EVERYTHING, Filter(), Filter(key="drink"), Filter(tags=("tea",))))
        cursor = random.choice((None, f"{random.getrandbits(48):x}-{random.randrange(99):x}"))
        moment = random.choice((None, clock.MAX_TIMESTAMP))
        query = Query(
            scope=asker, filter=filter, limit=random.choice((1, 5, 200)), cursor=cursor, as_of=moment
        )
        return (), attempt(lambda: self.store.query(query))

    def recall(self, asker: Scope, victim: Owned) -> Answer:
        text = self.world.random.choice(("secret tea of Café", self.world.text_of(victim.id), victim.id))

        def recall() -> object:
            request = RecallRequest.for_scope(asker, text, limit=20, filter=EVERYTHING)
            result = self.store.recall(request)
            return [result.hits, result.notices]  # without the question

        return (), attempt(recall)

    def history(self, asker: Scope, victim: Owned) -> Answer:
        return [victim.id], attempt(lambda: self.store.history(victim.id, asker))

    def links(self, asker: Scope, victim: Owned) -> Answer:
        inside = [one for one in self.world.entries if holds(asker, one.scope)]
        chosen = self.world.random.choice([*inside, victim])
        return [chosen.id], attempt(lambda: self.store.links(chosen.id, asker))

    def access(self, asker: Scope, victim: Owned) -> Answer:
        return [victim.id], attempt(lambda: self.store.access(victim.id, asker))

    def changes(self, asker: Scope, victim: Owned) -> Answer:
        after = self.world.random.randrange(100)
        return (), self.store.changes(asker.namespace, after=after, limit=50, scope=asker)

    def feed(self, asker: Scope, victim: Owned) -> Answer:
        after = self.world.random.randrange(50, 150)
        feed = self.store.change_feed(asker.namespace, after=after, limit=20)
        self.world.check(Scope(namespace=asker.namespace), (), feed, "change_feed")
        return None

    def stats(self, asker: Scope, victim: Owned) -> Answer:
        stats = self.store.stats(asker)
        assert stats.entries == len(self.store.list_entries(asker)), f"seed {self.world.seed}"
        return (), stats

    # Changing

    def supersede(self, asker: Scope, victim: Owned) -> Answer:
        by = self.world.random.choice((None, self.world.foreign(asker).id))
        named = [victim.id, *([] if by is None else [by])]
        return named, self.refused(lambda: self.store.supersede(victim.id, asker, by=by, reason="mine"))

    def reinstate(self, asker: Scope, victim: Owned) -> Answer:
        return [victim.id], self.refused(lambda: self.store.reinstate(victim.id, asker, expected_rev=1))

    def erase(self, asker: Scope, victim: Owned) -> Answer:
        return [victim.id], self.refused(lambda: self.store.erase(asker, id=victim.id))

    def link(self, asker: Scope, victim: Owned) -> Answer:
        other = self.world.random.choice(self.world.entries)
        pair = [victim.id, other.id]
        self.world.random.shuffle(pair)
        relation = self.world.random.choice(("refines", "invalidated_by", "contradicts"))
        link = Link(source=pair[0], relation=relation, target=pair[1])
        return pair, self.refused(lambda: self.store.link(link, asker))

    def unlink(self, asker: Scope, victim: Owned) -> Answer:
        at = self.world.entries.index(victim)
        other = self.world.entries[(at + 1) % len(self.world.entries)]
        link = Link(source=victim.id, relation="refines", target=other.id)
        return [victim.id, other.id], self.refused(lambda: self.store.unlink(link, asker))

    def use(self, asker: Scope, victim: Owned) -> Answer:
        return [victim.id], attempt(lambda: self.store.record_access([victim.id], asker))

    def overwrite(self, asker: Scope, victim: Owned) -> Answer:
        scope = self.own(asker)
        if victim.scope == scope or scope.namespace != victim.scope.namespace:
            return None  # its own id there, which is no try
        entry = self.new_entry(scope, victim.id)
        rev = self.world.random.choice((None, 0, 1))
        return [victim.id], self.refused(
            lambda: self.store.write(WriteRequest(entry=entry, expected_rev=rev))
        )

    def write(self, asker: Scope, victim: Owned) -> Answer:
        """The same text or key as another's: no duplicate of it, and its slot stays as it is."""
        scope = self.own(asker)
        is_free = all(owner != scope for _, owner in self.world.entries)
        entry = self.new_entry(scope, content=COMMON_TEXT, key="drink" if is_free else None)
        return (), attempt(lambda: self.store.write(WriteRequest(entry=entry, dedupe=True)))

    def take_over(self, asker: Scope, victim: Owned) -> Answer:
        scope = self.own(asker)
        if has_same_user(scope, victim.scope):
            return None  # what it may supersede
        request = WriteRequest(entry=self.new_entry(scope), supersedes=victim.id)
        return [victim.id], self.refused(lambda: self.store.write(request))

    def pair(self, asker: Scope, victim: Owned) -> Answer:
        """One user's memory as the successor of another's, in a scope that has both."""
        by = self.world.foreign(asker)
        if victim.scope.user_id == by.scope.user_id:
            return None
        wide = Scope(namespace=victim.scope.namespace)
        refused = self.refused(lambda: self.store.supersede(victim.id, wide, by=by.id))
        self.world.check(wide, [victim.id, by.id], refused, "pair")
        return None

    def take_in(self, asker: Scope, victim: Owned) -> Answer:
        """Import another's memory as one's own."""
        scope = self.own(asker)
        if victim.scope == scope or scope.namespace != victim.scope.namespace:
            return None
        entry = self.new_entry(scope, victim.id, rev=3)
        return [victim.id], self.refused(lambda: self.store.import_entries([entry]))

    def erase_stranger(self, asker: Scope, victim: Owned) -> Answer:
        """Erase a user who has nothing."""
        receipt = self.store.erase(Scope(namespace=asker.namespace, user_id=f"{victim.scope.user_id}x"))
        assert (receipt.ids, receipt.documents, receipt.links) == ((), 0, 0), f"seed {self.world.seed}"
        return (), receipt

    def derive(self, asker: Scope, victim: Owned) -> Answer:
        """Naming another's memory as evidence shows nothing of it."""
        scope = self.own(asker)
        if scope.namespace != victim.scope.namespace:
            return None
        self.world.share(victim.id, scope)
        evidence = [{"kind": "entry", "ref": victim.id}]
        entry = self.new_entry(scope, evidence=evidence)
        return [victim.id], attempt(lambda: self.store.write(WriteRequest(entry=entry)))

    def repeat(self, asker: Scope, victim: Owned) -> Answer:
        """An idempotency key that others use, too."""
        entry = self.new_entry(self.own(asker))
        request = WriteRequest(entry=entry, idempotency_key=self.world.random.choice(("1", "2")))
        return (), attempt(lambda: self.store.write(request))

    # Documents

    def load(self, asker: Scope, victim: Owned) -> Answer:
        kind, document = self.world.foreign_document(asker)
        found = attempt(lambda: self.store.load(kind, document.id, asker.replace(project_id=None)))
        return [document.id], found

    def documents(self, asker: Scope, victim: Owned) -> Answer:
        scope = asker.replace(project_id=None)
        page = self.store.documents(self.world.random.choice(KINDS), scope, limit=50)
        self.world.check(scope, (), page, "documents")
        return None

    def append(self, asker: Scope, victim: Owned) -> Answer:
        kind, document = self.world.foreign_document(asker)
        scope = asker.replace(project_id=None)
        return [document.id], self.refused(lambda: self.store.append(kind, document.id, ["mine"], scope))

    def save(self, asker: Scope, victim: Owned) -> Answer:
        kind, (id, owner) = self.world.foreign_document(asker)
        if owner.namespace != asker.namespace:
            return None  # its own id there, which is no try
        document = Document(
            kind=kind, id=id, namespace=asker.namespace, agent_id=asker.agent_id, user_id=asker.user_id,
            session_id=asker.session_id, body="mine",
        )  # fmt: skip
        return [id], self.refused(lambda: self.store.save(document))

    def claim(self, asker: Scope, victim: Owned) -> Answer:
        kind, (id, owner) = self.world.foreign_document(asker)
        scope = asker.replace(project_id=None)
        if owner.namespace != scope.namespace:
            return None  # nothing is there to be claimed
        return [id], self.refused(lambda: self.store.claim(kind, id, scope, owner="me", ttl_ms=1_000))

    def refused(self, call: Callable[[], object]) -> object:
        """The error of a try that must not succeed."""
        try:
            answer = call()
        except OmoideError as error:
            return error
        raise AssertionError(f"seed {self.world.seed}, try {self.world.tries}: {call} gave {render(answer)}")


TRIES = int(os.environ.get("OMOIDE_TRIES", "2000"))
"""How often is tried on SQLite; elsewhere it is a part of it."""


def tries(part: int, least: int = 0) -> int:
    """The number of tries where they take longer by some factor."""
    return max(least, TRIES // part)


def seed_of(request: Any) -> int:
    """The seed of `--hypothesis-seed`, or one at random; a failure quotes it."""
    given = request.config.getoption("--hypothesis-seed", default=None)
    return int(given) if str(given).isdigit() else SystemRandom().getrandbits(32)
