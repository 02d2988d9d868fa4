"""Serve the page: its addresses, the sign-in, and the headers that browsers obey."""

from __future__ import annotations

import hmac
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, urlsplit

from markupsafe import escape
from starlette import responses
from starlette.applications import Starlette
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.routing import Route

from catalog.core.errors import CatalogError, InputError
from catalog.core.retrieval_events import asked_at
from catalog.evaluation.report_text import template_environment
from catalog.interfaces.server.http import http_status
from catalog.interfaces.server.page.files import FRAMED, draw_page, find_document_file, media_kind
from catalog.interfaces.server.page.search import PAUSE, head_view, search_view
from catalog.interfaces.server.security import PASS, guard_app, page_pass, with_headers
from catalog.interfaces.server.workers import log_bug
from catalog.library.names import roles_in_force

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2 import Template
    from starlette.requests import Request
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Receive, Scope, Send

    from catalog.core.settings.sections import ServeSettings
    from catalog.interfaces.calls import LocalEngine
    from catalog.interfaces.server.page.bench import Bench
    from catalog.interfaces.server.page.state import View
    from catalog.interfaces.server.security import Address
    from catalog.interfaces.server.workers import Workers

LOGIN = "/login"
_ASSETS = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
_YEAR = 31_536_000  # seconds
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "media-src 'self'; frame-src 'self'; connect-src 'self'; form-action 'self'; "
        "base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",  # with none at all, a form's Origin would be "null"
    "cache-control": "no-cache, private",
}
_END = '<main id="found"><p class="error" role="alert">{}</p></main></body></html>'
_WORKBENCH = {
    "/compare": ("compare", "compare_view", "save_preference"),
    "/grade": ("compare", "grade_view", "save_grades"),
    "/sets": ("sets", "sets_view", "save_question"),
    "/runs": ("sets", "runs_view", ""),
}
"""By path: the module, which loads numpy and is imported when used, its view, and how to save."""
_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
_FRAME = {
    "content-type": "text/html",  # in the encoding that the file names
    "content-security-policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:; frame-ancestors 'self'",
}
_INNER = re.compile(rb"(?i)<(?=i?frame)")  # a browser connects to its host before it refuses it
_ABSOLUTE = re.compile(r' (?:href|src|action)="(?=/(?!/))')  # quotes of documents are escaped
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
ResultT = TypeVar("ResultT")


def page_routes(
    engine: LocalEngine,
    workers: Workers,
    address: Address,
    serve: ServeSettings,
    *,
    compared: Sequence[str] = (),
    golden: Path | None = None,
) -> list[BaseRoute]:
    """Return the routes of the page, guarded like the API's; raises as ``guard_app`` does.

    ``compared`` are backends to offer in addition to our own, ``golden`` the folder of the golden
    sets, by default ``golden`` in the home.
    """
    own = Site(engine, workers, serve.tokens(), compared, golden).routes()
    shows = {CatalogError: _show_error, HTTPException: _show_error}
    app = Starlette(routes=own, exception_handlers=shows)
    app.state.engine = engine
    alone = serve.model_copy(update={"allowed_origins": ()})  # no other site's page reads this one
    is_open = frozenset([LOGIN, *(f"/assets/{name}" for name in _ASSETS)])
    guarded = guard_app(_with_headers(app), address, alone, open_paths=is_open, login=LOGIN)
    return [Route(route.path, endpoint=guarded) for route in own]


