"""How does a model ask its memory in SPARQL?

The query runs in a process of its own, which holds nothing but the memories that the server may see, and is
stopped when its time is over.
"""

from __future__ import annotations

from typing import Any

from omoide.core.action import Action, action
from omoide.errors import Invalid
from omoide.integrations.mcp.calling import Call
from omoide.integrations.mcp.params import MOST_QUERY, SECONDS, Rows, Sparql
from omoide.tools.desk import QUERY, Setting, desk_of
from omoide.tools.params import text


def sparql_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def sparql(ctx: Call, query: Sparql, limit: Rows = 50) -> dict[str, Any]:
        """Ask the memories in SPARQL, as instances of the Jido ontology. A query cannot change anything."""
        desk = desk_of(ctx, setting, "sparql", QUERY)
        asked = text(query, "query", MOST_QUERY)
        if not asked:
            raise Invalid("query", "is empty", "write a SELECT, ASK, CONSTRUCT or DESCRIBE query")
        graph = ctx.house.graph()
        answer = await graph.sparql(asked, desk.seen, limit=limit, timeout=SECONDS, isolated=True)
        found: dict[str, Any] = {"kind": answer.kind}
        match answer.kind:
            case "truth":
                found["truth"] = answer.truth
            case "rows":
                found["rows"] = [_row(row) for row in answer.rows]
            case _:
                found["triples"] = [str(triple) for triple in answer.triples]
        return {**found, "more": True} if answer.truncated else found

    return sparql


def _row(row: Any) -> dict[str, str]:
    terms = {name: row.term(name) for name in row}
    return {name: term.value for name, term in terms.items() if term is not None}
