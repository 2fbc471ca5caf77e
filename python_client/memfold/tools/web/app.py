"""The routes and their shared parts: the tenant, a connection per request, errors as pages."""

from __future__ import annotations

import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from memfold.client import errors
from memfold.client._log import get_logger
from memfold.client._text import describe_error
from memfold.client.errors import MemfoldError
from memfold.client.types import Row
from memfold.tools.web import actions, browse, changes, pages, statements
from memfold.tools.web.database import NOT_PERMITTED, Place, Pool, Session
from memfold.tools.web.pages import Shown
from memfold.tools.web.rendering import HERE, link, make_environment

logger = get_logger("memfold.web")

Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
Read: TypeAlias = Callable[[Session, Request], Shown]
Act: TypeAlias = Callable[[Session, Request, FormData], str]

_STATUS: Mapping[type[MemfoldError], int] = {
    errors.MemoryNotFoundError: 404,
    errors.JudgementNotFoundError: 404,
    errors.EventNotFoundError: 404,
    errors.RunNotFoundError: 404,
    errors.CalibrationNotFoundError: 404,
    errors.WrongTenantError: 403,
    errors.JudgementClosedError: 409,
    errors.AlreadyUndoneError: 409,
    errors.NotUndoableError: 409,
    errors.MemoryStateError: 409,
    errors.RunStateError: 409,
    errors.RetryableError: 503,
    errors.ConnectionLostError: 503,
    errors.AuthenticationError: 503,
}


class Pages:
    """The state of one server: its database, and the token of its forms."""

    def __init__(self, place: Place, csrf: str) -> None:
        self._pool = Pool(place)
        self._fixed = place.tenant_id
        self._csrf = csrf
        self._templates = make_environment()

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        yield
        self._pool.close()

    def page(self, name: str, read: Read) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            tenant = self._tenant(request)
            if tenant is None:
                return RedirectResponse("/", 303)

            if request.method == "POST":
                request.state.form = await self._form(request)

            def work() -> tuple[Shown, list[tuple[str, str]]]:
                with self._pool.session(tenant) as session:
                    return read(session, request), session.statements

            shown, read_by = await run_in_threadpool(work)
            return self._render(request, name, 200, **shown, statements=read_by)

        return self._told(endpoint)

    def action(self, act: Act) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            form = await self._form(request)
            tenant = self._tenant(request)
            if tenant is None:
                return RedirectResponse("/", 303)

            def work() -> str:
                with self._pool.session(tenant) as session:
                    return act(session, request, form)

            path = await run_in_threadpool(work)
            return RedirectResponse(self._with_tenant(path, tenant), 303)

        return self._told(endpoint)

    async def _form(self, request: Request) -> FormData:
        form = await request.form(max_files=0, max_fields=100)
        # in addition to the cookie, which other pages cannot send, and Origin, which they cannot forge
        if not hmac.compare_digest(str(form.get("csrf", "")).encode(), self._csrf.encode()):
            raise HTTPException(
                403, "The form is from another page, or from an earlier start of this server."
            )
        return form

    def _told(self, endpoint: Endpoint) -> Endpoint:
        """Errors become pages, not tracebacks, which might quote a memory."""

        async def told(request: Request) -> Response:
            try:
                return await endpoint(request)
            except Exception as error:
                return await self.failed(request, error)

        return told

    async def tenants(self, request: Request) -> Response:
        if self._fixed is not None:
            return RedirectResponse("/buckets", 303)

        def work() -> tuple[list[Row], list[tuple[str, str]]]:
            with self._pool.session(None) as session:
                return session.rows("tenants", statements.TENANTS), session.statements

        found, read_by = await run_in_threadpool(work)
        return self._render(request, "tenants", 200, tenants=found, statements=read_by)

    async def failed(self, request: Request, error: Exception) -> Response:
        """An error as a page, in memfold's own words. Unexpected errors are logged, not shown."""
        if isinstance(error, HTTPException):
            known = MemfoldError(error.detail)
            return self._render(request, "error", error.status_code, error=known, statements=[])
        if isinstance(error, MemfoldError):
            status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 400)
            if status == 503:
                logger.warning("a page failed: %s", describe_error(error))
                error = MemfoldError("the database cannot be reached", hint="See the log of memfold web.")
            elif error.sqlstate == NOT_PERMITTED:
                status = 403
            return self._render(request, "error", status, error=error, statements=[])
        logger.error("a page failed: %s", describe_error(error))
        shown = MemfoldError("internal error", hint="See the log of memfold web.")
        return self._render(request, "error", 500, error=shown, statements=[])

    def _tenant(self, request: Request) -> str | None:
        given = request.query_params.get("tenant", "")
        # no tenant's name contains a zero byte
        return self._fixed or (given if "\0" not in given else None) or None

    def _with_tenant(self, path: str, tenant: str | None) -> str:
        if self._fixed is not None or tenant is None:
            return path
        return path + ("&" if "?" in path else "?") + link("", {"tenant": tenant})[1:]

    def _render(self, request: Request, name: str, status: int, **shown: Any) -> HTMLResponse:
        tenant = self._tenant(request)

        def url(path: str, **given: Any) -> str:
            return self._with_tenant(link(path, given), tenant)

        def here_with(**given: Any) -> str:
            return link(path, dict(params) | given)

        # the path of a preview only accepts its form, so links lead to the page of the form
        path = request.url.path.removesuffix("/preview")

        params = [(name, value) for name, value in request.query_params.multi_items() if name != "sql"]
        made = self._templates.get_template(f"{name}.html").render(
            **shown,
            page=name,
            tenant=tenant,
            is_fixed=self._fixed is not None,
            url=url,
            csrf=self._csrf,
            bucket=request.query_params.get("bucket", ""),
            shows_sql="sql" in request.query_params,
            here_with=here_with,
            heading={403: "Not allowed", 404: "Not found"}.get(status, "Not done"),
        )
        return HTMLResponse(made, status)