@dataclass
class Site:
    """Answer at the page's addresses. Searches and documents come from the engine's verbs."""

    engine: LocalEngine
    workers: Workers
    tokens: Mapping[str, str | None]
    compared: Sequence[str]
    golden: Path | None

    @cached_property
    def _bench(self) -> Bench:
        from catalog.interfaces.server.page.bench import Bench  # loads numpy

        library = self.engine.library
        return Bench(library, self.compared, self.golden or library.settings.home / "golden")

    def routes(self) -> list[Route]:
        """Return all addresses."""
        return [
            Route("/", self.search, methods=["GET"]),
            *(
                Route(path, self.workbench, methods=["GET", "POST"][: 1 + bool(save)])
                for path, (_, _, save) in _WORKBENCH.items()
            ),
            Route("/sets.jsonl", self.export, methods=["GET"]),
            Route("/report", self.report, methods=["GET"]),
            Route(LOGIN, self.login, methods=["GET", "POST"]),
            Route("/logout", self.logout, methods=["POST"]),
            Route("/assets/{name}", _asset, methods=["GET"]),
            Route("/media", self.media, methods=["GET"]),
            Route("/page.png", self.page, methods=["GET"]),
        ]

    async def search(self, request: Request) -> responses.Response:
        """Show results, documents and facets for the state in the address.

        The box is sent before the search ends, so that the browser draws it and loads its style in
        the meantime. The status is therefore 200 even if the page shows an error.
        """
        pairs = request.query_params.multi_items()
        page = {**_common(request), **head_view(pairs)}
        parts = _template("search.html.j2").generate(page=page)

        def make_rest() -> str:
            page.update(search_view(self.engine, pairs))
            return "".join(parts)

        async def write() -> AsyncIterator[bytes]:
            yield _encode("".join(iter(partial(next, parts), PAUSE)))
            try:
                yield _encode(await self._run(make_rest))
            except CatalogError as error:
                yield _encode(_END.format(escape(str(error)[:2000])))
            except Exception as error:  # noqa: BLE001 - a defect; the answer has begun
                log_bug("GET /", error)
                yield _encode(_END.format("an internal error; the server's log has its place"))

        return responses.StreamingResponse(write(), media_type="text/html")

    async def workbench(self, request: Request) -> responses.Response:
        """Show a page for comparing and judging, or keep what its form sends."""
        module_name, view, save = _WORKBENCH[request.url.path]
        module = import_module(f"{__package__}.{module_name}")
        if request.method == "GET":

            def make() -> responses.Response:
                shown = getattr(module, view)(self._bench, request.query_params.multi_items())
                template = f"{request.url.path[1:]}.html.j2"
                return render(request, template, shown, shown.get("status", 200))

            return await self._run(make)
        form = await read_form(request)

        def keep() -> str:
            self._bench.require_owner()
            address: str = getattr(module, save)(self._bench, form)
            return address

        try:
            return responses.RedirectResponse(f".{await self._run(keep)}", 303)
        except CatalogError as error:
            message, back = str(error)[:2000], _own_path(form.get("back", "/"))
            # The browser has what was typed, but a page of an earlier server cannot be sent again.
            is_typed = "shown" not in form or self._bench.knows(form["shown"])
            shown = {"message": message, "back": back, "is_typed": is_typed}
            return render(request, "error.html.j2", shown, http_status(error))

    async def export(self, request: Request) -> responses.Response:
        """Give out the file of a golden set."""

        def find() -> Path:
            self._bench.require_owner()
            return self._bench.file(request.query_params.get("set", ""))

        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise HTTPException(403, "another site may not lead to a download")
        file = await self._run(find)
        if not file.is_file():
            raise HTTPException(404, "there is no such golden set")
        return responses.FileResponse(file, media_type="application/jsonl", filename=file.name)

    async def report(self, request: Request) -> responses.Response:
        """Show the report of two recorded runs, which has its style inside and no script."""
        from catalog.interfaces.server.page.sets import runs_report

        before, after = (request.query_params.get(name, "") for name in ("before", "after"))
        page = await self._run(lambda: runs_report(self._bench, before, after))
        return responses.HTMLResponse(page, headers={"content-security-policy": _REPORT_POLICY})

    async def media(self, request: Request) -> responses.Response:
        """Give out a recording, or the part that a ``Range`` asks for; an HTML file for a frame."""
        name = request.query_params.get("doc", "")
        file = await self._run(partial(find_document_file, self.engine, name))
        if file.suffix.lower() in FRAMED:
            page = await self._run(file.read_bytes)
            return responses.Response(_INNER.sub(b"<no-", page), headers=_FRAME)
        if not (kind := media_kind(file)):
            raise HTTPException(404, "that document has no recording")
        return responses.FileResponse(file, media_type=kind)

    async def page(self, request: Request) -> responses.Response:
        """Give out a page of a PDF as a picture."""
        name, number = (request.query_params.get(key, "") for key in ("doc", "page"))
        file = await self._run(partial(find_document_file, self.engine, name))
        if file.suffix.lower() != ".pdf" or not _NUMBER.fullmatch(number):
            raise HTTPException(404, "that document has no such page")
        drawn = await self._run(partial(draw_page, file, int(number)))
        return responses.Response(drawn.png, media_type="image/png")

    async def login(self, request: Request) -> responses.Response:
        """Ask for the token, and give a browser that knows it a cookie."""
        target = _own_path(request.query_params.get("next", "/"))
        if request.method == "GET":
            return render(request, "login.html.j2", {"next": target, "is_wrong": False})
        fields = await read_form(request)
        target = _own_path(fields.get("next", "/"))
        sent = fields.get("token", "").strip()
        known = [one for one in self.tokens if hmac.compare_digest(one.encode(), sent.encode())]
        if not known:
            return render(request, "login.html.j2", {"next": target, "is_wrong": True}, 401)
        response = responses.RedirectResponse(f".{target}", 303)
        response.set_cookie(
            PASS,
            page_pass(known[0]),
            httponly=True,
            samesite="lax",  # a link in a mail works; forms are checked by their origin
            secure=request.headers["origin"].startswith("https:"),  # a proxy speaks TLS
        )
        return response

    async def logout(self, request: Request) -> responses.Response:
        """Take the browser's cookie back."""
        await read_form(request)
        response = responses.RedirectResponse(f".{LOGIN}", 303)
        response.delete_cookie(PASS)
        return response

    async def _run(self, work: Callable[[], ResultT]) -> ResultT:
        with asked_at("http"):
            return await self.workers.run(work)


