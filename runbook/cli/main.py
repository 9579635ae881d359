"""The command `runbook`: a table of commands, each loaded only when it is called; and the last line of defence."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

import click

from runbook import __version__

EXIT_USAGE = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The machine's mistake, not ours; but the command was not carried out, so its code is that of an error."""


class Entry(NamedTuple):
    """A command: its module in this package (which exports `command`) and its line in `--help`."""

    module: str
    short_help: str


COMMANDS: dict[str, Entry] = {
    "run": Entry("run", "Run a playbook and answer with a verdict and its evidence."),
    "validate": Entry("validate", "Check playbooks without touching any host."),
    "plan": Entry("plan", "Show what a playbook would do on each host; do nothing."),
    "vars": Entry("vars", "Say where each variable of a playbook has its value from."),
    "diagnose": Entry("diagnose", "Say whether a server serves, loads or hangs, and why; no playbook needed."),
    "doctor": Entry("doctor", "Examine a host: the way in, what can be seen there, what was left."),
    "runs": Entry("runs", "List the runs on this machine."),
    "show": Entry("show", "Show what a run did and why it ended so."),
    "report": Entry("report", "Write a run as Markdown, HTML, JUnit, JSON, a trace or a zip."),
    "judge": Entry("judge", "Derive the verdicts of a recorded run again; show the rules' trail."),
    "compare": Entry("compare", "Show what differs between two runs, or a run and the last good ones."),
    "wait": Entry("wait", "Wait for a run of another process, and answer as it does."),
    "resume": Entry("resume", "Go on with a run that was suspended or whose controller died."),
    "cancel": Entry("cancel", "End a run from anywhere: its cleanup, then what is still owed."),
    "restore": Entry("restore", "Undo patches: of a run, or all that are open on a host."),
    "post": Entry("post", "Post a run's transcript to a ticket; a second post changes the first."),
    "redact": Entry("redact", "Mask what looks like a secret in a file or a run, and report it."),
    "new": Entry("new", "Begin a playbook: from a template, or from a shell script."),
    "fmt": Entry("fmt", "Bring playbooks into one form; comments are kept."),
    "steps": Entry("steps", "List the step types, or describe one."),
    "tensors": Entry("tensors", "Compare the tensors of two captures or checkpoints."),
    "hosts": Entry("hosts", "List the hosts of hosts.yaml, or show what a name resolves to."),
    "completion": Entry("completion", "Print what makes bash, zsh or fish complete our words."),
    "schema": Entry("schema", "Print the JSON Schema of a playbook."),
    "list": Entry("list", "List the playbooks that can be run by name."),
    "agents": Entry("agents", "Print a section for the AGENTS.md of your repository."),
    "mcp": Entry("mcp", "Serve the commands as tools to an agent (Model Context Protocol)."),
    "lab": Entry("lab", "Start, stop or look at the embedded GPU host."),
}


class Unread(Exception):
    """Nobody reads the answer any more. Not the OSError that it was: click would end the process for that, with 1."""


@contextlib.contextmanager
def _unread() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as gone:
        raise Unread from gone


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is called, not to print its name."""

    def make_context(self, *args: Any, **more: Any) -> click.Context:
        """As click's; `--help` is printed here."""
        with _unread():
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        """As click's."""
        with _unread():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table: the daily ones first."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one command; None for a name that is not in the table."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        from importlib import import_module

        command: click.Command = import_module(f"runbook.cli.{entry.module}").command
        if not gc.isenabled():  # as the process began: what was imported is no garbage, and looking at it costs a tenth of a short run
            gc.freeze()
            gc.enable()
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with "did you mean"."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from runbook.playbook.near import suggestion

            hint = suggestion(name, COMMANDS) or "`runbook --help` lists them"
            raise click.UsageError(f"no command `{name}`; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table's own lines, so that `--help` imports no command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short_help) for name, entry in COMMANDS.items()])


EPILOG = """\b
Exit codes: 0 passed, 1 failed, 2 invalid, 3 hung, 4 slow, 5 crashed,
6 unreachable, 7 wrong check or server or invalid experiment, 8 resource
held or refused, 9 undecided, 70 error (a bug in runbook), 75 still running,
130 interrupted (143 by SIGTERM, 129 by a closed terminal)."""


@click.command(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="runbook", message="%(prog)s %(version)s")
def app() -> None:
    """Run playbooks against servers of large models, and tell a hang from a slow load, with evidence."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Entry point. Ends the process: 2 for usage errors, 70 for a bug, 130 after Ctrl-C, else the command's code."""
    from runbook.cli.streams import prepare

    words = list(sys.argv[1:] if argv is None else argv)
    prepare(words)
    leave(exit_code(words))


def leave(code: int) -> NoReturn:
    """End the process without taking the interpreter apart: that alone costs a tenth of a short run, and nothing is left to close."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # the reader has gone, or the stream was closed
            stream.flush()
    os._exit(code)


def exit_code(argv: list[str]) -> int:
    """Run one command line and answer its exit code; nothing escapes as a traceback."""
    return guarded(lambda: _called(argv), argv)


def _called(argv: list[str]) -> Any:
    from runbook.cli.start import quit_at_once

    if signal.getsignal(signal.SIGINT) is quit_at_once:  # from here on a command can be interrupted in order
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return app.main(args=argv, prog_name="runbook", standalone_mode=False)


def guarded(act: Callable[[], Any], argv: list[str]) -> int:
    """The exit code of what a command line stands for: its answer, or that of how it failed, which is told on stderr."""
    try:
        answer = act()
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as mistake:
        return _told(mistake, argv)
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except (BrokenPipeError, Unread):
        # The reader has gone (`runbook … | head`): as a program that SIGPIPE ends. Without this the interpreter complains once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except Exception as bug:
        if isinstance(bug, OSError) and bug.errno in FULL:
            _say(f"runbook: the answer could not be written: {bug.strerror}. Make room, or write it somewhere else")
            return EXIT_BUG
        if isinstance(bug, FileNotFoundError) and _is_nowhere():
            return _told(click.UsageError("the folder in which this was called has been deleted: go to one that is there"), argv)
        _say(_last_words(bug, argv))
        return EXIT_BUG


def _last_words(bug: Exception, argv: list[str]) -> str:
    from runbook.cli.bug import report
    from runbook.engine.journal import JournalError

    return f"runbook: {bug}" if isinstance(bug, JournalError) else report(bug, argv)


def _say(text: str) -> None:
    """The last words, where they can be written at all."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def _is_nowhere() -> bool:
    """Whether the working folder was deleted."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _told(mistake: click.ClickException, argv: list[str]) -> int:
    if "--json" in argv:
        click.echo(_as_json(mistake))
    mistake.show()
    return mistake.exit_code


def _as_json(mistake: click.ClickException) -> str:
    """A usage error in the form of every other answer with exit code 2: one object on stdout."""
    import json

    from runbook.model.diagnostic import Diagnostic
    from runbook.render.diagnostics import as_object

    return json.dumps(as_object([Diagnostic(code="usage", summary=mistake.format_message())]), ensure_ascii=False)


if __name__ == "__main__":
    main()
