"""The code that runs on the host: stdlib only, Python >= 3.8, imports nothing of the rest of runbook."""
