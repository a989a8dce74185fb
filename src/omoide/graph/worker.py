"""Worker process that answers one query, or parses one file.

It is run as a script, by path: it imports nothing of Omoide, so it starts quickly and holds nothing but what
it is sent. It reads one line of JSON and then RDF from standard input. For a query, the RDF is N-Quads, and
it writes SPARQL JSON results or N-Triples; for a file, it writes the statements as N-Quads. The exit status
reports failures: `SYNTAX_ERROR`, `OUT_OF_MEMORY` or `OUTPUT_TOO_LARGE`.
"""

from __future__ import annotations

import errno
import json
import sys
from itertools import islice
from typing import Any

SYNTAX_ERROR = 64
OUT_OF_MEMORY = 65
OUTPUT_TOO_LARGE = 66

_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"


def main() -> int:
    """Do what the first line of standard input asks for and return the exit status."""
    request = json.loads(sys.stdin.buffer.readline())
    sys.path.append(request["packages"])
    import pyoxigraph  # noqa: F401 - loaded before memory is limited

    set_limits(request["memory"], request["seconds"], request.get("output"))
    try:
        if "query" in request:
            _answer(request)
        else:
            _parse(request["format"])
    except SyntaxError as error:
        place = {"problem": error.msg, "line": error.lineno}
        sys.stderr.write(str(error) if "query" in request else json.dumps(place))
        return SYNTAX_ERROR
    except MemoryError:
        return OUT_OF_MEMORY
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        return OUTPUT_TOO_LARGE
    return 0


def _answer(request: dict[str, Any]) -> None:
    """Answer a query over the N-Quads on standard input."""
    from pyoxigraph import NamedNode, RdfFormat, Store

    store = Store()
    store.load(sys.stdin.buffer, format=RdfFormat.N_QUADS)
    result: Any = store.query(
        request["query"],
        default_graph=[*map(NamedNode, request["default_graphs"])],
        named_graphs=[*map(NamedNode, request["named_graphs"])],
    )
    _write(result, request["form"], request["limit"])


def _parse(media_type: str) -> None:
    """Write the statements on standard input as N-Quads, without those about statements.

    What is written is flat: no term in it contains another one, so parsing it again needs no deep stack.
    """
    from pyoxigraph import RdfFormat, Triple, parse, serialize

    format = RdfFormat.from_media_type(media_type)
    quads = parse(sys.stdin.buffer, format=format)
    flat = (quad for quad in quads if not isinstance(quad.object, Triple))
    serialize(flat, sys.stdout.buffer, RdfFormat.N_QUADS)
    sys.stdout.buffer.flush()


def set_limits(memory: int, seconds: int, output: int | None) -> None:
    """Let the operating system end this process if it exceeds its limits, even if the parent is gone."""
    try:
        import resource
    except ImportError:  # Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if output is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (output, output))


def _write(result: Any, form: str, limit: int) -> None:
    out = sys.stdout.buffer
    if form == "ASK":
        out.write(b'{"head":{},"boolean":%s}' % (b"true" if result else b"false"))
    elif form == "SELECT":
        names = [variable.value for variable in result.variables]
        out.write(b'{"head":{"vars":%s},"results":{"bindings":[' % json.dumps(names).encode())
        for at, row in enumerate(islice(result, limit)):
            cells = {name: _cell(term) for name, term in zip(names, row, strict=True) if term is not None}
            out.write((b",\n" if at else b"\n") + json.dumps(cells).encode())
        out.write(b"]}}")
    else:
        seen: set[str] = set()
        for triple in result:
            line = f"{triple.subject} {triple.predicate} {triple.object} .\n"
            if line not in seen:
                seen.add(line)
                out.write(line.encode())
            if len(seen) == limit:
                break
    out.flush()


def _cell(term: Any) -> dict[str, Any]:
    kind = type(term).__name__
    if kind == "NamedNode":
        return {"type": "uri", "value": term.value}
    if kind == "BlankNode":
        return {"type": "bnode", "value": term.value}
    if kind == "Triple":
        parts = {name: _cell(getattr(term, name)) for name in ("subject", "predicate", "object")}
        return {"type": "triple", "value": parts}
    cell = {"type": "literal", "value": term.value}
    if term.language is not None:
        cell["xml:lang"] = term.language
        if term.direction is not None:
            cell["its:dir"] = str(term.direction)
    elif term.datatype.value != _XSD_STRING:
        cell["datatype"] = term.datatype.value
    return cell


if __name__ == "__main__":
    sys.exit(main())
