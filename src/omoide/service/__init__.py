"""What do all the ways to meet a memory have in common?

The command line, MCP and REST are thin: the verbs are those of `omoide`, and what more than one of them needs
is here, so that names, limits and errors are the same everywhere.

"""

from __future__ import annotations
