"""Nothing that was acknowledged is lost, whatever forks and is killed, and whoever shares the file."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.fork_kills import ROOT

KILLS = 5 * int(os.environ.get("OMOIDE_KILLS", "10"))
SEED = os.environ.get("OMOIDE_SEED") or str(random.randrange(1 << 32))


@pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")
@pytest.mark.timeout(0)
def test_processes_that_share_a_file_and_fork_lose_nothing_when_killed(tmp_path: Path) -> None:
    """Each acknowledged write is there, each erased entry gone, the file sound, and no process hangs."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.support.fork_kills"]
    arguments = [str(tmp_path / "rounds"), SEED, str(KILLS)]
    run = subprocess.run([*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    report = json.loads(run.stdout)
    print(f"seed {SEED}: {report}")  # noqa: T201 - shown when the test fails
    assert report["problems"] == []
    assert report["kills"] >= KILLS
    assert report["acknowledged"] > KILLS
