"""Recall, write and capture memories as the spec's memory policy says.

The policy says which scope memory has; the session, the project and the context of the turn complete it.
Stores are passed to each call and never taken from anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import wraps
from hashlib import sha256
from typing import Any, ParamSpec, TypeVar, Unpack

import msgspec

from omoide import clock, ids, observe
from omoide.core.entry import (
    CAPTURE_SOURCE,
    DEFAULT_NAMESPACE,
    Entry,
    Evidence,
    Hit,
    MessageRef,
    RecallRequest,
    RecallResult,
    Scope,
    WriteRequest,
    WriteResult,
    join_exchange,
)
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import check_instance
from omoide.errors import (
    Invalid,
    MissingNamespace,
    MissingScope,
    MissingStore,
    NotFound,
    OmoideError,
    StoreFailed,
    WrongType,
)
from omoide.retrieval.text import states_nothing, terms
from omoide.stores.protocols import AnyStore, Store, SupportsAccess, SupportsGet
from omoide.turns.controls import TurnRequest
from omoide.turns.prompt import capture_request_id, check_non_empty
from omoide.turns.spec import AUTOMATIC_CAPTURES, AgentSpec, MemoryPolicy
from omoide.verbs import RememberOptions, async_store, build_write_request, shown_pins

P = ParamSpec("P")
T = TypeVar("T")

ALIASES = {"memory_store": "store", "llm": "model"}
"""Other names of parameters, accepted by everything that runs a turn or touches its memory."""

MAX_QUERY_LENGTH = 8_000
"""Characters of an input that are used as the query."""
MAX_RECALL_LIMIT = 100
"""Limit of a recall that looks for memories the conversation does not have already."""


def resolve_aliases(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with aliases replaced by the names they stand for."""
    resolved = dict(options)
    for alias, name in ALIASES.items():
        if alias in resolved:
            value = resolved.pop(alias)
            if resolved.setdefault(name, value) is not value:
                raise Invalid(alias, f"is another name of {name}, which is given, too", "pass one of them")
    return resolved


def _store_of(store: AnyStore | None, memory_store: AnyStore | None) -> Store | None:
    stores = {"store": store, "memory_store": memory_store}
    given = {name: value for name, value in stores.items() if value is not None}
    return async_store(resolve_aliases(given)["store"]) if given else None


def memory_policy(spec: AgentSpec) -> MemoryPolicy | None:
    """Return the agent's memory policy; None if it has none or memory is switched off."""
    return spec.memory if spec.memory is not None and spec.memory.enabled else None


def scope_of(
    spec: AgentSpec,
    policy: MemoryPolicy,
    *,
    session_id: str | None = None,
    project_id: str | None = None,
    user_id: str | None = None,
    context: Mapping[str, Any] = EMPTY_MAP,
    include_session: bool = False,
) -> Scope:
    """Return the scope in which the agent writes memories in this session and context.

    Args:
        spec: the agent.
        policy: its memory policy.
        session_id: the session; required where the policy's scope is `session`.
        project_id: the project; required where the policy's scope is `project`.
        user_id: the user; required where the policy's scope is `user`.
        context: data about the turn, which may name the namespace.
        include_session: put the session into the scope also where memory belongs to the agent.
    """
    session = None
    if policy.scope == "session" and not session_id:
        raise MissingScope("session")
    if policy.scope == "project" and not project_id:
        raise MissingScope("project")
    if policy.scope == "user" and not user_id:
        raise MissingScope("user")
    if session_id and (include_session or policy.scope == "session"):
        session = ids.check(session_id, "session_id")
    return Scope(
        agent_id=spec.id,
        session_id=session,
        project_id=project_id,
        user_id=user_id,
        namespace=namespace_of(policy, context),
    )


def recall_scope(scope: Scope, policy: MemoryPolicy) -> Scope:
    """Return the scope that recall reads: the project is only a label unless the policy is about it."""
    if policy.scope == "project":
        return Scope(namespace=scope.namespace, user_id=scope.user_id, project_id=scope.project_id)
    if policy.scope == "user":
        return Scope(namespace=scope.namespace, user_id=scope.user_id)
    return scope.replace(project_id=None)


