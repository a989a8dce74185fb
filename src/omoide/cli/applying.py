"""Is it done, or only shown?"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from omoide.errors import Invalid


def apply_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--apply`, and `--dry-run` for who wants to be sure; it gets `apply`."""

    @wraps(function)
    def run(*args: Any, apply: bool, dry_run: bool, **given: Any) -> Any:
        if apply and dry_run:
            raise Invalid("--apply", "comes with --dry-run", "choose one of them")
        return function(*args, apply=apply, **given)

    for option in (
        click.option("--dry-run", is_flag=True, help="Only show it, as without --apply."),
        click.option("--apply", is_flag=True, help="Do it; without this, only show what would happen."),
    ):
        run = option(run)
    return run
