"""Export and import of JSON Lines."""

from __future__ import annotations

import json
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.test_copy import dump_store, two
from tests.support.store_process import IDS, step
from tests.support.stores import ADA, KINDS, keep

from omoide import Entry, Scope, clock
from omoide.errors import IdTaken, Invalid, NotFound
from omoide.service import transfer
from omoide.stores import open_store
from omoide.testing import FrozenClock

ANYBODY = Scope()


@given(seed=st.integers(0, 1 << 30), other=st.sampled_from(KINDS))
def test_a_file_of_lines_holds_everything(seed: int, other: str) -> None:
    """After any life: entries as they are, their links and figures; reading it twice changes nothing."""

    async def run(folder: Path) -> None:
        file = folder / "all.jsonl"
        async with two("memory", other, folder) as (source, target):
            for n in range(40):
                step(source.sync, seed, n)
            with clock.override(FrozenClock(5_000)):
                await source.record_access(IDS[:4], ADA)
            count = await transfer.export_jsonl(source, file, ANYBODY)
            assert await transfer.import_jsonl(target, file, ANYBODY) == (count, count, 0)
            told = {name: held for name, held in (await dump_store(source)).items() if " " not in name}
            assert await dump_store(target) == {name: held for name, held in told.items() if count}
            assert await transfer.import_jsonl(target, file, ANYBODY) == (count, 0, 0)
            written = file.read_bytes()
            await transfer.export_jsonl(target, file, ANYBODY)
            assert file.read_bytes() == written

    with tempfile.TemporaryDirectory() as folder:
        anyio.run(run, Path(folder))


async def test_a_line_has_all_fields(tmp_path: Path) -> None:
    """Those of an entry, also where they are empty; only what the scope holds is written."""
    file = tmp_path / "one.jsonl"
    async with open_store("memory://", embedder="none") as store:
        keep(store.sync, "Grüße — “so”.", id="m", metadata={"n": [1.5, {"$x": 1}]}, tags=["a"])
        keep(store.sync, id="b", agent_id="bob")
        assert await transfer.export_jsonl(store, file, ADA) == 1
        [line] = file.read_text("utf-8").splitlines()
        assert set(json.loads(line)) == set(Entry.__struct_fields__)
        assert Entry.from_json(line) == await store.get("m", ADA)


async def test_what_a_line_leaves_open_is_filled_in_the_same_way_each_time(tmp_path: Path) -> None:
    """Whose it is, its id and its time; also after the memory was forgotten, it is not there twice."""
    file = tmp_path / "loose.jsonl"
    file.write_text('\ufeff{"content": "Tea."}\r\n\n{"content": "Cocoa.", "id": "c", "session_id": null}\n')
    async with open_store("memory://", embedder="none") as store:
        mine = Scope(agent_id="ada", project_id="p")
        with clock.override(FrozenClock(1_000)):
            assert await transfer.import_jsonl(store, file, mine) == (2, 2, 0)
        tea, cocoa = await store.list_entries(mine)
        assert (tea.agent_id, tea.project_id, tea.rev, cocoa.id) == ("ada", "p", 1, "c")
        await store.supersede(tea.id, mine)
        with clock.override(FrozenClock(2_000)):
            assert await transfer.import_jsonl(store, file, mine) == (2, 0, 0)
        assert [entry.created_at for entry in await store.list_entries(mine)] == [1_000, 1_000]
        with pytest.raises(Invalid, match=r"loose\.jsonl line 1: agent_id is missing"):
            await transfer.import_jsonl(store, file, ANYBODY)


async def test_a_line_that_stands_there_twice_is_one_memory(tmp_path: Path) -> None:
    """Also where time goes on while the file is read."""
    file = tmp_path / "twice.jsonl"
    file.write_text('{"content": "Tea."}\n' * 2)
    async with open_store("memory://", embedder="none") as store:
        with clock.override(count(1_000).__next__):
            assert await transfer.import_jsonl(store, file, Scope(agent_id="ada")) == (1, 1, 0)