def namespace_of(policy: MemoryPolicy, context: Mapping[str, Any]) -> str:
    """Return the namespace that the policy names, or that it takes from the context.

    A tenant whose name is that of the default namespace gets one of its own, `tenant_id:default`, so that it
    does not meet the memories of agents without tenants.
    """
    if policy.namespace is None:
        return DEFAULT_NAMESPACE
    if isinstance(policy.namespace, str):
        return policy.namespace
    key = policy.namespace[1]
    name = context.get(key)
    # Never a default here: one tenant must not fall back to the memories of all.
    if name is None or name == "":
        raise MissingNamespace(key)
    tenant = ids.check(str(name), f"context.{key}")
    # Names that begin like those get the prefix, too: no two tenants share a namespace.
    return f"{key}:{tenant}" if tenant == DEFAULT_NAMESPACE or tenant.startswith(f"{key}:") else tenant


def resume_context(spec: AgentSpec, request: TurnRequest, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the context of a resumed turn, whose memory stays in the namespace it had."""
    policy = memory_policy(spec)
    merged = {**request.context, **context}
    if policy is None or request.namespace is None:
        return merged
    if isinstance(policy.namespace, tuple):
        key = policy.namespace[1]
        merged.setdefault(key, request.namespace.removeprefix(f"{key}:"))
    if namespace_of(policy, merged) != request.namespace:
        raise Invalid("context", "names another namespace than the turn had", "leave it out, or correct it")
    return merged


def _takes_spec(
    store_verb: str,
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Check the spec before the other arguments, and name the verb that takes a store instead."""

    def decorate(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(function)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            # A call that was meant for the verb has other arguments, and would fail because of those.
            if args and not isinstance(args[0], AgentSpec):
                remedy = f"pass the spec of the agent; for a store call {store_verb}"
                raise WrongType("spec", "an AgentSpec", args[0], remedy)
            return await function(*args, **kwargs)

        return call

    return decorate


@_takes_spec("omoide.recall(store, query, scope)")
async def recall(
    spec: AgentSpec,
    input: str,
    *,
    store: AnyStore | None = None,
    session_id: str | None = None,
    project_id: str | None = None,
    user_id: str | None = None,
    context: Mapping[str, Any] = EMPTY_MAP,
    extra: int = 0,
    memory_store: AnyStore | None = None,
) -> RecallResult | None:
    """Recall memories for an input; return None if the agent has no memory or no store is given.

    Args:
        spec: the agent, whose policy says the scope and how many memories.
        input: the user's message.
        store: the store that is asked.
        session_id: the session, for a policy with scope `session`.
        project_id: the project, for a policy with scope `project`.
        user_id: the user whose memories are recalled; default: any.
        context: data about the turn, which may name the namespace.
        extra: number of memories to recall beyond the policy's `max_entries`.
        memory_store: another name of `store`.
    """
    policy = memory_policy(check_instance(spec, "spec", kind=AgentSpec))
    store = _store_of(store, memory_store)
    if policy is None or store is None:
        return None
    # A project is a label on an agent's memories, unless the policy makes it their scope.
    project = project_id if policy.scope == "project" else None
    scope = scope_of(
        spec, policy, session_id=session_id, project_id=project, user_id=user_id, context=context
    )
    request = RecallRequest(
        agent_id=spec.id,
        session_id=scope.session_id,
        scope=policy.scope,
        query=check_non_empty(input)[:MAX_QUERY_LENGTH],
        limit=policy.max_entries + extra,
        metadata=policy.metadata,
        namespace=scope.namespace,
        project_id=scope.project_id,
        user_id=scope.user_id,
        min_relevance=policy.min_relevance,
    )
    with observe.span("search_memory", agent_id=spec.id, conversation_id=session_id) as span:
        with map_store_errors(store):
            result = await store.recall(request)
        check_instance(result, "what the store recalled", kind=RecallResult)
        span.set(
            record_count=len(result.entries), query_text=input, records=lambda: _span_records(result.entries)
        )
    return result


@_takes_spec("omoide.remember(store, content, scope)")
async def write(
    spec: AgentSpec,
    content: str,
    *,
    store: AnyStore | None = None,
    session_id: str | None = None,
    project_id: str | None = None,
    user_id: str | None = None,
    context: Mapping[str, Any] = EMPTY_MAP,
    include_session: bool = False,
    memory_store: AnyStore | None = None,
    **fields: Unpack[RememberOptions],
) -> WriteResult:
    """Write a memory for the agent, in the scope that its policy says.

    Args:
        spec: the agent.
        content: the text of the memory.
        store: the store that is written to.
        session_id: the session, for a policy with scope `session`.
        project_id: the project, for a policy with scope `project`.
        user_id: the user that the memory belongs to.
        context: data about the turn, which may name the namespace.
        include_session: put the session on the memory also where the policy makes it the agent's.
        memory_store: another name of `store`.
        fields: further fields of `Entry`, and of `WriteRequest`.

    Raises:
        MissingStore: no store is given.
        Invalid: the agent has no memory, or a field is wrong.
    """
    store = _store_of(store, memory_store)
    if store is None:
        raise MissingStore()
    policy = memory_policy(check_instance(spec, "spec", kind=AgentSpec))
    if policy is None:
        raise Invalid("memory", f"of agent {spec.id!r} is off", "declare memory=True or a MemoryPolicy")
    scope = scope_of(
        spec,
        policy,
        session_id=session_id,
        project_id=project_id,
        user_id=user_id,
        context=context,
        include_session=include_session,
    )
    request = build_write_request(content, scope, {**fields})
    return await _write(store, request, "create_memory", session_id)


async def capture_turn(
    spec: AgentSpec,
    input: str,
    content: str,
    *,
    request_id: str,
    store: AnyStore | None = None,
    session_id: str | None = None,
    project_id: str | None = None,
    user_id: str | None = None,
    context: Mapping[str, Any] = EMPTY_MAP,
    at: int | None = None,
    message: MessageRef | None = None,
    evidence: tuple[Evidence, ...] = (),
    restated: Sequence[str] = (),
    memory_store: AnyStore | None = None,
) -> WriteResult | None:
    """Write what was said in a turn, as one memory or as two, if the policy says so.

    The ids of the memories follow from the request, so a repeated call changes nothing.

    Args:
        spec: the agent, whose policy says whether turns are captured, and in which scope.
        input: the user's message.
        content: the answer.
        request_id: the request of the turn.
        store: the store that is written to; without one nothing is captured.
        session_id: the session of the turn.
        project_id: the project, for a policy with scope `project`.
        user_id: the user of the turn.
        context: data about the turn, which may name the namespace.
        at: the moment of the memory; default: now.
        message: the position of the input in the thread.
        evidence: the messages that the memory comes from.
        restated: ids of the memories that the answer only repeats; it goes stale with them.
        memory_store: another name of `store`.

    Returns:
        The receipt of the memory, with `capture="messages"` that of the user's; None if nothing is captured.
    """
    policy = memory_policy(check_instance(spec, "spec", kind=AgentSpec))
    store = _store_of(store, memory_store)
    if policy is None or policy.capture not in AUTOMATIC_CAPTURES or store is None:
        return None
    ids_of = {"session_id": session_id, "project_id": project_id, "user_id": user_id}
    scope = scope_of(spec, policy, context=context, include_session=True, **ids_of)
    check_non_empty(content, "content")
    at = clock.now() if at is None else at
    sources = tuple(Evidence(kind="entry", ref=one) for one in restated)
    receipts = []
    for kind, part in _captured_parts(policy.capture, input, content, request_id, message, evidence, sources):
        # A capture that is repeated after a crash writes the same memory again, not a second one.
        id = capture_id(spec.id, session_id, request_id, user_id, kind=kind)
        entry = _captured_entry(id, scope, kind, request_id, at, part)
        # What is said again is another message: its time tells which of two values is the newer.
        request = WriteRequest(entry=entry, idempotency_key=id, dedupe=False)
        receipts.append(await _write(store, request, "upsert_memory", session_id))
    return receipts[0]


def _captured_entry(
    id: str, scope: Scope, kind: str, request_id: str, at: int, fields: Mapping[str, Any]
) -> Entry:
    return Entry(
        id=id,
        agent_id=str(scope.agent_id),
        session_id=scope.session_id,
        project_id=scope.project_id,
        user_id=scope.user_id,
        namespace=scope.namespace,
        metadata={
            "class": "episodic",
            "kind": "conversation" if kind == "conversation" else "message",
            "source": CAPTURE_SOURCE,
            "request_id": request_id,
        },
        created_at=at,
        **fields,
    )


def _captured_parts(
    capture: str,
    input: str,
    answer: str,
    request_id: str,
    message: MessageRef | None,
    evidence: tuple[Evidence, ...],
    restated: tuple[Evidence, ...],
) -> list[tuple[str, dict[str, Any]]]:
    """Return the kind and the fields of each entry that a turn is captured as."""
    if capture == "conversation":
        # A question and an answer that repeats memories have nothing of their own.
        sources = evidence + (restated if states_nothing(input) else ())
        fields = {"content": join_exchange(input, answer), "message": message, "evidence": sources}
        return [("conversation", fields)]
    thread, seq = (request_id, 0) if message is None else (message.thread, message.seq)
    messages = [one.ref.rpartition(":")[2] for one in evidence if one.kind == "message"]
    last = max(map(int, messages), default=seq + 1)
    user = {
        "content": input,
        "message": MessageRef(thread=thread, seq=seq, role="user"),
        "evidence": evidence[:1],
        "source": "user",
    }
    assistant = {
        "content": answer,
        "message": MessageRef(thread=thread, seq=last, role="assistant"),
        "evidence": evidence[1:] + restated,
        "source": "agent",
    }
    return [("user", user)] if capture == "user" else [("user", user), ("assistant", assistant)]


def capture_id(
    agent_id: str,
    session_id: str | None,
    request_id: str,
    user_id: str | None = None,
    *,
    kind: str = "conversation",
) -> str:
    """Return the id of a memory that is captured from a turn; it depends on the arguments alone."""
    parts = [agent_id, session_id or "direct", ids.check(request_id, "request_id"), kind]
    if session_id is None and user_id is not None:
        parts.append(user_id)  # a session has one user, and its requests ids of their own
    return "mem_" + sha256("\0".join(parts).encode()).hexdigest()[:32]


MAX_NEW_SHARE = 0.2
"""Share of the terms of an answer up to which it only repeats what the prompt showed."""


def restated_memories(input: str, answer: str, shown: Mapping[str, str]) -> list[str]:
    """Return the ids of the shown memories that an answer repeats; none if it adds something to them."""
    own = {*terms(answer)} - {*terms(input)}
    told = {id: {*terms(text)} for id, text in shown.items()}
    new = own.difference(*told.values())
    if not own or len(new) > MAX_NEW_SHARE * len(own):
        return []
    return [id for id, words in told.items() if words & own]


async def recall_unseen(
    spec: AgentSpec,
    input: str,
    seen: Set[str | None],
    *,
    store: Store | None,
    session_id: str | None,
    project_id: str | None,
    user_id: str | None,
    context: Mapping[str, Any],
) -> RecallResult | None:
    """Recall memories beside the turns that the prompt shows anyway.

    The captures of those turns match best, being about the same thing, so more is recalled where they crowd
    out the rest.
    """
    # At most two recalls: the second asks for as many memories as are allowed.
    extra = min(len(seen), 20)
    while True:
        found = await recall(
            spec,
            input,
            store=store,
            session_id=session_id,
            project_id=project_id,
            user_id=user_id,
            context=context,
            extra=extra,
        )
        if found is None or not seen:
            return found
        all_hits = (*found.hits, *found.withheld)
        fresh = sum(capture_request_id(hit.entry) not in seen for hit in all_hits)
        limit = found.request.limit
        if fresh >= limit - extra or len(all_hits) < limit or limit >= MAX_RECALL_LIMIT:
            return _trim(found, seen, limit - extra)
        extra = MAX_RECALL_LIMIT


async def recall_pinned(
    spec: AgentSpec,
    *,
    store: Store | None,
    session_id: str | None,
    project_id: str | None,
    user_id: str | None,
    context: Mapping[str, Any],
) -> tuple[Entry, ...]:
    """Return the pinned memories of the agent in the scope that its policy reads."""
    policy = memory_policy(spec)
    if policy is None or store is None:
        return ()
    owned = scope_of(
        spec, policy, session_id=session_id, project_id=project_id, user_id=user_id, context=context
    )
    scope = recall_scope(owned, policy)
    with map_store_errors(store):
        return tuple(await shown_pins(store, scope, spec.id))


def _trim(found: RecallResult, seen: Set[str | None], limit: int) -> RecallResult:
    """Keep so many new memories, and so many that are seen anyway: those may still leave the window."""
    # Which turns stay in the window is only known when the prompt is assembled.
    remaining = {True: limit, False: limit}
    hits = []
    for hit in found.hits:
        visible = capture_request_id(hit.entry) in seen
        if remaining[visible]:
            hits.append(hit)
            remaining[visible] -= 1
    withheld = [hit for hit in found.withheld if capture_request_id(hit.entry) not in seen]
    return _replace_hits(found, hits, withheld[:limit])


async def drop_forgotten(store: Store, recalled: RecallResult) -> RecallResult:
    """Drop memories that were forgotten or erased since they were recalled, if the store can tell."""
    scope = recalled.request.effective_scope()
    if scope is None or not isinstance(store, SupportsGet):
        return recalled
    live = set()
    for hit in (*recalled.hits, *recalled.withheld):
        with map_store_errors(store), suppress(NotFound):
            if (await store.get(hit.entry.id, scope)).is_live(clock.now()):
                live.add(hit.entry.id)
    if len(live) == len(recalled.hits) + len(recalled.withheld):
        return recalled
    return _replace_hits(
        recalled,
        [
            hit if hit.newer in live else msgspec.structs.replace(hit, newer=None)
            for hit in recalled.hits
            if hit.entry.id in live
        ],
        [hit for hit in recalled.withheld if hit.entry.id in live],
    )


def _replace_hits(result: RecallResult, hits: Sequence[Hit], withheld: Sequence[Hit]) -> RecallResult:
    entries = tuple(hit.entry for hit in hits)
    return result.replace(hits=tuple(hits), entries=entries, withheld=tuple(withheld))


async def record_use(store: Store, recalled: RecallResult, shown: list[str]) -> None:
    """Record the access to memories that were shown to a model, if the store counts it."""
    scope = recalled.request.effective_scope()
    if shown and scope is not None and isinstance(store, SupportsAccess):
        with map_store_errors(store):
            await store.record_access(shown, scope)


async def _write(
    store: Store, request: WriteRequest, operation: observe.Operation, session_id: str | None
) -> WriteResult:
    entry = request.entry
    with observe.span(operation, agent_id=entry.agent_id, conversation_id=session_id) as span:
        with map_store_errors(store):
            result = await store.write(request)
        span.set(record_id=result.entry.id, record_count=1, records=lambda: _span_records([entry]))
    return result


@contextmanager
def map_store_errors(store: object) -> Iterator[None]:
    """Raise foreign exceptions of a store as `StoreFailed`."""
    try:
        yield
    except OmoideError:
        raise
    except Exception as error:
        raise StoreFailed(
            repr(store), f"failed ({type(error).__name__}: {error})", "see the cause"
        ) from error


def _span_records(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    return [{"id": entry.id, "content": entry.content} for entry in entries]
