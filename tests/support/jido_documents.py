"""The code blocks and functions of the Jido documents, by document and heading."""

from __future__ import annotations

from typing import NamedTuple


class DocumentBlock(NamedTuple):
    """A code block of a document: its page of the guide, its heading, and its place under that."""

    page: str
    heading: str
    ordinal: int = 1


BLOCKS = (
    DocumentBlock("identity", "profile — Lifecycle Facts"),
    DocumentBlock("identity", "capabilities — Routing Manifest"),
    DocumentBlock("identity", "extensions — Plugin-Owned Identity Data"),
    DocumentBlock("identity", "Core Data Structure"),
    DocumentBlock("identity", "Helper Module"),
    DocumentBlock("identity", "Helper Module", 2),
    DocumentBlock("identity", "Plugin Mount"),
    DocumentBlock("identity", "Plugin-Owned Accessors"),
    DocumentBlock("identity", "Plugin-Owned Evolution"),
    DocumentBlock("identity", "Local (agent struct available)"),
    DocumentBlock("identity", "Local (agent struct available)", 2),
    DocumentBlock("identity", "Remote (agent process only)"),
    DocumentBlock("identity", "Snapshot"),
    DocumentBlock("identity", "Pure Function"),
    DocumentBlock("identity", "As an Action"),
    DocumentBlock("identity", "Multi-Agent: Self vs. Others"),
    DocumentBlock("memory-design", "Custom Spaces"),
    DocumentBlock("memory-design", "tasks — What to Do"),
    DocumentBlock("memory-design", "world — What the Agent Knows"),
    DocumentBlock("memory-design", "Jido.Memory.Space — The Unit of Memory"),
    DocumentBlock("memory-design", "Jido.Memory — The Container"),
    DocumentBlock("memory-design", "Layer 1 — Pure Helpers (Jido.Memory.Agent)"),
    DocumentBlock("memory-design", "Layer 1 — Pure Helpers (Jido.Memory.Agent)", 2),
    DocumentBlock("memory-design", "Layer 1 — Pure Helpers (Jido.Memory.Agent)", 3),
    DocumentBlock("memory-design", "Layer 1 — Pure Helpers (Jido.Memory.Agent)", 4),
    DocumentBlock("memory-design", "Layer 2 — Impure Backends (Jido.Memory.Provider)"),
    DocumentBlock("memory-design", "Directive-Based Memory I/O"),
    DocumentBlock("memory-design", "Directive-Based Memory I/O", 2),
    DocumentBlock("memory-design", "Plugin Integration"),
    DocumentBlock("memory-design", "Projection Pipeline: Thread → Memory"),
    DocumentBlock("memory-design", "Projection Pipeline: Thread → Memory", 2),
    DocumentBlock("memory-design", "BDI (Beliefs-Desires-Intentions)"),
    DocumentBlock("memory-design", "BDI (Beliefs-Desires-Intentions)", 2),
    DocumentBlock("memory-design", "Blackboard"),
    DocumentBlock("memory-design", "LLM Agent (ReAct / Tool-Use)"),
    DocumentBlock("memory", "Memory structure"),
    DocumentBlock("memory", "Spaces"),
    DocumentBlock("memory", "Agent integration"),
    DocumentBlock("memory", "List space operations"),
    DocumentBlock("memory", "Space management"),
    DocumentBlock("memory", "Plugin integration"),
    DocumentBlock("memory", "Concurrency control"),
    DocumentBlock("contracts", "Quick Example"),
    DocumentBlock("contracts", "Concepts"),
    DocumentBlock("contracts", "Testing"),
    DocumentBlock("memory-guide", "Prerequisites"),
    DocumentBlock("memory-guide", "Add Session Memory"),
    DocumentBlock("memory-guide", "Concepts"),
    DocumentBlock("memory-guide", "Step 1: Declare The Memory Policy"),
    DocumentBlock("memory-guide", "Step 2: Start An InMemory Store For Tests"),
    DocumentBlock("memory-guide", "Step 3: Write An Entry Manually"),
    DocumentBlock("memory-guide", "Step 4: Recall Through The Store Directly"),
    DocumentBlock("memory-guide", "Step 5: Inspect Memory Injection With Preflight"),
    DocumentBlock("memory-guide", "Step 6: Implement A Custom Store"),
    DocumentBlock("memory-guide", "Testing"),
    DocumentBlock("two-tier", "Architecture Overview"),
    DocumentBlock("two-tier", "Core Container"),
    DocumentBlock("two-tier", "Conversation Buffer"),
    DocumentBlock("two-tier", "Working Context (Semantic Scratchpad)"),
    DocumentBlock("two-tier", "Pending Memories (Pre-Promotion Queue)"),
    DocumentBlock("two-tier", "Triple Store Adapter"),
    DocumentBlock("two-tier", "Importance Scoring"),
    DocumentBlock("two-tier", "Promotion Engine"),
    DocumentBlock("two-tier", "Remember Tool (Agent Self-Determination)"),
    DocumentBlock("two-tier", "Recall Tool (Query Long-Term Memory)"),
    DocumentBlock("two-tier", "Forget Tool (Supersede Memory)"),
    DocumentBlock("two-tier", "Session Server Integration"),
    DocumentBlock("two-tier", "Supervision Tree"),
    DocumentBlock("two-tier", "Module Structure"),
)

