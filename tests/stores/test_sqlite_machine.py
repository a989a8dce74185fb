"""Any sequence of operations leaves a SQLite file as it leaves the reference store in memory."""

from __future__ import annotations

import math
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import note as say
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.staleness import naively_stale
from tests.support.stores import open_core

from omoide import Entry, Filter, RecallRequest, RecallResult, Scope, WriteRequest, clock
from omoide.errors import NotFound, OmoideError
from omoide.stores import Access, Change, Document, EraseReceipt, Feed, Link, Query, Stats
from omoide.stores.sql import candidates
from omoide.testing import FrozenClock, HashEmbedder

IDS = ("a", "b", "c", "A", "á", "x'; --")
AGENTS = ("ada", "bob")
SESSIONS = (None, "s1", "s2")
PROJECTS = (None, "p")
USERS = (None, None, None, "u")
SLOT_KEYS = ("city", "home")
NAMESPACES = ("default", "other")
WORDS = (
    "tea",
    "coffee",
    "Lisbon",
    "moved",
    "prefers",
    "never",
    "Ljubljana",
    "running",
    "ran",
    "2023",
    "Maria",
)
TYPES = (None, "fact", "decision", "architectural_decision", "bug")
RELATIONS = ("refines", "contradicts", "invalidated_by")
KEYS = ("k1", "k2")

ids = st.sampled_from(IDS)
maybe_ids = st.none() | ids
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)
START = 1_700_000_000_000
times = st.integers(START - 1_000, START + 2_000)
tags = st.lists(st.sampled_from(["x", "y"]), max_size=2)
revs = st.sampled_from([None, None, None, None, 0, 1, 2, 3])
scopes = st.builds(
    Scope,
    namespace=st.sampled_from(NAMESPACES),
    agent_id=st.sampled_from([None, *AGENTS]),
    session_id=st.sampled_from([None, None, "s1", "s2"]),
    project_id=st.sampled_from([None, None, "p"]),
    user_id=st.sampled_from(USERS),
)
wide = st.sampled_from([Scope(namespace=name) for name in NAMESPACES]) | scopes
owners = st.builds(
    Scope,
    namespace=st.sampled_from(NAMESPACES),
    agent_id=st.sampled_from(AGENTS),
    session_id=st.sampled_from(SESSIONS),
    project_id=st.sampled_from(PROJECTS),
    user_id=st.sampled_from(USERS),
)
filters = st.builds(
    Filter,
    types=st.lists(st.sampled_from(["fact", "decision", "error", "memory_item"]), max_size=2),
    tags=st.lists(st.just("x"), max_size=1),
    tags_any=tags,
    key=st.none() | st.none() | st.sampled_from(SLOT_KEYS),
    min_confidence=st.sampled_from([0.0, 0.0, 0.5, 1.0]),
    since=st.none() | times,
    include_superseded=st.booleans(),
    include_stale=st.booleans(),
    include_expired=st.booleans(),
)
evidence = st.just(({"kind": "message", "ref": "t1:3"},)) | st.lists(
    st.builds(lambda id: {"kind": "entry", "ref": id}, ids), max_size=3
)
said = st.fixed_dictionaries(
    {"content": texts, "type": st.sampled_from(TYPES), "tags": tags},
    optional={
        "key": st.sampled_from(SLOT_KEYS),
        "confidence": st.sampled_from([0.3, 0.5, 0.79]),
        "importance": st.sampled_from([0.0, 1.0]),
        "occurred_at": times,
        "expires_at": st.sampled_from([500, 1_005, 1_500, 1 << 40, 1 << 41]),
        "metadata": st.dictionaries(st.sampled_from(["m", "$set"]), st.integers(0, 2), max_size=2),
        "message": st.fixed_dictionaries(
            {"thread": st.sampled_from(["t1", "t2"]), "seq": st.integers(0, 6)},
            optional={"role": st.sampled_from(["user", "assistant"]), "speaker": st.just("Maria")},
        ),
        "evidence": evidence,
    },
)
first = st.tuples(ids, said)
bodies = st.none() | st.dictionaries(st.sampled_from(["turns", "n"]), st.integers(0, 3), max_size=2) | texts


