"""Persistent maps behave like dicts, and every version stays as it was."""

import copy
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from omoide.core import FrozenList, FrozenMap, maps

Pairs = list[tuple[Any, int]]

KEYS = [f"key-{number}" for number in range(24)]
keys = st.sampled_from(KEYS)
numbers = st.integers(0, 3)
changes = st.dictionaries(keys, numbers, max_size=12)


def check_same(items: maps.Items[Any, int], pairs: Pairs) -> None:
    """Every way of reading gives what a list of pairs gives."""
    model = dict(pairs)
    assert list(items.items()) == pairs
    assert list(items) == list(items.keys()) == [key for key, _ in pairs]
    assert list(items.values()) == [value for _, value in pairs]
    assert len(items) == len(pairs)
    for key in KEYS:
        assert items.get(key) == model.get(key)
        assert items.get(key, 7) == model.get(key, 7)
        assert (key in items) == (key in model)
        if key in model:
            assert items[key] == model[key]
        else:
            with pytest.raises(KeyError):
                items[key]


def model_set(pairs: Pairs, key: Any, value: int) -> Pairs:
    if any(key == known for known, _ in pairs):
        return [(known, value if key == known else old) for known, old in pairs]
    return [*pairs, (key, value)]


@contextmanager
def small_limits() -> Iterator[None]:
    """Tables from three items on, that split and start a chunk of the log all the time."""
    with mock.patch.multiple(maps, MAX_DICT=2, LOAD=1, LOG_CHUNK=3):
        yield


