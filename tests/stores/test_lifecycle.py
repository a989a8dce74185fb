"""A store stays correct through forks, cancelled tasks, backups and changes of the embedder."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from omoide import (
    Entry,
    Filter,
    RecallRequest,
    RecallResult,
    Scope,
    WriteRequest,
    blocking,
    clock,
    open_store,
)
from omoide.embedders import FunctionEmbedder, HashEmbedder
from omoide.errors import Closed, Erased, Invalid, OmoideError, StoreFailed
from omoide.stores import AsyncStore, Document, Link, Query, refuse_secrets
from omoide.stores.sqlite.store import SQLiteStore
from omoide.testing import FrozenClock

ADA = Scope(agent_id="ada")
BOTH = pytest.mark.parametrize("url", ["memory://", "sqlite:///memory.db"])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test works in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def open_handle(url: str = "sqlite:///memory.db", embedder: Any = "none", **settings: Any) -> AsyncStore:
    return open_store(url, embedder=embedder, **settings)


def file(store: AsyncStore) -> SQLiteStore:
    assert isinstance(store.sync, SQLiteStore)
    return store.sync


def write(store: AsyncStore, content: str, id: str | None = None, **fields: Any) -> str:
    given = {} if id is None else {"id": id}
    entry = Entry.new({"agent_id": "ada", "content": content, **given, **fields})
    return store.sync.write(WriteRequest(entry=entry)).id


def recall_contents(store: AsyncStore, query: str = "tea", **fields: Any) -> list[str]:
    return [
        entry.content
        for entry in store.sync.recall(RecallRequest(agent_id="ada", query=query, **fields)).entries
    ]


def recall_notices(store: AsyncStore) -> tuple[str, ...]:
    result: RecallResult = store.sync.recall(RecallRequest(agent_id="ada", query="tea"))
    return (*result.notices,)


def test_a_backup_ends_while_others_write() -> None:
    """It shows the state in which it began, whatever is written before it is done."""
    with open_handle() as store, open_handle() as other:
        entries = [
            Entry(id=f"m{at}", agent_id="ada", content="tea", metadata={"page": "x" * 400_000})
            for at in range(50)
        ]
        store.sync.write_many([WriteRequest(entry=entry) for entry in entries])
        numbers = count()

        def meanwhile() -> None:
            write(other, f"late {next(numbers)}")

        file(store).backup("copy.db", lambda done, total: meanwhile())
        assert next(numbers) > 1
    with open_handle("sqlite:///copy.db") as copy:
        assert copy.sync.stats(ADA).entries == 50
        assert copy.sync.check() == []


def test_a_backup_that_fails_leaves_nothing_behind(folder: Path) -> None:
    """The part that was written is removed."""

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with open_handle() as store:
        write(store, "tea")
        with pytest.raises(KeyboardInterrupt):
            file(store).backup("copy.db", stop)
        with pytest.raises(StoreFailed):
            file(store).restore_backup("memory.db")
    assert sorted(path.name for path in folder.iterdir()) == ["memory.db"]


@BOTH
def test_what_is_replaced_is_replaced_also_by_words_that_are_known(url: str) -> None:
    """Saying again what was true before supersedes what came in between."""
    with open_handle(url) as store:
        blocking.remember(store, "X is 5", ADA)
        between = blocking.remember(store, "X is 6", ADA)
        receipt = blocking.remember(store, "X is 5", ADA, supersedes=between.id)
        assert receipt.outcome == "superseded"
        assert store.sync.get(between.id, ADA).superseded_by == receipt.id


@BOTH
def test_writing_to_a_forgotten_entry_says_that_it_stays_forgotten(url: str) -> None:
    """The receipt carries a notice."""
    with open_handle(url) as store:
        write(store, "tea", "a")
        store.sync.supersede("a", ADA)
        again = store.sync.write(WriteRequest(entry=Entry(id="a", agent_id="ada", content="green tea")))
        assert "restore" in again.notices[0]
        assert recall_contents(store) == []


def test_an_empty_file_belongs_to_no_embedder_yet() -> None:
    """Opening it with one, even asking it something, does not bind it; the first vector does."""
    with open_handle(embedder=HashEmbedder(8)) as store:
        assert recall_contents(store) == []
    with open_handle(embedder=HashEmbedder(16)) as store:
        write(store, "tea")
    with open_handle(embedder=HashEmbedder(8)) as store:
        assert "hash-16" in recall_notices(store)[0]
    with open_handle("sqlite:///memory.db?mode=ro", embedder=HashEmbedder(16)) as store:
        assert recall_contents(store) == ["tea"]


def test_a_file_without_vectors_can_be_read_with_any_embedder() -> None:
    """Words are compared then."""
    with open_handle() as store:
        write(store, "tea")
    with open_handle("sqlite:///memory.db?mode=ro", embedder=HashEmbedder(16)) as store:
        assert recall_contents(store) == ["tea"]


def test_an_embedder_whose_vectors_changed_their_size_gets_new_ones_by_reindexing() -> None:
    """The name is the same, and the store still keeps them apart."""
    short = FunctionEmbedder("mine", lambda texts: [[1.0, 0.5] for _ in texts], 2)
    long = FunctionEmbedder("mine", lambda texts: [[1.0, 0.5, 0.1] for _ in texts], 3)
    with open_handle(embedder=short) as store:
        write(store, "tea")
    with open_handle(embedder=long) as store:
        assert "reindex" in recall_notices(store)[0]
    with open_handle() as store:
        store.sync.reindex(long)
        assert recall_contents(store) == ["tea"]
    with open_handle(embedder=long) as store:
        assert recall_contents(store) == ["tea"]
        assert store.sync.check() == []


def test_embedders_come_and_go_while_a_store_is_open() -> None:
    """A handle of an embedder that no longer serves answers by words and says so."""
    with open_handle(embedder=HashEmbedder(16)) as old, open_handle() as other:
        write(old, "tea")
        assert recall_contents(old) == ["tea"]
        for dim in range(24, 24 + 12):  # more often than there is room for embedders at once
            other.sync.reindex(HashEmbedder(dim))
            result = old.sync.recall(RecallRequest(agent_id="ada", query="tea"))
            assert result.entries[0].content == "tea"
            assert f"vectors of 'hash-{dim}'" in result.notices[0]


def test_reindexing_given_up_many_times_leaves_room_for_more() -> None:
    """Slots of embedders that were never finished are used again."""

    class Broken(HashEmbedder):
        def embed(self, texts: Any, *, query: bool = False) -> Any:
            raise OSError("no")

    with open_handle(embedder=HashEmbedder(8)) as store:
        write(store, "tea")
        for dim in range(20, 32):
            with pytest.raises((OSError, OmoideError)):
                store.sync.reindex(Broken(dim))
        store.sync.reindex(HashEmbedder(64))
        assert recall_contents(store) == ["tea"]
        assert store.sync.check() == []


def test_a_backup_of_another_embedder_can_be_put_back() -> None:
    """The open store answers by words from then on."""
    with open_handle("sqlite:///one.db", embedder=HashEmbedder(24)) as one:
        write(one, "tea from before")
        file(one).backup("copy.db")
    with open_handle(embedder=HashEmbedder(16)) as store:
        write(store, "coffee")
        assert recall_contents(store) == ["coffee"]
        file(store).restore_backup("copy.db")
        assert recall_contents(store) == ["tea from before"]


def test_new_vectors_are_seen_by_a_store_that_was_open_before() -> None:
    """What another handle's reindexing adds counts at the next recall."""
    embedder = HashEmbedder(16)
    with open_handle() as plain:
        write(plain, "tea")
    with open_handle(embedder=embedder) as store, open_handle(embedder=embedder) as other:
        assert recall_contents(store) == ["tea"]
        other.sync.reindex()
        parts = store.sync.recall(RecallRequest(agent_id="ada", query="tea")).notices
        assert parts == ()
        assert store.sync.stats(ADA).without_vectors == 0