def home(id: str) -> Scope:
    """The scope in which an id is mostly used, so that most writes meet what is there; two ids share one."""
    at = IDS.index(id) // 2
    return Scope(
        agent_id=AGENTS[at % 2],
        session_id=SESSIONS[at % 3],
        project_id=PROJECTS[at // 2],
        user_id=USERS[-1] if at == 1 else None,
    )


def plain(result: Any) -> Any:
    """A result without what may differ between stores."""
    match result:
        case EraseReceipt():
            return (
                sorted(result.ids),
                result.versions,
                result.links,
                result.documents,
                result.at,
                result.reason,
            )
        case Stats():
            return result.replace(size_bytes=0, last_seq=0, embedder=None)
        case Feed():
            entries = sorted(result.entries, key=lambda entry: entry.id)
            links = sorted(result.links, key=repr)
            return (
                result.seq,
                result.more,
                entries,
                links,
                result.access,
                sorted(result.erased_ids),
                result.new_ids,
            )
        case RecallResult():
            return [entry.to_json() for entry in result.entries], result.weak, result.notices
        case [Change(), *_]:
            return [change.replace(seq=0) for change in result]
        case _:
            return result


class StoreMachine(RuleBasedStateMachine):
    """Every operation on the reference, and on one of two connections to a file."""

    @initialize(
        vectors=st.booleans(),
        durability=st.sampled_from(["crash", "power"]),
        first=st.lists(first, max_size=8),
    )
    def begin(self, vectors: bool, durability: str, first: list[tuple[str, dict[str, Any]]]) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.time = FrozenClock(START)
        self.options: dict[str, Any] = {"embedder": HashEmbedder(32) if vectors else "none"}
        self.durability = durability
        self.reference = open_core("memory", self.folder, **self.options)
        self.files = [self.open(), self.open()]
        self.turn = 0
        for id, fields in first:
            self.both("write", self.request(id, fields, None, None))

    def open(self) -> Any:
        return open_core("sqlite", self.folder, durability=self.durability, **self.options)

    def teardown(self) -> None:
        if hasattr(self, "files"):
            assert self.files[0].check() == []
            for store in (self.reference, *self.files):
                store.close()
            shutil.rmtree(self.folder)

    def both(self, operation: str, *args: Any, **options: Any) -> Any:
        """Do it in both; what both gave, which has to be the same."""
        self.turn += 1
        gave = []
        # Uses are buffered where they are noted, for others to see later.
        file = self.files[0 if "access" in operation or operation == "change_feed" else self.turn % 2]
        for store in (self.reference, file):
            with clock.override(self.time):
                try:
                    gave.append(plain(getattr(store, operation)(*args, **options)))
                except OmoideError as error:
                    gave.append((type(error), str(error)))
        assert gave[0] == gave[1], f"{operation}: reference {gave[0]!r}, file {gave[1]!r}"
        return gave[0]

    @rule(ms=st.sampled_from([-20, 0, 1, 10, 500, 8 * 24 * 3_600_000]))
    def wait(self, ms: int) -> None:
        self.time.at += ms  # a clock may be set back

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.files[which].close()
        self.files[which] = self.open()

    def request(
        self, id: str, fields: dict[str, Any], at: Scope | None, rev: int | None, **options: Any
    ) -> WriteRequest:
        owner = home(id) if at is None else at
        whose = {name: getattr(owner, name) for name in Scope.__struct_fields__}
        with clock.override(self.time):
            entry = Entry.new({"id": id, **whose, **fields})
        return WriteRequest(entry=entry, expected_rev=rev, **options)

    @rule(
        id=ids,
        fields=said,
        at=st.none() | st.none() | owners,
        rev=revs,
        key=st.none() | st.none() | st.sampled_from(KEYS),
        dedupe=st.booleans(),
        supersedes=st.none() | st.none() | ids,
    )
    def write(
        self,
        id: str,
        fields: dict[str, Any],
        at: Scope | None,
        rev: int | None,
        key: str | None,
        dedupe: bool,
        supersedes: str | None,
    ) -> None:
        other = None if supersedes == id else supersedes
        request = self.request(id, fields, at, rev, idempotency_key=key, dedupe=dedupe, supersedes=other)
        self.both("write", request)

    @rule(batch=st.lists(st.tuples(ids, said, revs), max_size=4))
    def write_many(self, batch: list[tuple[str, dict[str, Any], int | None]]) -> None:
        self.both("write_many", [self.request(id, fields, None, rev) for id, fields, rev in batch])

    @rule(id=ids, scope=wide, by=maybe_ids, reason=st.none() | st.just("moved on"), rev=revs)
    def supersede(self, id: str, scope: Scope, by: str | None, reason: str | None, rev: int | None) -> None:
        self.both("supersede", id, scope, by=by, reason=reason, expected_rev=rev)

    @rule(id=ids, scope=wide, rev=revs)
    def restore(self, id: str, scope: Scope, rev: int | None) -> None:
        self.both("reinstate", id, scope, expected_rev=rev)

    @rule(id=ids, scope=wide, reason=st.none() | st.just("asked to"))
    def erase(self, id: str, scope: Scope, reason: str | None) -> None:
        self.both("erase", scope, id=id, reason=reason)

    @rule(scope=scopes)
    def erase_scope(self, scope: Scope) -> None:
        self.both("erase", scope)

    @rule(one=ids, other=ids, relation=st.sampled_from(RELATIONS), scope=wide)
    def link(self, one: str, other: str, relation: str, scope: Scope) -> None:
        with clock.override(self.time):
            link = Link(source=one, relation=relation, target=other)
        self.both("link", link, scope)

    @rule(one=ids, other=ids, relation=st.sampled_from(RELATIONS), scope=wide)
    def unlink(self, one: str, other: str, relation: str, scope: Scope) -> None:
        self.both("unlink", Link(source=one, relation=relation, target=other, created_at=0), scope)

    @rule(used=st.lists(ids, max_size=3), scope=wide)
    def record_access(self, used: list[str], scope: Scope) -> None:
        self.both("record_access", used, scope)

    @rule(
        batch=st.lists(st.tuples(ids, said, st.integers(0, 3), maybe_ids), min_size=1, max_size=4),
        ends=st.lists(st.tuples(ids, ids, st.sampled_from(RELATIONS)), max_size=2),
        used=st.dictionaries(ids, st.builds(Access, count=st.integers(0, 2), last=st.none() | times)),
    )
    def take(
        self,
        batch: list[tuple[str, dict[str, Any], int, str | None]],
        ends: list[tuple[str, str, str]],
        used: dict[str, Access],
    ) -> None:
        entries = [
            self.request(id, fields, None, None).entry.replace(rev=rev, superseded_by=by, stale=rev == 2)
            for id, fields, rev, by in batch
        ]
        links = [Link(source=one, relation=name, target=other, created_at=7) for one, other, name in ends]
        self.both("import_entries", entries, links, used)

    @rule(
        name=st.sampled_from(NAMESPACES),
        after=st.sampled_from([0, 0, 1, 5, 20]),
        limit=st.sampled_from([1, 7, 10_000]),
        before=st.none() | st.integers(0, 600),
    )
    def follow(self, name: str, after: int, limit: int, before: int | None) -> None:
        since = None if before is None else max(0, self.time.at - before)
        self.both("change_feed", name, after=after, limit=limit, used_since=since)

    @rule(id=ids, scope=wide, before=st.none() | st.integers(0, 600))
    def look_at_one(self, id: str, scope: Scope, before: int | None) -> None:
        as_of = None if before is None else max(0, self.time.at - before)
        self.both("get", id, scope, as_of=as_of)
        self.both("history", id, scope)
        self.both("links", id, scope)
        self.both("links", id, scope, relation="refines")
        self.both("access", id, scope)

    @rule(
        scope=wide, filter=filters, limit=st.sampled_from([1, 2, 50]), before=st.none() | st.integers(0, 600)
    )
    def query(self, scope: Scope, filter: Filter, limit: int, before: int | None) -> None:
        as_of = None if before is None else max(0, self.time.at - before)
        seen: list[list[str]] = []
        for store in (self.reference, self.files[0]):
            found: list[str] = []
            cursor = None
            for _ in range(20):
                page = store.query(
                    Query(
                        scope=scope, filter=filter, limit=limit, cursor=cursor, as_of=as_of, at=self.time.at
                    )
                )
                found += [repr(entry) for entry in page.entries]
                cursor = page.cursor
                if cursor is None:
                    break
            assert len(found) == len(set(found))
            seen.append(found)
        assert seen[0] == seen[1]

    @rule(scope=wide, query=texts, limit=st.sampled_from([1, 3, 20]), filter=st.just(Filter()) | filters)
    def ask(self, scope: Scope, query: str, limit: int, filter: Filter) -> None:
        self.recall(scope, query, limit, filter)

    def recall(self, scope: Scope, query: str, limit: int, filter: Filter) -> None:
        if scope.agent_id is None and scope.session_id is not None:
            scope = scope.replace(session_id=None)
        request = RecallRequest.for_scope(scope, query, limit=limit, filter=filter, at=self.time.at)
        with clock.override(self.time):
            ours, theirs = (store.recall(request) for store in (self.reference, self.files[self.turn % 2]))
        try:
            self.agree(ours, theirs)
        except AssertionError:
            for result in (ours, theirs):
                say("\n".join(f"{hit.entry.id} {hit.score:.4f}: {hit.why}" for hit in result.hits) + "\n--")
            raise
        for entry in theirs.entries:
            assert scope.contains(entry)
            assert entry.superseded_by is None or filter.include_superseded
            assert not entry.stale or filter.include_stale or entry.superseded_by is not None
            assert entry.is_live(self.time.at) or filter != Filter()

    def agree(self, ours: RecallResult, theirs: RecallResult) -> None:
        """Scores and order are the same."""
        assert plain(ours) == plain(theirs)
        for one, other in zip(ours.hits, theirs.hits, strict=True):
            assert math.isclose(one.score, other.score, rel_tol=1e-4, abs_tol=1e-4)

    @rule(id=ids, at=owners, body=bodies, rev=revs)
    def save(self, id: str, at: Scope, body: Any, rev: int | None) -> None:
        document = Document(
            kind="session",
            id=id,
            namespace=at.namespace,
            user_id=at.user_id,
            agent_id=at.agent_id,
            session_id=at.session_id,
            body=body,
            updated_at=self.time.at,
        )
        self.both("save", document, expected_rev=rev)

    @rule(id=ids, scope=wide, entries=st.lists(bodies, max_size=2), rev=revs)
    def append(self, id: str, scope: Scope, entries: list[Any], rev: int | None) -> None:
        self.both("append", "session", id, entries, scope, expected_rev=rev)
        self.both("load", "session", id, scope)

    @rule(id=ids, scope=wide, owner=st.sampled_from(["w1", "w2"]), ttl=st.sampled_from([1, 20]))
    def claim(self, id: str, scope: Scope, owner: str, ttl: int) -> None:
        self.both("claim", "session", id, scope, owner=owner, ttl_ms=ttl)

    @rule(id=ids, scope=wide, owner=st.sampled_from(["w1", "w2"]))
    def release(self, id: str, scope: Scope, owner: str) -> None:
        self.both("release", "session", id, scope, owner=owner)

    @rule(scope=wide)
    def figures(self, scope: Scope) -> None:
        self.both("stats", scope)

    @invariant()
    def the_same_is_kept(self) -> None:
        for name in NAMESPACES if hasattr(self, "files") else ():
            self.both("list_entries", Scope(namespace=name))
            self.check_truth(name)
            self.check_slots(name)
            self.recall(Scope(namespace=name), WORDS[self.turn % len(WORDS)], 20, Filter())

    def check_truth(self, name: str) -> None:
        whole = self.reference.change_feed(name, limit=1 << 40)
        marked = {entry.id for entry in whole.entries if entry.stale}
        gone = {id for id in IDS if self.is_erased(id, name)}
        assert marked == naively_stale(whole.entries, whole.links, gone)

    def check_slots(self, name: str) -> None:
        """Each slot has one value at most."""
        filled = [entry for entry in self.reference.list_entries(Scope(namespace=name)) if entry.fills_slot]
        assert len({(entry.scope, entry.key) for entry in filled}) == len(filled)

    def is_erased(self, id: str, name: str) -> bool:
        """Whether there is only a tombstone: it was erased here, or left behind where entries came from."""
        try:
            return self.reference.history(id, Scope(namespace=name))[-1].entry is None
        except NotFound:
            return False

    @rule(limit=st.sampled_from([1, 1_000]))
    def the_same_is_told(self, limit: int) -> None:
        for name in NAMESPACES:
            self.both("changes", name, limit=limit)
            told = self.files[0].changes(name)
            assert all(one.seq < other.seq for one, other in pairwise(told))


class WideMachine(StoreMachine):
    """The same, where every scope of more than two entries is searched as a large one."""

    @initialize(vectors=st.booleans(), durability=st.just("crash"), first=st.lists(first, max_size=8))
    def begin(self, vectors: bool, durability: str, first: list[tuple[str, dict[str, Any]]]) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(candidates, "MAX_CACHED_ENTRIES", 2)
        super().begin(vectors, durability, first)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "patch"):
            self.patch.undo()

    def agree(self, ours: RecallResult, theirs: RecallResult) -> None:
        """Statistics are not those of the whole scope there, so that only what is found is the same."""
        assert len(ours.entries) == len(theirs.entries)
        if len(ours.entries) < ours.request.limit:
            assert {entry.id for entry in ours.entries} == {entry.id for entry in theirs.entries}


TestStores = StoreMachine.TestCase
TestWideStores = WideMachine.TestCase
