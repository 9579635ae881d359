"""Pure: samples and a profile to a verdict with evidence. No clock, no IO, no randomness."""