@pytest.mark.parametrize("field", ["created_at", "occurred_at", "expires_at"])
def test_times_beyond_the_calendar_are_refused(field: str) -> None:
    """No entry can carry a time that one of the stores could not hold."""
    with pytest.raises(Invalid, match="9999"):
        Entry.new({"agent_id": "ada", "content": "tea", field: 2**70})


@BOTH
def test_numbers_that_no_store_can_hold_are_bad_input(url: str) -> None:
    """Also where they are limits and positions."""
    with open_handle(url) as store:
        write(store, "tea", "a")
        write(store, "cup", "b")
        for call in (
            lambda: store.sync.query(Query(scope=ADA, limit=2**64)),
            lambda: store.sync.changes("default", after=2**64),
            lambda: store.sync.changes("default", limit=2**64),
            lambda: store.sync.claim("session", "s", ADA, owner="o", ttl_ms=2**64),
            lambda: store.sync.link(Link(source="a", relation="r", target="b", created_at=2**64), ADA),
        ):
            with pytest.raises(Invalid):
                call()
        assert len(store.sync.query(Query(scope=ADA, limit=2**62)).entries) == 2
        assert len(store.sync.changes("default", limit=2**62)) == 2


async def test_a_cancelled_block_closes_its_store() -> None:
    """What was buffered is written, and the file is let go of."""
    store = open_handle()
    with anyio.move_on_after(0.05):
        async with store:
            write(store, "tea", "a")
            await store.record_access(["a"], ADA)
            await anyio.sleep_forever()
    with pytest.raises(Closed):
        store.sync.list_entries(ADA)
    with open_handle() as again:
        assert again.sync.access("a", ADA).count == 1


