"""The identity of an agent: a mostly stable model of itself.

`profile` has facts of its lifecycle, `capabilities` is the manifest that others route by, and `extensions`
has a slice for each plugin, of which the core reads `__public__` only. `omoide.identity` offers the same
operations on an agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, Self, cast

from omoide import clock
from omoide.core.frozen import (
    EMPTY_MAP,
    FrozenList,
    FrozenMap,
    check_text,
    freeze,
    freeze_map,
    list_of,
    value_type,
)
from omoide.core.value import (
    CHANGED_MEANWHILE,
    Count,
    RevisionedValue,
    check_count,
    check_function,
    check_revision,
    merge_changes,
    merge_maps,
    set_field,
)
from omoide.errors import Conflict, Invalid, WrongType

ORIGINS = ("configured", "spawned", "cloned")
PUBLIC_KEY = "__public__"
DAYS_PER_YEAR = 365  # of simulated time, which has no calendar

DEFAULT_PROFILE: FrozenMap[str, Any] = FrozenMap({"age": None})
DEFAULT_CAPABILITIES: FrozenMap[str, Any] = FrozenMap({"actions": [], "tags": [], "io": {}, "limits": {}})


@value_type
class Identity(RevisionedValue, frozen=True, kw_only=True):
    """An agent's model of itself."""

    profile: FrozenMap[str, Any] = DEFAULT_PROFILE
    capabilities: FrozenMap[str, Any] = DEFAULT_CAPABILITIES
    extensions: FrozenMap[str, Any] = EMPTY_MAP
    days: Count = 0
    """Days since the last whole year, carried over by `evolve`: 4 times 100 days are 1 year and 35 days."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Beyond the checks of the annotations; these add defaults for missing keys, too.
        set_field(self, "profile", _validate_profile(self.profile))
        set_field(self, "capabilities", _validate_capabilities(self.capabilities))
        for name in self.extensions:
            check_text(name, "extension name", "use the plugin's name")
        if self.days >= DAYS_PER_YEAR:
            raise Invalid("days", f"must lie between 0 and {DAYS_PER_YEAR - 1}", "use evolve(days=…)")

    @property
    def age(self) -> int | None:
        """The age in years, or None."""
        age: int | None = self.profile.get("age")
        return age

    def evolve(
        self, *, years: int = 0, days: int = 0, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """Return the identity after some simulated time; days that make no whole year are carried over."""
        for field, amount in (("years", years), ("days", days)):
            check_count(amount, field)
        full_years, rest = divmod(self.days + days, DAYS_PER_YEAR)
        profile = self.profile.set("age", (self.age or 0) + years + full_years)
        return self._with_changes(now, expected_rev, profile=profile, days=rest)

    # Profile

    def get_profile(self, key: str, default: Any = None) -> Any:
        """Return a fact of the profile, or the default."""
        return self.profile.get(key, default)

    def put_profile(
        self, key: str, value: Any, *, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """Return the identity with a fact of the profile set; setting the age resets its days."""
        check_text(key, "profile key")
        profile = _validate_profile(self.profile.set(key, value))
        return self._with_changes(now, expected_rev, profile=profile, days=0 if key == "age" else self.days)

    # Capabilities

    def actions(self) -> FrozenList[str]:
        """Return the declared actions."""
        actions: FrozenList[str] = self.capabilities["actions"]
        return actions

    def tags(self) -> FrozenList[str]:
        """Return the tags."""
        tags: FrozenList[str] = self.capabilities["tags"]
        return tags

    def supports_action(self, action: str | Named) -> bool:
        """Return True if an action is declared."""
        return action_name(action) in self.actions()

    def has_tag(self, tag: str) -> bool:
        """Return True if a tag is set."""
        return tag in self.tags()

    def add_action(
        self, action: str | Named, *, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """Return the identity with an action declared."""
        name = check_text(action_name(action), "action")
        return self._add_capability("actions", name, expected_rev, now)

    def remove_action(
        self, action: str | Named, *, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """Return the identity without an action."""
        self._check_rev(expected_rev)
        removed = action_name(action)
        remaining = [name for name in self.actions() if name != removed]
        if len(remaining) == len(self.actions()):
            return self
        return self._with_changes(now, capabilities=self.capabilities.set("actions", remaining))

    def add_tag(self, tag: str, *, expected_rev: int | None = None, now: int | None = None) -> Self:
        """Return the identity with a tag."""
        return self._add_capability("tags", check_text(tag, "tag"), expected_rev, now)

    def set_limit(
        self, key: str, value: Any, *, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """Return the identity with an operational limit."""
        return self._set_capability("limits", key, value, expected_rev, now)

    def set_io(
        self, key: str, value: Any, *, expected_rev: int | None = None, now: int | None = None
    ) -> Self:
        """Return the identity with an I/O flag."""
        return self._set_capability("io", key, value, expected_rev, now)

    # Extensions

    def get_extension(self, plugin: str, default: Any = None) -> Any:
        """Return a plugin's slice, or the default."""
        return self.extensions.get(plugin, default)

    def put_extension(
        self,
        plugin: str,
        slice: Mapping[str, Any],
        *,
        expected_rev: int | None = None,
        now: int | None = None,
    ) -> Self:
        """Return the identity with a plugin's slice replaced."""
        name = check_text(plugin, "plugin", "use the plugin's name")
        frozen = freeze_map(slice, f"extensions.{name}")
        return self._with_changes(now, expected_rev, extensions=self.extensions.set(name, frozen))

    def update_extension(
        self,
        plugin: str,
        change: Callable[[Any], Mapping[str, Any]],
        *,
        expected_rev: int | None = None,
        now: int | None = None,
    ) -> Self:
        """Return the identity with `change` applied to a plugin's slice, which is None if there is none."""
        self._check_rev(expected_rev)  # before the function of the caller runs
        slice = check_function(change)(self.get_extension(plugin))
        return self.put_extension(plugin, slice, expected_rev=expected_rev, now=now)

    def merge_extension(
        self,
        plugin: str,
        patch: Mapping[str, Any],
        *,
        expected_rev: int | None = None,
        now: int | None = None,
    ) -> Self:
        """Return the identity with the items of `patch` set in a plugin's slice, one level deep."""
        merged = freeze_map(self.get_extension(plugin, EMPTY_MAP), "slice").update(freeze_map(patch, "patch"))
        return self.put_extension(plugin, merged, expected_rev=expected_rev, now=now)

    # Sharing

    def snapshot(self) -> FrozenMap[str, Any]:
        """Return the public part: capabilities, lifecycle facts, and `__public__` of each extension."""
        # An allow-list: keys that are added to a profile or an extension later stay private.
        return FrozenMap(
            {
                "capabilities": self.capabilities,
                "profile": {
                    key: self.profile[key] for key in ("age", "generation", "origin") if key in self.profile
                },
                "extensions": {
                    name: slice[PUBLIC_KEY]
                    for name, slice in self.extensions.items()
                    if isinstance(slice, FrozenMap) and PUBLIC_KEY in slice
                },
            }
        )

    # Changes

    def merge(self, base: Identity | None, other: Identity) -> Self:
        """Return the identity with the changes that were made to an older version of it at the same time.

        Facts of the profile, capabilities, limits and extensions are independent of each other.

        Args:
            base: the identity that both began with; None if there was none.
            other: what became of it there.

        Raises:
            Conflict: if both changed the same of these; it names which.
        """
        start = Identity(created_at=self.created_at) if base is None else base
        rev = start.rev

        def conflict() -> Conflict:
            return Conflict("profile.age", rev, self.rev, CHANGED_MEANWHILE)

        # `days` belong to the age: one of them alone would be the age of nobody.
        _, days = merge_changes(
            (start.age, start.days), (self.age, self.days), (other.age, other.days), conflict
        )
        new = self._next_revision(max(self.updated_at, other.updated_at), max(other.rev - rev, 0))
        for field in ("profile", "extensions"):
            thing = partial("{}.{}".format, field)
            before, own, theirs = (getattr(one, field) for one in (start, self, other))
            set_field(new, field, merge_maps(before, own, theirs, thing))
        merged = _merge_capabilities(start.capabilities, self.capabilities, other.capabilities)
        set_field(new, "capabilities", merged)
        set_field(new, "days", days)
        return new

    def _check_rev(self, expected_rev: int | None) -> None:
        check_revision("identity", expected_rev, self.rev)

    def _with_changes(self, now: int | None, expected_rev: int | None = None, **fields: Any) -> Self:
        self._check_rev(expected_rev)
        # The callers validated the fields, so the new value skips `__post_init__`.
        new = self._next_revision(now)
        for field, value in fields.items():
            set_field(new, field, value)
        return new

    def _add_capability(self, field: str, item: str, expected_rev: int | None, now: int | None) -> Self:
        """Return the identity with an item; itself, at the same revision, if it is there already."""
        self._check_rev(expected_rev)
        items = self.capabilities[field]
        if item in items:
            return self
        return self._with_changes(now, capabilities=self.capabilities.set(field, items.append(item)))

    def _set_capability(
        self, field: str, key: str, value: Any, expected_rev: int | None, now: int | None
    ) -> Self:
        inner = self.capabilities[field].set(check_text(key, f"{field} key"), freeze(value, key))
        return self._with_changes(now, expected_rev, capabilities=self.capabilities.set(field, inner))


