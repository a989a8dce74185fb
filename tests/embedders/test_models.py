"""Tests of the download and the cache of model files."""

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.model_server import ModelServer, model_source, serve

from omoide import clock
from omoide.embedders import MiniLMEmbedder, models
from omoide.embedders.models import ModelSource
from omoide.errors import ModelUnavailable


@pytest.fixture
def site(published: dict[str, bytes]) -> Iterator[ModelServer]:
    """A server that has the tiny encoder."""
    with serve(published) as up:
        yield up


@pytest.fixture
def tiny(published: dict[str, bytes], site: ModelServer) -> ModelSource:
    """The tiny encoder, published there."""
    return model_source(published, site.url)


def cached_files(folder: Path) -> list[str]:
    """Everything that lies in a cache."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_model_is_fetched_once_and_ready_for_use(
    site: ModelServer, tiny: ModelSource, tmp_path: Path
) -> None:
    """After a pull the encoder works; pulling again asks for nothing."""
    folder = models.pull(site.url, cache_dir=tmp_path, source=tiny)
    assert MiniLMEmbedder(folder).embed(["the dogs"])[0].words == ("the", "dogs", "dogs")
    assert models.pull(site.url + "/elsewhere", cache_dir=tmp_path, source=tiny) == folder
    assert site.requested == ["/tokenizer.json", "/onnx/model.onnx"]
    assert cached_files(tmp_path) == ["complete.json", "model.onnx", "tokenizer.json"]


def test_the_status_tells_what_is_there(site: ModelServer, tiny: ModelSource, tmp_path: Path) -> None:
    """Before a pull a model is not ready and has no files; afterwards it is, and its files have sizes."""
    before = models.status(tmp_path)
    assert (before.ready, before.files) == (False, {})
    folder = models.pull(site.url, cache_dir=tmp_path, source=tiny)
    after = models.status(tmp_path)
    assert (after.ready, after.folder) == (True, folder)
    assert after.files == {name: (folder / name).stat().st_size for name in ("model.onnx", "tokenizer.json")}


def test_progress_is_told(
    site: ModelServer, tiny: ModelSource, tmp_path: Path, published: dict[str, bytes]
) -> None:
    """Each file's count grows up to its size."""
    told: list[tuple[str, int, int]] = []
    models.pull(site.url, cache_dir=tmp_path, source=tiny, progress=lambda *what: told.append(what))
    size = len(published["/onnx/model.onnx"])
    assert told[-1] == ("model.onnx", size, size)
    assert told == sorted(told, key=lambda what: (what[0] == "model.onnx", what[1]))


def test_other_content_is_refused(site: ModelServer, tiny: ModelSource, tmp_path: Path) -> None:
    """A file whose digest is not known is not used, and nothing of it stays."""
    content = site.files["/onnx/model.onnx"]
    site.files["/onnx/model.onnx"] = bytes([content[0] ^ 1]) + content[1:]
    with pytest.raises(ModelUnavailable, match=r"has the wrong digest: .*/onnx/model\.onnx"):
        models.pull(site.url, cache_dir=tmp_path, source=tiny)
    assert cached_files(tmp_path) == []


def test_too_much_content_is_refused(site: ModelServer, tiny: ModelSource, tmp_path: Path) -> None:
    """A file that is larger than the model is not read to its end."""
    site.files["/tokenizer.json"] += bytes(8 << 20)
    with pytest.raises(ModelUnavailable, match="wrong digest"):
        models.pull(site.url, cache_dir=tmp_path, source=tiny)
    assert cached_files(tmp_path) == []


def test_half_a_download_is_refused_and_can_be_repeated(
    site: ModelServer, tiny: ModelSource, tmp_path: Path
) -> None:
    """A connection that ends early is noticed; the next pull goes through."""
    site.cut_after = 1_000
    with pytest.raises(ModelUnavailable, match=r"gave 1000 of .* bytes; repeat"):
        models.pull(site.url, cache_dir=tmp_path, source=tiny)
    assert cached_files(tmp_path) == []
    site.cut_after = None
    assert models.is_ready(models.pull(site.url, cache_dir=tmp_path, source=tiny))


def test_an_absent_file_is_named(site: ModelServer, tiny: ModelSource, tmp_path: Path) -> None:
    """The error has the whole URL and what the server said."""
    with pytest.raises(ModelUnavailable, match=r"/wrong/tokenizer\.json \(404 Not Found\); check the URL"):
        models.pull(f"{site.url}/wrong/", cache_dir=tmp_path, source=tiny)


def test_no_network_is_said(published: dict[str, bytes], tmp_path: Path) -> None:
    """Where nobody answers, the error says so and what to do."""
    with serve(published) as gone:
        pass
    with pytest.raises(ModelUnavailable, match="check the network and repeat"):
        models.pull(gone.url, cache_dir=tmp_path, source=model_source(published, gone.url))


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/x", "model", "javascript:x"])
def test_only_urls_that_can_be_fetched_are_taken(url: str, tiny: ModelSource, tmp_path: Path) -> None:
    """Other schemes are refused before anything is fetched."""
    with pytest.raises(ModelUnavailable, match="pass an http, https or file URL"):
        models.pull(url, cache_dir=tmp_path, source=tiny)


