"""Text to data with spans: the hardened YAML loader and the expression language."""