class Named(Protocol):
    """An action, which has a name."""

    @property
    def name(self) -> str:
        """The name."""


def action_name(action: str | Named) -> str:
    """Return the name of an action that is given by itself or by its name."""
    # A name may be a member of an enum, which has another name of its own.
    return action if isinstance(action, str) else cast("str", getattr(action, "name", action))


def _validate_profile(profile: object) -> FrozenMap[str, Any]:
    values = DEFAULT_PROFILE.update(freeze_map(profile, "profile"))
    for key in ("age", "generation"):
        value = values.get(key)
        if value is not None and (type(value) is not int or value < 0):
            raise Invalid(
                f"profile.{key}", f"must be an int from 0 upwards or None, not {value!r}", "correct it"
            )
    origin = values.get("origin")
    if origin is not None and origin not in ORIGINS:
        raise Invalid("profile.origin", f"is {origin!r}", f"use one of {', '.join(ORIGINS)}")
    return values


def _validate_capabilities(capabilities: object) -> FrozenMap[str, Any]:
    values = freeze_map(capabilities, "capabilities")
    for key, value in values.items():
        if key not in DEFAULT_CAPABILITIES:
            raise Invalid(
                f"capabilities.{key}", "is not one of actions, tags, io, limits", "use an extension for it"
            )
        if key in ("actions", "tags"):
            values = values.set(key, _validate_names(value, f"capabilities.{key}"))
        else:
            freeze_map(value, f"capabilities.{key}")
    return DEFAULT_CAPABILITIES.update(values)


