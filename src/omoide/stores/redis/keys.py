"""Where does what is kept lie?

Every key of a namespace carries the namespace in braces, so that a cluster keeps all of them in one place and
one script can change them. What belongs to the store as a whole has a place of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

from omoide.core.entry import Entry
from omoide.core.scope import Scope

SEPARATOR = "\x1f"
"""Stands between ids, which hold no control characters."""

KINDS = {
    "meta": "hash",
    "rows": "hash",
    "found": "hash",
    "past": "hash",
    "links": "hash",
    "invalid": "hash",
    "stones": "hash",
    "receipts": "hash",
    "docs": "hash",
    "owners": "hash",
    "leases": "hash",
    "watch": "hash",
    "same": "hash",
    "access": "hash",
    "used": "zset",
    "all": "zset",
    "time": "zset",
    "gone": "zset",
    "expiry": "zset",
    "on": "zset",
    "ends": "set",
    "keys": "set",
    "kept": "zset",
    "kind": "zset",
    "kinds": "set",
    "doclog": "list",
    "log": "stream",
    "gate": "string",
    "done": "string",
}
"""What each key holds, by the word after the namespace:

`meta` the counters; `rows` the entries; `found` their terms and vectors; `past` their older versions; `all`
what counts, by when it was last touched; `time` everything, by when it happened; `gone` what counts no more;
`expiry` what will expire; `same` who says the same; `on` what rests on an entry; `links`, `ends` the links;
`invalid` how many links invalidate an entry; `stones` the tombstones; `receipts`, `keys`, `kept` the answers
under idempotency keys; `access`, `used` how often and when; `docs`, `owners`, `doclog`, `kind`, `kinds`,
`leases` the documents; `log` the changes; `watch` when what is read together last changed; `gate` who alone
may write; `done` what a writer did last.
"""


class Keys:
    """The keys of one namespace."""

    def __init__(self, prefix: str, namespace: str) -> None:
        self._head = f"{prefix}{{n{tag(namespace)}}}:"

    def __call__(self, name: str, part: str = "") -> bytes:
        return f"{self._head}{name}{':' if part else ''}{part}".encode()

    def kind(self, key: bytes) -> str:
        """What a key of these holds."""
        return KINDS[key[len(self._head.encode()) :].split(b":", 1)[0].decode()]


def of_store(prefix: str, name: str) -> bytes:
    """A key of the store as a whole."""
    return f"{prefix}{{store}}:{name}".encode()


def tag(namespace: str) -> str:
    """A namespace in letters that mean nothing to Redis, another for each."""
    return quote(namespace, safe="")


def is_prefix(text: str) -> bool:
    """Whether text can stand before all keys of a store: what is in braces has a meaning to a cluster."""
    return bool(re.fullmatch(r"[^{}\s\x00-\x1f\x7f]{1,64}", text))


def dimensions(entry: Entry) -> list[str]:
    """The lists that an entry is in: everybody's, its agent's, its session's and its project's."""
    own = (("a", entry.agent_id), ("s", entry.session_id), ("p", entry.project_id))
    return ["*", *(f"{letter}{id}" for letter, id in own if id is not None)]


def dimension(scope: Scope) -> str:
    """The shortest list that holds all that a scope does."""
    for letter, id in (("s", scope.session_id), ("p", scope.project_id), ("a", scope.agent_id)):
        if id is not None:
            return f"{letter}{id}"
    return "*"


def about(id: str) -> str:
    """The name under which `watch` notes that something about an id changed beside its row."""
    return f"i{id}"


def joined(*parts: str) -> bytes:
    """Ids in one field; only the last part may be any text."""
    return SEPARATOR.join(parts).encode()


def parted(field: bytes, parts: int) -> list[str]:
    """The parts of a field."""
    return field.decode().split(SEPARATOR, parts - 1)


def texts(found: Iterable[bytes]) -> list[str]:
    """Ids as they came from the server."""
    return [one.decode() for one in found]
