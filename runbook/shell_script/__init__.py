"""Shell scripts to playbooks, with what such scripts commonly get wrong."""
