"""Where do the files of models lie, and are they all there?

A model is a folder. It is put together under another name and renamed when it is complete, so a folder that
has its name has its files; `complete.json` tells their sizes, which shows damage.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

COMPLETE = "complete.json"
MINILM = "all-MiniLM-L6-v2-int8-1"  # the figure counts our ways of making it, and so its vectors


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache holds of a model: its folder, whether it can be used, and its files' sizes in bytes."""

    model: str
    folder: Path
    ready: bool
    files: dict[str, int]


def root(cache_dir: Path | str | None = None) -> Path:
    """The folder of all models: the one given, `OMOIDE_CACHE`, or `omoide` in the user's cache folder."""
    given = cache_dir or os.environ.get("OMOIDE_CACHE")
    if given:
        return Path(given).expanduser() / "models"
    user = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(user).expanduser() / "omoide" / "models"


def folder(model: str, cache_dir: Path | str | None = None) -> Path:
    """The folder of one model, whether or not it exists."""
    return root(cache_dir) / model


def ready(folder: Path) -> bool:
    """Whether all files of a model are there, in their full size."""
    try:
        sizes = msgspec.json.decode((folder / COMPLETE).read_bytes(), type=dict[str, int])
        return bool(sizes) and all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def complete(folder: Path, names: Iterable[str]) -> None:
    """Write down that a folder is complete, after its files have reached the disk."""
    sizes = {}
    for name in names:
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
            sizes[name] = os.fstat(file.fileno()).st_size
    (folder / COMPLETE).write_bytes(msgspec.json.encode(sizes))


def status(cache_dir: Path | str | None = None, model: str = MINILM) -> Status:
    """What the cache holds of a model."""
    place = folder(model, cache_dir)
    files = {path.name: path.stat().st_size for path in sorted(place.glob("*")) if path.name != COMPLETE}
    return Status(model=model, folder=place, ready=ready(place), files=files)
