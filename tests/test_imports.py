"""Packages whose names are imported when first used."""

from __future__ import annotations

import pkgutil

import pytest

import cb_trace
from cb_trace import analysis


@pytest.mark.parametrize("package", [analysis, cb_trace], ids=lambda package: package.__name__)
def test_no_late_name_is_that_of_a_submodule(package: object) -> None:
    """Once the submodule is imported, by whomever, the name would be the submodule."""
    path, names = package.__path__, package.__all__  # type: ignore[attr-defined]
    assert not {found.name for found in pkgutil.iter_modules(path)} & set(names)
    assert all(getattr(package, name) is not None for name in names)
