"""Import of chat logs."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Scope
from omoide.core import MessageRef
from omoide.errors import Invalid, NotFound, OmoideError
from omoide.service import chats
from omoide.service.chats import read_chat_logs
from omoide.stores import open_store

ADA = Scope(agent_id="ada")
HI = {"role": "user", "name": "Maria", "content": "Hi.", "timestamp": "2026-05-04T09:10:00+02:00"}
YES = {"role": "assistant", "content": "Yes?", "created_at": 1_777_886_400}
NINE_TEN = 1_777_878_600_000


def wrote(folder: Path, value: Any, name: str = "talk.json") -> Path:
    """A file with a JSON value; several values stand one a line."""
    path = folder / name
    rows = value if name.endswith("l") else [value]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def threads_of(path: Path, **options: Any) -> list[tuple[str, list[tuple[int, str]]]]:
    """The threads of a file, with the places and the words of their messages."""
    return [
        (one.thread, [(message.seq, message.content) for message in one.messages])
        for one in read_chat_logs(path, **options)
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("talk.json", [HI, YES]),
        ("talk.json", {"messages": [HI, YES], "model": "m"}),
        ("talk.json", [{"messages": [HI, YES]}]),
        ("talk.json", [[HI, YES]]),
        ("talk.jsonl", [HI, YES]),
        ("talk.jsonl", [{"messages": [HI, YES]}]),
    ],
    ids=["list", "object", "list of objects", "list of lists", "lines", "object on a line"],
)
def test_a_conversation_is_understood_in_every_shape(name: str, value: Any, tmp_path: Path) -> None:
    """With its messages in order; where it has no name of its own, that of the file is taken."""
    assert threads_of(wrote(tmp_path, value, name)) == [("talk", [(0, "Hi."), (1, "Yes?")])]


@pytest.mark.parametrize("name", ["talks.json", "talks.jsonl"])
def test_several_conversations_are_told_apart(name: str, tmp_path: Path) -> None:
    """By their own names, or by that of the file and a number; a name that is given wins."""
    value = [{"messages": [HI], "id": "first"}, {"messages": [YES]}, {"messages": [HI], "thread_id": 7}]
    path = wrote(tmp_path, value, name)
    assert [thread for thread, _ in threads_of(path)] == ["first", "talks#2", "7"]
    assert [thread for thread, _ in threads_of(path, thread="x")] == ["x#1", "x#2", "x#3"]


def test_what_says_nothing_keeps_its_place(tmp_path: Path) -> None:
    """Calls of tools and pictures are left out and counted; texts among parts are joined."""
    parts = [{"type": "text", "text": "Look:"}, {"type": "image_url", "image_url": {}}, "a cat"]
    rows = [HI, {"role": "assistant", "content": None}, {"role": "user", "content": parts}]
    [one] = read_chat_logs(wrote(tmp_path, [*rows, {"role": "tool", "content": "  "}]))
    assert [(message.seq, message.content) for message in one.messages] == [
        (0, "Hi."),
        (2, "Look:\na cat"),
    ]
    assert one.left_out == 2


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({"timestamp": "2026-05-04T07:10:00Z"}, NINE_TEN),
        ({"timestamp": "2026-05-04 07:10"}, NINE_TEN),
        ({"created_at": NINE_TEN // 1000}, NINE_TEN),
        ({"created_at": NINE_TEN / 1000}, NINE_TEN),
        ({"created_at": str(NINE_TEN)}, NINE_TEN),
        ({"timestamp": None, "created_at": NINE_TEN}, NINE_TEN),
        ({}, None),
    ],
    ids=str,
)
def test_times_are_read_in_the_usual_forms(given: dict[str, Any], at: int | None, tmp_path: Path) -> None:
    """As ISO 8601, UTC unless a zone is given, or as seconds or milliseconds."""
    [one] = read_chat_logs(wrote(tmp_path, [{"role": "user", "content": "x", **given}]))
    assert one.messages[0].at == at


WRONG: list[tuple[Any, str]] = [
    (5, "talk.json must be a list"),
    ([1], "talk.json message 1 must be an object"),
    ([HI, {"content": "x"}], "talk.json message 2: role is missing"),
    ([{"role": 5, "content": "x"}], "message 1: role is 5"),
    ([{"role": "user"}], "message 1: content is missing"),
    ([{"role": "user", "content": 5}], "message 1: content must be text"),
    ([{"role": "user", "content": [{"text": 5}]}], r"message 1: content\[0\]"),
    ([{"role": "user", "content": "x", "name": ["n"]}], "message 1: name must be text"),
    ([{"role": "user", "content": "x\0"}], "message 1: content contains a NUL"),
    ([{"role": "user", "content": "x", "timestamp": "noon"}], "message 1: timestamp is 'noon'"),
    ([{"role": "user", "content": "x", "timestamp": True}], "message 1: timestamp is True"),
    ([{"role": "user", "content": "x", "created_at": -5}], "message 1: created_at is -5"),
    ([{"role": "user", "content": "x", "created_at": 1e300}], "message 1: created_at is 1e"),
    ({"messages": {}}, "talk.json: messages must be a list"),
    ([{"messages": [HI]}, HI], "talk.json conversation 2 is no conversation"),
    ([{"messages": [], "id": "a"}, {"messages": [], "id": "a"}], "conversation 2: id 'a' is that of another"),
    ([{"messages": [], "id": ["a"]}], "conversation 1: id must be a non-empty string"),
]


@pytest.mark.parametrize(("value", "told"), WRONG, ids=range(len(WRONG)))
async def test_a_wrong_message_is_named_and_nothing_is_remembered(
    value: Any, told: str, tmp_path: Path
) -> None:
    """The place in the file and the field."""
    async with open_store("memory://", embedder="none") as store:
        with pytest.raises(Invalid, match=told):
            await chats.import_chat(store, wrote(tmp_path, value), ADA)
        assert await store.list_entries(Scope()) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[{"role": "us', "talk.json is not readable JSON"),
        ('{"role": "user", "content": "x"}\n{"role":\n', "talk.json line 2 is not readable JSON"),
        ('{"role": "user", "content": "x"}\n\n{"role": "user"}\n', "talk.json line 3: content is missing"),
        ("[" * 100_000, "talk.json is nested too deeply"),
    ],
    ids=lambda text: text[:40],
)
def test_a_file_that_is_no_json_is_named(text: str, told: str, tmp_path: Path) -> None:
    """With the line where it has lines."""
    path = tmp_path / "talk.json"
    path.write_text(text)
    with pytest.raises(Invalid, match=told):
        read_chat_logs(path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "messages", "name", "timestamp", "id", "text"]), inner
        )
    ),
    max_leaves=12,
)


@given(value=VALUES)
def test_whatever_a_file_says_there_is_an_answer(value: Any, tmp_path_factory: Any) -> None:
    """Conversations, or an error of ours."""
    path = wrote(tmp_path_factory.getbasetemp(), value, "any.json")
    found = []
    with suppress(OmoideError):
        found = read_chat_logs(path)
    assert all(message.content.strip() for one in found for message in one.messages)


async def test_each_message_becomes_a_memory_that_knows_its_place(tmp_path: Path) -> None:
    """Its thread, its number, role and speaker, when it was said, and where it comes from."""
    scope = Scope(agent_id="ada", session_id="s", project_id="p", namespace="n")
    async with open_store("memory://", embedder="none") as store:
        assert await chats.import_chat(store, wrote(tmp_path, [HI, YES]), scope) == (2, 2, 0)
        hi, yes = await store.list_entries(scope)
    assert (hi.content, hi.source, hi.occurred_at, hi.scope) == ("Hi.", "user", NINE_TEN, scope)
    assert hi.message == MessageRef(thread="talk", seq=0, role="user", speaker="Maria")
    assert (yes.source, yes.message) == ("agent", MessageRef(thread="talk", seq=1, role="assistant"))


async def test_a_chat_is_remembered_once_and_goes_on_where_it_went_on(tmp_path: Path) -> None:
    """Also after a memory of it was forgotten; for another agent or session it is another."""
    async with open_store("memory://", embedder="none") as store:
        path = wrote(tmp_path, [HI])
        await chats.import_chat(store, path, ADA)
        await store.supersede((await store.list_entries(ADA))[0].id, ADA)
        assert await chats.import_chat(store, path, ADA) == (1, 0, 0)
        assert await chats.import_chat(store, wrote(tmp_path, [HI, YES]), ADA) == (2, 1, 0)
        assert await chats.import_chat(store, path, Scope(agent_id="bob")) == (2, 2, 0)
        assert await chats.import_chat(store, path, Scope(agent_id="ada", session_id="s")) == (2, 2, 0)


async def test_another_chat_does_not_mix_with_one_of_its_name(tmp_path: Path) -> None:
    """Where a thread has other words in a place, the file is refused, and another name helps."""
    async with open_store("memory://", embedder="none") as store:
        await chats.import_chat(store, wrote(tmp_path, [HI]), ADA)
        other = wrote(tmp_path, [HI | {"content": "Ho."}, YES])
        with pytest.raises(Invalid, match=r"talk.json message 1 is not the one that thread 'talk' has"):
            await chats.import_chat(store, other, ADA)
        assert len(await store.list_entries(ADA)) == 1
        assert await chats.import_chat(store, other, ADA, thread="second") == (2, 2, 0)


async def test_somebody_has_to_own_what_was_said(tmp_path: Path) -> None:
    """A scope without an agent is refused, and so is a file that is not there."""
    async with open_store("memory://", embedder="none") as store:
        with pytest.raises(Invalid, match="agent_id"):
            await chats.import_chat(store, wrote(tmp_path, [HI]), Scope())
        with pytest.raises(NotFound):
            await chats.import_chat(store, tmp_path / "absent.json", ADA)


def test_lines_of_messages_and_lines_of_memories_are_told_apart(tmp_path: Path) -> None:
    """By what the first of them holds."""
    for rows, is_chat in (
        ([HI], True),
        ([{"messages": []}], True),
        ([{"content": "Tea."}], False),
        ([], False),
    ):
        assert chats.is_chat(wrote(tmp_path, rows, "some.jsonl")) is is_chat
