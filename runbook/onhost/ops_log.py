"""Searching a log where it lies: only what matches travels."""

import os
import re
from collections import deque
from typing import Any, Deque, Dict, Iterator, List, Optional, Tuple

from . import files, procs
from .errors import OpError
from .log_window import Segment, find_window, writers

CHUNK = 1 << 20
MOST_LINE = 1 << 16  # of a longer line only the beginning is searched
SHOWN = 2000  # characters of a line that travel


def scan(ctx: Any, args: Dict[str, Any], blob: bytes) -> Tuple[Dict[str, Any], bytes]:
    """Lines of the window that match `pattern`: the first `most` with their neighbours, and how many there are in all."""
    path = os.path.abspath(os.path.expanduser(args["path"]))
    search = Search(_compiled(args["pattern"]), _compiled(args.get("control")), int(args.get("context", 0)), int(args.get("most", 100)))
    window = find_window(path, args.get("begin"), args.get("end"))
    if not window.segments and not window.gap and args.get("begin") is None:
        raise OpError("not_found", "there is no log `%s`" % path, "look at the launch's `log`, or correct the path")
    for segment in window.segments:
        for offset, line in lines_of(segment):
            search.take(offset, line)
            if ctx.cancelled.is_set():
                raise OpError("failed", "cancelled while searching `%s`" % path)
    first = window.segments[0] if window.segments else None
    last = window.segments[-1] if window.segments else None
    table = procs.visible(procs.process_table(), ctx.scope)
    return {
        "matches": search.matches,
        "count": search.count,
        "bytes": sum(segment.end - segment.begin for segment in window.segments),
        "begin": first.begin if first else 0,
        "end": last.end if last else 0,
        "inode": last.inode if last else 0,
        "complete": not window.gap,
        "gap": window.gap,
        "control_found": search.control_found,
        "writers": writers(window.segments, table) if window.segments else [],
    }, b""


OPS = {"scan": scan}


def _compiled(pattern: Optional[str]) -> "Optional[re.Pattern[str]]":
    if not pattern:
        return None
    try:
        return re.compile(pattern)
    except re.error as error:
        raise OpError("bad_request", "`%s` is not a regular expression: %s" % (pattern, error)) from error


class Search:
    """What has been found so far. Memory is bounded by `most` matches and `context` lines."""

    def __init__(self, pattern: "Optional[re.Pattern[str]]", control: "Optional[re.Pattern[str]]", context: int, most: int) -> None:
        self._pattern, self._control, self._context, self._most = pattern, control, context, most
        self._before: Deque[str] = deque(maxlen=context)
        self._waiting: List[Dict[str, Any]] = []
        self.matches: List[Dict[str, Any]] = []
        self.count = 0
        self.control_found: Optional[bool] = None if control is None else False

    def take(self, offset: int, raw: bytes) -> None:
        """The next line, without its end."""
        line = raw.decode("utf-8", "backslashreplace")
        if self._control is not None and not self.control_found:
            self.control_found = self._control.search(line) is not None
        for match in self._waiting:
            match["after"].append(line[:SHOWN])
        self._waiting = [match for match in self._waiting if len(match["after"]) < self._context]
        found = self._pattern.search(line) if self._pattern is not None else None
        if found is not None:
            self._keep(offset, line, found.groupdict())
        if self._context:
            self._before.append(line[:SHOWN])

    def _keep(self, offset: int, line: str, groups: Dict[str, Optional[str]]) -> None:
        self.count += 1
        if len(self.matches) >= self._most:
            return
        match = {"offset": offset, "line": line[:SHOWN], "groups": groups, "before": list(self._before), "after": []}
        self.matches.append(match)
        if self._context:
            self._waiting.append(match)


def lines_of(segment: Segment) -> Iterator[Tuple[int, bytes]]:
    """(offset, line) of a part of a file, split on \\r and \\n; an unfinished last line counts as one. Raises OpError."""
    fd = files.open_regular(segment.path)
    try:
        if os.fstat(fd).st_ino != segment.inode:
            raise OpError("changed", "`%s` was rotated while it was read" % segment.path, "try again")
        yield from split_lines(_chunks(fd, segment.begin, segment.end), segment.begin)
    finally:
        os.close(fd)


def _chunks(fd: int, begin: int, end: int) -> Iterator[bytes]:
    while begin < end:
        data = os.pread(fd, min(CHUNK, end - begin), begin)
        if not data:
            return
        begin += len(data)
        yield data


def split_lines(chunks: Iterator[bytes], offset: int) -> Iterator[Tuple[int, bytes]]:
    """(offset, line) of each line that is not empty. \\r\\n ends one line, not two."""
    rest = b""
    skipped = 0  # bytes of an overlong line that are not in `rest`
    for chunk in chunks:
        for piece in (rest + chunk).splitlines(keepends=True):
            if piece[-1:] not in b"\r\n":
                skipped += max(0, len(piece) - MOST_LINE)
                rest = piece[:MOST_LINE]
                break
            line = piece.rstrip(b"\r\n")
            if line:
                yield offset, line[:MOST_LINE]
            offset += len(piece) + skipped
            skipped = 0
        else:
            rest = b""
    if rest:
        yield offset, rest