def test_uses_are_known_before_they_are_written_down() -> None:
    """And nobody has to wait for writers to learn of them."""
    with open_handle(timeout=0.2) as store, open_handle() as other:
        write(store, "tea", "a")
        store.sync.record_access(["a", "a"], ADA)
        with file(other)._db.write_transaction():
            assert store.sync.access("a", ADA).count == 2


def test_uses_are_known_while_a_write_waits_for_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction that writes them takes them, so that others see them and an erasure drops them."""
    with open_handle() as store:
        write(store, "tea", "a")
        store.sync.record_access(["a"], ADA)
        begin, seen = file(store)._db.write_transaction, []

        def waiting(*locks: Any) -> Any:
            seen.append(store.sync.access("a", ADA).count)
            return begin(*locks)

        monkeypatch.setattr(file(store)._db, "write_transaction", waiting)
        write(store, "coffee", "b")
        assert (seen, store.sync.access("a", ADA).count) == ([1], 1)


@BOTH
async def test_an_iterator_is_read_where_it_comes_from(url: str) -> None:
    """It may use what belongs to the thread of the caller."""
    threads = []

    def items() -> Iterator[str]:
        threads.append(current_thread())
        yield "a"

    async with open_handle(url) as store:
        await store.save(Document(kind="note", id="d", agent_id="ada"))
        await store.append("note", "d", items(), ADA)
        await store.record_access(items(), ADA)
    assert threads == [current_thread()] * 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_is_not_held_up_by_the_locks_of_the_other() -> None:
    """Not even when the fork comes while another thread recalls; and a use is counted once."""
    inside, go_on = Event(), Event()

    class Waiting(HashEmbedder):
        def embed(self, texts: Any, *, query: bool = False) -> Any:
            if query and Thread is not None and not go_on.is_set():
                inside.set()
                go_on.wait(10)
            return super().embed(texts, query=query)

    with open_handle(embedder=Waiting(16)) as store:
        go_on.set()
        write(store, "tea", "a")
        recall_contents(store)
        store.sync.record_access(["a"], ADA)
        go_on.clear()
        thread = Thread(target=recall_contents, args=(store, "another question"))
        thread.start()
        inside.wait(10)
        child = os.fork()
        if child == 0:
            go_on.set()
            os._exit(0 if recall_contents(store) == ["tea"] else 1)
        _, status = os.waitpid(child, 0)
        go_on.set()
        thread.join()
        assert status == 0
        assert store.sync.access("a", ADA).count == 1


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///notes#1.db", "sqlite:///a\tb.db", "sqlite:///%ff.db", "sqlite:///~nosuchuser/x.db",
        "sqlite://[x", "sqlite:///", "sqlite:////", "sqlite://host/x.db", f"sqlite:///{'x' * 300}.db", "other://x",
    ],
)  # fmt: skip
def test_a_url_that_means_no_file_is_refused(url: str, folder: Path) -> None:
    """Nothing is opened in its place."""
    with pytest.raises(Invalid):
        open_handle(url)
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize("name", ["a b.db", "a%23b.db", "a%25b.db", "a%3Fb.db", "Grüße.db", "%E6%80%9D.db"])
def test_unusual_names_of_files_work(name: str, folder: Path) -> None:
    """What a URL writes with percent signs is one file, and the same one next time."""
    with open_handle(f"sqlite:///{name}") as store:
        write(store, "tea")
    assert len([*folder.iterdir()]) == 1
    with open_handle(f"sqlite:///{name}") as store:
        assert recall_contents(store) == ["tea"]


def test_passwords_in_urls_are_not_repeated() -> None:
    """Errors and representations show three stars."""
    with pytest.raises(Invalid) as caught:
        open_handle("postgres9://ada:hunter2@db/x")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(AsyncStore(open_handle("memory://").sync, "redis://ada:hunter2@db"))


@BOTH
def test_an_erasure_names_everything_that_rests_on_what_is_gone(url: str) -> None:
    """However many there are, in present and in older versions, and documents besides."""
    with open_handle(url) as store:
        write(store, "the premise", "p")
        for at in range(30):
            write(store, f"note {at} that only mentions it", f"n{at}", metadata={"about": "p"})
        for at in range(25):
            write(store, f"conclusion {at}", f"c{at}", evidence=[{"kind": "entry", "ref": "p", "quote": "x"}])
        write(store, "conclusion 0, now on its own", "c0")
        store.sync.save(Document(kind="session", id="s", agent_id="ada"))
        left = store.sync.erase(ADA, id="p").unreachable
        assert sum("whose evidence is 'p'" in line for line in left) == 20
        assert any(line.startswith("5 more entries") for line in left)
        assert any(line.startswith("documents") and line.endswith("1") for line in left)


@BOTH
def test_of_several_lives_of_an_id_the_right_end_is_told(url: str) -> None:
    """A moment before an erasure is answered by that erasure."""
    with clock.override(FrozenClock(1_000)) as time, open_handle(url) as store:
        for reason in ("first", "second"):
            write(store, "tea", "a")
            time.advance(100)
            store.sync.erase(ADA, id="a", reason=reason)
            time.advance(100)
        for moment, reason in ((1_050, "first"), (1_250, "second"), (5_000, "second")):
            with pytest.raises(Erased) as caught:
                store.sync.get("a", ADA, as_of=moment)
            assert caught.value.reason == reason


@BOTH
def test_the_same_words_in_many_sessions_are_kept_in_each(url: str) -> None:
    """Only the same scope makes a duplicate."""
    with open_handle(url) as store:
        for session in ("s1", "s2", "s1"):
            blocking.remember(store, "ok thanks", Scope(agent_id="ada", session_id=session))
        assert len(store.sync.list_entries(ADA)) == 2


@BOTH
def test_a_whole_namespace_can_be_listed(url: str) -> None:
    """The newest come first, whoever they belong to, page by page."""
    with open_handle(url) as store:
        for at in range(40):
            entry = Entry(id=f"m{at}", agent_id=f"agent {at % 7}", content="tea", occurred_at=1_000 + at)
            store.sync.write(WriteRequest(entry=entry))
        seen: list[str] = []
        cursor = None
        while True:
            page = store.sync.query(
                Query(scope=Scope(), limit=7, cursor=cursor, filter=Filter(types=("memory_item",)))
            )
            seen += [entry.id for entry in page.entries]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == [f"m{at}" for at in reversed(range(40))]


@pytest.mark.parametrize("text", ["a-a+" * 20_000, "a." * 40_000, "eyJa-" * 16_000, "4 " * 40_000])
def test_guards_read_long_texts_in_time(text: str) -> None:
    """No text makes a pattern look at it again and again."""
    assert refuse_secrets()(Entry(agent_id="ada", content=text)).content == text


@BOTH
def test_a_question_from_the_future_changes_nothing_for_the_present(url: str) -> None:
    """What expires later is absent then, and still there now."""
    with clock.override(FrozenClock(1_000)), open_handle(url) as store:
        write(store, "tea until later", expires_at=5_000)
        write(store, "tea for ever")
        assert recall_contents(store, at=9_000) == ["tea for ever"]
        assert len(recall_contents(store, at=1_000)) == 2


def test_a_scope_is_said_once() -> None:
    """Fields of the scope beside the scope are refused by name."""
    with open_handle("memory://") as store:
        with pytest.raises(Invalid, match="session_id"):
            blocking.remember(store, "tea", ADA, session_id="s")  # type: ignore[call-arg]
        with pytest.raises(Invalid, match="namespace"):
            blocking.recall(store, "tea", ADA, namespace="other")  # type: ignore[call-arg]


@BOTH
def test_a_document_that_is_loaded_and_saved_keeps_what_was_appended(url: str) -> None:
    """Saving replaces the log by the one that the document carries."""
    with open_handle(url) as store:
        store.sync.save(Document(kind="session", id="s"))
        store.sync.append("session", "s", [1, {"two": 2}], Scope())
        found = store.sync.load("session", "s", Scope())
        assert found is not None
        store.sync.save(found.replace(body="new"))
        again = store.sync.load("session", "s", Scope())
        assert again is not None
        assert again.log == found.log
        assert again.body == "new"


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list descriptors")
def test_refused_openings_leave_no_file_open() -> None:
    """Neither for a folder nor for another program's file."""
    Path("folder.db").mkdir()
    Path("other.db").write_bytes(b"something else entirely" * 100)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(OmoideError):
            open_handle("sqlite:///folder.db")
        with pytest.raises(OmoideError):
            open_handle("sqlite:///other.db")
    assert len(os.listdir("/proc/self/fd")) == before


@BOTH
def test_a_guard_sees_reasons_too(url: str) -> None:
    """A secret in the reason of forgetting is masked like one in content."""
    with open_handle(url, guard="mask") as store:
        write(store, "tea", "a")
        gone = store.sync.supersede("a", ADA, reason="the password is hunter2!")
        assert "hunter2" not in str(gone.superseded_reason)


async def test_blocking_verbs_work_where_a_loop_runs() -> None:
    """A notebook has one; a store of one's own is then called in a thread."""

    class Own:
        async def write(self, request: WriteRequest) -> Any:
            await anyio.lowlevel.checkpoint()
            return await inner.write(request)

        async def recall(self, request: RecallRequest) -> Any:
            return await inner.recall(request)

        async def list_entries(self, scope: Scope) -> list[Entry]:
            return await inner.list_entries(scope)

    inner = open_handle("memory://")
    blocking.remember(Own(), "tea", ADA)
    assert [entry.content for entry in blocking.recall(Own(), "tea", ADA).entries] == ["tea"]