def _merge_capabilities(base: Any, own: Any, other: Any) -> FrozenMap[str, Any]:
    for field in ("io", "limits"):
        name = partial("{}.{}".format, field)
        own = own.set(field, merge_maps(base[field], own[field], other[field], name))
    for field in ("actions", "tags"):
        kept = [name for name in own[field] if name in other[field] or name not in base[field]]
        added = [name for name in other[field] if name not in base[field] and name not in own[field]]
        own = own.set(field, [*kept, *added])
    capabilities: FrozenMap[str, Any] = own
    return capabilities


def _validate_names(names: object, field: str) -> FrozenList[str]:
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        raise WrongType(field, "a list of strings", names)
    checked = [check_text(name, f"{field}[{at}]") for at, name in enumerate(names)]
    # A set has no order of its own, so it is sorted: equal identities are encoded alike.
    return list_of(list(dict.fromkeys(sorted(checked) if isinstance(names, frozenset) else checked)))


def known_agent_record(
    snapshot: Mapping[str, Any], trust: float | None, now: int | None
) -> FrozenMap[str, Any]:
    """Return the record of another agent: its snapshot, its trust, and the time it was seen."""
    if trust is not None and (type(trust) not in (int, float) or not 0 <= trust <= 1):
        raise Invalid("trust", f"must lie between 0 and 1, not {trust!r}", "leave it out if unknown")
    return FrozenMap(
        {"snapshot": freeze_map(snapshot, "snapshot"), "trust": trust, "last_seen": clock.resolve(now)}
    )
