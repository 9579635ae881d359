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


@click.command(epilog="\b\n" + "\n".join(WHERE.values()))
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> int:
    """Print a script that makes SHELL complete commands, options, playbooks, hosts, step ids and runs."""
    from runbook.cli.main import app
    from runbook.cli.start import COMPLETE

    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(app, {}, "runbook", COMPLETE).source())
    return 0
