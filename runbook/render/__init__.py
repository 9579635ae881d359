"""Folds over events: terminal, Markdown, JSON summary. No IO, no clock."""
