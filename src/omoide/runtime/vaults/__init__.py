"""Where do agents rest?"""

from __future__ import annotations

from omoide.runtime.vaults.files import FileVault
from omoide.runtime.vaults.protocol import Journal, Kept, Lists, Removes, Vault, put_aside, taken_up
from omoide.runtime.vaults.store import StoreVault

__all__ = [
    "FileVault",
    "Journal",
    "Kept",
    "Lists",
    "Removes",
    "StoreVault",
    "Vault",
    "put_aside",
    "taken_up",
]
