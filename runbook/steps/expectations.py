"""What a checkpoint is expected to hold, and each way in which it does not."""

from __future__ import annotations

from typing import Annotated, Union

import msgspec
from msgspec import Meta

from runbook.steps.tensor_names import Entries, matcher, near, type_name

Dimension = Union[Annotated[int, Meta(ge=0)], None]


class Expect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keys may be patterns: `*` stands for any text, `?` for one character."""

    keys: Annotated[list[str], Meta(description="each matches at least one key")] = []
    absent: Annotated[list[str], Meta(description="none of these matches a key")] = []
    shapes: Annotated[dict[str, list[Dimension]], Meta(description="shape of every key that matches; null: any size")] = {}
    dtypes: Annotated[dict[str, str], Meta(description="type of every key that matches: bfloat16, or BF16")] = {}
    prefix: Annotated[Union[str, list[str], None], Meta(description="every key begins with it, or with one of them")] = None


def differences(expect: Expect, entries: Entries, *, partial: bool = False) -> list[str]:
    """One sentence for each expectation that does not hold. With `partial`, a key that is not there is no difference: it may be unread."""
    found = _absent(expect.absent, entries)
    for pattern, shape in expect.shapes.items():
        found += _each(pattern, entries, partial, lambda key, shape=shape: _shape(key, entries, shape))  # type: ignore[misc]
    for pattern, dtype in expect.dtypes.items():
        found += _each(pattern, entries, partial, lambda key, dtype=dtype: _dtype(key, entries, dtype))  # type: ignore[misc]
    if not partial:
        missing = [pattern for pattern in expect.keys if not any(map(matcher([pattern]), entries))]
        found = [_missing(pattern, entries) for pattern in missing] + found
    return found + _prefix(expect.prefix, entries)


def _missing(pattern: str, entries: Entries) -> str:
    return f"no key matches `{pattern}`{near(pattern, entries)}"


def _absent(patterns: list[str], entries: Entries) -> list[str]:
    found = []
    for pattern in patterns:
        hits = list(filter(matcher([pattern]), entries))
        if hits:
            more = f" and {len(hits) - 1} more" if len(hits) > 1 else ""
            found.append(f"`{hits[0]}` is there{more}, and `{pattern}` must be absent")
    return found


def _each(pattern: str, entries: Entries, partial: bool, check) -> list[str]:  # type: ignore[no-untyped-def]
    hits = list(filter(matcher([pattern]), entries))
    if not hits:
        return [] if partial else [_missing(pattern, entries)]
    found = list(filter(None, map(check, hits)))
    return [found[0] + (f" (and {len(found) - 1} more that match `{pattern}`)" if len(found) > 1 else "")] if found else []


def _shape(key: str, entries: Entries, wanted: list[int | None]) -> str:
    real = entries[key].shape
    fits = len(real) == len(wanted) and all(size in (None, there) for size, there in zip(wanted, real, strict=True))
    shown = ", ".join("any" if size is None else str(size) for size in wanted)
    return "" if fits else f"`{key}` has the shape {list(real)}, expected [{shown}]"


def _dtype(key: str, entries: Entries, wanted: str) -> str:
    real = entries[key].dtype
    return "" if type_name(real) == type_name(wanted) else f"`{key}` is {real}, expected {type_name(wanted)}"


def _prefix(prefix: str | list[str] | None, entries: Entries) -> list[str]:
    wanted = tuple([prefix] if isinstance(prefix, str) else prefix or ())
    odd = [key for key in entries if not key.startswith(wanted)] if wanted else []
    shown = " or ".join(f"`{one}`" for one in wanted)
    return [f"{len(odd)} of {len(entries)} keys do not begin with {shown}: `{odd[0]}`" + (", …" if len(odd) > 1 else "")] if odd else []
