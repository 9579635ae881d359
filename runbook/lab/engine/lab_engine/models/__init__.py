"""Model definitions: the target and its EAGLE-3 draft."""
