"""Recall and capture by the spec's policy.

The spec's policy says how far memory reaches; the session and the context of the turn say which one it is.

Stores are passed in with each call and never taken from anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any

from omoide import clock, ids, observe
from omoide.core.entry import (
    DEFAULT_NAMESPACE,
    Entry,
    Evidence,
    MessageRef,
    RecallRequest,
    RecallResult,
    Scope,
    WriteRequest,
    WriteResult,
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
)
from omoide.stores.protocols import Store, SupportsAccess, SupportsGet
from omoide.turns.controls import TurnRequest
from omoide.turns.messages import check_non_empty
from omoide.turns.prompt import CAPTURE_SOURCE, capture_request_id
from omoide.turns.spec import AgentSpec, MemoryPolicy
from omoide.verbs import build_write_request, require

# routing: Whose memory does a turn read and write?


def memory_policy(spec: AgentSpec) -> MemoryPolicy | None:
    """The policy, if the agent has memory at all."""
    return spec.memory if spec.memory is not None and spec.memory.enabled else None


def scope_of(
    spec: AgentSpec,
    policy: MemoryPolicy,
    *,
    session_id: str | None = None,
    project_id: str | None = None,
    context: Mapping[str, Any] = EMPTY_MAP,
    include_session: bool = False,
) -> Scope:
    """The scope of what the agent remembers in this session and context.

    `within` names the session also where memory is the agent's: for what was said in it, which goes with it.
    """
    session = None
    if policy.scope == "session" and not session_id:
        raise MissingScope("session")
    if policy.scope == "project" and not project_id:
        raise MissingScope("project")
    if session_id and (include_session or policy.scope == "session"):
        session = ids.check(session_id, "session_id")
    return Scope(
        agent_id=spec.id,
        session_id=session,
        project_id=project_id,
        namespace=namespace_of(policy, context),
    )


def recall_scope(scope: Scope, policy: MemoryPolicy) -> Scope:
    """What recall sees of it: a project is a label on what an agent knows, unless the policy is about it."""
    if policy.scope == "project":
        return Scope(namespace=scope.namespace, project_id=scope.project_id)
    return scope.replace(project_id=None)


def namespace_of(policy: MemoryPolicy, context: Mapping[str, Any]) -> str:
    """The namespace, said by the policy or by the context; a context that does not say it is refused."""
    if policy.namespace is None:
        return DEFAULT_NAMESPACE
    if isinstance(policy.namespace, str):
        return policy.namespace
    key = policy.namespace[1]
    said = context.get(key)
    if said is None or said == "":
        raise MissingNamespace(key)
    return ids.check(str(said), f"context.{key}")


def resume_context(spec: AgentSpec, request: TurnRequest, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """The context of a turn that is taken up again, whose memory stays in the namespace it had."""
    policy = memory_policy(spec)
    whole = {**request.context, **context}
    if policy is None or request.namespace is None:
        return whole
    if isinstance(policy.namespace, tuple):
        whole.setdefault(policy.namespace[1], request.namespace)
    if namespace_of(policy, whole) != request.namespace:
        raise Invalid("context", "names another namespace than the turn had", "leave it out, or correct it")
    return whole


# remembering: How does an agent remember and recall, as its spec says it should?


MAX_QUERY_LENGTH = 8_000
"""How many characters of an input memory is asked with."""
MAX_RECALL_LIMIT = 100
"""How many memories are asked for at most, to find some that the conversation does not hold already."""


async def recall(
    spec: AgentSpec,
    input: str,
    *,
    memory_store: Store | None = None,
    session_id: str | None = None,
    project_id: str | None = None,
    context: Mapping[str, Any] = EMPTY_MAP,
    extra: int = 0,
) -> RecallResult | None:
    """What the agent's memory says to this; None where it has no memory, or there is no store to ask.

    `further` asks for more than the policy's `max_entries`, for a caller that will leave some out.
    """
    policy = memory_policy(check_instance(spec, "spec", kind=AgentSpec))
    if policy is None or memory_store is None:
        return None
    store: Store = require(memory_store, Store, "recall")
    # A project is a label on what an agent knows, unless the policy makes it what is remembered.
    project = project_id if policy.scope == "project" else None
    scope = scope_of(spec, policy, session_id=session_id, project_id=project, context=context)
    request = RecallRequest(
        agent_id=spec.id,
        session_id=scope.session_id,
        scope=policy.scope,
        query=check_non_empty(input)[:MAX_QUERY_LENGTH],
        limit=policy.max_entries + extra,
        metadata=policy.metadata,
        namespace=scope.namespace,
        project_id=scope.project_id,
    )
    with observe.span("search_memory", agent_id=spec.id, conversation_id=session_id) as span:
        with map_store_errors(store):
            result = await store.recall(request)
        check_instance(result, "what the store recalled", kind=RecallResult)
        span.set(
            record_count=len(result.entries), query_text=input, records=lambda: _span_records(result.entries)
        )
    return result


async def write(
    spec: AgentSpec,
    content: str,
    *,
    memory_store: Store | None = None,
    session_id: str | None = None,
    project_id: str | None = None,
    context: Mapping[str, Any] = EMPTY_MAP,
    metadata: Mapping[str, Any] = EMPTY_MAP,
    include_session: bool = False,
    **fields: Any,
) -> WriteResult:
    """Keep a memory for the agent, where its policy says; `fields` are those of `Entry` and of writes.

    `within` names the session on the memory also where the policy makes it the agent's.
    """
    if memory_store is None:
        raise MissingStore()
    policy = memory_policy(check_instance(spec, "spec", kind=AgentSpec))
    if policy is None:
        raise Invalid("memory", f"of agent {spec.id!r} is off", "declare memory=True or a MemoryPolicy")
    scope = scope_of(
        spec,
        policy,
        session_id=session_id,
        project_id=project_id,
        context=context,
        include_session=include_session,
    )
    request = build_write_request(content, scope, {"metadata": metadata, **fields})
    return await _write(memory_store, request, "create_memory", session_id)


async def capture_turn(
    spec: AgentSpec,
    input: str,
    content: str,
    *,
    request_id: str,
    memory_store: Store | None = None,
    session_id: str | None = None,
    project_id: str | None = None,
    context: Mapping[str, Any] = EMPTY_MAP,
    at: int | None = None,
    message: MessageRef | None = None,
    evidence: tuple[Evidence, ...] = (),
) -> WriteResult | None:
    """Keep what was said in a turn, if the policy says so: once, however often it is asked for."""
    policy = memory_policy(check_instance(spec, "spec", kind=AgentSpec))
    if policy is None or policy.capture != "conversation" or memory_store is None:
        return None
    scope = scope_of(
        spec, policy, session_id=session_id, project_id=project_id, context=context, include_session=True
    )
    check_non_empty(content, "content")
    id = capture_id(spec.id, session_id, request_id)
    entry = Entry(
        id=id,
        agent_id=spec.id,
        session_id=scope.session_id,
        project_id=scope.project_id,
        namespace=scope.namespace,
        content=f"User: {input}\nAssistant: {content}",
        metadata={
            "class": "episodic",
            "kind": "conversation",
            "source": CAPTURE_SOURCE,
            "request_id": request_id,
        },
        message=message,
        evidence=evidence,
        created_at=clock.now() if at is None else at,
    )
    request = WriteRequest(entry=entry, idempotency_key=id)
    return await _write(memory_store, request, "upsert_memory", session_id)


def capture_id(agent_id: str, session_id: str | None, request_id: str) -> str:
    """The id of what is captured from a turn: the same, whoever captures it and however often."""
    parts = (agent_id, session_id or "direct", ids.check(request_id, "request_id"), "conversation")
    return "mem_" + sha256("\0".join(parts).encode()).hexdigest()[:32]


async def recall_unseen(
    spec: AgentSpec,
    input: str,
    seen: Set[str | None],
    *,
    memory_store: Store | None,
    session_id: str | None,
    project_id: str | None,
    context: Mapping[str, Any],
) -> RecallResult | None:
    """What memory says beside the turns that are seen anyway; more is asked for where they crowd it."""
    further = min(len(seen), 20)
    while True:
        found = await recall(
            spec,
            input,
            memory_store=memory_store,
            session_id=session_id,
            project_id=project_id,
            context=context,
            extra=further,
        )
        if found is None or not seen:
            return found
        fresh = sum(capture_request_id(entry) not in seen for entry in found.entries)
        limit = found.request.limit
        if fresh >= limit - further or len(found.entries) < limit or limit >= MAX_RECALL_LIMIT:
            return _trim(found, seen, limit - further)
        further = MAX_RECALL_LIMIT


def _trim(found: RecallResult, seen: Set[str | None], wanted: int) -> RecallResult:
    """As much as is wanted of what is new, and of what is seen anyway: that may still leave the window."""
    room = {True: wanted, False: wanted}
    hits = []
    for hit in found.hits:
        known = capture_request_id(hit.entry) in seen
        if room[known]:
            hits.append(hit)
            room[known] -= 1
    return found.replace(hits=tuple(hits), entries=tuple(hit.entry for hit in hits))


async def drop_forgotten(store: Store, recalled: RecallResult) -> RecallResult:
    """What was recalled, without what was forgotten or erased since, in a store that can tell."""
    scope = recalled.request.effective_scope()
    if scope is None or not isinstance(store, SupportsGet):
        return recalled
    hits = []
    for hit in recalled.hits:
        with map_store_errors(store), suppress(NotFound):
            if (await store.get(hit.entry.id, scope)).is_live(clock.now()):
                hits.append(hit)
    if len(hits) == len(recalled.hits):
        return recalled
    return recalled.replace(hits=tuple(hits), entries=tuple(hit.entry for hit in hits))


async def record_use(store: Store, recalled: RecallResult, shown: list[str]) -> None:
    """Count the memories that were shown to a model, in a store that counts."""
    scope = recalled.request.effective_scope()
    if shown and scope is not None and isinstance(store, SupportsAccess):
        with map_store_errors(store):
            await store.record_access(shown, scope)


async def _write(
    memory_store: Store, request: WriteRequest, operation: observe.Operation, session_id: str | None
) -> WriteResult:
    store: Store = require(memory_store, Store, "write")
    entry = request.entry
    with observe.span(operation, agent_id=entry.agent_id, conversation_id=session_id) as span:
        with map_store_errors(store):
            result = await store.write(request)
        span.set(record_id=result.entry.id, record_count=1, records=lambda: _span_records([entry]))
    return result


@contextmanager
def map_store_errors(store: object) -> Iterator[None]:
    """A block in which what a store raises is told as ours."""
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
