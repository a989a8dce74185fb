"""Who rests in the store, and what do they say of themselves?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from omoide.cli.output import print_fields, print_table, sanitize
from omoide.cli.shell import NOT_FOUND, OK, CommandContext, command
from omoide.core import codec
from omoide.errors import Invalid, NotFound

if TYPE_CHECKING:
    from omoide.core.memory import Space


_NUMBER = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?")


@command(
    "agents",
    "omoide agents",
    "omoide agents --namespace team --json",
)
def agents_command(shell: CommandContext) -> int:
    """List the agents that a runtime put to rest in the namespace."""
    import anyio

    from omoide.service import agents

    with shell.open_store() as store:
        found = anyio.run(partial(agents.list_agents, store, namespace=shell.scope.namespace))

    def show() -> None:
        print_table(
            ("id", "name", "rev", "spaces", "description"),
            [(one.id, one.name, str(one.rev), ", ".join(one.spaces), one.description) for one in found],
        )
        for one in found:
            if one.problem is not None:
                click.echo(f"{sanitize(one.id)} cannot be read: {sanitize(one.problem)}", err=True)
        _report_if_empty(found)

    shell.print_result({"agents": found}, show)
    return OK if found else NOT_FOUND


@command(
    "spaces",
    "omoide spaces planner",
    "omoide spaces planner world",
)
@click.argument("id", metavar="AGENT")
@click.argument("space", required=False)
def spaces_command(shell: CommandContext, id: str, space: str | None) -> int:
    """List the spaces of an agent's memory, or show what SPACE holds."""
    import anyio

    from omoide.service import agents

    with shell.open_store() as store:
        found = anyio.run(partial(agents.get_spaces, store, id, namespace=shell.scope.namespace))
    if space is None:
        shell.print_result({"spaces": found}, lambda: _print_spaces(found))
        return OK if found else NOT_FOUND
    if space not in found:
        there = ", ".join(found) or "none"
        raise NotFound("space", space, f"agent {id!r} has: {there}")
    chosen = found[space]
    shell.print_result(chosen, lambda: print_table(("what", "value"), _space_items(chosen)))
    return OK


@command(
    "identity",
    "omoide identity planner",
)
@click.argument("id", metavar="AGENT")
def identity_command(shell: CommandContext, id: str) -> None:
    """Show what an agent says of itself: the public part of its identity."""
    import anyio

    from omoide.service import agents

    with shell.open_store() as store:
        card = anyio.run(partial(agents.get_agent, store, id, namespace=shell.scope.namespace))
    identity = card.identity
    if identity is None:
        raise NotFound("identity of agent", id, "omoide agents --json tells who has one")
    said = codec.to_builtins(identity)
    known = {"id": card.id, "name": card.name, "description": card.description}
    shell.print_result({**known, "identity": said}, lambda: print_fields({**known, **dict(_flatten(said))}))


@command(
    "who-can",
    "omoide who-can summarise",
    "omoide who-can translate --tag french --limit-of tokens=8000",
)
@click.argument("action", required=False)
@click.option("--tag", "tags", multiple=True, help="A tag that it carries; may be repeated.")
@click.option(
    "--limit-of",
    "limits",
    multiple=True,
    metavar="NAME=VALUE",
    help="A limit that allows for this; may be repeated.",
)
def who_can_command(
    shell: CommandContext, action: str | None, tags: tuple[str, ...], limits: tuple[str, ...]
) -> int:
    """Show which agents at rest can do ACTION, the most experienced first, and why."""
    import anyio

    from omoide.service import agents

    needed = parse_limits(limits)
    with shell.open_store() as store:
        ask = partial(agents.who_can, store, action, tags, needed, namespace=shell.scope.namespace)
        found = anyio.run(ask)

    def show() -> None:
        print_table(("id", "why"), [(one.id, one.reason) for one in found])
        _report_if_empty(found)

    shell.print_result({"agents": found}, show)
    return OK if found else NOT_FOUND


def parse_limits(options: Iterable[str]) -> dict[str, Any]:
    """The limits that options tell: digits are a number, true and false are themselves, all else is text."""
    found: dict[str, Any] = {}
    for one in options:
        name, separator, value = one.partition("=")
        if not separator or not name.strip():
            raise Invalid("--limit-of", f"is {one!r}", "write NAME=VALUE, such as --limit-of tokens=8000")
        if name.strip() in found:
            raise Invalid("--limit-of", f"gives {name.strip()} two values", "give one")
        found[name.strip()] = _parse_value(value.strip())
    return found


def _parse_value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def _print_spaces(spaces: Mapping[str, Space]) -> None:
    print_table(
        ("space", "kind", "items", "rev"),
        [
            (name, _space_kind(one), str(len([*_space_items(one)])), str(one.rev))
            for name, one in spaces.items()
        ],
    )
    _report_if_empty(spaces)


def _space_kind(space: Space) -> str:
    return "map" if space.is_map() else "list" if space.is_list() else "value"


def _space_items(space: Space) -> Iterator[tuple[str, str]]:
    data = codec.to_builtins(space.data)
    if space.is_map():
        yield from ((name, _to_text(value)) for name, value in data.items())
    elif space.is_list():
        yield from ((str(at), _to_text(value)) for at, value in enumerate(data))
    else:
        yield "", _to_text(data)


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested objects, each with the way to it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flatten(inner, f"{prefix}.{name}" if prefix else name)
    elif isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
        yield prefix, ", ".join(map(_to_text, value))
    else:
        yield prefix, _to_text(value)


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else codec.encode(value).decode()


def _report_if_empty(found: Any) -> None:
    if not found:
        click.echo("Nothing found.", err=True)
