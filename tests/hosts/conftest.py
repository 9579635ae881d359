"""Real servers for the tests of hosts."""

from tests.support.fixtures import relay_to, sshd, start_sshd

__all__ = ["relay_to", "sshd", "start_sshd"]
