"""Parse store URLs, choose the embedder of an existing store, and write files atomically."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, NamedTuple, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from omoide import embedders
from omoide.embedders import Embedder
from omoide.errors import DiskFull, Invalid, NotFound, OmoideError, StoreFailed
from omoide.stores.redaction import mask_url

URL_REMEDY = "use memory://, sqlite:///path/to/file.db, postgresql://user@host/database or redis://host"

_EMBEDDER_PREFIXES = {"all-MiniLM": "minilm", "wordllama": "static"}

_log = logging.getLogger("omoide")


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


def embedder_for(name: str, requested: Any, stored: str | None) -> Embedder | None:
    """Choose the embedder of a store; `auto` selects the one whose vectors the store already has."""
    if requested != "auto" or stored is None:
        return embedders.choose(requested)
    chosen = _available_embedder(stored)
    if chosen is None:
        _log.warning(
            "%s holds vectors of %r, which is not available here: recall goes by words alone "
            "until it is, or until the store is reindexed",
            name,
            stored,
        )
    return chosen


def _available_embedder(stored: str) -> Embedder | None:
    """Return the embedder of this name, or None if it is not available here."""
    name = next((name for start, name in _EMBEDDER_PREFIXES.items() if stored.startswith(start)), stored)
    try:
        embedder = embedders.choose(name)
    except OmoideError:
        return None
    return embedder if embedder is not None and embedder.name == stored else None


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
