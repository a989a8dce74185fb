"""RDF terms and the Python values they stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal

import msgspec

from omoide.core.frozen import check_str
from omoide.errors import Invalid, WrongType

XSD = "http://www.w3.org/2001/XMLSchema#"

_INTEGERS = (
    "integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger",
    "nonPositiveInteger", "negativeInteger", "unsignedLong", "unsignedInt", "unsignedShort", "unsignedByte",
)  # fmt: skip
_MAX_DIGITS = 4000  # limit of int(); see sys.set_int_max_str_digits
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}

_absolute = re.compile(r'[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^`\\]*').fullmatch
_special = re.compile(r'["\\\n\r\t\b\f]')
_ambiguous = re.compile(r"\\(?=[uU][0-9A-Fa-f]{4})")
_datetime = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.(\d+))?(Z|[+-]\d\d:\d\d)?", re.ASCII).fullmatch
_decimal = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)", re.ASCII).fullmatch


class IRI(str):
    """An IRI; a plain `str` is a literal."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"IRI({str.__repr__(self)})"


class BlankNode(str):
    """A blank node; its label is valid within one result only."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"BlankNode({str.__repr__(self)})"


class RDFTerm(msgspec.Struct, frozen=True):
    """An IRI, a literal, a blank node, or a quoted triple."""

    kind: Literal["iri", "literal", "blank", "triple"]
    value: str
    datatype: str | None = None
    """Datatype of a literal; None for plain strings."""
    language: str | None = None

    def __str__(self) -> str:
        """Return the term in N-Triples and SPARQL syntax."""
        match self.kind:
            case "iri":
                return f"<{self.value}>"
            case "blank":
                return f"_:{self.value}"
            case "triple":
                return self.value
            case "literal":
                return self.with_suffix(quote_string(self.value))

    def with_suffix(self, text: str) -> str:
        """Return the text of a literal with its language tag or datatype."""
        if self.language is not None:
            return f"{text}@{self.language}"
        return text if self.datatype is None else f"{text}^^<{self.datatype}>"

    @property
    def python(self) -> Any:
        """The Python value; a literal without a Python equivalent is its text."""
        if self.kind == "iri":
            return IRI(self.value)
        if self.kind == "blank":
            return BlankNode(self.value)
        if self.datatype is None or self.kind == "triple":
            return self.value
        parse = _PARSERS.get(self.datatype)
        if parse is None:
            return self.value
        try:
            return parse(self.value)
        except (ValueError, InvalidOperation, OverflowError):
            return self.value


def quote_string(text: str) -> str:
    """Return text as a quoted string that nothing inside can end, without codepoint escapes."""
    return f'"{_special.sub(lambda match: _ESCAPES[match.group()], text)}"'


def is_ambiguous(term: RDFTerm) -> bool:
    r"""Return True for a literal with text like `\u0041`, which some engines decode."""
    return term.kind == "literal" and _ambiguous.search(term.value) is not None


def to_expression(term: RDFTerm) -> str:
    r"""Return a term as an expression; text like `\u0041` is split in two, so that all engines agree."""
    if not is_ambiguous(term):
        return str(term)
    cuts = [match.end() for match in _ambiguous.finditer(term.value)]
    parts = [term.value[start:end] for start, end in zip([0, *cuts], [*cuts, None], strict=True)]
    text = f"CONCAT({', '.join(map(quote_string, parts))})"
    if term.language is not None:
        return f'STRLANG({text}, "{term.language}")'
    return text if term.datatype is None else f"STRDT({text}, <{term.datatype}>)"


def check_iri(iri: object, field: str = "iri") -> str:
    """Return an absolute IRI unchanged; raise `Invalid` otherwise."""
    if not isinstance(iri, str):
        raise WrongType(field, "an IRI", iri)
    text = check_str(iri, field)
    if not _absolute(text):
        raise Invalid(
            field, f"{text[:80]!r} is not a whole IRI", "write it with its scheme and without spaces or <>"
        )
    return text


def term_of(value: object, field: str = "value") -> RDFTerm:
    """Return the term for a Python value: text, a number, a bool, a datetime, an `IRI` or an `RDFTerm`.

    Raises:
        WrongType: the value has no RDF equivalent.
        Invalid: the value is not valid in RDF.
    """
    # Subclasses come first: IRI and BlankNode are strings, and bool is an int.
    match value:
        case RDFTerm():
            return _check_term(value, field)
        case IRI():
            return RDFTerm("iri", check_iri(value, field))
        case BlankNode():
            raise Invalid(field, "is a blank node, which has no name", "pass an IRI or a value")
        case str():
            return RDFTerm("literal", check_str(value, field))
        case bool():
            return RDFTerm("literal", "true" if value else "false", f"{XSD}boolean")
        case int():
            return RDFTerm("literal", str(value), f"{XSD}integer")
        case float():
            return RDFTerm("literal", _float_text(value), f"{XSD}double")
        case Decimal():
            return RDFTerm("literal", _decimal_text(value, field), f"{XSD}decimal")
        case datetime():
            return RDFTerm("literal", _datetime_text(value, field), f"{XSD}dateTime")
        case _ if type(value).__module__ == "pyoxigraph":  # by name, as the extra may not be installed
            return _check_term(from_oxigraph(value), field)
        case _:
            raise WrongType(field, "text, a number, a bool, a datetime or an IRI", value)


def from_oxigraph(term: Any) -> RDFTerm:
    """Convert a term of `pyoxigraph`."""
    kind = type(term).__name__
    if kind == "NamedNode":
        return RDFTerm("iri", term.value)
    if kind == "Literal":
        if term.language is not None:
            direction = getattr(term, "direction", None)
            return RDFTerm(
                "literal", term.value, None, term.language + ("" if direction is None else f"--{direction}")
            )
        datatype = term.datatype.value
        return RDFTerm("literal", term.value, None if datatype == f"{XSD}string" else datatype)
    if kind == "BlankNode":
        return RDFTerm("blank", term.value)
    if kind == "Triple":
        parts = (from_oxigraph(part) for part in (term.subject, term.predicate, term.object))
        return RDFTerm("triple", f"<<( {' '.join(map(str, parts))} )>>")
    raise WrongType("term", "an RDF term", term)


def _check_term(term: RDFTerm, field: str) -> RDFTerm:
    if term.kind == "iri":
        check_iri(term.value, field)
    elif term.kind == "literal":
        check_str(term.value, field)
        if term.datatype is not None:
            check_iri(term.datatype, f"{field}.datatype")
        if term.language is not None and not re.fullmatch(
            r"[A-Za-z]+(-[A-Za-z0-9]+)*(--(ltr|rtl))?", term.language
        ):
            raise Invalid(f"{field}.language", f"{term.language[:40]!r} is invalid", "use a tag like en-GB")
    else:
        raise Invalid(field, "is a node without a name", "pass an IRI or a value")
    return term


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return ("INF" if value > 0 else "-INF") if math.isinf(value) else repr(value)


def _decimal_text(value: Decimal, field: str) -> str:
    if not value.is_finite() or abs(value.adjusted()) > _MAX_DIGITS:
        raise Invalid(field, f"is {value}", "pass a finite decimal")
    # xsd:decimal has no exponent, and SPARQL reads digits without a point as an integer.
    text = f"{value:f}"
    return text if "." in text else f"{text}.0"


def _datetime_text(value: datetime, field: str) -> str:
    if value.tzinfo is None:
        raise Invalid(field, "is a time without a zone", "pass one with tzinfo, such as UTC")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _parse_integer(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("too long")
    return int(text)


def _parse_decimal(text: str) -> Decimal:
    if not _decimal(text):
        raise ValueError("no decimal")
    return Decimal(text)


def _parse_double(text: str) -> float:
    if text.strip("+-") == "INF":
        return -math.inf if text.startswith("-") else math.inf
    return math.nan if text == "NaN" else float(text)


def _parse_datetime(text: str) -> datetime:
    match = _datetime(text)
    if match is None:
        raise ValueError("no moment")
    # RDF allows any number of digits, Python microseconds; a time without a zone is read as UTC.
    fraction, zone = match.groups()
    normalized = text[:19] + (f".{fraction[:6].ljust(6, '0')}" if fraction else "") + (zone or "")
    value = datetime.fromisoformat(normalized)
    return value.replace(tzinfo=UTC) if zone is None else value


def _parse_boolean(text: str) -> bool:
    if text not in ("true", "1", "false", "0"):
        raise ValueError("no boolean")
    return text in ("true", "1")


_PARSERS: dict[str, Callable[[str], Any]] = {
    **{XSD + name: _parse_integer for name in _INTEGERS},
    f"{XSD}decimal": _parse_decimal,
    f"{XSD}double": _parse_double,
    f"{XSD}float": _parse_double,
    f"{XSD}boolean": _parse_boolean,
    f"{XSD}dateTime": _parse_datetime,
}
