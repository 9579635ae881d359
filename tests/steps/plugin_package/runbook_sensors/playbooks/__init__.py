"""Playbooks about sensors."""
