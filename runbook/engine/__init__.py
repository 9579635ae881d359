"""Runs a playbook: steps, waits, journal, cleanup."""
