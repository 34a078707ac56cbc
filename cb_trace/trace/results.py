"""What the loader says it did."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The facts of a file's header that may travel on: an allow-list (traces.md rule 7)."""

    device_names: tuple[str, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    base_ns: int = 0
    cuda_version: str | None = None
    driver_version: str | None = None
    hip_version: str | None = None
    torch_version: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """One reason why something of the file is not in the tables as it stands there.

    ``ns`` is the duration concerned, where there is one.
    """

    reason: str
    events: int
    ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """What was loaded, and everything that was not."""

    trace_id: int
    path: str  # as the profile names the file
    rank: int
    world_size: int | None
    header: Header
    slices: int
    kernels: int
    launches: int
    ops: int
    steps: int
    repaired: int
    dropped: int
    kernels_without_launch: int
    lost_bytes: int = 0  # of the decompressed text after the last whole event
    truncated: bool = False
    damage: str | None = None  # a fault of the container or the text, with its likely cause
    drops: tuple[Drop, ...] = ()
    notes: tuple[str, ...] = field(default=())  # what a reader of the figures must know

    @property
    def broken(self) -> bool:
        """Whether damage cost events, which is no success; a cut-off end is none."""
        return self.damage is not None and (self.truncated or self.dropped > 0)

    def summary(self) -> str:
        """One line for stderr; empty where the file was sound."""
        # a file may be cut between two events
        parts = [f"{drop.events or ''} {drop.reason}".strip() for drop in self.drops]
        if self.lost_bytes:
            parts.append(f"{self.lost_bytes} bytes lost at the end")
        if self.damage:
            parts.append(self.damage)
        return "; ".join([*parts, *self.notes])
