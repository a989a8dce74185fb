"""How does a command fail?

With one line that says what happened and what to do, and a code that a script can go by.
"""

from __future__ import annotations

from omoide.errors import Conflict, Invalid, MissingExtra, NotFound, OmoideError

OK = 0
NOTHING = 1
"""What was asked for is not there, nothing was found, or `doctor` or `validate` found a problem."""
WRONG = 2
"""The command was given wrongly."""
CONFLICT = 3
"""Someone else changed the entry meanwhile, or an idempotency key was used before."""
FAILED = 4
"""The store, a model or an embedder could not do what was asked."""
INTERRUPTED = 130

_CODES: tuple[tuple[type[OmoideError], int], ...] = (
    (NotFound, NOTHING),
    (Conflict, CONFLICT),
    (Invalid, WRONG),
    (MissingExtra, WRONG),
    (OmoideError, FAILED),
)


def code_of(error: OmoideError) -> int:
    """The exit code that tells of an error."""
    return next(code for kind, code in _CODES if isinstance(error, kind))


def line_of(error: object) -> str:
    """An error as one line, whatever it quotes, without the passwords of URLs."""
    from omoide.service.problems import line

    return line(error)
