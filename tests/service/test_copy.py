"""Copies between stores are complete and exact."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import ListStore
from tests.support.store_process import IDS, step
from tests.support.stores import ADA, KINDS, keep, url, write_request

from omoide import Scope, clock
from omoide.errors import Invalid
from omoide.service import CopyReport, auth, copy, transfer
from omoide.service.transfer import DOCUMENTS_SKIPPED
from omoide.stores import Document, Link, open_store
from omoide.testing import FrozenClock

Pair = tuple[Any, Any]


@asynccontextmanager
async def two(one: str, other: str, folder: Path, **options: Any) -> AsyncIterator[Pair]:
    """Two stores of these kinds."""
    async with AsyncExitStack() as stack:
        source = await stack.enter_async_context(open_store(url(one, folder, "a.db"), embedder="none"))
        opened = open_store(url(other, folder, "b.db"), embedder="none", **options)
        yield source, await stack.enter_async_context(opened)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """A store in memory, and one in a file."""
    async with two("memory", "sqlite", tmp_path) as stores:
        yield stores


async def dump_store(store: Any) -> dict[str, Any]:
    """All that a store tells of itself, but for the revisions of documents."""
    told: dict[str, Any] = {}
    for namespace in await store.namespaces():
        held = await transfer.dump_namespace(store, namespace)
        links = sorted((one.source, one.relation, one.target, one.created_at) for one in held.links)
        told[namespace] = held.entries, links, held.access
        for kind in await store.kinds(namespace):
            for one in await store.documents(kind, Scope(namespace=namespace)):
                found = await store.load(kind, one.id, Scope(namespace=namespace))
                told[f"{namespace} {kind} {one.id}"] = found.body, found.log, found.agent_id, found.session_id
    return told


@given(seed=st.integers(0, 1 << 30), one=st.sampled_from(KINDS), other=st.sampled_from(KINDS))
def test_a_copy_is_what_the_store_was(seed: int, one: str, other: str) -> None:
    """After any life: entries, stale or not, links, figures, documents; a second time nothing is new."""

    async def run(folder: Path) -> None:
        async with two(one, other, folder) as (source, target):
            for n in range(40):
                step(source.sync, seed, n)
            with clock.override(FrozenClock(5_000)):
                await source.record_access(IDS[:4], ADA)
            before = await dump_store(source)
            done = await copy(source, target)
            assert (done.new, done.new_documents) == (done.memories, done.documents)
            assert await dump_store(target) == before
            again = await copy(source, target)
            assert again == CopyReport(
                namespaces=done.namespaces, memories=done.memories, documents=done.documents
            )
            assert await dump_store(target) == await dump_store(source) == before
            assert target.sync.check() == []

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(run, Path(folder))


async def test_every_namespace_is_copied_but_that_of_the_tokens(pair: Pair) -> None:
    """Unless some are named, and tokens are asked for."""
    source, target = pair
    for name in ("a", "b", "c"):
        keep(source.sync, namespace=name)
    secret, _ = await auth.create(source, "crew", ["read"], ["a"])
    assert (await copy(source, target, namespaces=["b", "b"])).namespaces == ("b",)
    assert await target.namespaces() == ["b"]
    assert (await copy(source, target)).namespaces == ("a", "b", "c")
    assert await auth.verify(target, secret) is None
    with pytest.raises(Invalid, match="where tokens are"):
        await copy(source, target, namespaces=[auth.TOKEN_SCOPE.namespace])
    assert (await copy(source, target, tokens=True)).new_documents == 1
    assert await auth.verify(target, secret) is not None


async def test_a_store_is_not_copied_to_itself(tmp_path: Path) -> None:
    """Neither the object nor the file, whatever it is called."""
    async with two("sqlite", "memory", tmp_path) as (source, memory):
        (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
        async with open_store(f"sqlite:///{tmp_path / 'link.db'}", embedder="none") as same:
            for target in (source, same):
                with pytest.raises(Invalid, match="is the source itself"):
                    await copy(source, target)
        assert await copy(source, memory) == CopyReport()


async def test_something_else_under_an_id_stands_in_the_way(pair: Pair) -> None:
    """Memory or document, in the last namespace or the first: nothing is copied, and it is named."""
    source, target = pair
    keep(source.sync, "Tea.", id="m", namespace="a")
    keep(source.sync, "Tea.", id="m", namespace="b")
    keep(target.sync, "Coffee.", id="m", namespace="b")
    before = await dump_store(target)
    with pytest.raises(Invalid, match="memory 'm' is another one in the target; erase one of them"):
        await copy(source, target)
    assert await dump_store(target) == before
    await target.erase(Scope(namespace="b"))
    await source.save(Document(kind="session", id="s", namespace="b", body={"n": 1}))
    await target.save(Document(kind="session", id="s", namespace="b", body={"n": 2}))
    before = await dump_store(target)
    with pytest.raises(Invalid, match="session 's' is another one in the target"):
        await copy(source, target)
    assert await dump_store(target) == before


async def test_a_guard_at_the_target_is_heard_and_hinders_no_second_copy(tmp_path: Path) -> None:
    """What it masks is the same memory when it comes again."""
    async with two("memory", "sqlite", tmp_path, guard="mask") as (source, target):
        keep(source.sync, f"The key is sk_live_{'a1' * 10}.", id="m")
        assert (await copy(source, target)).new == 1
        assert "sk_live" not in (await target.get("m", ADA)).content
        assert (await copy(source, target)).new == 0


async def test_many_memories_come_in_parts_and_are_counted(pair: Pair) -> None:
    """What hangs together comes together, and progress is told up to the end."""
    source, target = pair
    await source.write_many([write_request(f"Fact {n}.", id=f"m{n}") for n in range(2_500)])
    for one, other in ((0, 2_400), (7, 1_900)):
        await source.link(Link(source=f"m{one}", relation="refines", target=f"m{other}"), ADA)
    premise = {"kind": "entry", "ref": "m2"}
    keep(source.sync, "It follows.", id="late", evidence=[premise])
    await source.supersede("m2", ADA)
    parts = [*(await transfer.dump_namespace(source, "default")).batches(100)]
    assert sum(len(part.entries) for part in parts) == 2_501
    for part in parts:
        assert all(link.source in part.entries and link.target in part.entries for link in part.links)
        assert ("m2" in part.entries) == ("late" in part.entries)
    told: list[tuple[str, int, int | None]] = []
    done = await copy(source, target, progress=lambda *step: told.append(step))
    assert done.new == 2_501
    assert [count for _, count, _ in told] == sorted(count for _, count, _ in told)
    assert (told[-1], len(told)) == (("memories", 2_501, 2_501), 3)
    assert (await target.get("late", ADA)).stale


async def test_stores_that_offer_less_are_told_apart(pair: Pair) -> None:
    """What a copy needs is named, and documents that cannot be kept are left out with a notice."""
    source, target = pair
    keep(source.sync, id="m")
    own: Any = ListStore()
    for one, other, needed in ((own, target, "SupportsDocuments"), (source, own, "SupportsImport")):
        with pytest.raises(Invalid, match=needed):
            await copy(one, other)
    with pytest.raises(Invalid, match="SupportsFeed"):
        await copy(own, target, namespaces=["default"])

    class Taking(ListStore):
        """Takes over entries and knows nothing else."""

        async def import_entries(self, entries: Any, links: Any = (), access: Any = None) -> int:
            self.kept += entries
            return len(entries)

    done = await copy(source, Taking())
    assert (done.new, done.notices) == (1, (DOCUMENTS_SKIPPED,))
