"""The `token` commands."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import Result

from omoide import clock
from omoide.service import auth
from omoide.stores import open_store
from omoide.testing import FrozenClock

Run = Callable[..., Result]
Answer = Callable[..., Any]


def check_token(home: Path, secret: str) -> auth.ApiToken | None:
    """What a secret allows."""

    async def check() -> auth.ApiToken | None:
        url = f"sqlite:///{home / 'data' / 'omoide' / 'memory.db'}"
        async with open_store(url, embedder="none") as store:
            return await auth.verify(store, secret)

    return anyio.run(check)


def test_a_secret_is_printed_once_and_allows_what_was_said(omoide: Run, home: Path) -> None:
    """It alone goes to standard output, and that it is shown once to standard error."""
    made = omoide("token", "create", "crew", "--right", "write", "--right", "read", "--namespace", "team")
    secret = made.stdout.strip()
    assert made.stdout == f"{secret}\n"
    assert made.stderr.endswith("  crew: read, write in team\nKeep the secret: it is shown only this once.\n")
    token = check_token(home, secret)
    assert token is not None
    assert (token.name, token.rights, token.namespaces) == ("crew", ("read", "write"), ("team",))
    listed = omoide("token", "list")
    assert secret not in listed.output
    assert token.id in listed.stdout
    file = home / "data" / "omoide" / "memory.db"
    with closing(sqlite3.connect(file)) as db:
        assert secret not in "".join(db.iterdump())


def test_a_token_holds_in_the_namespaces_that_are_meant(answer: Answer) -> None:
    """The one in use, those that are named, or all."""
    assert answer("token", "create", "a", "--right", "read")["token"]["namespaces"] == ["default"]
    named = ("--namespace", "x", "--namespace", "y")
    assert answer("token", "create", "b", "--right", "read", *named)["token"]["namespaces"] == ["x", "y"]
    assert answer("--namespace", "z", "token", "create", "c", "--right", "admin")["token"]["namespaces"] == [
        "z"
    ]
    assert answer("token", "create", "d", "--right", "read", "--namespace", "*")["token"]["namespaces"] == [
        "*"
    ]


def test_a_token_ends_when_it_was_said(omoide: Run, answer: Answer) -> None:
    """Until then it is in use, and after that expired."""
    now = clock.now()
    made = answer("token", "create", "crew", "--right", "read", "--expires", "30d")["token"]
    assert 0 <= made["expires_at"] - now - 30 * 86_400_000 < 60_000
    assert omoide("token", "list").stdout.endswith("\tin use\n")
    with clock.override(FrozenClock(made["expires_at"])):
        assert omoide("token", "list").stdout.endswith("\texpired\n")


def test_a_revoked_token_counts_no_longer(omoide: Run, answer: Answer, home: Path) -> None:
    """It stays in the list, and revoking it again is no error."""
    made = answer("token", "create", "crew", "--right", "read")
    id = made["token"]["id"]
    assert omoide("token", "revoke", id).stdout == f"{id}  revoked (crew)\n"
    assert check_token(home, made["secret"]) is None
    assert omoide("token", "list").stdout.endswith("\trevoked\n")
    assert answer("token", "revoke", id)["revoked_at"] == answer("token", "list")["tokens"][0]["revoked_at"]


@pytest.mark.parametrize(
    "options",
    [
        ["crew"],
        ["crew", "--right", "fly"],
        ["", "--right", "read"],
        ["crew", "--right", "read", "--expires", "2020-01-01"],
        ["crew", "--right", "read", "--expires", "soon"],
        ["crew", "--right", "read", "--namespace", "a\tb"],
    ],
    ids=range(6),
)
def test_a_token_that_cannot_be_is_refused(options: list[str], omoide: Run) -> None:
    """With one line, and no token is made."""
    omoide("remember", "x")
    assert omoide("token", "create", *options, code=2).stderr.count("\n") == 1
    assert omoide("token", "list", code=1).stderr == "Nothing found.\n"
    assert "token 'tok_x' does not exist" in omoide("token", "revoke", "tok_x", code=1).stderr