class MapMachine(RuleBasedStateMachine):
    """All changes, to any of the versions so far, on persistent maps and on lists of pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = small_limits()
        self.limits.__enter__()
        self.versions: list[tuple[maps.Items[Any, int], Pairs]] = [({}, [])]

    def teardown(self) -> None:
        for items, pairs in self.versions:
            check_same(items, pairs)
        self.limits.__exit__(None, None, None)

    def pick(self, chance: random.Random) -> tuple[maps.Items[Any, int], Pairs]:
        """Return the newest version half the time, else any."""
        return self.versions[-1] if chance.random() < 0.5 else chance.choice(self.versions)

    @rule(chance=st.randoms(use_true_random=False), key=keys, value=numbers)
    def set_item(self, chance: random.Random, key: str, value: int) -> None:
        items, pairs = self.pick(chance)
        self.versions.append((maps.set_item(items, key, value), model_set(pairs, key, value)))

    @rule(chance=st.randoms(use_true_random=False))
    def delete_item(self, chance: random.Random) -> None:
        items, pairs = self.pick(chance)
        if pairs:
            key = chance.choice(pairs)[0]
            self.versions.append((maps.delete_item(items, key), [pair for pair in pairs if pair[0] != key]))

    @rule(chance=st.randoms(use_true_random=False), changes=changes)
    def set_items(self, chance: random.Random, changes: dict[str, int]) -> None:
        items, pairs = self.pick(chance)
        for key, value in changes.items():
            pairs = model_set(pairs, key, value)
        self.versions.append((maps.set_items(items, changes), pairs))

    @rule(chance=st.randoms(use_true_random=False))
    def deepcopy(self, chance: random.Random) -> None:
        items, pairs = self.pick(chance)
        self.versions.append((copy.deepcopy(items), pairs))

    @invariant()
    def same_as_a_list_of_pairs(self) -> None:
        items, pairs = self.versions[-1]
        check_same(items, pairs)
        other, others = self.versions[len(self.versions) // 2]
        assert (items == other) == (dict(pairs) == dict(others))
        assert items == dict(pairs)
        assert items == maps.pack(dict(reversed(pairs)))


test_maps = MapMachine.TestCase


@given(st.lists(st.tuples(keys, st.none() | numbers)))
def test_a_frozen_map_has_the_order_of_a_dict(history: list[tuple[str, int | None]]) -> None:
    """Setting and deleting keys leaves them in the order in which a dict would have them."""
    model: dict[str, int] = {}
    frozen: FrozenMap[str, int] = FrozenMap()
    with small_limits():
        for key, value in history:
            if value is None:
                model.pop(key, None)
                frozen = frozen.delete(key)
            else:
                model[key] = value
                frozen = frozen.set(key, value)
        assert list(frozen.items()) == list(model.items())
        assert list(frozen.to_python()) == list(model)
        assert frozen == model
        assert hash(frozen) == hash(FrozenMap(dict(reversed(model.items()))))


def test_a_large_map_keeps_its_order_through_growth_and_deletion() -> None:
    """Ten thousand keys, of which two in three are deleted and some set again, are in the order of a dict."""
    model = {f"key-{number}": number for number in range(10_000)}
    items: maps.Items[str, int] = {}
    for key, value in model.items():
        items = maps.set_item(items, key, value)
    whole = items
    for key in random.Random(1).sample(list(model), 6_700):
        del model[key]
        items = maps.delete_item(items, key)
    for number in range(0, 10_000, 7):
        model[f"key-{number}"] = -1
        items = maps.set_item(items, f"key-{number}", -1)
    assert list(items.items()) == list(model.items())
    assert list(whole.values()) == list(range(10_000))


def test_a_map_that_shrinks_gives_its_memory_back() -> None:
    """What is left of a large map after its keys were deleted is as small as a map made anew."""
    items = maps.pack({str(number): number for number in range(1_000)})
    for number in range(990):
        items = maps.delete_item(items, str(number))
    assert type(items) is dict
    assert list(items) == [str(number) for number in range(990, 1_000)]


def test_a_version_holds_no_other_version() -> None:
    """A thousand changes of a large map leave an old version as it was, with nothing added to it."""
    old = maps.pack({str(number): number for number in range(100)})
    assert isinstance(old, maps.Table)
    before = {name: getattr(old, name) for name in maps.Table.__slots__}
    buckets = copy.deepcopy(old._root)
    new: maps.Items[str, int] = old
    for number in range(1_000):
        new = maps.set_item(maps.delete_item(new, next(iter(new))), f"new-{number}", number)
    assert all(getattr(old, name) is value for name, value in before.items())
    assert old._root == buckets


def test_a_bucket_stays_small() -> None:
    """However a map grew, a change copies few items."""
    items: maps.Items[str, int] = {}
    for number in range(20_000):
        items = maps.set_item(items, str(number), number)
    assert isinstance(items, maps.Table)
    sizes = [len(bucket) for rows in items._root for row in rows for bucket in row]
    assert sum(sizes) == 20_000
    assert max(sizes) < 6 * maps.LOAD
    assert max(len(rows) for rows in items._root) <= 32


def test_ids_with_equal_low_bits_are_found_as_fast_as_others() -> None:
    """Ids that are multiples of a large power of two are spread over the index of a list."""
    items = FrozenList([{"id": number << 32} for number in range(2_000)])
    assert items.remove(7 << 32).find_by_id(8 << 32) == [{"id": 8 << 32}]
    index: Any = items._index
    assert max(len(bucket) for rows in index._root for row in rows for bucket in row) < 6 * maps.LOAD


def test_threads_read_and_change_any_versions_at_the_same_time() -> None:
    """Threads that branch off the same versions see each version as it was made."""
    start = maps.pack({str(number): 0 for number in range(300)})
    failures: list[str] = []
    barrier = threading.Barrier(4)

    def work(own: int) -> None:
        chance, versions = random.Random(own), [(start, {str(number): 0 for number in range(300)})]
        barrier.wait()
        for step in range(400):
            items, model = chance.choice(versions[-3:] + versions[:1])
            key = str(chance.randrange(600))
            if chance.random() < 0.4 and key in model:
                items = maps.delete_item(items, key)
                model = {known: value for known, value in model.items() if known != key}
            else:
                items, model = maps.set_item(items, key, step), {**model, key: step}
            versions.append((items, model))
            if list(items.items()) != list(model.items()) or len(start) != 300:
                failures.append(f"thread {own}, step {step}")

    threads = [threading.Thread(target=work, args=(own,)) for own in range(4)]
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert failures == []
    assert set(start.values()) == {0}


def test_a_map_can_be_pickled_for_another_process() -> None:
    """A process with other hashes finds all keys of a map, in order."""
    program = """if True:
        import pickle, sys
        from omoide.core import FrozenMap
        items = {f"key-{number}": number for number in range(200)}
        if len(sys.argv) > 1:
            sys.stdout.buffer.write(pickle.dumps(FrozenMap(items).delete("key-7")))
        else:
            found = pickle.load(sys.stdin.buffer)
            del items["key-7"]
            print([*found.items()] == [*items.items()], all(found[key] == items[key] for key in items))
        """
    pickled = run_with_seed("1", program, b"", "dump")
    checked = run_with_seed("2", program, pickled)
    assert checked.split() == [b"True", b"True"]


def run_with_seed(seed: str, program: str, data: bytes, *args: str) -> bytes:
    command, environment = [sys.executable, "-c", program, *args], {**os.environ, "PYTHONHASHSEED": seed}
    return subprocess.run(command, env=environment, input=data, capture_output=True, check=True).stdout
