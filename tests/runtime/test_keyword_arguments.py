"""Keyword arguments that are declared for editors and type checkers."""

from __future__ import annotations

from typing import Any

import pytest

from omoide.promotion.plan import PromotionPolicy
from omoide.runtime.nats.connection import NatsKwargs, NatsSettings
from omoide.runtime.policy import AgentKwargs, AgentOptions
from omoide.sessions.session import PromotionFields


@pytest.mark.parametrize(
    ("declared", "value"),
    [(AgentKwargs, AgentOptions), (NatsKwargs, NatsSettings), (PromotionFields, PromotionPolicy)],
)
def test_declared_keyword_arguments_are_the_fields_of_the_options(declared: Any, value: Any) -> None:
    """Every field can be passed, and nothing else is declared."""
    assert {*declared.__annotations__} == {*value.__struct_fields__}
