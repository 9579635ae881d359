"""The three answers of a source, as plain data: seen, absent (looked, and it is not there), blind (could not look)."""

from typing import Any, Dict


def seen(value: Any) -> Dict[str, Any]:
    """The source answered."""
    return {"type": "seen", "value": value}


def absent(reason: str = "") -> Dict[str, Any]:
    """The source answered that there is nothing."""
    return {"type": "absent", "reason": reason}


def blind(reason: str) -> Dict[str, Any]:
    """The source could not be read; says nothing about the thing itself."""
    return {"type": "blind", "reason": reason}
