"""The parts of the HTML transcript. Each is a function from what was observed to markup."""
