"""A dispatch mode that sees operators and leaves what runs them as it is."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class Onlooker(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """To be derived from: ``__torch_dispatch__`` is what it does with an operator."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Else torch wraps ``__torch_dispatch__`` for its compiler, whose import takes seconds."""
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Else what the model has compiled is run as plain code ever after (torch 2.13)."""
        return True
