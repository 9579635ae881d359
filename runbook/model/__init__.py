"""Nouns of the project: frozen structs and units. No IO, no clock, no globals."""
