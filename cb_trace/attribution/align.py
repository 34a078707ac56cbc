"""Two runs of one program held side by side: which item of one is which of the other.

A pair counts only where it is certain: every longest common subsequence holds it. So one missing
memset does not lose the rest, and where one of several equal neighbours is missing none of them is
guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cb_trace.attribution.nesting import NOTHING, Flags, Ints

MOST_CELLS = 16_000_000  # of the table of two unequal sequences: 64 MB each, a second


@dataclass(frozen=True, slots=True)
class Alignment:
    """``match``: the position in ``right`` of each item of ``left``, or ``NOTHING``.

    ``length``: how many items a longest common subsequence has, certain or not.
    """

    match: Ints
    length: int


def align(left: Ints, right: Ints, label: Ints | None = None) -> Alignment:
    """Match two sequences of tokens in order.

    :param label: what an item of ``right`` stands for. Candidates of one label are as good as one
        another: where all of an item's are such, the first is taken. Left out, all differ.
    """
    if np.array_equal(left, right):
        return Alignment(np.arange(len(left)), len(left))
    if len(left) * len(right) > MOST_CELLS or not len(left) or not len(right):
        return Alignment(np.full(len(left), NOTHING, np.int64), 0)
    same = left[:, None] == right[None, :]
    before, after = _lengths(same), _lengths(same[::-1, ::-1])[::-1, ::-1]
    length = int(before[-1, -1])
    at, to = np.nonzero(same & (before[:-1, :-1] + after[1:, 1:] + 1 == length))
    place = before[at, to]  # a longest common subsequence holds one pair of each place
    label = np.arange(len(right)) if label is None else label
    certain = _one_value(place, at, length) & _one_value(place, label[to], length)
    match = np.full(len(left), NOTHING, np.int64)
    first = np.full(length, len(right), np.int64)
    np.minimum.at(first, place, to)
    match[at] = np.where(certain[place], first[place], match[at])
    return Alignment(match, length)


def _lengths(same: Flags) -> Ints:
    """Lengths of the longest common subsequences of all pairs of prefixes."""
    table = np.zeros((same.shape[0] + 1, same.shape[1] + 1), np.int32)
    for row, equal in enumerate(same):
        table[row + 1, 1:] = np.maximum.accumulate(
            np.maximum(table[row, 1:], table[row, :-1] + equal)
        )
    return table


def _one_value(place: Ints, value: Ints, places: int) -> Flags:
    """Whether all values of a place are equal."""
    least = np.full(places, np.iinfo(np.int64).max)
    most = np.full(places, np.iinfo(np.int64).min)
    np.minimum.at(least, place, value)
    np.maximum.at(most, place, value)
    return np.asarray(least == most)
