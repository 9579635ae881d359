"""The table of step types. A new one is one file beside this one and one line here."""