def make_app(place: Place, csrf: str) -> Starlette:
    """The page of one database. It lets everybody in: serve() puts the guard in front."""
    made = Pages(place, csrf)
    routes = [
        Route("/", made._told(made.tenants)),
        Route("/queue", made.page("queue", pages.queue)),
        Route("/queue/list", made.page("questions", browse.questions)),
        Route("/queue/answer", made.action(actions.answer), methods=["POST"]),
        Route("/queue/undo", made.action(actions.undo_answer), methods=["POST"]),
        Route("/memory/{memory_id:uuid}", made.page("memory", pages.memory)),
        Route("/memory/{memory_id:uuid}/{kind}", made.page("change", changes.preview)),
        Route(
            "/memory/{memory_id:uuid}/{kind}/preview", made.page("change", changes.preview), methods=["POST"]
        ),
        Route("/memory/{memory_id:uuid}/{kind}/apply", made.action(changes.apply), methods=["POST"]),
        Route("/undo", made.action(actions.undo), methods=["POST"]),
        Route("/buckets", made.page("buckets", browse.buckets)),
        Route("/bucket", made.page("bucket", browse.bucket)),
        Route("/statistics", made.page("statistics", pages.stats)),
        Route("/runs", made.page("runs", pages.runs)),
        Route("/runs/plan", made.page("plan", pages.plan)),
        Route("/runs/start", made.action(actions.start_run), methods=["POST"]),
        Route("/runs/{run_id:uuid}", made.page("run", pages.run)),
        Route("/runs/{run_id:uuid}/approve", made.action(actions.approve_run), methods=["POST"]),
        Route("/runs/{run_id:uuid}/undo", made.action(actions.undo_run), methods=["POST"]),
        Route("/calibrations", made.page("calibrations", pages.calibrations)),
        Route("/calibrations/{calibration_id:uuid}", made.page("calibration", pages.calibration)),
        Route("/search", made.page("search", browse.search)),
        Mount("/static", StaticFiles(directory=HERE / "static")),
    ]
    return Starlette(routes=routes, exception_handlers={HTTPException: made.failed}, lifespan=made.lifespan)
