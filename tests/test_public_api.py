"""The public names of the package."""

from __future__ import annotations

import importlib
import pkgutil
import re
import types
from pathlib import Path

import pytest

import omoide
from omoide.stores import protocols

PUBLIC = {
    "Action",
    "Agent",
    "AgentSpec",
    "Checkpoint",
    "Context",
    "Definition",
    "Entry",
    "Evidence",
    "Filter",
    "Identity",
    "Memory",
    "MemoryPolicy",
    "Plugin",
    "RecallRequest",
    "RecallResult",
    "Runtime",
    "Scope",
    "Session",
    "Signal",
    "Space",
    "Store",
    "Thread",
    "WriteRequest",
    "WriteResult",
    "action",
    "add_document",
    "blocking",
    "chat",
    "checkpoint",
    "cmd",
    "directives",
    "erase",
    "erase_user",
    "errors",
    "forget",
    "graph",
    "identity",
    "memory",
    "open_store",
    "pin",
    "preflight",
    "recall",
    "receive",
    "remember",
    "restore",
    "stream",
    "thread",
    "turn",
    "unpin",
    "write",
}

MODULES = [omoide.memory, omoide.identity, omoide.thread, omoide.strategy, omoide.directives]


def test_the_public_names_are_these_and_no_others() -> None:
    """Adding or removing a public name is a decision, made here."""
    assert set(omoide.__all__) == PUBLIC
    assert len(omoide.__all__) == len(PUBLIC)


def test_every_public_name_can_be_imported() -> None:
    """What `__all__` promises is there."""
    assert [name for name in omoide.__all__ if not hasattr(omoide, name)] == []


def test_every_name_of_a_package_can_be_imported() -> None:
    """What `__all__` of a package promises is there, also where it is loaded on demand."""
    packages = [found.name for found in pkgutil.walk_packages(omoide.__path__, "omoide.") if found.ispkg]
    modules = [importlib.import_module(name) for name in packages]
    missing = [
        f"{module.__name__}.{name}"
        for module in modules
        for name in getattr(module, "__all__", ())
        if not hasattr(module, name)
    ]
    assert missing == []


def test_nothing_else_is_left_lying_in_the_package() -> None:
    """Names without underscore are public, or submodules, or what annotations need."""
    loose = {
        name
        for name, value in vars(omoide).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert loose - {"annotations", "TYPE_CHECKING", "attach"} <= PUBLIC


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_function_module_lists_what_it_offers(module: types.ModuleType) -> None:
    """Each public function module has an `__all__`, and what it names exists and has a docstring."""
    for name in module.__all__:
        offered = getattr(module, name)
        assert isinstance(offered, (str, tuple)) or offered.__doc__, name


def test_every_error_is_ours_and_documented_in_the_tree() -> None:
    """Each error class derives from OmoideError and stands in the tree that opens the module."""
    tree = omoide.errors.__doc__ or ""
    for name, value in vars(omoide.errors).items():
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, omoide.errors.OmoideError)
            assert name in tree


def test_every_name_that_a_page_imports_comes_from_its_package() -> None:
    """What pages import, and every protocol of stores, is in the `__all__` of the package."""
    folder = Path(__file__).parent.parent / "docs"
    pages = "\n".join(page.read_text("utf-8") for page in folder.glob("*.md"))
    used = re.findall(r"^ *from (omoide(?:\.\w+)*) import (\w+)", pages, re.MULTILINE)
    used += re.findall(r"^::: (omoide(?:\.\w+)*)\.([A-Z]\w*)$", pages, re.MULTILINE)
    used += [("omoide.stores", name) for name in vars(protocols) if name.startswith("Supports")]
    missing = [
        f"{package}.{name}"
        for package, name in {*used}
        if name not in getattr(module := importlib.import_module(package), "__all__", ())
        and not isinstance(getattr(module, name, None), types.ModuleType)
    ]
    assert sorted(missing) == []
    assert ("omoide.stores", "semantics") not in used
