"""Which store does a URL mean?"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from omoide import embedders
from omoide.embedders import Embedder
from omoide.errors import Invalid, OmoideError, StoreFailed
from omoide.ids import has_controls
from omoide.stores.local import LocalStore, masked
from omoide.stores.secrets import named_guard
from omoide.stores.settings import Settings

_REMEDY = "use memory:// or sqlite:///path/to/file.db"
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "ncpfs")

_NAME_BYTES = 200  # of a file's name; SQLite puts others beside it
_BY_START = {"all-MiniLM": "minilm", "wordllama": "static"}

_log = logging.getLogger("omoide")


def open_store(url: str, *, embedder: Any = "auto", **settings: Any) -> LocalStore:
    """The store at a URL: `memory://`, or `sqlite:///path` with `?durability=power&mode=ro` and the like.

    `embedder` is a name (`auto`, `minilm`, `static`, `none`, `provider:model`), an embedder, a function from
    texts to vectors, or None; `auto` takes the one whose vectors the store holds already. The settings are
    those of `omoide.stores.settings.Settings`.
    """
    if not isinstance(url, str):
        raise Invalid("url", f"must be text, not {type(url).__name__}", _REMEDY)
    parts = _parts(url)
    chosen = _settings({**_options(parts.query), **settings})
    if parts.scheme == "memory":
        from omoide.stores.reference import MemoryStore

        return LocalStore(MemoryStore(embedders.choose(embedder), chosen), url)
    if parts.scheme == "sqlite":
        return LocalStore(_open_file(path_of(url), embedder, chosen), url)
    raise Invalid("url", f"{masked(url)!r} names no kind of store that is known", _REMEDY)


def _parts(url: str) -> SplitResult:
    if any(ord(letter) < 32 for letter in url):
        raise Invalid("url", "holds control characters", "write them as %09 and the like")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise Invalid("url", f"{masked(url)!r} cannot be read ({error})", _REMEDY) from error
    if parts.fragment or url.endswith("#"):
        raise Invalid("url", f"{masked(url)!r} has a #", "write it as %23")
    return parts


def _options(query: str) -> dict[str, Any]:
    found: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    mode = found.pop("mode", None)
    if mode not in (None, "ro", "rw"):
        raise Invalid("url", f"has mode={mode}", "use mode=ro, or leave it out")
    if mode == "ro":
        found["read_only"] = True
    return found


def _settings(given: dict[str, Any]) -> Settings:
    known = Settings.__struct_fields__
    for name in given:
        if name not in known:
            raise Invalid(name, "is no setting of a store", f"use {', '.join(known)}")
    given["guard"] = named_guard(given.get("guard"))
    texts = {name: value for name, value in given.items() if isinstance(value, str)}
    try:
        read = msgspec.convert(texts, Settings, strict=False)
        return msgspec.structs.replace(
            read, **{name: value for name, value in given.items() if name not in texts}
        )
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, Invalid):
            raise cause from error
        raise Invalid("settings of the store", f"are wrong: {error}", "correct them") from error


def path_of(url: str) -> Path:
    """The file that a `sqlite:` URL names."""
    parts = _parts(url)
    if parts.netloc:
        raise Invalid("url", f"{masked(url)!r} names a host", "use three slashes: sqlite:///file.db")
    try:
        name = unquote(parts.path.removeprefix("/"), errors="strict")
        path = Path(name).expanduser().absolute()
    except (UnicodeError, RuntimeError) as error:
        raise Invalid("url", f"{url!r} names no file ({error})", _REMEDY) from error
    if not name or name.endswith("/") or has_controls(name):
        raise Invalid("url", f"{url!r} names no file", _REMEDY)
    if len(os.fsencode(path.name)) > _NAME_BYTES:
        raise Invalid("url", f"names a file of {len(os.fsencode(path.name))} bytes", f"use {_NAME_BYTES}")
    return path


def _open_file(path: Path, embedder: Any, settings: Settings) -> Any:
    from omoide.stores.sqlite.store import SQLiteStore

    if path.is_dir():
        raise StoreFailed(str(path), "is a folder", "name a file in it")
    if not settings.read_only:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreFailed(
                str(path), f"has no folder ({error})", "make it, or choose another path"
            ) from error
    elif not path.exists():
        raise StoreFailed(str(path), "does not exist", "open it once without mode=ro")
    kind = network_file_system(path)
    if kind is not None:
        _log.warning(
            "%s lies on a network file system (%s), where SQLite's locks may fail: "
            "keep it on a local disk, or let only one machine use it",
            path,
            kind,
        )
    return SQLiteStore(path, _embedder(path, embedder, settings), settings)


def _embedder(path: Path, wanted: Any, settings: Settings) -> Embedder | None:
    """The embedder to use; `auto` follows what the file holds."""
    if wanted != "auto":
        return embedders.choose(wanted)
    from omoide.stores.sqlite.models import kept_in

    kept = kept_in(path) if path.exists() else None
    if kept is None:
        return embedders.choose("auto")
    chosen = _kept_embedder(kept)
    if chosen is None:
        _log.warning(
            "%s holds vectors of %r, which is not available here: recall goes by words alone "
            "until it is, or until the store is reindexed",
            path,
            kept,
        )
    return chosen


def _kept_embedder(kept: str) -> Embedder | None:
    """The embedder of this name, if it is here."""
    name = next((name for start, name in _BY_START.items() if kept.startswith(start)), kept)
    try:
        found = embedders.choose(name)
    except OmoideError:
        return None
    return found if found is not None and found.name == kept else None


def network_file_system(path: Path) -> str | None:
    """The kind of network file system that a path lies on, if it does and the system tells."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    best, kind = "", ""
    where = os.path.realpath(path.parent)
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            mount = fields[1].replace("\\040", " ")
            inside = where == mount or where.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, fields[2]
    return kind if kind in _NETWORK else None
