"""Look up the speakers that a query may name.

`parse_query` compares a query with every speaker it is given, which takes milliseconds for thousands of them.
`SpeakerNames` returns the few whose names, or short forms of them, are words of the query.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import overload

from omoide.retrieval.queries import _MIN_SHORT_NAME, _NAME, _fold, _name_parts
from omoide.retrieval.text import is_unspaced


class SpeakerNames(Sequence[str]):
    """The speakers of a scope by number, with an index of the words of their names.

    A removed speaker leaves an empty name, so that the numbers of others stay. Queries may be looked up
    while one thread adds and removes names.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._by_part: dict[str, list[int]] = {}
        self._by_first: dict[str, list[int]] = {}
        self._firsts: list[str] = []
        """The first words of all names, sorted."""
        self._unspaced: list[int] = []
        for name in names:
            self.add(name)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        return self._names[at]

    def add(self, name: str) -> int:
        """Return the number of a speaker, adding a new one."""
        known = self._numbers.get(name)
        if known is not None:
            return known
        number = self._numbers[name] = len(self._names)
        self._names.append(name)
        parts = _name_parts(name)
        for part in {*parts}:
            self._by_part.setdefault(part, []).append(number)
        if parts:
            if parts[0] not in self._by_first:
                insort(self._firsts, parts[0])
            self._by_first.setdefault(parts[0], []).append(number)
            if is_unspaced(parts[0][0]):
                self._unspaced.append(number)
        return number

    def remove(self, number: int) -> None:
        """Remove a speaker, if there is one with this number."""
        self._numbers.pop(self._names[number], None)
        self._names[number] = ""

    def named_in(self, text: str) -> list[int]:
        """Return the numbers of the speakers that a text may name.

        A speaker whose whole name is given comes before others who share a part of it: beside many others,
        "Ann" is Ann, and not Ann Lee and Ann Berg as well.
        """
        folded = _fold(text)
        words = {*_NAME.findall(folded)}
        found = {number for number in self._present(self._unspaced) if self._parts(number)[0] in folded}
        for word in words:
            same = self._present(self._by_part.get(word, ()))
            matches = same or [
                number for first in self._longer(word) for number in self._present(self._by_first[first])
            ]
            given = words if same else words | {*self._longer(word)}
            whole = [number for number in matches if given.issuperset(self._parts(number))]
            longest = max((len(self._parts(number)) for number in whole), default=0)
            found.update(number for number in whole if len(self._parts(number)) == longest)
            found.update(() if whole else matches)
        return sorted(found)

    def _parts(self, number: int) -> tuple[str, ...]:
        return _name_parts(self._names[number])

    def _present(self, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if self._names[number]]

    def _longer(self, word: str) -> list[str]:
        """Return the first names that a word may be a short form of."""
        if len(word) < _MIN_SHORT_NAME:
            return []
        start = bisect_left(self._firsts, word)
        return [*takewhile(lambda first: first.startswith(word), islice(self._firsts, start, None))]
