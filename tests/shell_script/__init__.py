"""Shell scripts to playbooks."""
