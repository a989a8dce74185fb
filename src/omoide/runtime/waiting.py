"""What makes the next directive wait?"""

from __future__ import annotations

from omoide.runtime.living import Work


class Waiting:
    """What an executor returns when the next directive has to wait until this work is done."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        self.work = work
