"""Interoperability of signals with the CloudEvents package."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any, cast

import pytest
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings import http
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import json_data, text

from omoide import Signal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MODES = pytest.mark.parametrize("mode", ["structured", "binary"])

lines = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
subjects = lines.filter(str.strip)
types = st.lists(st.from_regex(r"[a-z0-9]{1,4}", fullmatch=True), min_size=1, max_size=3).map(".".join)
moments = st.integers(0, 253_402_300_799_999)
extensions = st.dictionaries(
    st.from_regex(r"x[a-z0-9]{1,6}", fullmatch=True),
    lines | st.booleans() | st.integers(-(2**31), 2**31 - 1),
    max_size=3,
)
payloads = st.one_of(
    st.tuples(st.sampled_from(["application/json", "application/vnd.x+json; charset=utf-8"]), json_data),
    st.tuples(st.sampled_from(["text/plain", "text/plain; charset=utf-8"]), text.filter(bool)),
    st.tuples(st.just("application/octet-stream"), st.binary(min_size=1)),
)


def theirs(signal: Signal, mode: str) -> BaseCloudEvent:
    """What the package reads from what we write."""
    headers, body = signal.to_structured() if mode == "structured" else signal.to_binary()
    return http.from_http_event(http.HTTPMessage(headers, body))


def ours(event: BaseCloudEvent, mode: str) -> Signal:
    """What we read from what the package writes."""
    message = http.to_structured_event(event) if mode == "structured" else http.to_binary_event(event)
    return Signal.from_http(message.headers, message.body)


def decode_bytes(data: Any) -> Any:
    """Bytes as the package gives them back in binary mode: as text where they are text."""
    try:
        return data.decode() if isinstance(data, bytes) else data
    except UnicodeDecodeError:
        return data


@MODES
@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        ({"temp": 22.5, "where": ["hall", None]}, None),
        ({"temp": 22.5}, "application/json"),
        (["a", {"b": 1}], None),
        ("grüße", None),
        ("grüße", "text/plain"),
        ("<p>hi</p>", "text/html; charset=utf-8"),
        (b"\x00\xff", None),
        (b"\x00\xff", "image/png"),
        (7, None),
        (None, None),
    ],
)
def test_the_package_reads_our_data(mode: str, data: Any, content_type: str | None) -> None:
    """Maps, lists, text, bytes, numbers and nothing, with and without a content type."""
    assert theirs(Signal(type="a.b", data=data, datacontenttype=content_type), mode).get_data() == data


@MODES
def test_the_package_reads_our_attributes(mode: str) -> None:
    """All of them, with letters beyond ASCII, and extensions of our own."""
    event = theirs(
        Signal(
            type="com.example.made",
            id="größe/1 %",
            source="/häuser?a=1",
            subject='日本 "quoted" 100%',
            time=1_500,
            dataschema="https://example.com/schema",
            extensions={"traceid": "é 1", "hops": 3},
            data={},
        ),
        mode,
    )
    assert (event.get_type(), event.get_id(), event.get_source()) == (
        "com.example.made",
        "größe/1 %",
        "/häuser?a=1",
    )
    assert (event.get_subject(), event.get_specversion()) == ('日本 "quoted" 100%', "1.0")
    assert event.get_time() == EPOCH + timedelta(milliseconds=1_500)
    assert event.get_dataschema() == "https://example.com/schema"
    assert event.get_datacontenttype() == "application/json"
    assert event.get_extension("traceid") == "é 1"
    assert str(event.get_extension("hops")) == "3"


@MODES
@given(payload=payloads, kind=types, subject=st.none() | subjects, time=moments, extra=extensions)
def test_whatever_we_write_the_package_reads(
    mode: str, payload: tuple[str, Any], kind: str, subject: str | None, time: int, extra: dict[str, Any]
) -> None:
    """Data, type, subject, time and extensions of any signal arrive."""
    content_type, data = payload
    event = theirs(
        Signal(
            type=kind, data=data, datacontenttype=content_type, subject=subject, time=time, extensions=extra
        ),
        mode,
    )
    assert event.get_data() == (data if mode == "structured" else decode_bytes(data))
    assert (event.get_type(), event.get_subject()) == (kind, subject)
    assert event.get_datacontenttype() == content_type
    assert event.get_time() == EPOCH + timedelta(milliseconds=time)
    for name, value in extra.items():
        shown = event.get_extension(name)
        assert shown == value if mode == "structured" else str(shown).lower() == str(value).lower()


def event(data: Any = None, **attributes: Any) -> CloudEvent:
    """An event of the package's."""
    return CloudEvent({"type": "com.example.made", "source": "/theirs", **attributes}, cast("Any", data))


