"""runbook: declarative runbooks for debugging large models on remote GPU hosts."""

__version__ = "0.1.0"
