"""`runbook completion`: the shell's part of the completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
WHERE = {
    "bash": 'eval "$(runbook completion bash)"      # in ~/.bashrc',
    "zsh": 'eval "$(runbook completion zsh)"       # in ~/.zshrc, below compinit',
    "fish": "runbook completion fish | source       # in ~/.config/fish/config.fish",
}

BETTER = (
    ("COMPREPLY+=($value)", "COMPREPLY+=($value)\n            [[ $value == *[=/] ]] && compopt -o nospace"),  # bash: it goes on
    ('string split ","', 'string split --max 1 ","'),  # fish: a value or a line about it may have a comma
)
"""What click's scripts lack."""


@click.command(epilog="\b\n" + "\n".join(WHERE.values()))
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print a script that makes SHELL complete commands, options, playbooks, hosts, step ids and runs."""
    from runbook.cli.main import app
    from runbook.cli.start import COMPLETE

    found = get_completion_class(shell)
    assert found is not None
    script = found(app, {}, "runbook", COMPLETE).source()
    for plain, better in BETTER:
        script = script.replace(plain, better)
    click.echo(script)
    return 0
