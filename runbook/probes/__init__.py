"""Pure: source text and probes to patched source text; reading the lines that probes write."""
