"""What does `python -m omoide` do?

The same as the `omoide` command.

"""

from __future__ import annotations

from omoide.cli import main

if __name__ == "__main__":
    main()
