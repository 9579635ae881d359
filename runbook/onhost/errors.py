"""The one error an operation raises on purpose."""

import errno
from typing import Any, Dict, Optional

CODES = (
    "not_found",
    "permission",
    "exists",
    "conflict",
    "changed",
    "not_unique",
    "busy",
    "protected",
    "unsupported",
    "bad_request",
    "failed",
)


HINTS = {
    "not_found": "check the path: it is one on the host",
    "permission": "use an account that may, for example by `via: sudo -n`",
}
"""What to try next where an operation knows nothing better."""


class OpError(Exception):
    """An operation failed in a way that its caller can act on. `hint` says what to try next, `data` is plain."""

    def __init__(self, code: str, message: str, hint: str = "", data: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.data = data or {}


def from_os_error(error: OSError, what: str) -> OpError:
    """The same failure with a stable code; `what` names the act, as in "write `/etc/x`"."""
    if isinstance(error, FileNotFoundError):
        code = "not_found"
    elif isinstance(error, PermissionError) or error.errno == errno.EROFS:
        code = "permission"
    elif isinstance(error, FileExistsError):
        code = "exists"
    else:
        code = "failed"
    return OpError(code, "%s: %s" % (what, error.strerror or error), HINTS.get(code, ""), {"errno": error.errno})
