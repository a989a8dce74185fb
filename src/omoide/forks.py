"""Make connections, locks and caches safe to use around `os.fork`.

A child inherits connections, locks and caches of its parent, but none of its threads: connections are shared
with the parent, a lock that another thread held stays locked for ever, and what a cache contains may be half
written. A registered `ForkListener` is called before and after each fork. Processes that are started by
`spawn`, `forkserver` or `exec` inherit nothing and need none of this.
"""

from __future__ import annotations

import atexit
import os
import time
from threading import RLock
from weakref import WeakSet

FORK_TIMEOUT = 5.0
"""Seconds for which a fork waits for operations of other threads."""


class ForkListener:
    """An object that prepares for forks, and cleans up after them."""

    def before_fork(self, deadline: float) -> None:
        """Prepare for a fork by this thread; wait for other threads until `deadline`, a monotonic time."""

    def after_fork_in_parent(self) -> None:
        """Go on in the process that forked, or tried to."""

    def after_fork_in_child(self) -> None:
        """Start anew in the child, where only this thread exists and any lock may be locked."""


_registered: WeakSet[ForkListener] = WeakSet()
# Held from before to after a fork, so that nothing is registered, and thus opened, in between. Reentrant,
# because the handler of a signal may fork anywhere.
_lock = RLock()
_process = os.getpid()
_leaked: list[object] = []


def register(thing: ForkListener) -> None:
    """Tell a thing of all forks from now on, as long as it exists."""
    check_process()
    with _lock:
        _registered.add(thing)


def check_process() -> None:
    """Start anew if this is a child whose fork Python did not see, because C code called `fork` itself."""
    if os.getpid() != _process:
        _after_in_child()


def leak(thing: object) -> None:
    """Keep an object for ever, even when the interpreter ends: its destructor would harm the parent."""
    import ctypes  # rarely needed

    _leaked.append(thing)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def detach_descriptor(descriptor: int) -> None:
    """Close an inherited socket in this process only; its number is not given to another file."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(null, descriptor, inheritable=False)
    finally:
        os.close(null)


class ForkSafeLock(ForkListener):
    """A reentrant lock that is free in a forked child, whichever thread of the parent held it."""

    def __init__(self) -> None:
        self.after_fork_in_child()
        register(self)

    def after_fork_in_child(self) -> None:
        """Replace the lock: the thread that held it does not exist here."""
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()


def _before() -> None:
    _lock.acquire()
    deadline = time.monotonic() + FORK_TIMEOUT
    for thing in list(_registered):
        thing.before_fork(deadline)


def _after_in_parent() -> None:
    for thing in list(_registered):
        thing.after_fork_in_parent()
    _lock.release()


def _after_in_child() -> None:
    global _lock, _process
    _lock, _process = RLock(), os.getpid()
    for thing in list(_registered):
        thing.after_fork_in_child()


if hasattr(os, "register_at_fork"):  # not on Windows
    atexit.register(check_process)  # before destructors run, in a child that used nothing
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
