"""Alignment: what is certain is paired, and nothing else."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cb_trace.attribution import align as module
from cb_trace.attribution.align import align


def match(left: str, right: str, label: str | None = None) -> list[int]:
    names = None if label is None else np.array([ord(c) for c in label], np.int64)
    found = align(np.array([ord(c) for c in left]), np.array([ord(c) for c in right]), names)
    return [int(at) for at in found.match]


def test_equal_sequences_pair_one_to_one() -> None:
    assert match("aabab", "aabab") == [0, 1, 2, 3, 4]


def test_one_missing_memset_does_not_lose_the_rest() -> None:
    assert match("abcmdef", "abcdef") == [0, 1, 2, -1, 3, 4, 5]
    assert match("abcdef", "abcmdef") == [0, 1, 2, 4, 5, 6]


def test_of_equal_neighbours_one_too_many_none_is_guessed() -> None:
    assert match("xaaay", "xaay") == [0, -1, -1, -1, 3]


def test_a_missing_layer_of_equal_layers_could_be_any_of_them() -> None:
    assert match("xababy", "xabababy") == [0, -1, -1, -1, -1, 7]


def test_candidates_that_stand_for_the_same_are_as_good() -> None:
    assert match("xay", "xaay", "1223") == [0, 1, 3]
    assert match("xay", "xaay", "1234") == [0, -1, 3]


def test_crossing_items_are_not_paired() -> None:
    assert match("ab", "ba") == [-1, -1]


def test_nothing_and_too_much() -> None:
    assert match("", "ab") == []
    assert match("ab", "") == [-1, -1]
    many = np.arange(2 * 4001) % 2
    assert module.MOST_CELLS < 4001 * 8002
    assert (align(many[:4001], many).match == -1).all()


def longest(left: str, right: str) -> list[set[tuple[int, int]]]:
    """All longest common subsequences, as sets of pairs, by trying."""
    for size in range(min(len(left), len(right)), -1, -1):
        found = [
            set(zip(a, b, strict=True))
            for a in combinations(range(len(left)), size)
            for b in combinations(range(len(right)), size)
            if all(left[i] == right[j] for i, j in zip(a, b, strict=True))
        ]
        if found:
            return found
    return []


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_a_pair_counts_where_every_longest_subsequence_holds_it(left: str, right: str) -> None:
    certain = set.intersection(*longest(left, right))
    assert {(i, j) for i, j in enumerate(match(left, right)) if j >= 0} == certain
