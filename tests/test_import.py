"""`import omoide` loads its core dependencies and nothing else."""

from __future__ import annotations

import subprocess
import sys

CORE_DEPENDENCIES = {"Stemmer", "msgspec"}
TAKEN_BY_THEM = {"typing_extensions", "cython_runtime"}  # the first where it is installed

PROGRAM = """
import sys
before = set(sys.modules)
import omoide
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))
"""


def test_importing_omoide_imports_no_packages_but_its_core_dependencies() -> None:
    """A fresh interpreter that imports Omoide has loaded these and no other package."""
    printed = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True)
    # Modules made with Cython share one that is named after its version.
    packages = {name for name in printed.stdout.split() if not name.startswith("_cython_")}
    assert packages - {"omoide"} - TAKEN_BY_THEM == CORE_DEPENDENCIES


def test_importing_omoide_starts_no_event_loop_machinery() -> None:
    """The core is plain functions: neither asyncio nor threads' pools nor sockets are loaded with it."""
    program = "import sys, omoide; print(*(name for name in sys.argv[1:] if name in sys.modules))"
    unwanted = ["asyncio", "anyio", "sqlite3", "socket", "logging", "concurrent.futures"]
    printed = subprocess.run(
        [sys.executable, "-c", program, *unwanted], check=True, capture_output=True, text=True
    )
    assert printed.stdout.split() == []
