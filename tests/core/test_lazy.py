"""Lazy attributes of packages."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from omoide._lazy import attach
from omoide.errors import MissingExtra


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An empty package that `attach` can write to."""
    module = types.ModuleType("lazy_package")
    monkeypatch.setitem(sys.modules, "lazy_package", module)
    return module


def _attach(package: types.ModuleType, **options: object) -> None:
    package.__getattr__, package.__dir__ = attach("lazy_package", **options)  # type: ignore[arg-type,method-assign]


def test_an_attribute_is_imported_when_it_is_first_used(package: types.ModuleType) -> None:
    """The second access finds it in the package itself."""
    _attach(package, attributes={"omoide.core.entry": ("Entry",)})
    assert "Entry" not in vars(package)
    assert package.Entry.__name__ == "Entry"
    assert "Entry" in vars(package)


def test_a_submodule_is_an_attribute_too(package: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the module itself, not something in it."""
    part = types.ModuleType("lazy_package.part")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "lazy_package.part", part)
    _attach(package, submodules=("part",))
    assert package.part is part


def test_an_unknown_attribute_is_an_attribute_error(package: types.ModuleType) -> None:
    """As for any module."""
    _attach(package)
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'nothing'"):
        _ = package.nothing


def test_dir_lists_what_was_not_loaded_yet(package: types.ModuleType) -> None:
    """Completion in a shell shows every name."""
    _attach(package, attributes={"omoide.core.entry": ("Entry", "Scope")})
    assert {"Entry", "Scope"} <= set(dir(package))


@pytest.mark.parametrize("requires", [(), ("not_installed",)])
def test_a_missing_dependency_names_the_extra(
    package: types.ModuleType, tmp_path: Path, requires: tuple[str, ...]
) -> None:
    """The error says what to install."""
    (tmp_path / "part.py").write_text("import not_installed.inner")
    package.__path__ = [str(tmp_path)]
    _attach(package, attributes={"part": ("x",)}, extra=("this part", "vector"), requires=requires)
    with pytest.raises(MissingExtra, match=r"this part needs .* 'omoide\[vector\]'"):
        _ = package.x


def test_a_dependency_of_something_else_is_not_blamed_on_the_extra(
    package: types.ModuleType, tmp_path: Path
) -> None:
    """Where the extra names its modules, another missing module is reported as it is."""
    (tmp_path / "part.py").write_text("import not_installed")
    package.__path__ = [str(tmp_path)]
    _attach(package, attributes={"part": ("x",)}, extra=("this part", "vector"), requires=("numpy",))
    with pytest.raises(ModuleNotFoundError, match="not_installed"):
        _ = package.x
