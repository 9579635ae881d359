"""The zoo: real processes that hang, and their live twins. `python -m tests.zoo.run --help`."""
