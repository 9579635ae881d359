"""A second account for the tests of hosts."""

from tests.support.fixtures import other_user

__all__ = ["other_user"]
