"""A file from outside cannot end the process that imports it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from omoide.errors import Invalid, InvalidRDF
from omoide.graph import sandbox
from omoide.graph.results import MAX_NESTING, read_triples
from omoide.graph.sandbox import parse_in_process

DEPTH = int(os.environ.get("OMOIDE_NESTING", "10000"))
"""Depth of nested terms; `make soak` sets it high."""
IMPORT = """
import sys, anyio
from omoide import Scope, graph, open_store
from omoide.errors import OmoideError

async def main():
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        await view.load(sys.argv[1], Scope(agent_id="ada"))

try:
    anyio.run(main)
    print("imported")
except OmoideError as error:
    print(type(error).__name__, error)
"""


def nested_objects(depth: int) -> bytes:
    return b'{"@context":{"p":"urn:p"},"p":' + b'{"p":' * depth + b"1" + b"}" * depth + b"}"


def nested_triples(depth: int) -> bytes:
    return b"<u:s> <u:p> " + b"<<( <u:a> <u:b> " * depth + b"<u:a>" + b" )>>" * depth + b" .\n"


def nested_subjects(depth: int) -> bytes:
    return b"<< " * depth + b"<u:a>" + b" <u:b> <u:c> >>" * depth + b" <u:p> <u:o> .\n"


def nested_blanks(depth: int) -> bytes:
    return b"<u:s> <u:p> " + b"[ <u:p> " * depth + b"1 " + b"] " * depth + b".\n"


def long_literal(depth: int) -> bytes:
    text = b"x" * 30_000_000
    return b'<https://jido.ai/memory#m> <https://jido.ai/ontology#summary> "' + text + b'" .\n'


@pytest.mark.parametrize(
    ("make", "extension"),
    [
        (nested_objects, "jsonld"),
        (nested_triples, "ttl"),
        (nested_triples, "nq"),
        (nested_triples, "trig"),
        (nested_subjects, "ttl"),
        (nested_blanks, "ttl"),
        (long_literal, "nq"),
        (long_literal, "ttl"),
    ],
)
def test_no_file_ends_the_process(make: Callable[[int], bytes], extension: str, tmp_path: Path) -> None:
    """Deep nesting and huge literals are imported, or refused with a typed error."""
    path = tmp_path / f"hostile.{extension}"
    path.write_bytes(make(DEPTH))
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, str(path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split()[0] in ("imported", "InvalidRDF")
    assert make is not long_literal or "InvalidRDF" in done.stdout


def test_a_file_that_grows_without_bounds_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long prefix that is used often is not written out without limit."""
    monkeypatch.setattr(sandbox, "MAX_BYTES", 1 << 16)
    text = b"@prefix p: <urn:" + b"x" * 50_000 + b"> .\n" + b"p:a p:b p:c .\n" * 2_000
    with pytest.raises(InvalidRDF, match="too large when prefixes are written out"):
        parse_in_process("file", BytesIO(text), "text/turtle")


def test_a_file_that_takes_too_long_is_stopped() -> None:
    """The parser is killed when its time is over."""
    with pytest.raises(InvalidRDF, match="takes too long"):
        parse_in_process("file", BytesIO(b""), "text/turtle", seconds=0)


def test_an_endpoint_cannot_end_the_process_with_nested_terms() -> None:
    """Triples of a server that nest too deeply are refused before they are parsed; others are not."""
    with pytest.raises(Invalid, match="nest terms"):
        read_triples(nested_triples(DEPTH), 10)
    assert len(read_triples(nested_triples(3), 10)) == 1
    brackets = b'<u:s> <u:p> "' + b"<<( " * (MAX_NESTING + 1) + b'" .\n'
    assert len(read_triples(brackets, 10)) == 1
