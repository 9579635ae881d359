"""`python -m tests.cases.table`: the outcome of each case."""

import sys

from tests.cases.outcomes import table

if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
