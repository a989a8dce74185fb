"""What does a process do that answers one query and nothing else?

It is run as a script, by path: it imports nothing of Omoide's, so that it is quick to start and holds nothing
but what it is sent. It reads one line of JSON and then N-Quads, and writes the answer: SPARQL results in
JSON, or N-Triples. Its exit status tells what went wrong: `MISREAD` or `OUT_OF_MEMORY`.

"""

from __future__ import annotations

import json
import sys
from itertools import islice
from typing import Any

SYNTAX_ERROR = 64
OUT_OF_MEMORY = 65

_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"


def main() -> int:
    """Answer the query on standard input; the exit status says how that went."""
    asked = json.loads(sys.stdin.buffer.readline())
    sys.path.append(asked["packages"])
    from pyoxigraph import NamedNode, RdfFormat, Store

    _set_limits(asked["memory"], asked["seconds"])
    try:
        store = Store()
        store.load(sys.stdin.buffer, format=RdfFormat.N_QUADS)
        found: Any = store.query(
            asked["query"],
            default_graph=[*map(NamedNode, asked["default_graphs"])],
            named_graphs=[*map(NamedNode, asked["named_graphs"])],
        )
        _write(found, asked["form"], asked["limit"])
    except SyntaxError as error:
        sys.stderr.write(str(error))
        return SYNTAX_ERROR
    except MemoryError:
        return OUT_OF_MEMORY
    return 0


def _set_limits(memory: int, seconds: int) -> None:
    """See to it that the system ends this process when it takes too much, even if nobody is left to do so."""
    try:
        import resource
    except ImportError:  # there is no such thing on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _write(found: Any, form: str, limit: int) -> None:
    out = sys.stdout.buffer
    if form == "ASK":
        out.write(b'{"head":{},"boolean":%s}' % (b"true" if found else b"false"))
    elif form == "SELECT":
        names = [variable.value for variable in found.variables]
        out.write(b'{"head":{"vars":%s},"results":{"bindings":[' % json.dumps(names).encode())
        for at, row in enumerate(islice(found, limit)):
            cells = {name: _cell(term) for name, term in zip(names, row, strict=True) if term is not None}
            out.write((b",\n" if at else b"\n") + json.dumps(cells).encode())
        out.write(b"]}}")
    else:
        seen: set[str] = set()
        for triple in found:
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
