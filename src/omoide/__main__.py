"""Run the `omoide` command with `python -m omoide`."""

from __future__ import annotations

from omoide.cli import main

if __name__ == "__main__":
    main()
