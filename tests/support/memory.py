"""One interface over a memory and an agent that holds one, so that a test runs on both."""

from collections.abc import Callable
from typing import Any

import pytest

from omoide import Agent, Memory, memory
from omoide.errors import OmoideError


class Mind:
    """A memory, alone or in an agent: `mind.world_put(…)` is the method, or the function on the agent."""

    def __init__(self, holder: Memory | Agent) -> None:
        self.holder = holder

    def __repr__(self) -> str:
        return f"Mind({self.holder!r})"

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        function = getattr(Memory if isinstance(self.holder, Memory) else memory, operation)

        def call(*args: Any, **options: Any) -> Any:
            result = function(self.holder, *args, **options)
            return Mind(result) if isinstance(result, (Memory, Agent)) else result

        return call

    @property
    def memory(self) -> Memory:
        """The memory itself, which has to exist."""
        found = self.holder if isinstance(self.holder, Memory) else memory.get(self.holder)
        assert found is not None
        return found

    def data(self, space: str) -> Any:
        """What a space holds, as plain data; None where there is no such space."""
        found = self.memory.space(space)
        return None if found is None else getattr(found.data, "to_python", lambda: found.data)()

    def revs(self) -> dict[str, int]:
        """The revision of the container under "", and those of the spaces under their names."""
        return {"": self.memory.rev, **{name: space.rev for name, space in self.memory.spaces.items()}}


on_both = pytest.mark.parametrize(
    "mind",
    [
        Mind(Memory.new(now=5)),
        Mind(Agent.new("bare", state={"own": 1})),
        Mind(memory.ensure(Agent.new("mindful", state={"own": 1}), now=5)),
    ],
    ids=["value", "bare-agent", "agent"],
)
"""Runs a test on a memory, on an agent without one, and on an agent with one."""


def attempt_to(operation: str, /, *args: Any, **options: Any) -> Callable[[Mind], object]:
    """Return the attempt to call an operation."""
    return lambda mind: getattr(mind, operation)(*args, **options)


def refusal_of(
    mind: Mind, error: type[OmoideError], attempt: Callable[[Mind], object], match: str | None = None
) -> OmoideError:
    """Return the error of an attempt that is refused: it says what to do, and nothing has changed."""
    before = mind.holder.to_json()
    with pytest.raises(error, match=match) as caught:
        attempt(mind)
    assert mind.holder.to_json() == before
    check_remedy(caught.value)
    return caught.value


def check_remedy(error: OmoideError) -> None:
    """Check that a message has a remedy after what happened."""
    remedy = getattr(error, "remedy", None) or str(error).rpartition("; ")[2]
    assert remedy
    assert str(error).endswith(f"; {remedy}")
    assert len(str(error)) > len(remedy) + 2
