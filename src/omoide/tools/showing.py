"""How is a memory shown to a model?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from omoide.core.entry import Entry


def shown(entry: Entry, **more: Any) -> dict[str, Any]:
    """A memory as data that a model reads, without what it does not have."""
    whole = {
        "id": entry.id,
        "content": entry.content,
        "type": entry.type,
        "confidence": entry.confidence,
        "created_at": moment(entry.created_at),
        "source": entry.source,
        "rationale": entry.rationale,
        "tags": list(entry.tags) or None,
        **more,
    }
    return {name: value for name, value in whole.items() if value is not None}


def moment(at: int) -> str:
    """A moment in ISO 8601, UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
