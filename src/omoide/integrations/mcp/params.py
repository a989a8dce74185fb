"""What does a model have to say to look around in a memory?

Beside the parameters that `omoide.tools` has already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from omoide.longterm.provenance import DEEPEST as DEEPEST_ORIGIN
from omoide.longterm.relations import IMPLICIT, RELATIONS
from omoide.longterm.relatives import DEEPEST as FARTHEST
from omoide.tools.params import ALL

MOST_QUERY = 10_000
MOST_ROWS = 200
SECONDS = 10.0
"""How long a query in SPARQL may take."""

NO_LIMITS: Mapping[str, Any] = {}

ActionName = Annotated[str, Meta(description="What has to be done, by the name of an action; empty for any.")]
WantedTags = Annotated[tuple[str, ...], Meta(description="Tags that the agent has to carry.", max_length=20)]
Limits = Annotated[
    Mapping[str, Any], Meta(description='What has to be allowed for, such as {"max_tokens": 8000}.')
]
Cursor = Annotated[str, Meta(description="Where the next page begins, as the page before told.")]
Forgotten = Annotated[bool, Meta(description="With those that were forgotten, replaced, or no longer hold.")]
Relations = Annotated[
    str,
    Meta(
        description="Only by this relation; all for every one.",
        extra_json_schema={"enum": [ALL, *RELATIONS, *IMPLICIT]},
    ),
]
Steps = Annotated[int, Meta(ge=1, le=FARTHEST, description="How many steps far.")]
Depth = Annotated[int, Meta(ge=1, le=DEEPEST_ORIGIN, description="How far to go back.")]
Sparql = Annotated[
    str,
    Meta(
        description="A SELECT, ASK, CONSTRUCT or DESCRIBE query in SPARQL 1.1. At most 10000 bytes. "
        "Known prefixes: jido, rdf, rdfs, xsd, owl, omoide."
    ),
]
Rows = Annotated[int, Meta(ge=1, le=MOST_ROWS, description="How many rows or triples at most.")]
