"""What a tracker is, what it is asked with, and how it can refuse.

TicketError ── Misused       the user's to repair: a wrong URL, no token (exit code 2)
            ├─ Refused       the tracker said no (1) ── TooLong: it said that the text is too long
            ├─ Withheld      what would be sent still looks like a secret; nothing was sent (8)
            └─ Unreachable   no answer (6)           ── OutcomeUnknown: perhaps it was done all the same
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, Protocol
from urllib.parse import SplitResult, urlsplit

import msgspec

from runbook.tickets.marker import Mark

DEFAULT_BUDGET = 60_000
"""UTF-8 bytes of a comment where the tracker would take more: a ticket is read by people."""
PER_PAGE = 100
MOST_PAGES = 100


class TicketError(Exception):
    """Nothing was posted, or not all: `summary` says what happened, `hint` what to try."""

    exit_code: ClassVar[int] = 1

    def __init__(self, summary: str, hint: str = "") -> None:
        super().__init__(summary)
        self.summary = summary
        self.hint = hint


class Misused(TicketError):
    """A wrong address, option or environment; nothing was sent."""

    exit_code = 2


class NoToken(Misused):
    """No token that may be sent to this host."""


class Withheld(TicketError):
    """What would be sent still looks like a secret; nothing was sent."""

    exit_code = 8


class Refused(TicketError):
    """The tracker answered, and it is a no."""

    def __init__(self, summary: str, hint: str = "", *, status: int = 0) -> None:
        super().__init__(summary, hint)
        self.status = status


class TooLong(Refused):
    """The text or file is larger than this tracker takes; `most` is the limit when it said one."""

    def __init__(self, summary: str, hint: str = "", *, status: int = 0, most: int | None = None) -> None:
        super().__init__(summary, hint, status=status)
        self.most = most


class Unreachable(TicketError):
    """No connection, or no answer in time."""

    exit_code = 6


class OutcomeUnknown(Unreachable):
    """The request went out and its answer did not come: it must not be repeated before looking. `wait_s`: wait so long first."""

    def __init__(self, summary: str, hint: str = "", *, wait_s: float = 1.0) -> None:
        super().__init__(summary, hint)
        self.wait_s = wait_s


class Limit(msgspec.Struct, frozen=True):
    """The longest comment, counted as the tracker counts."""

    most: int
    unit: Literal["characters", "bytes"]

    def size(self, text: str) -> int:
        """The length of a text in this unit."""
        return len(text) if self.unit == "characters" else len(text.encode())


class File(msgspec.Struct, frozen=True):
    """A file to attach. Its name holds a digest of its content, so an equal name is an equal file."""

    name: str
    media: str
    data: bytes


class Upload(msgspec.Struct, frozen=True):
    """A multipart body: one file under `field`, and plain fields."""

    field: str
    file: File
    fields: dict[str, str] = {}


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `repeatable`: sending it twice leaves the same as sending it once."""

    method: str
    url: str
    headers: dict[str, str] = {}
    data: Any = None
    """Sent as JSON when it is not null."""
    raw: File | None = None
    upload: Upload | None = None
    repeatable: bool = False
    sign: Callable[[bytes], dict[str, str]] | None = None
    """Further headers, made of the exact bytes of the body."""


class Answer(msgspec.Struct, frozen=True):
    """What came back: header names in lower case; `data` is the parsed JSON, null when it is none."""

    status: int
    headers: dict[str, str]
    data: Any
    text: str = ""


class Login(msgspec.Struct, frozen=True):
    """Headers that prove who posts; `shown` is the same without the secret; `secrets` go to the mask; `source` names the variable."""

    headers: dict[str, str] = {}
    shown: dict[str, str] = {}
    secrets: dict[str, str] = {}
    source: str = ""