@MODES
@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        ({"temp": 22.5, "where": ["hall", None]}, "application/json"),
        ({"temp": 22.5}, "application/vnd.reading+json"),
        ("grüße", "text/plain"),
        (b"\x00\xff", "application/octet-stream"),
        (None, "application/json"),
    ],
)
def test_we_read_the_data_of_the_package(mode: str, data: Any, content_type: str) -> None:
    """Whatever it writes under a content type."""
    signal = ours(event(data, datacontenttype=content_type), mode)
    assert signal.data == data
    assert signal.datacontenttype == content_type


@MODES
def test_we_read_a_map_sent_without_a_content_type(mode: str) -> None:
    """The package leaves the content type out unless told, and means JSON."""
    assert ours(event({"message": "hello"}), mode).data == {"message": "hello"}


@pytest.mark.parametrize("data", [["a", {"b": 1}], "grüße", 7, b"\x00\xff", None])
def test_we_read_any_structured_data_without_a_content_type(data: Any) -> None:
    """In the structured mode the data says itself what it is."""
    assert ours(event(data), "structured").data == data


@MODES
def test_we_read_the_attributes_of_the_package(mode: str) -> None:
    """Times with an offset and microseconds, letters beyond ASCII, extensions."""
    moment = datetime(2020, 1, 1, 12, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=2)))
    attributes = {"subject": "日本 100%", "dataschema": "https://example.com/s", "traceid": "é 1"}
    signal = ours(event({}, id="größe", time=moment, datacontenttype="application/json", **attributes), mode)
    assert (signal.type, signal.source, signal.id) == ("com.example.made", "/theirs", "größe")
    assert (signal.subject, signal.dataschema) == ("日本 100%", "https://example.com/s")
    assert signal.time == (moment - EPOCH) // timedelta(milliseconds=1)
    assert signal.extensions == {"traceid": "é 1"}
    assert signal.specversion == "1.0"


json_maps = st.dictionaries(text, json_data, max_size=4)


@MODES
@given(
    payload=st.tuples(st.just("application/json"), json_maps)
    | st.tuples(st.just("text/plain"), text.filter(bool))
    | st.tuples(st.just("application/octet-stream"), st.binary(min_size=1)),
    subject=subjects,
    micros=st.integers(0, 253_402_300_799_999_999),
    extra=st.dictionaries(st.from_regex(r"x[a-z0-9]{1,6}", fullmatch=True), lines, max_size=3),
)
def test_whatever_the_package_writes_we_read(
    mode: str, payload: tuple[str, Any], subject: str, micros: int, extra: dict[str, str]
) -> None:
    """Data, subject, time and extensions of any event arrive."""
    content_type, data = payload
    time = EPOCH + timedelta(microseconds=micros)
    signal = ours(event(data, datacontenttype=content_type, subject=subject, time=time, **extra), mode)
    assert signal.data == data
    assert (signal.subject, signal.datacontenttype) == (subject, content_type)
    assert signal.time == micros // 1_000
    assert signal.extensions == extra


@MODES
def test_an_event_comes_back_from_the_package_as_it_was_sent(mode: str) -> None:
    """There and back again, the signal is the same."""
    sent = Signal(
        type="a.b", data={"a": [1, "é"]}, subject="日本", time=1_500, datacontenttype="application/json"
    )
    assert ours(theirs(sent, mode), mode) == sent
