"""Copies of tensors that kernels cannot tell from the original.

A tensor is copied by the extent of its storage and rebuilt as a view of the copy: dtype, sizes,
strides (expanded and overlapping ones too), storage offset, the address modulo 256, grad and
inference flags are kept, and tensors that share a storage share it again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

ALIGNMENT = 256  # cuBLAS and vectorised kernels choose by address bits below this
FREE_PREFIX_BYTES = 1 << 20
SHARED_ALIGNMENT = 64  # what a signature tells apart; CPU allocators promise no more
MAX_COUNTED_IDS = 50_000_000

Signature = tuple[object, ...]


class UncopyableError(Exception):
    """A value that cannot be copied faithfully; the message names it."""


@dataclass(slots=True)
class StorageSpec:
    """The bytes ``low`` to ``high`` of one storage that captured tensors reach."""

    storage: torch.UntypedStorage
    low: int
    high: int

    def cut(self) -> tuple[int, int]:
        """First byte to copy and number of bytes.

        All from the storage's start, so that storage offsets stay as they are, unless the part
        before the first element is large and larger than what is needed.
        """
        span = self.high - self.low
        first = 0 if self.low <= max(span, FREE_PREFIX_BYTES) else self.low - self.low % ALIGNMENT
        return first, self.high - first


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """How one tensor is rebuilt from storages, or from other tensors (``parts``)."""

    kind: str  # strided, quantized, sparse, compressed, nested, wrapper
    cls: type[torch.Tensor]
    dtype: torch.dtype
    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: int
    storage: int  # index of its storage; -1 where it is made of parts
    parts: tuple[int, ...]
    extra: Any
    requires_grad: bool
    leaf: bool
    inference: bool
    conj: bool
    negative: bool


class TensorPlan:
    """Collects tensors to copy; nothing is copied yet."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.specs: list[TensorSpec] = []
        self.storages: list[StorageSpec] = []
        self._index: dict[int, int] = {}
        self._storage_index: dict[int, int] = {}

    def add(self, tensor: torch.Tensor) -> int:
        """Index of the tensor in this plan; the same object has the same index."""
        known = self._index.get(id(tensor))
        if known is not None:
            return known
        spec = self._spec(tensor)
        self.tensors.append(tensor)
        self.specs.append(spec)
        self._index[id(tensor)] = len(self.specs) - 1
        return len(self.specs) - 1

    def bytes_by_device(self) -> dict[torch.device, int]:
        """Bytes that a copy takes, by the device of the original."""
        found: dict[torch.device, int] = {}
        for spec in self.storages:
            device = spec.storage.device
            found[device] = found.get(device, 0) + spec.cut()[1]
        return found

    def signature(self, index: int) -> Signature:
        """What decides kernels and work: layout, alignment, flags, and how far ids repeat."""
        spec, tensor = self.specs[index], self.tensors[index]
        parts = tuple(self.signature(part) for part in spec.parts)
        size = tuple(n if isinstance(n, int) else "jagged" for n in spec.size)
        stride = tuple(n if isinstance(n, int) else "jagged" for n in spec.stride)
        flags = (spec.requires_grad, spec.leaf, spec.inference, spec.conj, spec.negative)
        name = spec.cls.__qualname__
        where = (spec.storage, _address_bits(tensor), str(tensor.device))
        if parts:
            where = (-1, 0, str(tensor.device))
        return (spec.kind, name, str(spec.dtype), size, stride, where, flags, _reuse(tensor), parts)

    def _spec(self, tensor: torch.Tensor) -> TensorSpec:
        if tensor.device.type == "meta":
            raise UncopyableError("a meta tensor, which has no data")
        if is_wrapper(tensor):
            return self._wrapper(tensor)
        if tensor.is_nested:
            return self._nested(tensor)
        if tensor.layout == torch.sparse_coo:
            return self._sparse(tensor)
        if tensor.layout in _COMPRESSED:
            return self._compressed(tensor)
        if tensor.layout != torch.strided:
            raise UncopyableError(f"a tensor of layout {tensor.layout}")
        return self._strided(tensor)

    def _strided(self, tensor: torch.Tensor) -> TensorSpec:
        kind, extra = (
            ("quantized", _quantizer(tensor)) if tensor.is_quantized else ("strided", None)
        )
        try:
            storage = self._storage(tensor)
        except (RuntimeError, NotImplementedError) as error:
            raise UncopyableError(f"a {type(tensor).__name__} without storage") from error
        return _spec_of(tensor, kind, storage, (), extra)

    def _wrapper(self, tensor: torch.Tensor) -> TensorSpec:
        flat: Any = tensor
        names, context = flat.__tensor_flatten__()
        parts = tuple(self.add(getattr(tensor, name)) for name in names)
        return _spec_of(tensor, "wrapper", -1, parts, (tuple(names), context))

    def _nested(self, tensor: torch.Tensor) -> TensorSpec:
        shape = (
            tensor._nested_tensor_size().clone(),
            tensor._nested_tensor_strides().clone(),
            tensor._nested_tensor_storage_offsets().clone(),
        )
        flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        flat.set_(tensor.detach().untyped_storage())
        return _spec_of(tensor, "nested", -1, (self.add(flat),), shape)

    def _sparse(self, tensor: torch.Tensor) -> TensorSpec:
        plain = tensor.detach()
        parts = (self.add(plain._indices()), self.add(plain._values()))
        return _spec_of(tensor, "sparse", -1, parts, tensor.is_coalesced())

    def _compressed(self, tensor: torch.Tensor) -> TensorSpec:
        plain = tensor.detach()
        by_row = tensor.layout in {torch.sparse_csr, torch.sparse_bsr}
        outer = plain.crow_indices() if by_row else plain.ccol_indices()
        inner = plain.col_indices() if by_row else plain.row_indices()
        parts = (self.add(outer), self.add(inner), self.add(plain.values()))
        return _spec_of(tensor, "compressed", -1, parts, tensor.layout)

    def _storage(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        storage.data_ptr()  # raises where there is none
        low = int(tensor.storage_offset()) * tensor.element_size()
        reach = sum((n - 1) * s for n, s in zip(tensor.size(), tensor.stride(), strict=True))
        high = low + (reach + 1) * tensor.element_size() if tensor.numel() else low
        if high > storage.nbytes():
            raise UncopyableError("a tensor that reaches beyond its storage")
        key = storage._cdata
        known = self._storage_index.setdefault(key, len(self.storages))
        if known == len(self.storages):
            self.storages.append(StorageSpec(storage, low, high))
        else:
            spec = self.storages[known]
            spec.low, spec.high = min(spec.low, low), max(spec.high, high)
        return known


@dataclass(frozen=True, slots=True)
class StorageCopy:
    """A pristine copy of a storage's bytes from ``first`` on; it may lie on another device."""

    data: torch.Tensor  # uint8
    first: int
    device: torch.device  # of the original
    remainder: int  # address of byte ``first`` modulo ALIGNMENT in the original
    pinned: bool

    def matches(self, storage: torch.UntypedStorage) -> bool:
        """Whether a storage still holds the copied bytes."""
        now = _bytes_of(storage, self.first, self.data.numel())
        return torch.equal(now, self.data.to(now.device))

    def working(self) -> torch.Tensor:
        """A fresh copy on the original's device, aligned as the original was."""
        fresh = _aligned(self.data.numel(), self.device, self.remainder, pinned=self.pinned)
        return fresh.copy_(self.data)


def copy_storage(spec: StorageSpec, place: torch.device | None) -> StorageCopy:
    """Copy the part of a storage that is needed, to ``place`` or its own device."""
    first, length = spec.cut()
    device = spec.storage.device
    source = _bytes_of(spec.storage, first, length)
    remainder = (spec.storage.data_ptr() + first) % ALIGNMENT if length else 0
    pinned = device.type == "cpu" and torch.cuda.is_available() and source.is_pinned()
    data = _aligned(length, place or device, remainder, pinned=False).copy_(source)
    return StorageCopy(data, first, device, remainder, pinned)


def build_tensors(
    specs: Sequence[TensorSpec],
    copies: Sequence[StorageCopy],
    working: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Rebuild every tensor as a view of the working storages (uint8, one a storage copy)."""
    built: list[torch.Tensor] = []
    for spec in specs:
        parts = [built[part] for part in spec.parts]
        with torch.inference_mode(spec.inference), torch.no_grad():
            tensor = _BUILDERS[spec.kind](spec, copies, working, parts)
        built.append(_with_grad(tensor, spec))
    return built


class _Anchor(torch.autograd.Function):
    """Makes a tensor a non-leaf without touching its bytes, whatever its layout."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(tensor)
        return tensor

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return None, None


def _with_grad(tensor: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    if not spec.requires_grad:
        return tensor
    if spec.leaf:
        return tensor.requires_grad_(True)
    with torch.inference_mode(False), torch.enable_grad():
        anchor = torch.zeros((), requires_grad=True)
        made: torch.Tensor = _Anchor.apply(anchor, tensor)  # type: ignore[no-untyped-call]
        return made


def _spec_of(
    tensor: torch.Tensor, kind: str, storage: int, parts: tuple[int, ...], extra: Any
) -> TensorSpec:
    plain = kind in {"strided", "quantized"}
    strided = plain or (kind == "wrapper" and tensor.layout != torch.sparse_coo)
    return TensorSpec(
        kind=kind,
        cls=type(tensor),
        dtype=tensor.dtype,
        size=() if kind == "nested" else tuple(tensor.size()),
        stride=tuple(tensor.stride()) if strided else (),
        offset=int(tensor.storage_offset()) if plain else 0,
        storage=storage,
        parts=parts,
        extra=extra,
        requires_grad=tensor.requires_grad,
        leaf=tensor.is_leaf,
        inference=tensor.is_inference(),
        conj=plain and tensor.is_conj(),
        negative=plain and tensor.is_neg(),
    )


def _build_strided(
    spec: TensorSpec,
    copies: Sequence[StorageCopy],
    working: Sequence[torch.Tensor],
    parts: Sequence[torch.Tensor],
) -> torch.Tensor:
    copied, data = copies[spec.storage], working[spec.storage]
    if spec.kind == "quantized":
        made = _empty_quantized(spec, data.device)
    else:
        made = torch.empty(0, dtype=spec.dtype, device=data.device)
    offset = spec.offset - copied.first // made.element_size()
    made.set_(data.untyped_storage(), offset, spec.size, spec.stride)
    if spec.conj:
        torch._C._set_conj(made, True)
    if spec.negative:
        torch._C._set_neg(made, True)
    if issubclass(spec.cls, torch.nn.Parameter):
        return torch.nn.Parameter(made, requires_grad=False)
    return made if spec.cls is torch.Tensor else made.as_subclass(spec.cls)


def _build_composite(
    spec: TensorSpec,
    copies: Sequence[StorageCopy],
    working: Sequence[torch.Tensor],
    parts: Sequence[torch.Tensor],
) -> torch.Tensor:
    if spec.kind in {"sparse", "compressed"}:
        checks: Any = torch.sparse.check_sparse_tensor_invariants
        with checks(False):  # torch 2.11 warns where nobody decides
            return _build_sparse(spec, parts)
    if spec.kind == "nested":
        made: torch.Tensor = torch._nested_view_from_buffer(parts[0], *spec.extra)
        return made
    names, context = spec.extra
    cls: Any = spec.cls
    attributes = dict(zip(names, parts, strict=True))
    wrapped: torch.Tensor = cls.__tensor_unflatten__(attributes, context, spec.size, spec.stride)
    return wrapped.detach() if wrapped.requires_grad else wrapped


def _build_sparse(spec: TensorSpec, parts: Sequence[torch.Tensor]) -> torch.Tensor:
    if spec.kind == "sparse":
        return torch.sparse_coo_tensor(parts[0], parts[1], spec.size, is_coalesced=spec.extra)
    outer, inner, values = parts
    return torch.sparse_compressed_tensor(outer, inner, values, spec.size, layout=spec.extra)


_BUILDERS = {
    "strided": _build_strided,
    "quantized": _build_strided,
    "sparse": _build_composite,
    "compressed": _build_composite,
    "nested": _build_composite,
    "wrapper": _build_composite,
}
_COMPRESSED = {torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}


def is_wrapper(tensor: Any) -> bool:
    return bool(is_traceable_wrapper_subclass(tensor))


def _quantizer(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.qscheme() in {torch.per_tensor_affine, torch.per_tensor_symmetric}:
        return (tensor.q_scale(), tensor.q_zero_point())
    if tensor.qscheme() in {torch.per_channel_affine, torch.per_channel_symmetric}:
        scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        return (scales.clone(), zeros.clone(), tensor.q_per_channel_axis())
    raise UncopyableError(f"a quantised tensor of scheme {tensor.qscheme()}")


def _empty_quantized(spec: TensorSpec, device: torch.device) -> torch.Tensor:
    if len(spec.extra) == 2:
        return torch._empty_affine_quantized(
            spec.size,
            scale=spec.extra[0],
            zero_point=spec.extra[1],
            dtype=spec.dtype,
            device=device,
        )
    scales, zeros, axis = spec.extra
    return torch._empty_per_channel_affine_quantized(
        spec.size, scales=scales, zero_points=zeros, axis=axis, dtype=spec.dtype, device=device
    )


def _bytes_of(storage: torch.UntypedStorage, first: int, length: int) -> torch.Tensor:
    view = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return view.set_(storage, first, (length,), (1,))


def _aligned(length: int, device: torch.device, remainder: int, *, pinned: bool) -> torch.Tensor:
    """Uninitialised bytes at an address of the given remainder modulo ALIGNMENT.

    The storage of the result begins at its first byte, so that storage offsets can be kept.
    """
    base = torch.empty(length + ALIGNMENT, dtype=torch.uint8, device=device, pin_memory=pinned)
    shift = (remainder - base.data_ptr()) % ALIGNMENT
    part: torch.UntypedStorage = base.untyped_storage()[shift : shift + length]
    return _bytes_of(part, 0, length)


def _address_bits(tensor: torch.Tensor) -> int:
    if tensor.layout != torch.strided or tensor.is_nested:
        return 0
    if is_wrapper(tensor):
        return 0
    address = tensor.data_ptr()
    return min(address & -address, SHARED_ALIGNMENT)


def _reuse(tensor: torch.Tensor) -> int:
    """How many distinct ids an integer tensor holds, in steps of a factor √2.

    Lookups with ids of another reuse are other work at the same shape (shared facts,
    measuring.md section 7, live data), so they must not share a measurement.
    """
    if tensor.dtype not in {torch.int32, torch.int64} or tensor.layout != torch.strided:
        return 0
    if is_wrapper(tensor) or not 1 < tensor.numel() <= MAX_COUNTED_IDS:
        return 0
    return round(2 * math.log2(max(1, torch.unique(tensor.detach()).numel())))
