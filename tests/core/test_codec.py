"""Every value survives encoding and decoding without loss."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory import check_remedy
from tests.support.strategies import data, json_data, lists, maps, names

from omoide import Memory, Space
from omoide.core import FrozenList, FrozenMap, codec, freeze
from omoide.core.codec import Frozen
from omoide.core.frozen import MAX_INPUT_DEPTH
from omoide.errors import Invalid, OmoideError, Unsupported

spaces = st.builds(Space, data=data, rev=st.integers(0, 9), metadata=maps)
memories = st.builds(
    Memory,
    rev=st.integers(0, 9),
    created_at=st.integers(0, 2**40),
    updated_at=st.integers(0, 2**40),
    metadata=maps,
    spaces=st.fixed_dictionaries(
        {},
        optional={
            "world": st.builds(Space, data=maps, rev=st.integers(0, 9)),
            "tasks": st.builds(Space, data=lists, metadata=maps),
            "rag:cache": spaces,
            "$map": spaces,
        },
    ),
)


def decode_frozen(written: bytes | str) -> Any:
    return codec.decode(written, Frozen)


def check_round_trip(value: Any) -> None:
    written = codec.encode(value)
    again = decode_frozen(written)
    assert again == value
    # True is equal to 1 and to 1.0, their words are not.
    assert codec.encode(again) == written


@given(data)
def test_any_data_comes_back_as_what_it_was(value: Any) -> None:
    """Reading what was written gives equal data of the same types."""
    check_round_trip(value)


@given(data, spaces, memories)
def test_values_inside_data_come_back_as_values(value: Any, space: Space, memory: Memory) -> None:
    """A space or a memory may lie anywhere in data, also in a set, and is read as what it is."""
    check_round_trip({"at": [value, space, {"deeper": memory}]})
    check_round_trip({"set": frozenset({space, memory})})
    assert type(decode_frozen(codec.encode([memory]))[0]) is Memory


@given(spaces)
def test_a_space_comes_back_as_what_it_was(space: Space) -> None:
    """Data, revision and metadata of a space survive writing and reading."""
    assert Space.from_json(space.to_json()) == space
    assert Space.from_json(space.to_json().decode()) == space


@given(memories)
def test_a_memory_comes_back_as_what_it_was(memory: Memory) -> None:
    """Every field of a memory survives writing and reading, and writing again gives the same bytes."""
    again = Memory.from_json(memory.to_json())
    assert again == memory
    assert again.to_json() == memory.to_json()


@pytest.mark.parametrize("offset", [1, -1, 500_000, -500_000, 1_000_001, -3_600_000_001])
def test_an_offset_of_less_than_a_second_is_not_lost(offset: int) -> None:
    """A moment in a zone that no clock shows comes back exactly, or is refused."""
    moment = datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=offset)))
    try:
        written = codec.encode([moment])
    except Unsupported as error:
        check_remedy(error)
    else:
        assert decode_frozen(written) == [moment]
        assert decode_frozen(written)[0].utcoffset() == moment.utcoffset()


@given(json_data)
def test_plain_json_is_written_as_itself(value: Any) -> None:
    """JSON that does not look like the codec's own words is written as any JSON writer would write it."""
    written = msgspec.json.decode(codec.encode(value))
    if b'"$' not in codec.encode(value):
        assert written == value


LOOKALIKES: list[Any] = [
    {"$datetime": "2026-01-01T00:00:00"},
    {"$datetime": 5},
    {"$bytes": "YQ=="},
    {"$set": 1},
    {"$set": [1]},
    {"$map": {"a": 1}},
    {"$map": {"$map": {"$set": 1}}},
    {"$map": 1},
    {"$Space": {"rev": -1}},
    {"$unknown": None},
    {"$": {}},
    {"$a": 1, "$b": 2},
    [{"$map": {}}],
]


@pytest.mark.parametrize("value", LOOKALIKES, ids=repr)
def test_a_map_that_looks_like_the_codecs_own_stays_a_map(value: Any) -> None:
    """Keys that begin with a dollar are ordinary keys of the user, in data and in metadata."""
    check_round_trip(value)
    assert decode_frozen(codec.encode(value)) == value
    assert Space.from_json(Space(data=value, metadata={"at": value}).to_json()).data == value
    if isinstance(value, dict):
        assert Space.from_json(Space(metadata=value).to_json()).metadata == value


