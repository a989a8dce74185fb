"""What does a memory provider have to offer?

Every operation takes the provider's state and hands it back in its answer, also when it failed; whoever calls
keeps it for the next operation. Methods may be plain or async. Plain ones are called in a worker thread,
unless the provider says with `instant = True` that they never wait for anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

NOT_FOUND = "not_found"
"""Why a `get` failed that asked for a key which is not there."""


class Answered(msgspec.Struct, frozen=True):
    """It was done: `value` is what `get` found, or the list that `query` found."""

    state: Any
    value: Any = None


class Failed(msgspec.Struct, frozen=True):
    """It could not be done."""

    state: Any
    reason: str


Outcome: TypeAlias = Answered | Failed


@runtime_checkable
class Provider(Protocol):
    """Keeps values under keys; the methods may also be async."""

    @property
    def name(self) -> str:
        """What the backend is called in results."""
        ...

    def init(self, opts: Mapping[str, Any]) -> Any:
        """The state to begin with; raises where there can be none."""
        ...

    def get(self, state: Any, key: str, opts: Mapping[str, Any]) -> Any:
        """Answered with the value under a key; Failed with `not_found` where there is none."""
        ...

    def put(self, state: Any, key: str, value: Any, opts: Mapping[str, Any]) -> Any:
        """Keep a value under a key; `opts["embedding"]` is its vector, where the caller has one."""
        ...

    def delete(self, state: Any, key: str, opts: Mapping[str, Any]) -> Any:
        """Remove a key, whether it is there or not."""
        ...


@runtime_checkable
class Queries(Protocol):
    """Answers questions."""

    def query(self, state: Any, query: Mapping[str, Any], opts: Mapping[str, Any]) -> Any:
        """Answered with a list of `{"key", "score", "value"}`, best first."""
        ...