def test_files_that_were_carried_here_can_be_used(
    published: dict[str, bytes], tiny: ModelSource, tmp_path: Path
) -> None:
    """Without a network, the files may come from a folder."""
    for name, content in published.items():
        (tmp_path / name.lstrip("/")).parent.mkdir(exist_ok=True)
        (tmp_path / name.lstrip("/")).write_bytes(content)
    assert models.is_ready(models.pull(tmp_path.as_uri(), cache_dir=tmp_path / "cache", source=tiny))


def test_the_environment_tells_where(
    site: ModelServer, tiny: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`OMOIDE_MODEL_URL` and `OMOIDE_CACHE` stand for the arguments that are left out."""
    monkeypatch.setenv("OMOIDE_MODEL_URL", f"{site.url}/nothing")
    monkeypatch.setenv("OMOIDE_CACHE", str(tmp_path / "there"))
    with pytest.raises(ModelUnavailable, match="/nothing/"):
        models.pull(source=tiny)
    monkeypatch.setenv("OMOIDE_MODEL_URL", site.url)
    assert models.pull(source=tiny).is_relative_to(tmp_path / "there")


def test_the_cache_is_the_users_own_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a word about it, models lie in the user's cache folder."""
    monkeypatch.delenv("OMOIDE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models.models_dir() == tmp_path / "omoide" / "models"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("LOCALAPPDATA", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert models.models_dir() == tmp_path / ".cache" / "omoide" / "models"


def test_a_damaged_model_is_replaced(site: ModelServer, tiny: ModelSource, tmp_path: Path) -> None:
    """A file that is not whole makes the model not ready, and the next pull mends it."""
    folder = models.pull(site.url, cache_dir=tmp_path, source=tiny)
    os.truncate(folder / "model.onnx", 100)
    assert not models.status(tmp_path).ready
    assert models.pull(site.url, cache_dir=tmp_path, source=tiny) == folder
    assert models.status(tmp_path).ready
    assert cached_files(tmp_path) == ["complete.json", "model.onnx", "tokenizer.json"]


def test_pulls_at_the_same_time_do_not_disturb_each_other(
    site: ModelServer, tiny: ModelSource, tmp_path: Path
) -> None:
    """However many pull at once, each gets the whole model, and there is one."""
    with ThreadPoolExecutor(4) as pool:
        pulls = [pool.submit(models.pull, site.url, cache_dir=tmp_path, source=tiny) for _ in range(4)]
        folders = {pulled.result() for pulled in pulls}
    assert [models.is_ready(folder) for folder in folders] == [True]
    assert cached_files(tmp_path) == ["complete.json", "model.onnx", "tokenizer.json"]


def test_what_a_killed_pull_left_is_removed_in_time(
    site: ModelServer, tiny: ModelSource, tmp_path: Path
) -> None:
    """The remains of a pull go when they are a day old, and not while it may still be running."""
    left = models.models_dir(tmp_path) / ".partial-1"
    left.mkdir(parents=True)
    (left / "model.onnx").touch()
    models.pull(site.url, cache_dir=tmp_path, source=tiny)
    assert left.exists()
    (models.status(tmp_path).folder / "model.onnx").unlink()
    tomorrow = clock.now() + 25 * 3_600_000
    with clock.override(lambda: tomorrow):
        models.pull(site.url, cache_dir=tmp_path, source=tiny)
    assert not left.exists()


def test_a_cache_that_cannot_be_written_is_named(
    site: ModelServer, tiny: ModelSource, tmp_path: Path
) -> None:
    """The error names the folder and how to choose another."""
    (tmp_path / "file").touch()
    with pytest.raises(ModelUnavailable, match="set OMOIDE_CACHE to a folder that you may write to"):
        models.pull(site.url, cache_dir=tmp_path / "file", source=tiny)
    assert site.requested == []


def test_a_full_disk_is_said_before_anything_is_fetched(
    site: ModelServer, tiny: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is too little room, nothing is asked for."""
    monkeypatch.setattr(models, "REQUIRED_BYTES", 1 << 62)
    with pytest.raises(ModelUnavailable, match="the disk is full; make room, or set OMOIDE_CACHE"):
        models.pull(site.url, cache_dir=tmp_path, source=tiny)
    assert site.requested == []


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """Even under a known digest, a file that cannot be quantized is reported, and nothing stays."""
    files = {"/onnx/model.onnx": b"no model at all", "/tokenizer.json": b"{}"}
    with serve(files) as up, pytest.raises(ModelUnavailable, match="could not be quantized"):
        models.pull(up.url, cache_dir=tmp_path, source=model_source(files, up.url))
    assert cached_files(tmp_path) == []


def test_the_command_says_where_the_model_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The module pulls when it is run; it prints the folder, or what went wrong, and its exit code tells."""
    monkeypatch.setenv("OMOIDE_CACHE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["models", "ftp://nowhere"])
    assert models.main() == 1
    assert "pass an http" in capsys.readouterr().err
    folder = models.status().folder
    folder.mkdir(parents=True)
    (folder / "model.onnx").touch()
    models.mark_complete(folder, ["model.onnx"])
    assert models.main() == 0
    assert capsys.readouterr().out.strip() == str(folder)