# By page: a module, and the functions of it; an empty text is the module itself.
_FUNCTIONS: dict[str, dict[str, str]] = {
    "identity": {
        "Jido": "Identity Plugin Action Signal",
        "Jido.Identity": "evolve snapshot",
        "Jido.Identity.Actions": "Evolve",
        "Jido.Identity.Agent": (
            "key get put update ensure has_identity? age get_profile put_profile capabilities "
            "supports_action? has_tag? actions tags add_action remove_action add_tag set_limit set_io "
            "get_extension put_extension update_extension merge_extension snapshot"
        ),
        "Jido.Plugin": "mount",
        "Directive": "Schedule Cron",
        "jido.identity.capabilities.request": "",
        "Identity.Agent": "public_extensions",
        "MyApp.CharacterPlugin": "mount build_public",
        "MyApp.Character": "persona voice set_persona",
        "MyApp.Character.Actions.Evolve": "run evolve_persona",
        "Jido.Identity.Actions.Evolve": "run",
    },
    "memory-design": {
        "Jido": "Memory",
        "Jido.Memory": "Space Provider Projector",
        "Jido.Memory.Space": "map? list?",
        "Jido.Memory.Agent": (
            "key get put update ensure has_memory? space space_put space_update space_delete "
            "ensure_space spaces has_space? get_in_space put_in_space delete_from_space "
            "update_space_data append_to_space prepend_to_space insert_in_space remove_from_space "
            "update_in_space world_get world_put world_delete world_update world tasks tasks_add "
            "tasks_insert tasks_complete tasks_remove tasks_next tasks_reorder tasks_open"
        ),
        "Jido.Memory.Provider": "init get put delete query Inline ETS VectorStore",
        "Directive.Memory": "Query Upsert Delete",
        "": "DirectiveExec",
        "jido.memory.result": "",
        "Jido.Plugin": "router",
        "Jido.Memory.Projector": "project",
        "Memory": "world_put",
        "Thread": "slice",
        "Jido.Thread": "Agent",
        "Jido.Agent.Strategy": "State",
        "MyApp.Actions.ProcessObservation": "run",
        "MyApp.RAGPlugin": "mount router",
        "MyApp.Projectors.ConversationSummarizer": "project",
    },
    "memory": {
        "Jido.Memory": "new Plugin",
        "Jido.Memory.Space": "new_kv new_list map? list?",
        "Jido.Memory.Agent": (
            "get ensure put_in_space get_in_space delete_from_space append_to_space ensure_space "
            "put_space update_space delete_space has_space?"
        ),
        "Jido": "Agent",
        "MyApp.WeatherAgent": "new",
        "Jido.Plugin": "on_checkpoint on_restore",
    },
    "contracts": {
        "Jidoka.Memory": "Entry RecallResult WriteResult Store",
        "Jidoka.Memory.Entry": "new!",
        "Jidoka.Memory.RecallRequest": "new!",
        "Jidoka.Memory.WriteRequest": "new!",
        "Jidoka.Memory.Store": "recall write list_entries",
        "Jidoka.Memory.Store.InMemory": "start_link",
        "Jidoka.Agent.Spec": "Memory",
    },
    "memory-guide": {
        "Jidoka": "Agent turn preflight Session",
        "MyApp.MemoryAgent": "spec",
        "": "memory",
        "Jidoka.Memory": "write recall capture_turn",
        "preflight.prompt.messages": "",
        "Jidoka.Memory.Store.InMemory": "start_link",
        "Jidoka.Memory.RecallRequest": "new!",
        "Jidoka.Memory.RecallResult": "new",
        "Jidoka.Memory.WriteResult": "new",
        "Jidoka.Memory.Store": "recall write list_entries",
        "MyApp.MapStore": "start_link recall write list_entries",
    },
    "two-tier": {
        "ShortTerm": "new",
        "ConversationBuffer": "new add to_list evict_oldest",
        "WorkingContext": "new put get infer_memory_type",
        "PendingMemories": "new add_implicit add_agent_decision ready_for_promotion clear_promoted",
        "AccessLog": "new",
        "TripleStoreAdapter": (
            "persist query_by_type query_all supersede record_access load_memory memory_uri extract_id "
            "memory_type_to_class class_to_atom session_uri agent_uri project_uri prop rdf_type_uri "
            "literal confidence_individual source_type_individual find_prop find_type "
            "confidence_to_float source_to_atom get_or_create_store get_store persist_store"
        ),
        "TripleStore": "query",
        "StoreManager": "get_or_create get persist",
        "ImportanceScorer": "score recency_score frequency_score salience_score",
        "Promotion.Engine": "evaluate promote build_candidate map_source format_content generate_id",
        "Tools": "Remember Recall Forget",
        "SessionServer": (
            "start_link add_message update_context get_context add_agent_memory_decision "
            "assemble_context force_promotion terminate init handle_call handle_cast handle_info "
            "run_promotion schedule_promotion via"
        ),
        "Supervisor": "start_link init",
        "": "SessionSupervisor SessionRegistry",
        "Tools.Remember": "run generate_id",
        "Tools.Recall": "run",
        "Tools.Forget": "run",
    },
}

FUNCTIONS = {
    page: tuple(
        ".".join(part for part in (module, name) if part)
        for module, names in modules.items()
        for name in (names.split(" ") if names else [""])
    )
    for page, modules in _FUNCTIONS.items()
}
"""The functions, modules and signals of each document, by the page of the guide."""
