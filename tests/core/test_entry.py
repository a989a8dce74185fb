"""Entries of the store contract: fields, defaults and validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import maps, names

from omoide import Entry, Evidence, RecallRequest, Scope
from omoide.core import MEMORY_TYPES, MessageRef
from omoide.core.entry import EntryFields, RecallFields
from omoide.errors import Invalid, InvalidRecord
from omoide.testing import reproducible

WRONG: list[tuple[str, Any]] = [
    ("id", ""),
    ("id", "a\0b"),
    ("id", "line\nbreak"),
    ("id", "x" * 513),
    ("id", "é" * 257),
    ("id", "\ud800"),
    ("id", "deleted"),
    ("id", None),
    ("id", ["a"]),
    ("agent_id", ""),
    ("agent_id", None),
    ("agent_id", "a\0"),
    ("session_id", ""),
    ("session_id", "\x1b[31m"),
    ("project_id", ""),
    ("namespace", ""),
    ("namespace", None),
    ("content", ""),
    ("content", " \n\t"),
    ("content", None),
    ("content", b"bytes"),
    ("content", "with \0 inside"),
    ("content", "lone \udfff surrogate"),
    ("metadata", "text"),
    ("metadata", {"x": object()}),
    ("metadata", {"x": "\0"}),
    ("metadata", {1: "key"}),
    ("type", "opinion"),
    ("type", "Fact"),
    ("type", 3),
    ("confidence", 1.01),
    ("confidence", -0.01),
    ("confidence", float("nan")),
    ("confidence", "high"),
    ("confidence", True),
    ("confidence", None),
    ("importance", 2),
    ("source", "rumour"),
    ("tags", "one"),
    ("tags", [""]),
    ("tags", [1]),
    ("rationale", 5),
    ("message", {"thread": "t"}),
    ("message", {"thread": "t", "seq": -1}),
    ("message", {"thread": "", "seq": 1}),
    ("message", "t:1"),
    ("evidence", [{"kind": "hearsay", "ref": "x"}]),
    ("evidence", [{"kind": "entry"}]),
    ("evidence", [{"kind": "entry", "ref": ""}]),
    ("evidence", "e1"),
    ("created_at", -1),
    ("created_at", 1.5),
    ("occurred_at", "yesterday"),
    ("expires_at", -5),
    ("rev", -1),
    ("colour", "red"),
]


def test_an_entry_needs_an_agent_and_content_and_nothing_else() -> None:
    """The rest has defaults: a fresh id, no session, no metadata, full confidence."""
    with reproducible(at=5_000):
        entry = Entry.new(agent_id="ada", content="Tea.")
    assert entry.id == "mem_1"
    assert (entry.agent_id, entry.session_id, entry.content, entry.metadata) == ("ada", None, "Tea.", {})
    assert (entry.namespace, entry.project_id, entry.type, entry.confidence) == ("default", None, None, 1.0)
    assert (entry.created_at, entry.occurred_at, entry.expires_at, entry.rev) == (5_000, None, None, 0)
    assert (entry.superseded_by, entry.superseded_at, entry.superseded_reason) == (None, None, None)
    assert (entry.importance, entry.source, entry.rationale, entry.message) == (None, None, None, None)
    assert (entry.tags, entry.evidence) == ((), ())


def test_ids_of_entries_begin_with_mem() -> None:
    """Two entries made without an id have different ones, which sort by time."""
    first, second = (Entry.new(agent_id="ada", content="Tea.") for _ in range(2))
    assert first.id.startswith("mem_")
    assert first.id != second.id


@pytest.mark.parametrize("missing", ["agent_id", "content"])
def test_what_is_required_is_named_when_it_is_missing(missing: str) -> None:
    """The error names the record and the field."""
    fields = {"agent_id": "ada", "content": "Tea."}
    del fields[missing]
    with pytest.raises(InvalidRecord, match=f"^invalid memory entry: {missing} is missing; "):
        Entry.new(fields)


@pytest.mark.parametrize(("field", "value"), WRONG, ids=lambda part: repr(part)[:24])
def test_a_wrong_field_is_named_with_a_remedy(field: str, value: Any) -> None:
    """Made from a mapping or from keywords, the error says which record, which field, and what to do."""
    fields: dict[str, Any] = {"agent_id": "ada", "content": "Tea.", field: value}
    makers: list[Callable[[], Entry]] = [lambda: Entry.new(fields), lambda: Entry.new(**fields)]
    for make in makers:
        with pytest.raises(Invalid) as caught:
            make()
        assert str(caught.value).startswith("invalid memory entry: ")
        assert caught.value.field.startswith(field)
        assert caught.value.remedy


@pytest.mark.parametrize(
    ("field", "value"),
    [pair for pair in WRONG if pair[0] in ("id", "agent_id", "content", "type", "confidence", "evidence")],
    ids=lambda part: repr(part)[:24],
)
def test_the_constructor_checks_as_well(field: str, value: Any) -> None:
    """There is no way around the checks, and none by replacing a field either."""
    with pytest.raises(InvalidRecord):
        Entry(**{"agent_id": "ada", "content": "Tea.", field: value})
    with pytest.raises(InvalidRecord):
        Entry(agent_id="ada", content="Tea.").replace(**{field: value})


def test_an_entry_is_made_from_keywords_from_a_mapping_and_from_itself() -> None:
    """All three ways lead to the same entry, and keywords count more than the mapping."""
    fields: dict[str, Any] = {"id": "a", "agent_id": "ada", "content": "Tea.", "created_at": 1}
    entry = Entry.new(**fields)
    assert Entry.new(fields) == entry
    assert Entry.new(entry) == entry
    assert Entry.new(fields, content="Coffee.") == entry.replace(content="Coffee.")
    for odd in ("text", 5, [("id", "a")]):
        with pytest.raises(InvalidRecord):
            Entry.new(odd)  # type: ignore[arg-type]


def test_numbers_become_text_where_text_is_asked_for() -> None:
    """The key of a row elsewhere can serve as an id as it is."""
    entry = Entry.new({"id": 17, "agent_id": 4, "session_id": 2.5}, content=42)  # type: ignore[arg-type]
    assert (entry.id, entry.agent_id, entry.session_id, entry.content) == ("17", "4", "2.5", "42")


def test_type_checkers_see_each_field() -> None:
    """The keywords of `Entry.new` and of `RecallRequest.for_scope` are declared, and each one is a field."""
    assert {*EntryFields.__annotations__} == {*Entry.__struct_fields__}
    assert {*RecallFields.__annotations__} < {*RecallRequest.__struct_fields__}


def test_an_id_that_is_given_is_kept() -> None:
    """Any text up to 512 bytes without control characters serves, whatever it means elsewhere."""
    for id in ("1", "Müller & Söhne", "../../x", "'; --", "%_*", "x" * 512, "é" * 256, "\u200b", "mem_x"):
        assert Entry.new(id=id, agent_id="ada", content="Tea.").id == id


def test_an_id_generator_makes_the_id_that_is_not_given() -> None:
    """It is asked with the prefix, and only when no id is given."""
    asked: list[str] = []

    def generate(prefix: str) -> str:
        asked.append(prefix)
        return f"{prefix}mine"

    fields = {"agent_id": "ada", "content": "Tea."}
    assert Entry.new(fields, id_generator=generate).id == "mem_mine"
    assert Entry.new({**fields, "id": "a"}, id_generator=generate).id == "a"
    assert Entry.new(fields, id="b", id_generator=generate).id == "b"
    assert asked == ["mem_"]
    with pytest.raises(InvalidRecord):
        Entry.new(fields, id="", id_generator=generate)


def fail_id(prefix: str) -> str:
    raise RuntimeError("no more ids")


GENERATORS: dict[str, Any] = {
    "empty": lambda prefix: "",
    "a number": lambda prefix: 5,
    "NUL": lambda prefix: "\0",
    "raises": fail_id,
    "text": "text",
    "no function": 7,
}


@pytest.mark.parametrize("generator", GENERATORS)
def test_an_id_generator_that_fails_is_reported_as_bad_input(generator: str) -> None:
    """Whether it raises, gives no id, or is no function."""
    with pytest.raises(InvalidRecord, match=r"^invalid memory entry: "):
        Entry.new(agent_id="ada", content="Tea.", id_generator=GENERATORS[generator])


@pytest.mark.parametrize("name", [*MEMORY_TYPES, "memory_item"])
def test_every_type_of_the_ontology_is_a_type(name: str) -> None:
    """And so is the root of them all."""
    assert Entry.new(agent_id="ada", content="Tea.", type=name).type == name


def test_nested_records_are_made_from_mappings() -> None:
    """A message and evidence may be given as they come out of JSON."""
    entry = Entry.new(
        agent_id="ada",
        content="Tea.",
        message={"thread": "t", "seq": 3, "speaker": "Zoë"},
        evidence=[{"kind": "message", "ref": "t:3", "quote": "tea"}],
    )
    assert entry.message == MessageRef(thread="t", seq=3, speaker="Zoë")
    assert entry.evidence == (Evidence(kind="message", ref="t:3", quote="tea"),)


def test_tags_are_kept_once_each_in_order() -> None:
    """Said twice is said once."""
    assert Entry.new(agent_id="ada", content="Tea.", tags=["b", "a", "b"]).tags == ("b", "a")


def test_confidence_is_kept_exactly() -> None:
    """No rounding to a few levels: 0.79 stays 0.79, and an int becomes a float."""
    for value in (0.79, 0.8, 0.1 + 0.2, 1e-9, 0, 1):
        entry = Entry.new(agent_id="ada", content="Tea.", confidence=value)
        assert entry.confidence == value
        assert type(entry.confidence) is float


def test_an_entry_counts_until_it_expires_or_is_superseded() -> None:
    """The moment of expiry itself is too late."""
    entry = Entry.new(agent_id="ada", content="Tea.", expires_at=100)
    assert entry.is_live(99)
    assert not entry.is_live(100)
    assert not entry.replace(expires_at=None, superseded_by="deleted").is_live(0)


@given(id=names, agent=names, content=names, metadata=maps, confidence=st.floats(0, 1))
def test_an_entry_goes_to_json_and_back(
    id: str, agent: str, content: str, metadata: dict[str, Any], confidence: float
) -> None:
    """Whatever can be made into an entry is the same entry after a round trip."""
    try:
        entry = Entry.new(id=id, agent_id=agent, content=content, metadata=metadata, confidence=confidence)
    except InvalidRecord:
        return
    assert Entry.from_json(entry.to_json()) == entry


def test_a_scope_holds_what_agrees_with_every_field_given() -> None:
    """A field left out of the scope matches everything, one left out of the entry matches only that."""
    entry = Entry.new(agent_id="ada", session_id="s", content="Tea.")
    assert entry.scope == Scope(agent_id="ada", session_id="s")
    for inside in (Scope(), Scope(agent_id="ada"), Scope(session_id="s"), entry.scope):
        assert inside.contains(entry)
    for outside in (
        Scope(agent_id="Ada"),
        Scope(session_id="t"),
        Scope(project_id="p"),
        Scope(namespace="other"),
    ):
        assert not outside.contains(entry)


@pytest.mark.parametrize("field", ["agent_id", "session_id", "project_id", "namespace"])
def test_a_scope_is_made_of_ids(field: str) -> None:
    """Empty names, NUL and over-long ones are refused with the field's name."""
    wrong: list[Any] = ["", "a\0b", "x" * 513, 7]
    for value in wrong:
        with pytest.raises(InvalidRecord, match=f"^invalid scope: {field} "):
            Scope(**{field: value})