@given(st.dictionaries(names, data, min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_sorted_bytes_do_not_depend_on_the_order_of_insertion(value: dict[str, Any], chance: Any) -> None:
    """With sorted keys, the same content gives the same bytes, however it was put together."""
    shuffled = list(value.items())
    chance.shuffle(shuffled)
    memory = Memory(id="m", created_at=0)
    one, other = memory, memory
    for key, item in value.items():
        one = one.world_put(key, item, now=1).ensure_space(key, {}, now=1)
    for key, item in shuffled:
        other = other.world_put(key, item, now=1).ensure_space(key, {}, now=1)
    assert codec.encode(dict(shuffled), sort_keys=True) == codec.encode(value, sort_keys=True)
    assert one == other
    assert codec.encode(one, sort_keys=True) == codec.encode(other, sort_keys=True)


@given(st.dictionaries(names, data, max_size=6))
def test_json_keeps_the_order_of_keys(value: dict[str, Any]) -> None:
    """A map is written and read in the order in which its keys were set."""
    memory = Memory(id="m", created_at=0)
    for key, item in value.items():
        memory = memory.world_put(key, item, now=1).ensure_space(key, {}, now=1)
    again = Memory.from_json(memory.to_json())
    assert list(again.spaces) == list(memory.spaces)
    assert list(again.spaces["world"].data) == list(memory.spaces["world"].data)
    assert again.to_json() == memory.to_json()


def test_sets_are_written_in_order() -> None:
    """The members of a set are written sorted."""
    assert codec.encode({"c", "a", "b"}) == b'{"$set":["a","b","c"]}'


UNREADABLE: dict[str, tuple[bytes | str, str]] = {
    "nothing": (b"", "JSON"),
    "word": (b"memory", "JSON"),
    "truncated": (b'{"data": {"a": 1', "JSON"),
    "trailing": (b"{} {}", "JSON"),
    "single-quotes": ("{'data': 1}", "JSON"),
    "not-utf8": (b'{"data": "\xff"}', "JSON"),
    "lone-surrogate": (b'{"data": "\\ud800"}', "JSON"),
    "lone-surrogate-in-text": ('{"data": "\ud800"}', "surrogate"),
    "nan": (b'{"data": NaN}', "JSON"),
    "infinity": (b'{"data": -Infinity}', "JSON"),
    "out-of-range": (b'{"data": 1e999}', "JSON"),
    "huge-int": (b'{"data": {"a": [18446744073709551616]}}', r"data\.a\[0\].*64 bits"),
    "nul": (b'{"data": {"a": "\\u0000"}}', r"data\.a .*NUL"),
    "nul-in-key": (b'{"data": {"a": {"\\u0000": 1}}}', "NUL"),
    "list": (b"[]", "expected `object`"),
    "text": (b'"space"', "expected `object`"),
    "unknown-field": (b'{"data": {}, "kind": "map"}', "kind is an unknown field"),
    "wrong-rev": (b'{"rev": "1"}', "rev.*expected `int`"),
    "no-rev": (b'{"rev": null}', "rev.*expected `int`"),
    "negative-rev": (b'{"rev": -1}', "rev.*>= 0"),
    "wrong-metadata": (b'{"metadata": [1]}', "metadata.*expected an object"),
    "wrong-limit": (b'{"max_items": "many"}', "max_items.*expected `int"),
    "negative-limit": (b'{"max_items": -1}', "max_items.*>= 0"),
    "beyond-limit": (b'{"data": [1, 2], "max_items": 1}', "allows max_items 1"),
    "unknown-tag": (b'{"data": {"a": [{"$lambda": "x"}]}}', r"data\.a\[0\] holds \$lambda"),
    "unknown-class": (b'{"data": {"$os.system": "true"}}', r"data holds \$os"),
    "unknown-tag-in-metadata": (b'{"metadata": {"a": {"$lambda": "x"}}}', r"metadata\.a holds \$lambda"),
    "map-tag": (b'{"data": {"a": {"$map": 5}}}', r"data\.a holds \$map"),
    "wrong-datetime": (b'{"data": {"a": {"$datetime": "now"}}}', r"data\.a holds an unreadable \$datetime"),
    "datetime-number": (b'{"data": {"$datetime": 5}}', r"data holds an unreadable \$datetime"),
    "wrong-bytes": (b'{"data": {"$bytes": "?"}}', r"data holds an unreadable \$bytes"),
    "bytes-number": (b'{"data": {"$bytes": 5}}', r"data holds an unreadable \$bytes"),
    "set-number": (b'{"data": {"$set": 1}}', r"data holds.*\$set"),
    "set-text": (b'{"data": {"$set": "abc"}}', r"data holds.*\$set"),
    "set-map": (b'{"data": {"$set": {"a": 1}}}', r"data holds.*\$set"),
    "wrong-space": (b'{"data": {"a": {"$Space": {"rev": -1}}}}', "rev"),
    "space-text": (b'{"data": {"a": {"$Space": "x"}}}', "Space"),
    "bottomless": (b'{"data": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "flatten"),
    "deep-list": (b'{"data": ' + b"[" * 500 + b"]" * 500 + b"}", "flatten"),
    "deep-map": (b'{"data": ' + b'{"a":' * 500 + b"1" + b"}" * 501, "flatten"),
}


@pytest.mark.parametrize(("written", "match"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_refused_with_its_place(written: bytes | str, match: str) -> None:
    """Broken, foreign or dangerous JSON is one typed error that names the place and what to do."""
    with pytest.raises(Invalid, match=match) as caught:
        Space.from_json(written)
    check_remedy(caught.value)


@pytest.mark.parametrize("written", [None, 5, [], {}, object()])
def test_only_text_and_bytes_are_read(written: Any) -> None:
    """What is no JSON text at all is refused, not passed on."""
    for kind in (Space, Memory):
        with pytest.raises(Invalid) as caught:
            kind.from_json(written)
        check_remedy(caught.value)


@pytest.mark.parametrize(
    ("written", "place"),
    [
        (b'{"id": ""}', "id"),
        (b'{"id": 5}', "id"),
        (b'{"id": "a\\u0007"}', "id"),
        (b'{"created_at": -1}', "created_at"),
        (b'{"updated_at": 1.5}', "updated_at"),
        (b'{"metadata": {"a": {"$lambda": 1}}}', "metadata.a"),
        (b'{"spaces": []}', "spaces"),
        (b'{"spaces": {"": {}}}', "space name"),
        (b'{"spaces": {"world": {"rev": -1}}}', "world"),
        (b'{"spaces": {"world": {"data": {"k": {"$lambda": 1}}}}}', "data.k"),
        (b'{"spaces": {"world": {"data": []}}}', "world"),
        (b'{"spaces": {"tasks": {"data": {}}}}', "tasks"),
        (b'{"spaces": {"other": 5}}', "other"),
        (b'{"mood": "good"}', "mood"),
    ],
)
def test_a_memory_is_checked_when_it_is_read(written: bytes, place: str) -> None:
    """JSON that is no memory is refused with the field or the space it goes wrong in."""
    with pytest.raises(OmoideError) as caught:
        Memory.from_json(written)
    assert place in str(caught.value)
    check_remedy(caught.value)


@given(memories, st.data())
def test_a_truncated_memory_is_never_read(memory: Memory, choose: st.DataObject) -> None:
    """No part of the JSON passes for the whole."""
    written = memory.to_json()
    with pytest.raises(Invalid):
        Memory.from_json(written[: choose.draw(st.integers(0, len(written) - 1))])


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), 2**64, "a\0", "\ud800", object(), len])
def test_what_could_not_be_read_is_not_written(value: Any) -> None:
    """The codec refuses a value alone as it does inside data."""
    attempts: list[Callable[[], object]] = [
        lambda: codec.encode(value),
        lambda: codec.encode([value]),
        lambda: codec.to_builtins({"a": value}),
    ]
    for attempt in attempts:
        with pytest.raises(Unsupported) as caught:
            attempt()
        check_remedy(caught.value)


WRAPPINGS: dict[str, Callable[[Any], Any]] = {
    "map": lambda inner: FrozenMap({"a": inner}),
    "list": lambda inner: FrozenList[Any]().append(inner),
    "space": lambda inner: Space(data=inner),
    "world": lambda inner: Memory(id="m", created_at=0).world_put("a", inner, now=0).world(),
}


@pytest.mark.parametrize("wrap", WRAPPINGS.values(), ids=WRAPPINGS)
@pytest.mark.parametrize("levels", [MAX_INPUT_DEPTH // 2, 150, 400, 3000])
def test_data_is_never_nested_too_deeply_to_be_read_again(wrap: Callable[[Any], Any], levels: int) -> None:
    """Data wrapped again and again is refused when made or written, or else it can be read."""
    value: Any = freeze({})
    try:
        for _ in range(levels):
            value = wrap(value)
        written = codec.encode([value])
    except Unsupported as error:
        check_remedy(error)
        assert levels > MAX_INPUT_DEPTH // 2
    else:
        assert codec.encode(decode_frozen(written)) == written
