"""Open the store that a URL names.

Opening parses the URL, chooses the embedder of an existing store, and imports the module of its back end.
Files are written atomically, and their errors mapped, in the same way for every store.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, NamedTuple, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from omoide import embedders
from omoide.embedders import Embedder
from omoide.errors import DiskFull, Invalid, NotFound, OmoideError, StoreFailed
from omoide.extensions import STORES, extension_names, find_extension, use_extension
from omoide.stores.async_store import AsyncStore
from omoide.stores.protocols import Store
from omoide.stores.redaction import GUARDS, Guard, mask_url
from omoide.stores.semantics import StoreSettings

URL_REMEDY = "use memory://, sqlite:///path/to/file.db, postgresql://user@host/database or redis://host"

_MODULES = {
    "redis": "omoide.stores.redis.store",
    "rediss": "omoide.stores.redis.store",
    "sqlite": "omoide.stores.sqlite.store",
    "postgresql": "omoide.stores.postgres.store",
    "postgres": "omoide.stores.postgres.store",
}
"""Modules that open stores other than `memory://`, by URL scheme; imported on demand."""
OWN_SCHEMES = ("memory", *_MODULES)


def open_store(url: str, *, embedder: Any = "auto", **settings: Any) -> AsyncStore:
    """Open the store at a URL: `memory://`, `sqlite:///path`, `postgresql://…` or `redis://…`.

    Other schemes are those of installed distributions, which offer them as entry points of `omoide.stores`.

    Args:
        url: The URL; settings may follow as query parameters, such as `?durability=power&mode=ro`.
        embedder: A name (`auto`, `local`, `none`, `provider:model`), an embedder, a
            function from texts to vectors, or None. `auto` is the local encoder, unless the store has the
            vectors of a provider's model. A store that has the vectors of another embedder is recalled by
            words until it is reindexed.
        settings: Fields of `omoide.stores.semantics.StoreSettings`.
    """
    address = parse_url(url)
    scheme = address.parts.scheme
    if scheme == "memory":
        from omoide.stores.memory import MemoryStore

        chosen = _parse_settings({**address.options, **settings})
        return AsyncStore(MemoryStore(embedders.choose(embedder), chosen), url)
    if scheme not in _MODULES:
        return cast("AsyncStore", _open_extension(url, scheme, embedder, settings))
    place = import_module(_MODULES[scheme])
    own = {name: address.options[name] for name in address.options if name in place.OPTIONS}
    others = {name: address.options[name] for name in address.options if name not in own}
    chosen = _parse_settings({**others, **settings}, also=place.OPTIONS)
    open_at: Callable[[StoreURL, Any, StoreSettings], AsyncStore] = place.open_at
    return open_at(address._replace(options=own), embedder, chosen)


def _open_extension(url: str, scheme: str, embedder: Any, settings: dict[str, Any]) -> Store:
    """Open the store of a distribution that offers the scheme, as an entry point of `omoide.stores`."""
    fail = partial(StoreFailed, mask_url(url))
    extension = find_extension(STORES, scheme, fail) if scheme else None
    if extension is None:
        others = "".join(f", {name}://" for name in extension_names(STORES) if name not in OWN_SCHEMES)
        remedy = f"{URL_REMEDY}{others and ', or what is installed beside: '}{others.removeprefix(', ')}"
        raise Invalid("url", f"{mask_url(url)!r} names no kind of store that is known", remedy)
    store = use_extension(extension, fail, url, embedder=embedder, **settings)
    if not isinstance(store, Store):
        problem = f"cannot be had: {extension} gave a {type(store).__name__}, which is no store"
        raise fail(problem, "tell its authors: a store has write, recall and list_entries")
    return store


def _parse_settings(given: dict[str, Any], also: Sequence[str] = ()) -> StoreSettings:
    known = StoreSettings.__struct_fields__
    for name in given:
        if name not in known:
            raise Invalid(name, "is no setting of a store", f"use {', '.join((*known, *also))}")
    given["guard"] = _resolve_guard(given.get("guard"))
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


class StoreURL(NamedTuple):
    """A parsed store URL."""

    url: str
    parts: SplitResult
    options: dict[str, Any]
    """Query parameters by name."""


def parse_url(url: object) -> StoreURL:
    """Parse a store URL; raise `Invalid` if it is malformed."""
    if not isinstance(url, str):
        raise Invalid("url", f"must be text, not {type(url).__name__}", URL_REMEDY)
    if any(ord(character) < 32 for character in url):
        raise Invalid("url", "holds control characters", "write them as %09 and the like")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Invalid("url", f"{mask_url(url)!r} cannot be read ({error})", URL_REMEDY) from error
    if parts.fragment or url.endswith("#"):
        raise Invalid("url", f"{mask_url(url)!r} has a #", "write it as %23")
    has_server = parts.scheme not in ("memory", "sqlite")
    if has_server and "@" in parts.path + parts.query and "@" not in parts.netloc:
        # Whatever stands before it was meant as a password, and would be named as something else.
        raise Invalid("url", "has an @ behind its path", "write /, ? and # in a password as %2F, %3F and %23")
    return StoreURL(url, parts, _options(parts.query))


def _options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    mode = options.pop("mode", None)
    if mode not in (None, "ro", "rw"):
        raise Invalid("url", f"has mode={mode}", "use mode=ro, or leave it out")
    if mode == "ro":
        options["read_only"] = True
    return options


def embedder_for(requested: Any, stored: str | None) -> Embedder | None:
    """Choose the embedder; `auto` is the provider's model that the store has vectors of, if any."""
    if requested == "auto" and stored is not None and ":" in stored:
        with suppress(OmoideError):  # its package or its key is not here
            embedder = embedders.choose(stored)
            if embedder is not None and embedder.name == stored:
                return embedder
    return embedders.choose(requested)


@contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file that is renamed to `path` when the block succeeds, and deleted otherwise."""
    file = NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False)  # noqa: SIM115
    try:
        with file:
            yield cast("IO[bytes]", file)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    except BaseException:
        Path(file.name).unlink(missing_ok=True)
        raise


@contextmanager
def map_file_errors(name: str, action: str) -> Iterator[None]:
    """Map operating system errors about a file to our own; `action` is the participle in the message."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound("file", name, "check the path; folders are not made") from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(name, "has no room left", "free some space and try again") from error
        reason = error.strerror or str(error)
        raise StoreFailed(
            name, f"cannot be {action} ({reason})", "check the path and who may use it"
        ) from error


def _resolve_guard(guard: object) -> Guard | None:
    """Return the guard for a setting: `refuse`, `mask`, `off`, or a function."""
    if guard is None or guard == "off":
        return None
    if isinstance(guard, str):
        if guard not in GUARDS:
            raise Invalid("guard", f"is {guard!r}", "use refuse, mask, off, or a function")
        made: Guard = GUARDS[guard]()
        return made
    if not callable(guard):
        raise Invalid("guard", f"is a {type(guard).__name__}", "use refuse, mask, off, or a function")
    return guard
