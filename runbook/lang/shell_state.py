"""Where in a shell text each expression stands: plain, in quotes, in a comment, in a here-document, …

A scanner, not a shell: it knows quotes and escapes, `$'…'`, comments, `$( )`, `( )`, `${ }`, backticks, `$(( ))` and `(( ))`, and
here-documents. It does not know `case` patterns inside `$( )` (their lone `)` ends it too early), aliases, or what `eval` and
`sh -c` make of their words.
"""

from __future__ import annotations

import re
from collections import deque

from runbook.lang.tokens import Found, find_expressions

PLAIN, SINGLE, DOUBLE, ANSI = "plain", "single", "double", "ansi"
COMMENT, HEREDOC, BACKTICK, ARITHMETIC, BRACE, ESCAPED = "comment", "heredoc", "backtick", "arithmetic", "brace", "escaped"

_HEREDOC = re.compile(r"<<(-?)[ \t]*((?:'[^'\n]*'|\"[^\"\n]*\"|\\.|[^\s'\"\\;&|<>()])+)")
_OPENERS = (("$((", ARITHMETIC), ("$(", PLAIN), ("${", BRACE), ("`", BACKTICK))


def places(text: str) -> list[tuple[Found, str]]:
    """Each expression with the state it stands in."""
    return _Scanner(text).run()


class _Scanner:
    """One pass. `stack` holds the open contexts, innermost last, each with the text that closes it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.stack: list[tuple[str, str]] = [(PLAIN, "")]
        self.heredocs: list[tuple[str, bool]] = []
        """Here-documents announced on this line: the end word and whether leading tabs are cut."""
        self.pending = deque(find_expressions(text))
        self.result: list[tuple[Found, str]] = []

    def run(self) -> list[tuple[Found, str]]:
        while self.at < len(self.text):
            if self._at_expression():
                self._take(self.at + 1, self.stack[-1][0])
            elif self.text[self.at] == "\n" and self.heredocs and self.stack[-1][0] not in (SINGLE, DOUBLE, ANSI):
                self._skip_heredocs()
            else:
                self._step()
        return self.result

    def _at_expression(self) -> bool:
        return bool(self.pending) and self.pending[0].start <= self.at

    def _take(self, end: int, state: str) -> None:
        """All expressions that begin before `end` stand in `state`; goes on behind the last of them."""
        while self.pending and self.pending[0].start < end:
            found = self.pending.popleft()
            self.result.append((found, state))
            self.at = found.end

    def _step(self) -> None:
        state, closer = self.stack[-1]
        if closer and self.text.startswith(closer, self.at):
            self.stack.pop()
            self.at += len(closer)
        elif state == SINGLE:
            self.at += 1
        elif self.text[self.at] == "\\":
            self._escape()
        elif state == ANSI or not self._open(state):
            self.at += 1

    def _escape(self) -> None:
        """A backslash takes the next character along; in front of an expression it would escape the quote written there."""
        self.at += 1
        if self._at_expression():
            self._take(self.at + 1, ESCAPED)
        else:
            self.at += 1

    def _open(self, state: str) -> bool:
        for start, inner in _OPENERS:
            if self.text.startswith(start, self.at):
                return self._push(inner, {ARITHMETIC: "))", PLAIN: ")", BRACE: "}", BACKTICK: "`"}[inner], len(start))
        char = self.text[self.at]
        if char == '"' and state != DOUBLE:
            return self._push(DOUBLE, '"', 1)
        if state == ARITHMETIC and char == "(":
            return self._push(ARITHMETIC, ")", 1)
        return state in (PLAIN, BACKTICK, BRACE) and self._open_plain(state, char)

    def _open_plain(self, state: str, char: str) -> bool:
        literal = state == BRACE and self.stack[-2][0] == DOUBLE  # in "${x:-it's}" the quote is text
        if char == "'" and not literal:
            return self._push(SINGLE, "'", 1)
        if self.text.startswith("$'", self.at):
            return self._push(ANSI, "'", 2)
        if state == BRACE:
            return False
        if char == "(":
            return self._push(ARITHMETIC, "))", 2) if self.text.startswith("((", self.at) else self._push(PLAIN, ")", 1)
        if char == "#" and (self.at == 0 or self.text[self.at - 1] in " \t\n;&|()`"):
            return self._comment()
        if self.text.startswith("<<<", self.at):
            self.at += 3
            return True
        heredoc = _HEREDOC.match(self.text, self.at) if char == "<" else None
        if heredoc is not None:
            self.heredocs.append((re.sub(r"\\(.)|['\"]", r"\1", heredoc[2]), bool(heredoc[1])))
            self._take(heredoc.end(), HEREDOC)
            self.at = max(self.at, heredoc.end())
            return True
        return False

    def _push(self, state: str, closer: str, width: int) -> bool:
        # Inside backticks and arithmetic everything counts as such, whatever opens there: quoting does not protect a value.
        outer = self.stack[-1][0]
        if outer in (BACKTICK, ARITHMETIC) and state == PLAIN:
            state = outer
        self.stack.append((state, closer))
        self.at += width
        return True

    def _comment(self) -> bool:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        self._take(end, COMMENT)
        self.at = max(self.at, end)
        return True

    def _skip_heredocs(self) -> None:
        """From the line break to the end of the last here-document that was announced before it."""
        end = self.at + 1
        for word, tabs in self.heredocs:
            while end < len(self.text):
                line_end = self.text.find("\n", end)
                line_end = len(self.text) if line_end < 0 else line_end
                line = self.text[end:line_end]
                end = line_end + 1
                if (line.lstrip("\t") if tabs else line) == word:
                    break
        self.heredocs.clear()
        end = min(end, len(self.text))
        self._take(end, HEREDOC)
        self.at = max(self.at, end)
