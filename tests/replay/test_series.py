"""Samples in blocks: those of a throttled device are dropped, and counted."""

from __future__ import annotations

from cb_trace.bundle import SampleBlock
from cb_trace.replay.clock import Reading
from cb_trace.replay.series import Block, Series, block_of, clock_notes
from cb_trace.replay.timing import Timed

FINE = Reading(1980, 45)
HOT = Reading(1200, 91, ("thermal slowdown",))


def test_samples_under_throttling_are_dropped_and_counted() -> None:
    series = Series([Block(0, (10, 12), FINE), Block(1, (90, 91, 92), HOT), Block(2, (11,), FINE)])
    assert series.samples() == [10, 12, 11]
    assert (series.median_ns(), series.dropped()) == (11, 3)
    assert series.records() == [
        SampleBlock(turn=0, samples=2, sm_clock_mhz=1980, temperature_c=45),
        SampleBlock(
            turn=1,
            samples=0,
            dropped=3,
            sm_clock_mhz=1200,
            temperature_c=91,
            limits=["thermal slowdown"],
        ),
        SampleBlock(turn=2, samples=1, sm_clock_mhz=1980, temperature_c=45),
    ]
    words, dropped = clock_notes([series])
    assert words == (
        "SM clock 1200 to 1980 MHz, 45 to 91 °C, after each of 3 blocks of samples, "
        "thermal slowdown after 1, 3 samples dropped"
    )
    assert dropped == 3


def test_where_all_are_throttled_all_are_kept() -> None:
    series = Series([Block(0, (90, 91), HOT)])
    assert series.samples() == [90, 91]
    assert series.dropped() == 0
    assert series.records()[0].limits == ["thermal slowdown"]


def test_without_a_reader_it_says_unknown() -> None:
    series = Series([Block(0, (7, 7, 7))])
    words, dropped = clock_notes([series])
    assert words == "SM clock unknown, temperature unknown, after each of 1 blocks of samples"
    assert (series.noise(), dropped) == (0.0, 0)


def test_a_series_without_samples() -> None:
    series = Series(skipped="no inputs")
    assert (series.samples(), series.median_ns(), series.noise()) == ([], 0, float("inf"))


def test_a_block_of_a_slowed_host_is_dropped_where_there_is_another() -> None:
    slowed, clear = Timed([20, 21], slowed=True), Timed([10, 11], dropped=4)
    series = Series([block_of(0, slowed, FINE), block_of(1, clear, FINE)])
    assert (series.samples(), series.dropped()) == ([10, 11], 6)
    assert [b.limits for b in series.records()] == [["host slowed"], []]
    assert [(b.samples, b.dropped) for b in series.records()] == [(0, 2), (2, 4)]
    assert "host slowed after 1, 6 samples dropped" in clock_notes([series])[0]
    alone = Series([block_of(0, slowed, FINE)])
    assert (alone.samples(), alone.dropped()) == ([20, 21], 0)