WRONG = [
    ("{", "line 2 is not readable JSON"),
    ("[1]", "line 2 must be a JSON object"),
    ("[" * 100_000, "line 2 is nested too deeply"),
    ('{"content": ""}', "line 2: content"),
    ('{"id": "x"}', "line 2: content is missing"),
    ('{"content": "x", "mood": 1}', "line 2: mood is an unknown field"),
    ('{"content": "x", "confidence": 2}', "line 2: confidence is 2.0; pass a number from 0 to 1"),
    ('{"content": "x", "type": "gossip"}', "line 2: type is 'gossip'"),
    ('{"content": "x\\u0000"}', "line 2: content contains a NUL"),
    ('{"content": "x", "created_at": -1}', "line 2: created_at"),
    ('{"content": "x", "evidence": [{"kind": "rumour", "ref": "r"}]}', r"line 2: evidence\[0\].kind"),
    ('{"content": "x", "message": {"thread": "t"}}', "line 2: message.seq is missing"),
    ('{"content": "x", "metadata": {"$spell": 1}}', r"line 2: metadata holds \$spell"),
    ('{"content": "x", "links": [{"relation": "refines"}]}', r"line 2: links\[0\].target is missing"),
    ('{"content": "x", "links": 5}', "line 2: links must be a list"),
    ('{"content": "x", "access": {"count": -1}}', "line 2: access.count"),
    ('{"content": "x", "agent_id": "bob"}', "line 2: memory .* lies outside the scope"),
    ('{"content": "x", "namespace": "other"}', "line 2: memory .* lies outside the scope"),
    ('{"content": "x", "id": "a", "superseded_by": "a"}', "line 2: superseded_by names the memory itself"),
    ('{"content": "x", "id": "first"}', "line 2: id 'first' is that of wrong.jsonl line 1"),
]


@pytest.mark.parametrize(("line", "told"), WRONG, ids=range(len(WRONG)))
async def test_a_wrong_line_is_named_and_nothing_is_taken(line: str, told: str, tmp_path: Path) -> None:
    """Whatever came before it, the store stays as it was."""
    file = tmp_path / "wrong.jsonl"
    file.write_text(f'{{"content": "Good.", "id": "first"}}\n{line}\n')
    async with open_store("memory://", embedder="none") as store:
        with pytest.raises(Invalid, match=told):
            await transfer.import_jsonl(store, file, ADA)
        assert await store.list_entries(ANYBODY) == []


async def test_another_memory_under_the_id_stands_in_the_way(tmp_path: Path) -> None:
    """And then nothing is taken at all."""
    file = tmp_path / "taken.jsonl"
    file.write_text('{"content": "New."}\n{"content": "Cocoa.", "id": "m", "created_at": 5}\n')
    async with open_store("memory://", embedder="none") as store:
        kept = keep(store.sync, "Tea.", id="m")
        with pytest.raises(IdTaken):
            await transfer.import_jsonl(store, file, ADA)
        assert await store.list_entries(ANYBODY) == [kept]


async def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    """An absent file or folder, and a line without end; nothing is left behind."""

    def folder() -> list[Path]:
        return [*tmp_path.iterdir()]

    async with open_store("memory://", embedder="none") as store:
        keep(store.sync)
        with pytest.raises(NotFound, match=r"absent\.jsonl"):
            await transfer.import_jsonl(store, tmp_path / "absent.jsonl", ADA)
        with pytest.raises(NotFound, match="folders are not made"):
            await transfer.export_jsonl(store, tmp_path / "no" / "x.jsonl", ADA)
        monkeypatch.setattr(transfer, "MAX_LINE_BYTES", 1 << 10)
        (tmp_path / "long.jsonl").write_text("x" * 5_000)
        with pytest.raises(Invalid, match="line 1 has more than"):
            await transfer.import_jsonl(store, tmp_path / "long.jsonl", ADA)
    assert [path.name for path in folder()] == ["long.jsonl"]


async def test_a_line_with_an_everyday_word_is_imported_as_its_type(tmp_path: Path) -> None:
    """Files of other programs may say `preference`; a word that is none is refused with its line."""
    file = tmp_path / "theirs.jsonl"
    file.write_text('{"id": "m", "agent_id": "ada", "content": "Alex prefers tea.", "type": "preference"}\n')
    async with open_store("memory://", embedder="none") as store:
        await transfer.import_jsonl(store, file, ADA)
        assert (await store.get("m", ADA)).type == "fact"
        file.write_text('{"id": "n", "agent_id": "ada", "content": "x", "type": "rumour"}\n')
        with pytest.raises(Invalid, match="use one of fact"):
            await transfer.import_jsonl(store, file, ADA)
