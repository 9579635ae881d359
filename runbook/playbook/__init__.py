"""Data to a checked Playbook, or diagnostics. Pure: the step table and all names are passed in."""
