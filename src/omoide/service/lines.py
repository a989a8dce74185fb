"""How are memories written down one a line?

Each line is a JSON object with all fields of an entry; beside them stand its `links`, and `access`, how often
it was used, where there are any. Other programs may write less: what a line leaves out is filled in, and
always in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.core.value import check_instance
from omoide.errors import Invalid, NotFound, WrongType
from omoide.service import holdings
from omoide.service.holdings import Holdings, Progress
from omoide.stores import rules
from omoide.stores.files import complete, failing
from omoide.stores.local import hop
from omoide.stores.protocols import Gets, Takes
from omoide.stores.records import Access, Link
from omoide.verbs import offering

V = TypeVar("V")

LONGEST = 32 << 20
"""How many bytes a line may have."""
_WHOSE = ("namespace", "agent_id", "session_id", "project_id")
_PAGE = 500


class Imported(NamedTuple):
    """What came of a file."""

    memories: int
    new: int
    left_out: int = 0
    """How many messages said nothing that could be remembered."""


class _Line(NamedTuple):
    entry: Entry
    links: tuple[Link, ...]
    access: Access | None
    whole: bool
    """Whether the line says itself which memory it is, and when it was noted."""


async def write(store: Any, path: Path, scope: Scope, *, progress: Progress | None = None) -> int:
    """Write what a scope holds to a file; how many memories that were."""
    check_instance(scope, "scope", kind=Scope)
    held = (await holdings.of(store, scope.namespace)).within(scope)
    await hop(_write, held, path, progress)
    return len(held.entries)


async def read(store: Any, path: Path, scope: Scope, *, progress: Progress | None = None) -> Imported:
    """Take over the memories of a file, all or none; what the store has already is left as it is.

    The scope says whose they are where the file does not, and must hold all of them.
    """
    check_instance(scope, "scope", kind=Scope)
    able: Takes = offering(store, Takes, "take memories over")
    given = await hop(_read, path, scope, progress)
    entries = {id: await _meant(store, line) for id, line in given.items()}
    links = [
        link
        for line in given.values()
        for link in line.links
        # A link whose end was left behind where the file was written has nowhere to lead to.
        if link.target in entries or await _kept(store, link.target, scope) is not None
    ]
    access = {id: line.access for id, line in given.items() if line.access is not None}
    return Imported(len(entries), await able.take([*entries.values()], links, access))


def each(path: Path) -> Iterator[tuple[str, Any]]:
    """What the lines of a file hold, each with the name of its place; empty ones are passed over."""
    with failing(str(path), "read"), path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            place = f"{path.name} line {number}"
            if len(line) > LONGEST:
                raise Invalid(place, f"has more than {LONGEST >> 20} MiB", "cut it into several")
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield place, decoded(text, place)


def decoded(data: bytes, place: str) -> Any:
    """What JSON says."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Invalid(place, f"is not readable JSON ({error})", "correct it, or name the format") from error
    except RecursionError:
        raise Invalid(place, "is nested too deeply", "flatten it") from None


def under(place: str, error: Invalid) -> Invalid:
    """An error of a value that stands at a place of a file."""
    field = error.field.removeprefix("Entry").removeprefix(".")
    return Invalid(f"{place}: {field}" if field else place, error.problem, error.remedy)


def _write(held: Holdings, path: Path, progress: Progress | None) -> None:
    begun: dict[str, list[Link]] = {}
    for link in held.links:
        begun.setdefault(link.source, []).append(link)
    ordered = sorted(held.entries.values(), key=lambda entry: (entry.created_at, entry.id))
    with failing(str(path), "written"), complete(path) as file:
        for done, entry in enumerate(ordered, 1):
            fields = _fields(entry, begun.get(entry.id, ()), held.access.get(entry.id))
            file.write(msgspec.json.encode(fields) + b"\n")
            if progress is not None and (done % _PAGE == 0 or done == len(ordered)):
                progress("writing", done, len(ordered))


def _fields(entry: Entry, links: Sequence[Link], access: Access | None) -> dict[str, Any]:
    fields: dict[str, Any] = codec.to_builtins(entry)
    if links:
        fields["links"] = [
            {"relation": link.relation, "target": link.target, "created_at": link.created_at}
            for link in links
        ]
    if access is not None and access.count:
        fields["access"] = codec.to_builtins(access)
    return fields


def _read(path: Path, scope: Scope, progress: Progress | None) -> dict[str, _Line]:
    found: dict[str, _Line] = {}
    places: dict[str, str] = {}
    now = clock.now()  # once, so that two lines that say the same are the same
    for done, (place, fields) in enumerate(each(path), 1):
        line = _line(fields, scope, place, now)
        id = line.entry.id
        if id in found and found[id].entry != line.entry:
            raise Invalid(f"{place}: id", f"{id!r} is that of {places[id]}", "give each memory its own")
        if not scope.holds(line.entry):
            raise Invalid(f"{place}: memory {id!r}", "lies outside the scope", "pass a scope that holds it")
        if line.entry.superseded_by == id:
            raise Invalid(f"{place}: superseded_by", "names the memory itself", "name another")
        found[id], places[id] = line, place
        if progress is not None and done % _PAGE == 0:
            progress("reading", done, None)
    if progress is not None:
        progress("reading", len(found), len(found))
    return found


def _line(fields: Any, scope: Scope, place: str, now: int) -> _Line:
    if not isinstance(fields, dict):
        raise WrongType(place, "a JSON object", fields, "write each memory as an object of its fields")
    links, access = fields.pop("links", None), fields.pop("access", None)
    said = {**fields, **{name: getattr(scope, name) for name in _WHOSE if fields.get(name) is None}}
    if said["agent_id"] is None:
        raise Invalid(f"{place}: agent_id", "is missing", "add it, or name the agent whose memory it becomes")
    whole = said.get("id") is not None and said.get("created_at") is not None
    try:
        if said.get("id") is None:
            said["id"] = digest("mem_", [[name, said[name]] for name in sorted(said)])
        if said.get("created_at") is None:
            said["created_at"] = now
        entry = codec.from_builtins(said, Entry)
    except Invalid as error:
        raise under(place, error) from error
    used = None if access is None else _read_part(access, Access, f"{place}: access")
    return _Line(entry, _links(entry.id, links, place), used, whole)


def _links(source: str, given: Any, place: str) -> tuple[Link, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise WrongType(f"{place}: links", "a list of objects", given)
    return tuple(
        _read_part({**one, "source": source}, Link, f"{place}: links[{at}]") for at, one in enumerate(given)
    )


def _read_part(given: Any, kind: type[V], place: str) -> V:
    try:
        return codec.from_builtins(given, kind)
    except Invalid as error:
        field = error.field.removeprefix(kind.__name__)
        raise Invalid(f"{place}{field}", error.problem, error.remedy) from error


def digest(prefix: str, said: Any) -> str:
    """An id that is always the same for what says the same."""
    return prefix + sha256(msgspec.json.encode(said)).hexdigest()[:32]


async def _meant(store: Any, line: _Line) -> Entry:
    """The entry; where the line leaves open which, the one that is kept and says the same."""
    kept = None if line.whole else await _kept(store, line.entry.id, line.entry.scope)
    same = kept is not None and (kept.content, kept.type) == (line.entry.content, line.entry.type)
    return rules.changed(kept, stale=False) if kept is not None and same else line.entry


async def _kept(store: Any, id: str, scope: Scope) -> Entry | None:
    able: Gets = offering(store, Gets, "find a memory by its id")
    try:
        return await able.get(id, scope)
    except NotFound:
        return None
