"""Does a memory have everything that the ontology asks of its type?"""

from __future__ import annotations

from omoide.core.entry import Entry
from omoide.core.value import check_instance
from omoide.errors import Incomplete
from omoide.longterm.relations import is_a

ASSIGNED_TO = "assigned_to"
"""Where the metadata of a task says which agent has it."""


def missing(entry: Entry) -> tuple[str, ...]:
    """The fields that a complete memory of this type would have, and this one lacks.

    Content, agent, time and confidence are always there. Where scope and enforcement of a convention or the
    status of an error are not said, they have their defaults.
    """
    check_instance(entry, "entry", kind=Entry)
    wanted = {
        "project_id": entry.project_id is not None,
        "session_id": entry.session_id is not None,
        "rationale": not is_a(entry, "decision") or bool((entry.rationale or "").strip()),
        f"metadata.{ASSIGNED_TO}": entry.type != "task" or bool(entry.metadata.get(ASSIGNED_TO)),
    }
    return tuple(name for name, given in wanted.items() if not given)


def check_strict(entry: Entry) -> None:
    """Raise where a memory lacks something."""
    lacking = missing(entry)
    if lacking:
        raise Incomplete(entry.id, lacking)
