"""The GPUs of a host as the driver's tool reports them. Memory in bytes, power in watts."""

from __future__ import annotations

import msgspec


class GpuHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that holds GPU memory. `used` is null when only an open device file gives it away."""

    pid: int
    user: str = ""
    title: str = ""
    age_s: float | None = None
    used: int | None = None


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as the driver's tool reports it; memory in bytes."""

    index: int
    name: str
    used: int
    total: int
    uuid: str = ""
    utilisation: int | None = None
    holders: tuple[GpuHolder, ...] = ()
    faults: tuple[str, ...] = ()
    """ECC, Xid, MIG or lost-device states that the tool reported."""
    power_w: float | None = None
    """Null where the tool does not say, as is `throttle`."""
    power_limit_w: float | None = None
    throttle: tuple[str, ...] | None = None
    """Why clocks are held down: power cap, thermal, power brake, …; empty: they are not."""


class ToolSample(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU tool of the driver that has not ended yet: its process, state letter and wait channel."""

    pid: int
    state: str
    age_s: float
    wchan: str = ""
