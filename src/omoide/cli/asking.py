"""Which agent does a command ask, and who answers?

An option wins over the spec in the file that `--spec` names or that the session was begun with, and that over
what is usual.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omoide.cli.printing import clipped, safe
from omoide.cli.settings import REPOSITORY, Setting
from omoide.cli.shell import Shell
from omoide.core.entry import Entry
from omoide.core.scope import DEFAULT_NAMESPACE
from omoide.errors import NotFound

if TYPE_CHECKING:
    from omoide.sessions.session import Session
    from omoide.stores.local import LocalStore
    from omoide.turns.journal import Journal
    from omoide.turns.model import Request
    from omoide.turns.spec import AgentSpec

USUAL = {"id": "default", "memory": {"capture": "conversation"}}
NO_MODEL = "No model is named: a script answers, and only tells what it remembers. See --model."

_SHOWN = 100
_LISTED = 5
_SEEN = re.compile(r"[^\n\t ]+")


def agent_options(function: Any) -> Any:
    """Give a command the options that say who is asked."""
    for option in (
        click.option("--capture/--no-capture", default=None, help="Whether what is said is remembered."),
        click.option(
            "--scope",
            type=click.Choice(("agent", "session")),
            help="Whose memory: the agent's or the session's.",
        ),
        click.option("--instructions", metavar="TEXT", help="What the agent is told."),
        click.option(
            "--base-url", metavar="URL", help="Where the model is reached, if not where it usually is."
        ),
        click.option("--model", metavar="NAME", help="provider:model; '' for the script."),
        click.option("--spec", type=click.Path(path_type=Path), help="The agent: a .json or .yaml file."),
    ):
        function = option(function)
    return function


async def spec_for(shell: Shell, store: LocalStore, given: dict[str, Any]) -> AgentSpec:
    """The agent that is meant, as the options leave it."""
    from omoide.turns.spec import AgentSpec

    settings = shell.settings
    if given["spec"] is not None:
        spec = AgentSpec.from_file(given["spec"])
    else:
        spec = await _begun_with(shell, store) or AgentSpec.new(USUAL, id=settings.agent.value or USUAL["id"])
    changes = {
        name: given[name] or None if name != "instructions" else given[name]
        for name in ("model", "base_url", "instructions")
        if given[name] is not None
    }
    if settings.agent.origin == "--agent" and settings.agent.value:
        changes["id"] = settings.agent.value
    return spec.replace(**changes, memory=_policy(spec, settings.namespace, given))


def _policy(spec: AgentSpec, namespace: Setting, given: dict[str, Any]) -> Any:
    """What the agent remembers; one without memory gets some where an option speaks of it."""
    from omoide.turns.policy import MemoryPolicy

    changes: dict[str, Any] = {}
    if given["scope"] is not None:
        changes["scope"] = given["scope"]
    if given["capture"] is not None:
        changes["capture"] = "conversation" if given["capture"] else "off"
    if spec.memory is None and not changes:
        return None
    policy = spec.memory or MemoryPolicy()
    if policy.namespace is None or namespace.origin == "--namespace":
        changes["namespace"] = None if namespace.value in (None, DEFAULT_NAMESPACE) else namespace.value
    return policy.replace(**changes)


async def _begun_with(shell: Shell, store: LocalStore) -> AgentSpec | None:
    from omoide.sessions.listing import spec_of

    session = shell.settings.session.value
    if session is None:
        return None
    try:
        return await spec_of(store, session, shell.scope.namespace)
    except NotFound:
        return None


def options_for(shell: Shell, spec: AgentSpec) -> dict[str, Any]:
    """What a turn of the agent is given."""
    namespace = None if spec.memory is None else spec.memory.namespace
    context = {namespace[1]: shell.scope.namespace} if isinstance(namespace, tuple) else {}
    return {"context": context, "llm": None if spec.model else script}


def connected(spec: AgentSpec) -> AbstractAsyncContextManager[Any]:
    """Who answers, on connections that stay open for a whole conversation."""
    if spec.model is None:
        return nullcontext(script)
    from omoide.turns.provider import ProviderModel

    return ProviderModel(spec.model, base_url=spec.base_url).connected()


async def known_session(shell: Shell, store: LocalStore, spec: AgentSpec) -> Session | None:
    """The session that is named, if it exists; it stays in its project, unless another one is named."""
    from omoide.sessions.session import Session

    id, project = shell.settings.session.value, shell.settings.project
    if id is None:
        return None
    said = None if project.origin in (REPOSITORY, "default") else project.value
    try:
        return await Session.load(id, spec, store=store, project_id=said, **options_for(shell, spec))
    except NotFound:
        return None


def script(request: Request, journal: Journal) -> str:
    """What is answered where there is no model: the memories that fit what was said, also of this session."""
    recalled = journal.recalled
    hits = () if recalled is None or recalled.weak else recalled.hits
    said = dict.fromkeys(_told(hit.entry) for hit in hits if hit.score > 0)
    if not said:
        return "[script] I remember nothing about that."
    return "\n".join(["[script] I remember:", *(f"- {one}" for one in [*said][:_LISTED])])


def _told(entry: Entry) -> str:
    """A memory in a line; of a conversation what the user said, or the script would quote itself forever."""
    content = entry.content
    if entry.metadata.get("kind") == "conversation":
        content = "you said: " + content.removeprefix("User: ").partition("\nAssistant: ")[0]
    return clipped(content, _SHOWN)


def visible(text: str) -> str:
    """A text with its lines and its indentation, and nothing that a terminal would act on."""
    return _SEEN.sub(lambda word: safe(word[0]), text)
