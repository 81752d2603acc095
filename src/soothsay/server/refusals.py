"""What is refused, and how: an HTTP status and OpenAI's shape of an error, which names the field that was wrong."""

from collections.abc import Callable
from typing import Any, TypeVar

from soothsay.errors import OptionError, PromptError, PromptTooLong, SoothsayError, TemplateError

T = TypeVar("T")


class Refusal(Exception):
    """An answer that is not given. `param` is the field that was wrong, `code` a word that programs may act on."""

    status = 400
    kind = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code

    @property
    def headers(self) -> dict[str, str]:
        return {}

    def body(self) -> dict[str, Any]:
        """Give the error as OpenAI's clients read it."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}


class BadRequest(Refusal):
    """The request itself is wrong, or asks for what this server does not have."""


class WrongKey(Refusal):
    """No key, or not one of the server's."""

    status = 401
    kind = "authentication_error"

    @property
    def headers(self) -> dict[str, str]:
        return {"WWW-Authenticate": "Bearer"}


class NotFound(Refusal):
    """There is no such path or model."""

    status = 404


class BodyTooLarge(Refusal):
    """The body holds more bytes than the server reads."""

    status = 413


class Busy(Refusal):
    """The line is full; asking again after `retry_seconds` may help."""

    status = 429
    kind = "rate_limit_error"

    def __init__(self, message: str, retry_seconds: int) -> None:
        super().__init__(message, code="queue_full")
        self.retry_seconds = retry_seconds

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_seconds)}


class ClientGone(Refusal):
    """Nobody is there to read the answer."""

    status = 499


class Broken(Refusal):
    """Something failed here that the client could not know of."""

    status = 500
    kind = "server_error"


class TooLate(Refusal):
    """The answer took longer than it may."""

    status = 504
    kind = "timeout_error"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the answer was not there after {seconds:g} seconds", code="deadline_exceeded")


class Leaving(Refusal):
    """The server is about to end."""

    status = 503
    kind = "server_error"

    def __init__(self, message: str = "the server is shutting down") -> None:
        super().__init__(message, code="shutting_down")

    @property
    def headers(self) -> dict[str, str]:
        return {"Retry-After": "5"}


def refusal_of(error: SoothsayError) -> Refusal:
    """Tell the client's own slip, which only showed while its answer was on the way, from a failure of the model."""
    return BadRequest(str(error)) if isinstance(error, OptionError) else Broken(f"the model failed: {error}")


def blamed(field_name: str, run: Callable[[], T]) -> T:
    """Run what may find fault with a field of the request."""
    try:
        return run()
    except PromptTooLong as error:
        raise BadRequest(str(error), param=field_name, code="context_length_exceeded") from None
    except (PromptError, TemplateError) as error:
        raise BadRequest(str(error), param=field_name) from None
    except SoothsayError as error:
        raise BadRequest(str(error)) from None
