"""How is an answer written?

By the codec that writes everything else, so that whoever reads it with that codec gets the same values.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from litestar import Response
from litestar.serialization import default_serializer

from omoide.core import codec

T = TypeVar("T")


class Told(Response[T]):
    """A value of the library's own, or one of `service.answers`."""

    def render(self, content: Any, media_type: str, enc_hook: Any = default_serializer) -> bytes:
        """The value as JSON."""
        return (
            codec.encode(content)
            if isinstance(content, msgspec.Struct)
            else super().render(content, media_type, enc_hook)
        )
