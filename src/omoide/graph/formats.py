"""In which format is a file of triples?"""

from __future__ import annotations

from pathlib import PurePath
from types import MappingProxyType

import msgspec

from omoide.errors import Invalid, MissingExtra

try:
    from pyoxigraph import RdfFormat
except ImportError as error:
    raise MissingExtra("the graph", "graph") from error


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One way to write triples down."""

    name: str
    ending: str
    rdf: RdfFormat
    graphs: bool = True
    """Whether it can say in which named graph a triple lies."""


FORMATS = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Format(name="turtle", ending=".ttl", rdf=RdfFormat.TURTLE, graphs=False),
            Format(name="trig", ending=".trig", rdf=RdfFormat.TRIG),
            Format(name="jsonld", ending=".jsonld", rdf=RdfFormat.JSON_LD),
            Format(name="nquads", ending=".nq", rdf=RdfFormat.N_QUADS),
        )
    }
)

_ENDINGS = MappingProxyType({kind.ending: kind for kind in FORMATS.values()})


def choose(path: object = None, format: str | None = None) -> Format:
    """The format that is named, or else the one that the ending of a path stands for."""
    if format is not None:
        if format not in FORMATS:
            raise Invalid("format", f"is {format!r}", f"use one of {', '.join(FORMATS)}")
        return FORMATS[format]
    ending = PurePath(str(path)).suffix.lower() if path is not None else ""
    if ending not in _ENDINGS:
        told = f"cannot be told from {PurePath(str(path)).name!r}" if path is not None else "is missing"
        raise Invalid("format", told, f"end the name in {', '.join(_ENDINGS)}, or pass format=")
    return _ENDINGS[ending]
