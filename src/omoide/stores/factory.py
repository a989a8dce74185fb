"""Open the store that a URL names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import msgspec

from omoide import embedders
from omoide.errors import Invalid
from omoide.stores.async_store import AsyncStore
from omoide.stores.redaction import mask_url, resolve_guard
from omoide.stores.url import URL_REMEDY, StoreURL, parse_url
from omoide.stores.validation import StoreSettings

_MODULES = {
    "redis": "omoide.stores.redis.store",
    "rediss": "omoide.stores.redis.store",
    "sqlite": "omoide.stores.sqlite.store",
    "postgresql": "omoide.stores.postgres.store",
    "postgres": "omoide.stores.postgres.store",
}
"""Modules that open stores other than `memory://`, by URL scheme; imported on demand."""


def open_store(url: str, *, embedder: Any = "auto", **settings: Any) -> AsyncStore:
    """Open the store at a URL: `memory://`, `sqlite:///path`, `postgresql://…` or `redis://…`.

    Args:
        url: The URL; settings may follow as query parameters, such as `?durability=power&mode=ro`.
        embedder: A name (`auto`, `minilm`, `static`, `none`, `provider:model`), an embedder, a
            function from texts to vectors, or None. `auto` selects the one whose vectors the store
            already has.
        settings: Fields of `omoide.stores.validation.StoreSettings`.
    """
    address = parse_url(url)
    scheme = address.parts.scheme
    if scheme == "memory":
        from omoide.stores.memory import MemoryStore

        chosen = _parse_settings({**address.options, **settings})
        return AsyncStore(MemoryStore(embedders.choose(embedder), chosen), url)
    if scheme not in _MODULES:
        raise Invalid("url", f"{mask_url(url)!r} names no kind of store that is known", URL_REMEDY)
    place = import_module(_MODULES[scheme])
    own = {name: address.options[name] for name in address.options if name in place.OPTIONS}
    others = {name: address.options[name] for name in address.options if name not in own}
    chosen = _parse_settings({**others, **settings}, also=place.OPTIONS)
    open_at: Callable[[StoreURL, Any, StoreSettings], AsyncStore] = place.open_at
    return open_at(address._replace(options=own), embedder, chosen)


def _parse_settings(given: dict[str, Any], also: Sequence[str] = ()) -> StoreSettings:
    known = StoreSettings.__struct_fields__
    for name in given:
        if name not in known:
            raise Invalid(name, "is no setting of a store", f"use {', '.join((*known, *also))}")
    given["guard"] = resolve_guard(given.get("guard"))
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    try:
        read = msgspec.convert(texts, StoreSettings, strict=False)
        return msgspec.structs.replace(
            read, **{name: value for name, value in given.items() if name not in texts}
        )
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, Invalid):
            raise cause from error
        raise Invalid("settings of the store", f"are wrong: {error}", "correct them") from error
