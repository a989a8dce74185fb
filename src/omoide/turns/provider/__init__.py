"""How is a provider's model asked?

Through pydantic-ai, which knows the providers; a model is named as `provider:model`. Its own retries are off,
so one call here is one request there; ours are in `calling`. Connections belong to the event loop that opened
them, so each call opens its own and closes them; `connected` keeps them for several calls.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio

from omoide.core.texts import check_text
from omoide.errors import Invalid, MissingExtra, ModelUnreachable, WrongType
from omoide.turns.model import Reply, Request

try:
    from pydantic_ai import direct, messages, models, providers
    from pydantic_ai.exceptions import UserError
except ImportError as error:
    raise MissingExtra("a provider's model", "models") from error

from omoide.turns.provider.failing import reporting
from omoide.turns.provider.translating import Translation

KEYLESS = "no-key"
"""What is sent as the key to a server that was named by its URL alone."""

CLOSING = 5.0
"""Seconds after which closing a connection is given up, even while being cancelled."""


class ProviderModel:
    """A model of a provider: `provider:model`, or a model that pydantic-ai made.

    With `base_url` any server that speaks the provider's protocol is asked; it gets the `api_key` given
    here, or none. Otherwise the key comes from the provider's environment variable.
    """

    def __init__(
        self, model: str | models.Model, *, base_url: str | None = None, api_key: str | None = None
    ) -> None:
        if isinstance(model, models.Model):
            self.name = model.model_id
        elif isinstance(model, str):
            self.name = check_text(model, "model")
            if ":" not in model and model != "test":
                raise Invalid("model", f"is {model!r}", f"say whose it is, as in openai-chat:{model}")
        else:
            raise WrongType("model", "a name like provider:model, or a model of pydantic-ai", model)
        self._model = model
        options = {"base_url": base_url, "api_key": api_key}
        self._options = {option: given for option, given in options.items() if given is not None}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def complete(self, request: Request) -> Reply:
        """The answer, in one piece."""
        with reporting(self.name):
            async with self._opened() as model:
                told = Translation(request.prompt, model)
                response = await direct.model_request(
                    model,
                    told.messages,
                    model_settings=told.settings,
                    model_request_parameters=told.parameters,
                )
            return told.reply(response, self.name)

    async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        """Pieces of text as they come, and the whole answer last."""
        with reporting(self.name):
            async with self._opened() as model:
                told = Translation(request.prompt, model)
                async with direct.model_request_stream(
                    model,
                    told.messages,
                    model_settings=told.settings,
                    model_request_parameters=told.parameters,
                ) as events:
                    async for event in events:
                        if piece := _text(event):
                            yield piece
                response = events.get()
            if response.state == "incomplete":
                raise ModelUnreachable(self.name, "broke off in its answer", "try again")
            reply = told.reply(response, self.name)
        yield reply

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[ProviderModel]:
        """This model on connections that stay open inside the block, for several requests in a row."""
        with reporting(self.name):
            opened = self._opened()
            model = await opened.__aenter__()
        try:
            held = ProviderModel(model)
            held.name = self.name
            yield held
        finally:
            await opened.__aexit__(None, None, None)

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[models.Model]:
        model = self._made()
        await model.__aenter__()
        try:
            yield model
        finally:
            # Also where the call is being cancelled: it would not get at the lock in there otherwise.
            with anyio.move_on_after(CLOSING, shield=True):
                await model.__aexit__(None, None, None)

    def _made(self) -> models.Model:
        if not self._options or isinstance(self._model, models.Model):
            return models.infer_model(self._model)
        return models.infer_model(self._model, self._provider)

    def _provider(self, name: str) -> providers.Provider[Any]:
        make = _maker(name)
        taken = inspect.signature(make).parameters
        for option in self._options:
            if option not in taken:
                raise Invalid(
                    option, f"is nothing that provider {name!r} takes", "pass a model that pydantic-ai made"
                )
        # The key of the environment is meant for the provider, not for whoever a spec points to.
        key = {"api_key": KEYLESS} if "api_key" in taken else {}
        return make(**{**key, **self._options})


def _maker(name: str) -> Callable[..., providers.Provider[Any]]:
    if name.startswith("gateway/"):
        from pydantic_ai.providers.gateway import gateway_provider

        return partial(gateway_provider, name.removeprefix("gateway/"))
    try:
        return providers.infer_provider_class(name)
    except ValueError as error:
        raise UserError(f"Unknown provider: {name}") from error


def _text(event: messages.ModelResponseStreamEvent) -> str:
    match event:
        case messages.PartStartEvent(part=messages.TextPart(content=text)):
            return text
        case messages.PartDeltaEvent(delta=messages.TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""
