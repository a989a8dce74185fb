"""Signals: attributes, validation and HTTP forms."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import data, json_data, text

from omoide import Memory, Signal
from omoide.core.signal import STRUCTURED_CONTENT_TYPE
from omoide.errors import Invalid, OmoideError
from omoide.testing import reproducible

REQUIRED = {"specversion": "1.0", "id": "1", "source": "/s", "type": "a.b"}
HEADERS = {f"ce-{name}": value for name, value in REQUIRED.items()}
lines = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
subjects = lines.filter(str.strip)
ENDS = 253_402_300_799_999  # the last millisecond of the year 9999


def read_event(**event: object) -> Signal:
    """A signal from a structured event."""
    return Signal.from_http(
        {"content-type": STRUCTURED_CONTENT_TYPE}, msgspec.json.encode({**REQUIRED, **event})
    )


def test_a_signal_needs_only_a_type() -> None:
    """Id, source and time are filled in; the rest is absent."""
    with reproducible(at=5):
        signal = Signal(type="sensor.reading")
    assert (signal.id, signal.source, signal.time, signal.specversion) == ("sig_1", "/omoide", 5, "1.0")
    assert signal.data is signal.subject is signal.datacontenttype is signal.dataschema is None
    assert signal.extensions == {}


@given(data=data, subject=st.none() | subjects, time=st.none() | st.integers(0, ENDS), extra=lines)
def test_a_signal_survives_json(data: Any, subject: str | None, time: int | None, extra: str) -> None:
    """Whatever data the codec holds, bytes and sets included, comes back as it was."""
    signal = Signal(type="a.b", data=data, subject=subject, time=time, extensions={"extra": extra, "n": 1})
    again = Signal.from_json(signal.to_json())
    assert again == signal
    assert again.data == signal.data


def test_data_is_frozen_on_the_way_in() -> None:
    """Changing what was given does not change the signal."""
    given_data = {"list": [1]}
    signal = Signal(type="a", data=given_data)
    given_data["list"].append(2)
    assert signal.data == {"list": [1]}


@pytest.mark.parametrize("version", ["1.0", "1.0.2"])
def test_both_spellings_of_the_version_are_read_and_one_is_written(version: str) -> None:
    """1.0.2 is read as 1.0, and 1.0 is what every form writes."""
    for signal in (
        read_event(specversion=version),
        Signal.from_http({**HEADERS, "ce-specversion": version}, b""),
    ):
        assert signal.specversion == "1.0"
        assert signal.to_binary()[0]["ce-specversion"] == "1.0"
        assert msgspec.json.decode(signal.to_structured()[1])["specversion"] == "1.0"
    assert Signal(type="a", specversion=version).specversion == "1.0"


def test_absent_attributes_are_not_written() -> None:
    """A bare signal has the required attributes and nothing else."""
    bare = Signal(type="a.b", id="1", source="/s", time=None)
    assert bare.to_binary() == (HEADERS, b"")
    headers, body = bare.to_structured()
    assert (headers, msgspec.json.decode(body)) == ({"content-type": STRUCTURED_CONTENT_TYPE}, REQUIRED)


def test_time_is_written_as_rfc_3339() -> None:
    """Milliseconds become a time in UTC."""
    assert Signal(type="a", time=1_500).to_binary()[0]["ce-time"] == "1970-01-01T00:00:01.500Z"


@pytest.mark.parametrize(
    ("written", "millis"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T02:00:01+02:00", 1_000),
        ("1970-01-01T00:00:00.123456Z", 123),
        ("2020-01-01T00:00:00.123456789Z", 1_577_836_800_123),
        ("1970-01-01t00:00:01z", 1_000),
        (None, None),
    ],
)
def test_time_is_read_from_rfc_3339(written: str | None, millis: int | None) -> None:
    """Offsets, fractions of any length and lower-case letters are understood; null is no time."""
    assert read_event(time=written).time == millis


def test_data_is_written_as_others_expect_it() -> None:
    """ISO times, base64 bytes and sorted lists stand for what JSON has no word for."""
    inner = {"at": datetime(2020, 1, 1, tzinfo=UTC), "raw": b"hi", "tags": {"b", "a"}, "list": [{1}]}
    event = msgspec.json.decode(Signal(type="a", data=inner).to_structured()[1])
    assert event["data"] == {"at": "2020-01-01T00:00:00Z", "raw": "aGk=", "tags": ["a", "b"], "list": [[1]]}
    assert event["datacontenttype"] == "application/json"


def test_data_may_hold_our_own_values() -> None:
    """A memory inside the data is written as an object, in both modes."""
    signal = Signal(type="a", data={"memory": Memory.new(now=1).world_put("door", "open", now=2)})
    written = msgspec.json.decode(signal.to_structured()[1])["data"]["memory"]
    assert (written["rev"], written["created_at"]) == (1, 1)
    assert msgspec.json.decode(signal.to_binary()[1])["memory"] == written


@given(value=json_data, subject=st.none() | subjects, time=st.none() | st.integers(0, ENDS))
def test_http_keeps_json_data(value: Any, subject: str | None, time: int | None) -> None:
    """Either mode gives back the signal that was sent."""
    sent = Signal(type="a.b", data=value, subject=subject, time=time, datacontenttype="application/json")
    for form in (sent.to_structured(), sent.to_binary()):
        assert Signal.from_http(*form) == sent


@given(value=st.binary(min_size=1) | text.filter(bool), subject=subjects)
def test_http_keeps_text_and_bytes(value: str | bytes, subject: str) -> None:
    """Text is sent as it is under a text type, bytes under any other."""
    content_type = "text/plain" if isinstance(value, str) else "application/octet-stream"
    sent = Signal(type="a.b", data=value, subject=subject, datacontenttype=content_type)
    for form in (sent.to_structured(), sent.to_binary()):
        assert Signal.from_http(*form) == sent


@given(st.text(min_size=1))
def test_no_attribute_breaks_out_of_its_header(value: str) -> None:
    """Whatever text an attribute holds, headers are printable ASCII, or the text is refused."""
    for name in ("subject", "datacontenttype", "dataschema", "source", "id"):
        try:
            fields: dict[str, Any] = {"type": "a", "data": "x", name: value}
            headers, _ = Signal(**fields).to_binary()
        except OmoideError:
            continue
        for header in headers.values():
            assert header.isascii()
            assert header.isprintable()


def test_extensions_are_written_beside_the_attributes() -> None:
    """Text, booleans and integers; headers have text only."""
    signal = Signal(type="a", extensions={"trace": "t é", "flag": True, "n": -5})
    assert Signal.from_http(*signal.to_structured()) == signal
    headers, _ = signal.to_binary()
    assert (headers["ce-trace"], headers["ce-flag"], headers["ce-n"]) == ("t%20%C3%A9", "true", "-5")
    assert Signal.from_http(headers, b"").extensions == {"trace": "t é", "flag": "true", "n": "-5"}


def test_a_null_attribute_counts_as_absent() -> None:
    """So says the JSON format, for extensions as for every other attribute."""
    signal = read_event(subject=None, dataschema=None, datacontenttype=None, myext=None)
    assert signal == read_event()


def test_header_names_are_read_in_any_case() -> None:
    """HTTP does not care, and neither does the reader."""
    shouted = {name.upper(): value for name, value in HEADERS.items()}
    signal = Signal.from_http({**shouted, "Content-Type": "Application/JSON; charset=utf-8"}, b'{"a": 1}')
    assert signal.data == {"a": 1}
    assert signal.type == "a.b"


WRONG_FIELDS: dict[str, tuple[dict[str, Any], str]] = {
    "no type": ({"type": ""}, "type"),
    "type": ({"type": 5}, "type"),
    "empty segment": ({"type": "a..b"}, "type"),
    "star": ({"type": "a.*"}, "type"),
    "data": ({"data": object()}, "data"),
    "id": ({"id": ""}, "id"),
    "source": ({"source": " "}, "source"),
    "subject": ({"subject": ""}, "subject"),
    "subject of two lines": ({"subject": "a\r\nb"}, "subject"),
    "time": ({"time": -1}, "time"),
    "time as text": ({"time": "now"}, "time"),
    "time beyond the calendar": ({"time": 10**18}, "time"),
    "datacontenttype": ({"datacontenttype": 5}, "datacontenttype"),
    "dataschema": ({"dataschema": ""}, "dataschema"),
    "specversion": ({"specversion": "2.0"}, "specversion"),
    "extensions": ({"extensions": 5}, "extensions"),
    "extension in capitals": ({"extensions": {"Trace": "x"}}, "extensions.Trace"),
    "extension with underscore": ({"extensions": {"my_ext": "x"}}, "extensions.my_ext"),
    "extension named data": ({"extensions": {"data": "x"}}, "extensions.data"),
    "extension named as attribute": ({"extensions": {"subject": "x"}}, "extensions.subject"),
    "extension of two lines": ({"extensions": {"n": "a\nb"}}, "extensions.n"),
    "extension value": ({"extensions": {"n": 1.5}}, "extensions.n"),
    "extension beyond 32 bits": ({"extensions": {"n": 2**31}}, "extensions.n"),
}


@pytest.mark.parametrize(("fields", "field"), WRONG_FIELDS.values(), ids=WRONG_FIELDS)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    """Each field of a signal is checked, and the error says what to do."""
    with pytest.raises(Invalid) as raised:
        Signal(**{"type": "a", **fields})
    assert raised.value.field == field
    assert raised.value.remedy


JSON = {"content-type": STRUCTURED_CONTENT_TYPE}
BAD_EVENTS: dict[str, tuple[Mapping[str, str], bytes]] = {
    "no event at all": ({}, b"{}"),
    "another content type": ({"content-type": "application/json"}, b"{}"),
    "bad JSON": (JSON, b"{"),
    "not UTF-8": (JSON, b'{"id": "\xff"}'),
    "too deep": (JSON, b"[" * 100_000),
    "a list": (JSON, b"[]"),
    "bad data": ({**HEADERS, "content-type": "application/json"}, b"{"),
    "bad header": ({**HEADERS, "ce-subject": "%FF"}, b""),
    "header that is no text": ({**HEADERS, "ce-subject": cast("str", 5)}, b""),
    "no headers": (cast("Any", None), b""),
    "text for a body": ({**HEADERS, "content-type": "text/plain"}, cast("bytes", "hello")),
}


@pytest.mark.parametrize(("headers", "body"), BAD_EVENTS.values(), ids=BAD_EVENTS)
def test_a_bad_message_is_a_typed_error(headers: Mapping[str, str], body: bytes) -> None:
    """What is no event is refused with what to send instead."""
    with pytest.raises(Invalid) as raised:
        Signal.from_http(headers, body)
    assert raised.value.remedy


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_attribute_is_named(name: str) -> None:
    """Each of the four required attributes, in both modes."""
    event = {key: value for key, value in REQUIRED.items() if key != name}
    headers = {f"ce-{key}": value for key, value in event.items()}
    for form in ((JSON, msgspec.json.encode(event)), (headers, b"")):
        with pytest.raises(Invalid, match="CloudEvents requires") as raised:
            Signal.from_http(*form)
        assert raised.value.field == name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("specversion", "0.3"),
        ("specversion", 1.0),
        ("time", "yesterday"),
        ("time", "2020-13-01T00:00:00Z"),
        ("time", "2020-01-01T00:00:00"),
        ("time", "2020-01-01"),
        ("time", "1969-12-31T23:59:59Z"),
        ("time", True),
        ("time", 5),
        ("data_base64", "no base64!"),
        ("data_base64", 5),
        ("id", 5),
        ("type", ["a"]),
        ("subject", ""),
        ("extensions.list", [1]),
    ],
)
def test_a_bad_attribute_is_refused_by_name(field: str, value: object) -> None:
    """Unknown versions, times without a zone, broken base64 and values of another type."""
    with pytest.raises(Invalid) as raised:
        read_event(**{field.rpartition(".")[2]: value})
    assert raised.value.field == field
    assert raised.value.remedy
