"""The commands about agents: `agents`, `spaces`, `identity` and `who-can` for stored ones, and `owners`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from omoide.cli.shell import (
    NOT_FOUND,
    OK,
    REPOSITORY,
    CommandContext,
    command,
    print_fields,
    print_table,
    run_async,
    sanitize,
)
from omoide.core import codec
from omoide.errors import Invalid, NotFound

if TYPE_CHECKING:
    from omoide.core.memory import Space


_OWNER_FIELDS = {"namespace": "namespace", "user": "user_id", "agent": "agent_id", "project": "project_id"}
_NUMBER = re.compile(r"[+-]?\d{1,18}(\.\d{1,18})?")


@command("agents", "omoide agents", "omoide agents --namespace team --json")
def agents_command(ctx: CommandContext) -> int:
    """List the stored agents of the namespace."""
    from omoide.service import agents

    with ctx.open_store() as store:
        infos = run_async(agents.list_agents, store, namespace=ctx.scope.namespace)

    def show() -> None:
        print_table(
            ("id", "name", "rev", "spaces", "description"),
            [(info.id, info.name, str(info.rev), ", ".join(info.spaces), info.description) for info in infos],
        )
        for info in infos:
            if info.problem is not None:
                click.echo(f"{sanitize(info.id)} cannot be read: {sanitize(info.problem)}", err=True)
        _report_if_empty(infos)

    ctx.print_result({"agents": infos}, show)
    return OK if infos else NOT_FOUND


@command("spaces", "omoide spaces planner", "omoide spaces planner world")
@click.argument("id", metavar="AGENT")
@click.argument("space", required=False)
def spaces_command(ctx: CommandContext, id: str, space: str | None) -> int:
    """List the spaces of an agent's memory, or show what SPACE holds."""
    from omoide.service import agents

    with ctx.open_store() as store:
        spaces = run_async(agents.get_spaces, store, id, namespace=ctx.scope.namespace)
    if space is None:
        ctx.print_result({"spaces": spaces}, lambda: _print_spaces(spaces))
        return OK if spaces else NOT_FOUND
    if space not in spaces:
        names = ", ".join(spaces) or "none"
        raise NotFound("space", space, f"agent {id!r} has: {names}")
    selected = spaces[space]
    ctx.print_result(selected, lambda: print_table(("what", "value"), _space_items(selected)))
    return OK


@command("identity", "omoide identity planner")
@click.argument("id", metavar="AGENT")
def identity_command(ctx: CommandContext, id: str) -> None:
    """Show what an agent says of itself: the public part of its identity."""
    from omoide.service import agents

    with ctx.open_store() as store:
        info = run_async(agents.get_agent, store, id, namespace=ctx.scope.namespace)
    identity = info.identity
    if identity is None:
        raise NotFound("identity of agent", id, "omoide agents --json tells who has one")
    fields = codec.to_builtins(identity)
    description = {"id": info.id, "name": info.name, "description": info.description}
    ctx.print_result(
        {**description, "identity": fields}, lambda: print_fields({**description, **dict(_flatten(fields))})
    )


@command(
    "who-can",
    "omoide who-can summarise",
    "omoide who-can translate --tag french --limit-of tokens=8000",
    "omoide who-can fetch --io network=true",
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
@click.option(
    "--io",
    "io",
    multiple=True,
    metavar="NAME=VALUE",
    help="An I/O flag, such as network=false; may be repeated.",
)
def who_can_command(
    ctx: CommandContext,
    action: str | None,
    tags: tuple[str, ...],
    limits: tuple[str, ...],
    io: tuple[str, ...],
) -> int:
    """Show which stored agents can do ACTION, the most experienced first, and why."""
    from omoide.service import agents

    needed, flags = (
        parse_values(limits, "--limit-of", "tokens=8000"),
        parse_values(io, "--io", "network=false"),
    )
    with ctx.open_store() as store:
        matches = run_async(agents.who_can, store, action, tags, needed, flags, namespace=ctx.scope.namespace)

    def show() -> None:
        print_table(("id", "why"), [(match.id, match.reason) for match in matches])
        _report_if_empty(matches)

    ctx.print_result({"agents": matches}, show)
    return OK if matches else NOT_FOUND


@command("owners", "omoide owners", "omoide owners --by agent", "omoide owners --by namespace --json")
@click.option(
    "--by",
    type=click.Choice(("namespace", "user", "agent", "project")),
    help="One line for each of these; by default one for each user, agent and project.",
)
def owners_command(ctx: CommandContext, by: str | None) -> int:
    """List who has memories in the namespace, and how many: users, agents and projects.

    `--by namespace` counts all namespaces of the store.
    """
    from omoide.service.owners import group_owners

    scope = ctx.read_scope
    if ctx.settings.project.origin == REPOSITORY:
        scope = scope.replace(project_id=None)
    with ctx.open_store() as store:
        names = store.sync.namespaces() if by == "namespace" else [scope.namespace]
        owners = [one for name in names for one in store.sync.owners(scope.replace(namespace=name))]

    titles: tuple[str, ...] = ("user", "agent", "project") if by is None else (by,)
    if by is not None:
        owners = [*group_owners(owners, _OWNER_FIELDS[by]).values()]
    rows = [tuple(getattr(one, _OWNER_FIELDS[title]) or "" for title in titles) for one in owners]
    answer = [
        {**dict(zip(titles, row, strict=True)), "live": one.live, "entries": one.entries}
        for row, one in zip(rows, owners, strict=True)
    ]

    def show() -> None:
        lines = [(*row, str(one.live), str(one.entries)) for row, one in zip(rows, owners, strict=True)]
        print_table((*titles, "in use", "all"), lines)
        _report_if_empty(answer)

    ctx.print_result({"owners": answer}, show)
    return OK if answer else NOT_FOUND


def parse_values(options: Iterable[str], flag: str, example: str) -> dict[str, Any]:
    """Parse `NAME=VALUE` options: digits become a number, true and false a boolean, all else stays text."""
    values: dict[str, Any] = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator or not name.strip():
            raise Invalid(flag, f"is {option!r}", f"write NAME=VALUE, such as {flag} {example}")
        if name.strip() in values:
            raise Invalid(flag, f"gives {name.strip()} two values", "give one")
        values[name.strip()] = _parse_value(value.strip())
    return values


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
            (name, _space_kind(space), str(len([*_space_items(space)])), str(space.rev))
            for name, space in spaces.items()
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
        yield from ((str(index), _to_text(value)) for index, value in enumerate(data))
    else:
        yield "", _to_text(data)


def _flatten(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested objects with their dotted paths."""
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
