"""Errors as OpenAI's clients know them: a status, and a document that names the field."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

from bt_p2p.errors import BtError, ConfigError, NoRouteError

_INVALID = "invalid_request_error"
_SERVER = "server_error"


class ApiError(BtError):
    """A request cannot be answered; the client is told why."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Keep what the response needs; `param` names the field at fault."""
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def document(self) -> dict[str, object]:
        """What the client reads."""
        return {
            "error": {
                "message": str(self),
                "type": _SERVER if self.status >= 500 else _INVALID,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """The whole response."""
        return JSONResponse(self.document(), status_code=self.status, headers=self.headers)


def as_api_error(error: BtError) -> ApiError:
    """What a client is told of an error of the library."""
    if isinstance(error, ConfigError):
        return ApiError(400, str(error))
    code = "missing_blocks" if isinstance(error, NoRouteError) else "swarm_failed"
    return ApiError(503, str(error), code=code)
