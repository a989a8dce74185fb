"""What does one partition of a memory hold, and how often has it changed?

A space holds a map or a list, and the type of its data decides which operations it has. Other data is
allowed; whoever owns it changes it with `update_space`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import msgspec

from omoide.core import codec
from omoide.core.codec import Frozen, MapField
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenList, FrozenMap, freeze_list, freeze_map
from omoide.core.nesting import own
from omoide.core.value import Count, Value, check_fields
from omoide.errors import TooLarge, WrongSpaceType, WrongType


@own
class Space(Value, frozen=True, kw_only=True):
    """Data with a revision, metadata, and limits where someone set them."""

    data: Frozen = EMPTY_MAP
    rev: Count = 0
    metadata: MapField = EMPTY_MAP
    max_items: Count | None = None
    max_item_bytes: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._limited:
            if not (Space.is_map(self) or Space.is_list(self)):
                raise WrongType("data", "a map or a list where a limit is set", self.data)
            self._check_limits("(new)", *(self.data.values() if Space.is_map(self) else self.data))

    @property
    def _limited(self) -> bool:
        """Whether a limit was set."""
        return self.max_items is not None or self.max_item_bytes is not None

    @classmethod
    def new(cls, attrs: Mapping[str, Any] = EMPTY_MAP, **fields: Any) -> Self:
        """A space from a mapping of its fields, from keywords, or from both."""
        given = {**freeze_map(attrs, "attrs"), **fields}
        check_fields(cls, given)
        return cls(**given)

    @classmethod
    def new_kv(cls, data: Mapping[str, Any] = EMPTY_MAP, **fields: Any) -> Self:
        """A map space."""
        return cls(data=freeze_map(data, "data"), **fields)

    @classmethod
    def new_list(cls, data: Sequence[Any] = EMPTY_LIST, **fields: Any) -> Self:
        """A list space."""
        return cls(data=freeze_list(data, "data"), **fields)

    def is_map(self: object) -> bool:
        """Whether it is a space with map operations; `Space.is_map(x)` is False for what is not a space."""
        return isinstance(self, Space) and type(self.data) is FrozenMap

    def is_list(self: object) -> bool:
        """Whether it is a space with list operations; `Space.is_list(x)` is False for what is not a space."""
        return isinstance(self, Space) and type(self.data) is FrozenList

    def _map_data(self, name: str) -> FrozenMap[str, Any]:
        """The data of a map space."""
        if type(self.data) is not FrozenMap:
            raise WrongSpaceType(name, "map", self.data)
        return self.data

    def _list_data(self, name: str) -> FrozenList[Any]:
        """The data of a list space."""
        if type(self.data) is not FrozenList:
            raise WrongSpaceType(name, "list", self.data)
        return self.data

    def _check_limits(self, name: str, *items: object) -> None:
        """Refuse more items than allowed, and among these items any that is too large."""
        if self.max_items is not None and len(self.data) > self.max_items:
            raise TooLarge(name, "max_items", self.max_items, len(self.data))
        if self.max_item_bytes is not None:
            for item in items:
                size = len(msgspec.json.encode(codec.dump(item)))
                if size > self.max_item_bytes:
                    raise TooLarge(name, "max_item_bytes", self.max_item_bytes, size)
