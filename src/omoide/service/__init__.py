"""Share names, limits and errors between the command line, MCP and REST.

`auth` manages API tokens and listen addresses, `agents` reads agents from their checkpoints, `transfer`
exports, imports and copies namespaces, `chats` imports chat logs, `problems` maps errors to problem+json,
`reasons` describes the parts of a score, and `schemas` holds the responses. None of it knows a protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.service import auth
    from omoide.service.auth import ApiToken
    from omoide.service.chats import import_chat
    from omoide.service.problems import Problem, to_problem
    from omoide.service.transfer import CopyReport, ImportReport, copy, export_jsonl, import_jsonl

__all__ = [
    "ApiToken",
    "CopyReport",
    "ImportReport",
    "Problem",
    "auth",
    "copy",
    "export_jsonl",
    "import_chat",
    "import_jsonl",
    "to_problem",
]

__getattr__, __dir__ = attach(
    __name__,
    submodules=("auth",),
    attributes={
        "auth": ("ApiToken",),
        "chats": ("import_chat",),
        "problems": ("Problem", "to_problem"),
        "transfer": ("CopyReport", "ImportReport", "copy", "export_jsonl", "import_jsonl"),
    },
)
