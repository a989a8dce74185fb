"""How does a file come to be complete, and what if it cannot be used?"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, cast

from omoide.errors import DiskFull, NotFound, StoreFailed


@contextmanager
def complete(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes its name when the block ends well, and otherwise vanishes."""
    file = NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False)  # noqa: SIM115
    try:
        with file:
            yield cast("IO[bytes]", file)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    except BaseException:
        Path(file.name).unlink(missing_ok=True)
        raise


@contextmanager
def failing(name: str, done: str) -> Iterator[None]:
    """What the system says about a file, in words of ours; `done` is what was to be done with it."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound("file", name, "check the path; folders are not made") from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(name, "has no room left", "free some space and try again") from error
        told = error.strerror or str(error)
        raise StoreFailed(name, f"cannot be {done} ({told})", "check the path and who may use it") from error
