"""Secrets that nobody declared, known by their shape; and a transcript made fit for strangers. Pure, but for `stream`'s file."""
