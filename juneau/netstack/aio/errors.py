"""Why a connection ended, in the exceptions that asyncio applications expect."""

from __future__ import annotations

import errno
import os

from juneau.netstack.types import CloseReason

_ERRNO = {
    CloseReason.RESET: errno.ECONNRESET,
    CloseReason.REFUSED: errno.ECONNREFUSED,
    CloseReason.TIMEOUT: errno.ETIMEDOUT,
    CloseReason.UNREACHABLE: errno.EHOSTUNREACH,
    CloseReason.ABORTED: errno.ECONNABORTED,
}


def os_error(code: int, what: str = "") -> OSError:
    """The subclass of OSError that `code` has (ECONNRESET: ConnectionResetError …)."""
    return OSError(code, f"{what}: {os.strerror(code)}" if what else os.strerror(code))


def close_error(reason: CloseReason, what: str = "") -> OSError | None:
    """The argument of `connection_lost`; None for an orderly end."""
    code = _ERRNO.get(reason)
    return None if code is None else os_error(code, what)
