"""Load attributes of a package when they are first used.

`import omoide` has to stay fast and free of optional dependencies, so packages name what they export and
import it on demand (PEP 562):

    __getattr__, __dir__ = attach(__name__, attributes={"view": ("GraphView", "open"), "terms": ("IRI",)})

`__all__` and imports under `TYPE_CHECKING` stay written out beside it, for type checkers and editors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from omoide.errors import MissingExtra


def attach(
    package: str,
    *,
    submodules: Iterable[str] = (),
    attributes: Mapping[str, Iterable[str]] | None = None,
    extra: tuple[str, str] | None = None,
    requires: Iterable[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package with lazy attributes.

    Args:
        package: the package's `__name__`.
        submodules: modules of the package that are attributes themselves.
        attributes: the names that each module provides. A module is named relative to the package
            (`"view"`), or in full (`"omoide.embedders.vectors"`).
        extra: the feature and the extra that `MissingExtra` names if a dependency is not installed.
        requires: the top-level modules of that extra; any module counts if none is named.
    """
    # Every attribute with the module that provides it; a submodule provides itself.
    homes = {name: name for name in submodules}
    homes |= {name: module for module, names in (attributes or {}).items() for name in names}
    modules, dependencies = frozenset(submodules), frozenset(requires)

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        try:
            module = import_module(home if home.startswith("omoide.") else f"{package}.{home}")
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            # A missing module of omoide itself, or of no extra, is a bug: an install command would mislead.
            if extra is None or missing == "omoide" or (dependencies and missing not in dependencies):
                raise
            raise MissingExtra(*extra) from error
        value = module if name in modules else getattr(module, name)
        setattr(sys.modules[package], name, value)  # later accesses find it there and do not call `load`
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return load, names
