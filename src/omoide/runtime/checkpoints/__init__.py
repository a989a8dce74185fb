"""Store agents: checkpoints, and the journals of their threads.

`protocol` has the `CheckpointStore` protocol with `save_agent` and `load_agent`, `files` stores agents in a
folder, `store` in the documents of a memory store.
"""

from __future__ import annotations

from omoide.runtime.checkpoints.files import FileCheckpointStore
from omoide.runtime.checkpoints.protocol import (
    CheckpointStore,
    SavedAgent,
    StoredCheckpoint,
    SupportsCheckpointDelete,
    SupportsCheckpointList,
    ThreadJournal,
    load_agent,
    load_saved_agent,
    save_agent,
)
from omoide.runtime.checkpoints.store import DocumentCheckpointStore

__all__ = [
    "CheckpointStore",
    "DocumentCheckpointStore",
    "FileCheckpointStore",
    "SavedAgent",
    "StoredCheckpoint",
    "SupportsCheckpointDelete",
    "SupportsCheckpointList",
    "ThreadJournal",
    "load_agent",
    "load_saved_agent",
    "save_agent",
]
