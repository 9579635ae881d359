"""`runbook agents`: a section for the AGENTS.md of a repository with playbooks."""

from __future__ import annotations

from pathlib import Path

import click

TEXT = Path(__file__).with_name("agents.md")
DO = {
    "passed": "go on",
    "failed": "read the assertion and its values",
    "invalid": "correct the playbook or the command line; nothing ran",
    "hung": "read kind and culprit; more time does not help",
    "slow": "give it more time; the server goes on",
    "crashed": "read the first cause",
    "unreachable": "check the way to the host; nothing is known of the server",
    "wrong_check": "correct the check, the port or the flags, not the server",
    "resource_held": "ask its holder, or wait",
    "undecided": "look at what `next` names",
    "error": "a bug in runbook: report it",
    "interrupted": "its cleanup is done",
}


@click.command()
def command() -> int:
    """Print a section for your repository's AGENTS.md: which commands, how long they take, what their exit codes ask for."""
    from runbook.model.verdict import EXIT_CODES

    words: dict[int, list[str]] = {}
    for word, code in EXIT_CODES.items():
        words.setdefault(code, []).append(word)
    rows = [
        f"| {code} | {', '.join(names)} | {next((DO[name] for name in names if name in DO), '')} |" for code, names in sorted(words.items())
    ]
    table = "\n".join(["| code | verdict | do |", "|---|---|---|", *rows])
    click.echo(TEXT.read_text(encoding="utf-8").replace("{codes}", table), nl=False)
    return 0
