"""``POST /call``: what commands and agents on this machine ask, worded here if they want it so."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request

from catalog.core.errors import CatalogError, InputError
from catalog.interfaces.operations.base import validation_message
from catalog.interfaces.serving.answers import refusal
from catalog.interfaces.serving.defects import log_bug
from catalog.interfaces.serving.failing import json_response, status_of
from catalog.interfaces.serving.failures import error_to_wire

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from catalog.interfaces.operations import LocalEngine
    from catalog.interfaces.serving.workers import Workers


_FORMS = frozenset(["json", "bold", "explain", "numbers"])


class CallBody(BaseModel):
    """An operation, its arguments, and how to word the answer; ``None``: as data."""

    model_config = ConfigDict(extra="forbid", strict=True)

    operation: str
    arguments: dict[str, Any]
    form: dict[str, bool] | None = None


class Calls:
    """The endpoint; whoever mounts it checks the secret."""

    def __init__(self, engine: LocalEngine, workers: Workers) -> None:
        self._engine = engine
        self._workers = workers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if request.method == "POST":
            reply = await self._reply(request)
        else:
            reply = json_response(405, refusal("MethodNotAllowed", "POST it"), {"Allow": "POST"})
        await reply(scope, receive, send)

    async def _reply(self, request: Request) -> Response:
        try:
            body = _read(await request.body())
            return json_response(200, await self._workers.run(partial(self._answer, body)))
        except CatalogError as error:
            return json_response(status_of(error), error_to_wire(error))
        except Exception as error:  # noqa: BLE001 - a defect of ours: logged, told without details
            log_bug("/call", error)
            return json_response(
                500, refusal("InternalError", "internal error; its log says where")
            )

    def _answer(self, body: CallBody) -> dict[str, Any]:
        found = self._engine.answer(body.operation, body.arguments)
        if body.form is None:
            return {"data": found.to_dict()}
        from catalog.interfaces.terminal import Form, render

        printed = render(body.operation, found, Form(**body.form))
        return {"out": printed.out, "err": printed.err, "code": printed.code}


def _read(body: bytes) -> CallBody:
    try:
        found = CallBody.model_validate(json.loads(body))  # unlike pydantic's, with any text in it
    except ValidationError as error:
        raise InputError(f"call: {validation_message(error, CallBody)}") from None
    except (ValueError, RecursionError):
        raise InputError("call: the body is not JSON") from None
    if not _FORMS.issuperset(found.form or {}):
        raise InputError(f"call: form has {', '.join(sorted(_FORMS))}")
    return found