def render(request: Request, template: str, view: View, status: int = 200) -> responses.Response:
    """Return a page; ``view`` is what its template shows."""
    page = _template(template).render(page={**_common(request), **view})
    return responses.HTMLResponse(_encode(page), status)


def _template(name: str) -> Template:
    return template_environment(__package__ or "").get_template(name)


def _common(request: Request) -> View:
    """Return what each page shows around its own content."""
    return {
        "path": request.url.path,
        "address": f"{request.url.path}?{request.url.query}".rstrip("?"),
        "assets": {name: f"/assets/{name}?{_asset_bytes(name)[1]}" for name in _ASSETS},
        "has_pass": PASS in request.cookies,
        "has_role": bool(roles_in_force(request.app.state.engine.library.settings, None)),
    }


def _encode(page: str) -> bytes:
    """Return a page with addresses relative to it, which stay below the path of any proxy."""
    return _ABSOLUTE.sub(r"\g<0>.", page).encode("utf-8", "replace")


async def read_form(request: Request) -> ImmutableMultiDict[str, str]:
    """Return the fields of a form that one of this server's own pages sent.

    Raises :class:`HTTPException` with status 403 for any other sender: browsers send ``Origin``
    with every POST, and a page on another port of this machine has another one.
    """
    origin = urlsplit(request.headers.get("origin", ""))
    site = request.headers.get("sec-fetch-site", "same-origin")
    if origin.netloc.lower() != request.headers["host"].lower() or site != "same-origin":
        raise HTTPException(403, "only this server's own pages may change something")
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise HTTPException(415, "send a form")
    try:
        body = (await request.body()).decode()
        return ImmutableMultiDict(parse_qsl(body, keep_blank_values=True, max_num_fields=200))
    except ValueError as error:
        raise InputError("the form cannot be read") from error


def _own_path(target: str) -> str:
    """Return a path of this server, ``/`` for an address elsewhere."""
    is_path = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_path and target.isprintable() else "/"


@cache
def _asset_bytes(name: str) -> tuple[bytes, str]:
    """Return one of the page's files, and a short hash of it."""
    content = (files(__package__ or "") / "static" / name).read_bytes()
    return content, sha256(content).hexdigest()[:12]


async def _asset(request: Request) -> responses.Response:
    if (name := request.path_params["name"]) not in _ASSETS:
        raise HTTPException(404, "no such file")
    headers = {"cache-control": f"max-age={_YEAR}, immutable"}
    return responses.Response(_asset_bytes(name)[0], headers=headers, media_type=_ASSETS[name])


async def _show_error(request: Request, error: Exception) -> responses.Response:
    if isinstance(error, HTTPException):
        status, message = error.status_code, error.detail
    else:
        assert isinstance(error, CatalogError)
        status, message = http_status(error), str(error)
    view = {"message": message[:2000], "back": "/", "is_typed": False}
    return render(request, "error.html.j2", view, status)


def _with_headers(app: ASGIApp) -> ASGIApp:
    """Return the app with the page's headers in every answer."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        own = {name.encode(): value.encode() for name, value in _HEADERS.items()}
        if any(name == b"cookie" and PASS.encode() in value for name, value in scope["headers"]):
            own[b"cache-control"] = b"no-store"  # after signing out, "Back" shows nothing

        await app(scope, receive, with_headers(send, own.items()))

    return answer
