"""The conformance suite finds every mistake of a store, and passes a correct one."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.custom_stores import WRONG, ListStore

from omoide.stores import Store
from omoide.testing import StoreSuite


class PocketSuite(StoreSuite):
    """A store with the three methods and nothing else passes what is meant for it."""

    def open_store(self, folder: Path) -> Store:
        return ListStore()


class Complete(PocketSuite):
    """The same store, that claims to be complete."""

    complete = True


def cases(suite: StoreSuite) -> Iterator[tuple[str, Callable[[Store], Awaitable[None]]]]:
    """The tests of a suite with their parameters, each waiting for a store."""
    for name, method in inspect.getmembers(suite, inspect.ismethod):
        if not name.startswith("test_"):
            continue
        marks = [mark for mark in getattr(method, "pytestmark", []) if mark.name == "parametrize"]
        names = [[part.strip() for part in _names(mark.args[0])] for mark in marks]
        for chosen in product(*(mark.args[1] for mark in marks)):
            fields: dict[str, Any] = {}
            for words, value in zip(names, chosen, strict=True):
                fields.update(zip(words, value if len(words) > 1 else [value], strict=True))
            yield name, partial(method, **fields)


def _names(said: str | tuple[str, ...]) -> list[str]:
    return said.split(",") if isinstance(said, str) else list(said)


async def verdicts(suite: StoreSuite, make: Callable[[], Store]) -> dict[str, set[str]]:
    """Which tests passed, failed or were skipped."""
    found: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for name, run in cases(suite):
        try:
            await run(make())
        except pytest.skip.Exception as skipped:
            found["skipped" if "store does not offer" in str(skipped) else "failed"].add(name)
        except (Exception, pytest.fail.Exception):  # noqa: BLE001 - a broken store may raise anything
            found["failed"].add(name)
        else:
            found["passed"].add(name)
    return found


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.__name__)
def test_every_mistake_is_found(wrong: type[ListStore]) -> None:
    """A store with one thing wrong fails at least one test, and not all of them."""
    found = anyio.run(verdicts, PocketSuite(), wrong)
    assert found["failed"]
    assert found["passed"]


def test_what_a_store_does_not_offer_is_skipped() -> None:
    """Tests of the optional protocols are not for it, and say so."""
    found = anyio.run(verdicts, PocketSuite(), ListStore)
    assert found["failed"] == set()
    assert len(found["skipped"]) > 30
    assert len(found["passed"]) > 30


def test_a_store_that_claims_to_be_complete_has_to_be() -> None:
    """Then nothing is skipped: what is missing fails."""
    found = anyio.run(verdicts, Complete(), ListStore)
    assert found["skipped"] == set()
    assert len(found["failed"]) > 30


def test_a_suite_has_to_say_how_its_store_is_opened(tmp_path: Path) -> None:
    """Otherwise the error says how."""
    with pytest.raises(NotImplementedError, match="def open_store"):
        StoreSuite().open_store(tmp_path)
