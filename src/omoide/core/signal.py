"""Signals and patterns of signal types.

A signal is a CloudEvents 1.0 event. `to_structured` and `to_binary` return the HTTP forms that other programs
read, and `from_http` reads either; `to_json` keeps data exactly, including what CloudEvents cannot express.

A signal type is dotted, as in `sensor.reading.raw`. In a pattern, `*` matches exactly one segment and `**`
any number of segments, or none. If several patterns match, the more specific comes first.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Self
from urllib.parse import quote, unquote

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.codec import Frozen, MapField
from omoide.core.frozen import EMPTY_MAP, FrozenList, FrozenMap, check_text, value_type
from omoide.core.value import Id, Millis, Name, Value, set_field
from omoide.errors import Invalid, WrongType

SINGLE_WILDCARD, MULTI_WILDCARD = "*", "**"


def check_pattern(pattern: object, field: str = "pattern") -> str:
    """Return the pattern, or raise `Invalid` if a segment is not a name, `*` or `**`."""
    text = check_text(pattern, field, "use a dotted signal type, * or **")
    for segment in text.split("."):
        if not segment or (SINGLE_WILDCARD in segment and segment not in (SINGLE_WILDCARD, MULTI_WILDCARD)):
            raise Invalid(
                field, f"{text!r} has the segment {segment!r}", "use whole segments: a.b, a.*, a.**"
            )
    return text


def matches_pattern(pattern: str, signal_type: str) -> bool:
    """Return True if a signal type matches a pattern."""
    return pattern == signal_type or _match_segments(tuple(pattern.split(".")), tuple(signal_type.split(".")))


def specificity(pattern: str) -> tuple[int, int, int]:
    """Return a sort key, higher if more specific: more literal segments, then fewer `**`, then more `*`."""
    segments = pattern.split(".")
    open_ended, single = segments.count(MULTI_WILDCARD), segments.count(SINGLE_WILDCARD)
    return len(segments) - open_ended - single, -open_ended, single


@lru_cache(maxsize=4096)  # types and patterns are few, signals are many
def _match_segments(pattern: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    # The set of reachable positions in the pattern: backtracking over several ** would be exponential.
    reachable = _skip_wildcards({0}, pattern)
    for segment in segments:
        following = {
            at + 1 for at in reachable if at < len(pattern) and pattern[at] in (segment, SINGLE_WILDCARD)
        }
        following |= {at for at in reachable if at < len(pattern) and pattern[at] == MULTI_WILDCARD}
        reachable = _skip_wildcards(following, pattern)
    return len(pattern) in reachable


def _skip_wildcards(positions: set[int], pattern: tuple[str, ...]) -> set[int]:
    for at in sorted(positions):
        while at < len(pattern) and pattern[at] == MULTI_WILDCARD:
            at += 1
            positions.add(at)
    return positions


SPECVERSION = "1.0"
SUPPORTED_VERSIONS = ("1.0", "1.0.2")  # Jido writes the second
STRUCTURED_CONTENT_TYPE = "application/cloudevents+json"

_ATTRIBUTES = ("specversion", "id", "source", "type", "subject", "time", "datacontenttype", "dataschema")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The HTTP binding of CloudEvents percent-encodes the space, the double quote, the percent sign and everything
# that is not printable ASCII.
_SAFE_HEADER_CHARS = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in '"%')
_INT32 = range(-(2**31), 2**31)  # the integers of CloudEvents

HTTPMessage = tuple[dict[str, str], bytes]


@value_type
class Signal(Value, frozen=True, kw_only=True):
    """An event that is sent to an agent, or by one."""

    type: Name
    data: Frozen = None
    id: Id = msgspec.field(default_factory=lambda: ids.new("sig_"))
    source: Name = "/omoide"
    subject: Name | None = None
    time: Millis | None = msgspec.field(default_factory=clock.now)
    datacontenttype: Name | None = None
    dataschema: Name | None = None
    extensions: MapField = EMPTY_MAP
    specversion: str = SPECVERSION

    def __post_init__(self) -> None:
        super().__post_init__()
        ids.check(self.type, "type")
        for field in ("source", "subject", "datacontenttype", "dataschema"):
            _check_attribute(getattr(self, field), field)
        if self.specversion not in SUPPORTED_VERSIONS:
            raise Invalid("specversion", f"is {self.specversion!r}", f"use {SPECVERSION}")
        set_field(self, "specversion", SPECVERSION)
        for segment in self.type.split("."):
            if not segment or "*" in segment:
                raise Invalid("type", f"{self.type!r} has the segment {segment!r}", "use dotted names, no *")
        _check_extensions(self.extensions)

    def matches(self, pattern: str) -> bool:
        """Return True if the type matches a pattern: exact, `*` for one segment, `**` for any number."""
        return matches_pattern(check_pattern(pattern), self.type)

    def to_structured(self) -> HTTPMessage:
        """Return headers and body of the structured mode: one JSON object."""
        event: dict[str, Any] = {**self._attributes(), **self.extensions}
        if isinstance(self.data, bytes):
            event["data_base64"] = b64encode(self.data).decode()
        elif self.data is not None:
            event["data"] = _to_json_types(self.data)
        return {"content-type": STRUCTURED_CONTENT_TYPE}, msgspec.json.encode(event)

    def to_binary(self) -> HTTPMessage:
        """Return headers and body of the binary mode: attributes as `ce-` headers, the data as it is."""
        attributes = self._attributes() | {**self.extensions}
        content_type = attributes.pop("datacontenttype", None)
        headers = {f"ce-{name}": _encode_header(value) for name, value in attributes.items()}
        if content_type is not None:
            headers["content-type"] = content_type
        if self.data is None:
            return headers, b""
        if isinstance(self.data, bytes):
            return headers, self.data
        if isinstance(self.data, str) and not _is_json(content_type):
            return headers, self.data.encode()
        return headers, msgspec.json.encode(_to_json_types(self.data))

    @classmethod
    def from_http(cls, headers: Mapping[str, str], body: bytes) -> Self:
        """Decode a signal from an HTTP message of either mode.

        Raises:
            Invalid: if it is not a CloudEvent.
        """
        if not isinstance(headers, Mapping) or not all(isinstance(value, str) for value in headers.values()):
            raise WrongType("headers", "a mapping of strings", headers)
        if not isinstance(body, (bytes, bytearray, memoryview)):
            raise WrongType("body", "bytes", body)
        body = bytes(body)
        lower = {str(name).lower(): value for name, value in headers.items()}
        content_type = lower.get("content-type", "")
        if content_type.split(";")[0].strip().lower() == STRUCTURED_CONTENT_TYPE:
            event = _parse_json(body, "body")
            if not isinstance(event, dict):
                raise WrongType("body", "one JSON object", event)
            # In the JSON format a null attribute is the same as an absent one.
            event = {name: value for name, value in event.items() if value is not None}
            data = event.pop("data", None)
            if "data_base64" in event:
                if data is not None:
                    raise Invalid("data_base64", "is given together with data", "send one of them")
                data = _decode_base64(event.pop("data_base64"))
        else:
            event = {
                name[3:]: _decode_header(value, name)
                for name, value in lower.items()
                if name.startswith("ce-")
            }
            if not event:
                raise Invalid(
                    "headers", "hold no CloudEvent", "send ce-… headers, or the structured content type"
                )
            data = _parse_body(body, content_type)
            if content_type:
                event["datacontenttype"] = content_type
        return cls._from_attributes(event, data)

    @classmethod
    def _from_attributes(cls, event: dict[str, Any], data: Any) -> Self:
        for name in ("specversion", "id", "source", "type"):
            if name not in event:
                raise Invalid(name, "is missing", "CloudEvents requires specversion, id, source and type")
        # Attributes that are left are extensions.
        known = {name: event.pop(name) for name in _ATTRIBUTES if name in event}
        known["time"] = _parse_time(known.get("time"))
        return cls(data=data, extensions=event, **known)

    def _attributes(self) -> dict[str, Any]:
        """Return the context attributes of CloudEvents that are set."""
        attributes: dict[str, Any] = {name: getattr(self, name) for name in _ATTRIBUTES}
        if self.time is not None:
            moment = _EPOCH + timedelta(milliseconds=self.time)
            attributes["time"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.data is not None and self.datacontenttype is None:
            binary = isinstance(self.data, bytes)
            attributes["datacontenttype"] = "application/octet-stream" if binary else "application/json"
        return {name: value for name, value in attributes.items() if value is not None}


def _check_extensions(extensions: FrozenMap[str, Any]) -> None:
    for name, value in extensions.items():
        if not (name.isascii() and name.isalnum() and name == name.lower()) or name in (*_ATTRIBUTES, "data"):
            raise Invalid(
                f"extensions.{name}", "is not an attribute name of CloudEvents", "use a-z and 0-9 only"
            )
        if type(value) not in (str, bool, int) or (type(value) is int and value not in _INT32):
            raise Invalid(f"extensions.{name}", "must be a string, bool or 32-bit int", "put it into data")
        if isinstance(value, str):
            _check_attribute(value, f"extensions.{name}")


def _is_json(content_type: str | None) -> bool:
    media = (content_type or "").split(";")[0].strip().lower()
    return media.endswith(("/json", "+json"))


def _to_json_types(data: Any) -> Any:
    """Convert data to plain JSON types, without tags: ISO times, base64 bytes, sorted sets."""
    if isinstance(data, frozenset):
        return sorted((_to_json_types(item) for item in data), key=msgspec.json.encode)
    if isinstance(data, FrozenMap):
        return {key: _to_json_types(value) for key, value in data.items()}
    if isinstance(data, FrozenList):
        return [_to_json_types(item) for item in data]
    return codec.to_builtins(data) if isinstance(data, msgspec.Struct) else msgspec.to_builtins(data)


def _encode_header(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return quote(text, safe=_SAFE_HEADER_CHARS)


def _decode_header(value: str, name: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError as error:
        raise Invalid(
            name, f"is not percent-encoded UTF-8 ({error})", "encode it as CloudEvents requires"
        ) from error


def _parse_json(body: bytes, field: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(field, f"is not readable JSON ({error})", "send what the content type says") from error


def _decode_base64(text: object) -> bytes:
    try:
        return b64decode(text, validate=True)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise Invalid("data_base64", f"cannot be decoded ({error})", "send standard base64") from error


def _parse_body(body: bytes, content_type: str) -> Any:
    """Decode the data of the binary mode; without a content type it is JSON if it can be decoded."""
    if not body:
        return None
    if _is_json(content_type):
        return _parse_json(body, "body")
    try:
        if not content_type:
            return msgspec.json.decode(body)
        return body.decode() if content_type.lower().startswith("text/") else body
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body


def _parse_time(value: object) -> int | None:
    if value is None:
        return None
    try:
        # RFC 3339 allows a lower-case z, `fromisoformat` does not.
        moment = datetime.fromisoformat(value.upper() if isinstance(value, str) else "")
        if moment.tzinfo is not None:
            return (moment - _EPOCH) // timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        pass
    raise Invalid("time", f"{value!r} is not an RFC 3339 time", "send YYYY-MM-DDThh:mm:ssZ")


def _check_attribute(text: str | None, field: str) -> None:
    """Refuse control characters, which CloudEvents forbids and which could break out of a header."""
    if text is not None and ids.has_control_characters(text):
        raise Invalid(field, "contains a control character", "remove it")
    if field == "datacontenttype" and text is not None and not text.isascii():
        raise Invalid(field, "is not a media type", "use one such as application/json")
