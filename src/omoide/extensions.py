"""Extensions that installed distributions offer by entry points.

A distribution names an object under a group, such as `omoide.stores`, in its metadata. Extensions are looked
up only for names that are not Omoide's own, so none of those can be replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from omoide.errors import OmoideError

STORES = "omoide.stores"
EMBEDDERS = "omoide.embedders"


class Extension(NamedTuple):
    """An entry point, and the distribution that has it."""

    entry_point: EntryPoint

    @property
    def distribution(self) -> str:
        """The name and the version of the distribution."""
        origin = self.entry_point.dist
        return "an unknown distribution" if origin is None else f"{origin.name} {origin.version}"

    def __str__(self) -> str:
        return f"{self.entry_point.name!r} of {self.distribution}"


def extension_names(group: str) -> tuple[str, ...]:
    """Return the names that extensions of a group have, in order."""
    return tuple(sorted({point.name for point in entry_points(group=group)}))


def find_extension(group: str, name: str, fail: Callable[[str, str], OmoideError]) -> Extension | None:
    """Return the extension of a group with a name, or None.

    Args:
        group: the group of entry points.
        name: the name.
        fail: builds the error for a problem and a remedy.

    Raises:
        OmoideError: the error of `fail`, if several distributions have the name.
    """
    # A distribution that is on the path twice is one.
    found = {
        (str(one), one.entry_point.value): one for one in map(Extension, entry_points(group=group, name=name))
    }
    if len(found) > 1:
        several = " and ".join(sorted({one.distribution for one in found.values()}))
        raise fail(f"is offered by {several}", "uninstall all but one")
    return next(iter(found.values()), None)


def use_extension(
    extension: Extension, fail: Callable[[str, str], OmoideError], *args: Any, **options: Any
) -> Any:
    """Load the function of an extension, and return what it returns for these arguments.

    Raises:
        OmoideError: what the function raises of these, or the error of `fail`, which names the distribution.
    """
    point, remedy = extension.entry_point, f"reinstall {extension.distribution}, or tell its authors"
    named = f"the entry point {point.name} = {point.value} of {extension.distribution}"
    try:
        function = point.load()
    except Exception as error:  # whatever code of others raises when it is imported
        raise fail(
            f"cannot be had: {named} does not load ({type(error).__name__}: {error})", remedy
        ) from error
    if not callable(function):
        raise fail(f"cannot be had: {named} is no function, but a {type(function).__name__}", remedy)
    try:
        return function(*args, **options)
    except OmoideError:
        raise
    except Exception as error:  # likewise
        problem = f"cannot be had: {named} failed ({type(error).__name__}: {error})"
        raise fail(problem, remedy) from error
