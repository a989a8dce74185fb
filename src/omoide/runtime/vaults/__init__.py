"""Where do agents rest?"""

from __future__ import annotations

from omoide.runtime.vaults.files import FileCheckpointStore
from omoide.runtime.vaults.protocol import (
    CheckpointStore,
    StoredCheckpoint,
    SupportsCheckpointDelete,
    SupportsCheckpointList,
    ThreadJournal,
    load_agent,
    save_agent,
)
from omoide.runtime.vaults.store import DocumentCheckpointStore

__all__ = [
    "FileCheckpointStore",
    "ThreadJournal",
    "StoredCheckpoint",
    "SupportsCheckpointList",
    "SupportsCheckpointDelete",
    "DocumentCheckpointStore",
    "CheckpointStore",
    "save_agent",
    "load_agent",
]
