"""What shell scripts of this kind get wrong: one sentence each, why it matters, and what the playbook has instead."""

from __future__ import annotations

from runbook.model.diagnostic import Diagnostic, Severity, Span

TRAPS: dict[str, tuple[str, str]] = {
    "empty-body": (
        "`grep {0}` looks for text in the answer of `{1}`, and {2} answers 200 with an empty body: it can never match",
        "the playbook asks for the status alone",
    ),
    "endless-loop": (
        "this loop has no end of its own: when the server has died or the check is wrong it waits for ever",
        "the playbook's wait has a time box, and ends early with a verdict",
    ),
    "wide-kill": (
        "`{0}` ends every process of that name: notebooks, other people's runs and your own tools too, and it misses renamed ranks",
        "the playbook ends what {1}, by pid and start time",
    ),
    "text-kill": (
        "this ends whatever has the text in its {0}, editors and greps too; the playbook ends {1}, which may be less",
        "{2}",
    ),
    "hard-kill": (
        "SIGKILL first: the server cannot release shared memory, ports or GPU memory, nor say what it was doing",
        "the playbook's ladder is TERM, then KILL",
    ),
    "lost-output": (
        "`nohup` without a redirection appends to `nohup.out` of whatever folder it is started in, or writes to the terminal",
        "a launch of the playbook has a log of its own",
    ),
    "old-log": (
        "`{0}` may hold lines of an earlier start or request: a match proves nothing about this one, and an absence nothing at all",
        "the playbook searches the log from {1} on, in the server that runs now",
    ),
    "fixed-sleep": (
        "`sleep {0}` guesses how long something takes",
        "the playbook waits {1}",
    ),
    "status-ignored": (
        "`curl` without `-f` exits 0 on a 404 or 503 too: {0}",
        "{1}",
    ),
    "swallowed-failure": (
        "`|| true` hides every failure, of the connection too",
        "{0}",
    ),
    "bracket-class": (
        "`{0}` is a set of characters to grep: it matches nearly every line",
        "the playbook looks for the text itself",
    ),
    "lasting-edit": (
        "this edit of a source file stays when the script ends, or when it is interrupted",
        "`runbook steps patch` undoes it by itself, counts what it replaces, and reports who imported it",
    ),
    "tee-pipe": (
        "behind a pipe the server's exit status is lost, and a reader that stops blocks the server",
        "a launch of the playbook writes to its log itself",
    ),
    "endless-tail": (
        "`tail -f` never ends",
        "it is left out: `runbook show` and the run's evidence have the log",
    ),
    "stops-at-the-end": (
        "the script leaves its server running; the playbook stops `{0}` at its end",
        "write `at_end: keep` into the launch and remove its `kill` from `always:` where it shall stay",
    ),
    "not-waited": (
        "`wait` waits until the server ends; the playbook does not, and stops it at its end",
        "write `at_end: keep` into the launch where it shall go on",
    ),
    "argument": (
        "`{0}` is an argument of the script; a playbook has none",
        "name a variable in its place, and give it with `-e NAME=VALUE`",
    ),
    "default-value": (
        "`{0}` may come from the environment of whoever starts the script; the playbook has the default alone",
        "give another value with `-e {0}=VALUE`",
    ),
    "from-outside": (
        "nothing in the script sets `{0}`: it comes from the environment of whoever starts it, which the host need not have",
        "give it to the step in `env:`, from a variable or from `env('{0}')`",
    ),
    "secret": (
        "`{0}` is a secret by its name: its value is not taken into the playbook",
        "set `{0}` in your environment, or say under `secrets:` which `file:` or `command:` has it",
    ),
    "secret-in-clear": (
        "the header `{0}` has a secret in clear: it is not taken into the playbook",
        "set `{1}` in your environment, or say under `secrets:` which `file:` or `command:` has it",
    ),
    "own-folder": (
        "the script goes into its own folder; a playbook has none on the host",
        "write the folder as `cwd:` of the steps",
    ),
    "ssh-option": (
        "an option of this `ssh` is not taken over: {0}",
        "write it into ssh_config, for this host",
    ),
    "as-root": (
        "the script ends processes as root; the playbook ends what its user may, and says what it may not",
        "give the host `via: sudo -n` where others' processes are meant",
    ),
    "crlf": (
        "the lines end in CR LF: to the shell each command ends in a sign that nobody sees",
        "the playbook is made as if they ended in LF",
    ),
}

OTHERWISE = frozenset(
    "stops-at-the-end not-waited argument default-value from-outside secret secret-in-clear own-folder ssh-option as-root crlf "
    "fixed-sleep endless-tail wide-kill text-kill status-ignored".split()
)
"""What the playbook does otherwise than the script: said in the playbook as well."""


def trap(code: str, span: Span, *values: str) -> Diagnostic:
    """A warning about a place in the script."""
    summary, hint = (text.format(*values) for text in TRAPS[code])
    return Diagnostic(code=code, summary=summary, hint=hint, span=span, severity=Severity.WARNING)
