"""One symbol a character: 64 of them, and anything else reads as the last one."""

SYMBOLS = "abcdefghijklmnopqrstuvwxyz0123456789 \n.,;:!?'\"()[]<>-_+=*/\\@#$%&~^|"[:64]


def encode(text):
    """Text to ids, case folded."""
    return [max(SYMBOLS.find(c), -1) % 64 for c in text.lower()]


def decode(ids):
    return "".join(SYMBOLS[i] for i in ids)


def chat(messages):
    """A conversation as one prompt that ends where the assistant speaks."""
    return "".join(f"{m['role']}: {m['content']}\n" for m in messages) + "assistant:"
