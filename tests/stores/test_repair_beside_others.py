"""A repair leaves what other handles of the same store know of its agents as it is."""

from pathlib import Path

import pytest
from tests.support.stores import a_store, write_request

from omoide import Scope

ANN, BEN = Scope(agent_id="ann"), Scope(agent_id="ben")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_an_agent_without_memories_keeps_its_number(kind: str, tmp_path: Path) -> None:
    """No handle takes the memories of a new agent for its own, and what it writes is found."""
    with a_store(kind, tmp_path) as known, a_store(kind, tmp_path) as other:
        known.write(write_request("Ann plays the cello.", id="a", agent_id="ann"))
        assert [entry.id for entry in known.list_entries(ANN)] == ["a"]
        known.erase(ANN, id="a")
        other.repair()
        other.write(write_request("Ben sings.", id="b", agent_id="ben"))
        assert known.list_entries(ANN) == []
        known.write(write_request("Ann plays the harp.", id="c", agent_id="ann"))
        assert [entry.id for entry in other.list_entries(ANN)] == ["c"]
        assert [entry.id for entry in other.list_entries(BEN)] == ["b"]