class Comment(msgspec.Struct, frozen=True):
    """A comment as the tracker keeps it."""

    id: str
    body: str = ""
    url: str = ""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be posted. `render(budget)` is the masked Markdown in about so many bytes; `facts` are for webhook templates."""

    run: str
    started: float
    render: Callable[[int], str]
    facts: dict[str, Any] = {}
    footer: str = ""


class Client(Protocol):
    """Sends requests to one origin. `dry`: nothing is sent, answers are placeholders."""

    dry: bool

    def send(self, request: Request, accept: tuple[int, ...] = ()) -> Answer:
        """The answer when its status is 2xx or in `accept`. Raises Refused, Unreachable."""
        ...

    def pause(self, seconds: float) -> None:
        """Let time pass before looking again."""
        ...


class Tracker:
    """One ticket of one tracker. A new tracker is a subclass in a file of its own and a line in `TRACKERS`."""

    name: ClassVar[str]
    limit: ClassVar[Limit]
    takes_files: ClassVar[bool] = True
    no_files: ClassVar[str] = ""
    """Why it takes none."""
    keeps_comments: ClassVar[bool] = True
    """Whether a comment can be found, changed and read again."""
    base: str
    """All requests go to this address's origin, and the token nowhere else."""

    def login(self, environ: Mapping[str, str]) -> Login:
        """Who posts. Raises NoToken."""
        raise NotImplementedError

    def compose(self, draft: Draft, markdown: str, mark: Mark) -> Any:
        """The comment's text in the tracker's own markup, the marker last."""
        raise NotImplementedError

    def length(self, payload: Any) -> int:
        """How the tracker counts this text."""
        return self.limit.size(payload)

    def find(self, client: Client, draft: Draft) -> Comment | None:
        """Our own comment on this run, if there is one."""
        raise NotImplementedError

    def create(self, client: Client, draft: Draft, payload: Any) -> Comment:
        """Write a new comment. Raises OutcomeUnknown when it may have been written."""
        raise NotImplementedError

    def update(self, client: Client, draft: Draft, found: Comment, payload: Any) -> Comment:
        """Replace the text of our comment."""
        raise NotImplementedError

    def read(self, client: Client, comment: Comment) -> str:
        """The text that the tracker now keeps."""
        raise NotImplementedError

    def attached(self, client: Client, found: Comment | None, draft: Draft) -> dict[str, str]:
        """Files of this run that are on the ticket: name -> the Markdown that shows it, empty where the ticket lists files itself."""
        return {}

    def attach(self, client: Client, file: File) -> str:
        """Attach one file; answers the Markdown that shows it, or nothing."""
        raise NotImplementedError


def address(url: str) -> SplitResult | None:
    """A web address in parts; None when it is none. Raises Misused for one that holds a password."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  (raises for a port that is no number)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    if parts.username or parts.password:
        raise Misused("the ticket's address holds a user name or password", "leave it out; tokens are read from the environment")
    return parts


def origin(url: str) -> str:
    """scheme://host:port, with the default port written out."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{(parts.hostname or '').lower()}:{parts.port or {'http': 80, 'https': 443}.get(parts.scheme, 0)}"


def host_of(value: str) -> str:
    """The host in a variable that holds a host or an address."""
    return (urlsplit(value if "://" in value else f"//{value}").netloc or "").rpartition("@")[2].lower()


def listed(client: Client, url: str, headers: Mapping[str, str] | None = None) -> Iterator[Any]:
    """The items of a paged list, along its `Link: rel="next"` headers."""
    following: str | None = url
    for _ in range(MOST_PAGES):
        if following is None:
            return
        answer = client.send(Request(method="GET", url=following, headers=dict(headers or {}), repeatable=True))
        yield from answer.data or ()
        following = next_link(answer.headers.get("link", ""))


def next_link(header: str) -> str | None:
    """The address with rel="next" of a Link header."""
    for link in header.split(","):
        target, _, parameters = link.partition(";")
        if 'rel="next"' in parameters:
            return target.strip().strip("<>")
    return None
