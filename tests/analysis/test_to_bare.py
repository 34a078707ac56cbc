"""What gives way to the bare step where clocks told the host's time: kernels, gaps, host, start."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from cb_trace.analysis.lengths import step_lengths
from cb_trace.analysis.to_bare import MOST_SLOWER, Fit, StepWindow, to_bare
from tests.analysis.test_simulate import begun, host_chain, long_chain, run, stepped
from tests.analysis.timelines import A, Timeline


def fitted(timeline: Timeline, bare_ns: int, window: StepWindow | None = None) -> Fit:
    (program,) = stepped(timeline)
    lengths = partial(step_lengths, program)
    return to_bare(program, lengths, bare_ns, 5_000.0, watched=True, window=window)


def windowed(host_ns: int, window_ns: int) -> StepWindow:
    return StepWindow(host_ns=host_ns, closing_ns=0, window_ns=window_ns + 5_000, empty_ns=5_000)


def close(fit: Fit) -> tuple[object, ...]:
    return tuple(pytest.approx(one, rel=1e-5) for one in (fit.host, fit.device, fit.gap))


def test_kernels_give_way_to_when_the_device_was_through() -> None:
    # 2 µs of the host, 2 of latency, 902 of kernels and gaps: 1.05 times those. With the clocks the
    # host took twice as long.
    fit = fitted(long_chain(), 951_100, windowed(16_000, 953_100))
    assert close(Fit(1.0, 1.05, 1.05)) == (fit.host, fit.device, fit.gap)
    assert fit.start_ns == 0


def test_a_profiler_s_gaps_give_way_before_kernels_do() -> None:
    # Gaps of 20 µs to 8: 4 + 900 + 16.
    fit = fitted(long_chain(20_000), 920_000, windowed(8_000, 920_000))
    assert close(Fit(1.0, 1.0, 0.4)) == (fit.host, fit.device, fit.gap)
    # No gaps are too long by 18 µs of 900.
    fit = fitted(long_chain(20_000), 886_000, windowed(8_000, 886_000))
    assert close(Fit(1.0, 0.98, 0.0)) == (fit.host, fit.device, fit.gap)


@pytest.mark.parametrize("window_ns", [896_500, 915_500, 1_100_000])
def test_windows_within_noise_and_those_that_no_kernel_explains_tell_nothing(
    window_ns: int,
) -> None:
    fit = fitted(long_chain(), 906_000, windowed(8_000, window_ns))
    assert close(Fit()) == (fit.host, fit.device, fit.gap)


def test_a_host_that_hides_is_no_slower_than_others_and_starts_later() -> None:
    # 2.2 µs of the host, 1.8 more before it all, 2 of latency, 902 on the device.
    fit = fitted(long_chain(), 908_000)
    assert close(Fit(MOST_SLOWER)) == (fit.host, fit.device, fit.gap)
    assert fit.start_ns == pytest.approx(1_800)
    # No start is that late: 5 µs, and a host of 3 × 2.
    fit = fitted(long_chain(), 915_000)
    assert close(Fit(3.0)) == (fit.host, fit.device, fit.gap)
    assert fit.start_ns == 5_000


def test_nor_is_it_faster_and_kernels_give_way() -> None:
    fit = fitted(long_chain(), 900_000)
    device = (898_000 - 2_000 / MOST_SLOWER) / 902_000
    assert close(Fit(1 / MOST_SLOWER, device, device)) == (fit.host, fit.device, fit.gap)


def test_a_host_that_bounds_the_step_has_any_speed() -> None:
    for times in (0.5, 2.0):
        fit = fitted(host_chain(), round(times * 100_000), windowed(100_000, 100_000))
        assert close(Fit(times)) == (fit.host, fit.device, fit.gap)


def test_a_step_that_waits_for_the_device_tells_nothing_of_kernels() -> None:
    timeline = run(begun(10_000).call(A, 0, 8_000, parent_call_id=0), A, 2_000, 4_000, 500_000)
    timeline.launch(1, "cudaDeviceSynchronize", 3_000, 501_000)
    (program,) = stepped(timeline)
    lengths = partial(step_lengths, program)
    given = float(lengths(host=1.0)[0])
    fit = to_bare(
        program, lengths, round(given), 0.0, watched=True, window=windowed(10_000, 540_000)
    )  # fmt: skip
    assert (fit.device, fit.gap) == (1.0, 1.0)


def abreast() -> Timeline:
    """95 µs of the host, and kernels from its fourth to the hundredth, the last 60 at 40."""
    timeline = begun(95_000).call(A, 0, 95_000, parent_call_id=0)
    run(timeline, A, 2_000, 4_000, 35_000)
    return run(timeline, A, 10_000, 40_000, 60_000)


def test_kernels_do_not_vanish_where_the_host_alone_takes_the_step() -> None:
    # At 1 ÷ 1.1 the host takes 86 µs of a bare step of 80: all gives way alike.
    (program,) = stepped(abreast())
    lengths = partial(step_lengths, program)
    fit = to_bare(program, lengths, 80_000, 5_000.0, watched=True)
    assert fit.host == fit.device == fit.gap
    assert fit.device == pytest.approx(0.8, abs=0.05)
    assert float(lengths(host=fit.host, device=fit.device, gap=fit.gap)[0]) == pytest.approx(80_000)


@pytest.mark.parametrize("closing_ns", [0, 20_000])
def test_nor_without_clocks_and_however_long_the_window_takes_to_close(closing_ns: int) -> None:
    (program,) = stepped(abreast())
    program = replace(program, closing_ns=closing_ns, empty_ns=5_000)
    lengths = partial(step_lengths, program)
    bare_ns = 80_000
    fit = to_bare(program, lengths, bare_ns, 5_000.0, watched=False)
    assert fit.device > 0.5
    found = float(lengths(host=fit.host, device=fit.device, gap=fit.gap)[0])
    assert found == pytest.approx(bare_ns)


def test_a_step_without_host_work_has_kernels_give_way() -> None:
    (program,) = stepped(long_chain())
    program = replace(program, work_ns=program.work_ns * 0, closing_ns=20_000, empty_ns=5_000)
    lengths = partial(step_lengths, program)
    fit = to_bare(program, lengths, 450_000, 0.0, watched=True, window=windowed(0, 450_000))
    assert fit.host == 1.0
    assert 0.45 < fit.device < 0.55
    assert float(lengths(device=fit.device, gap=fit.gap)[0]) == pytest.approx(450_000)


@pytest.mark.parametrize("watched", [True, False])
def test_a_host_that_bounds_the_step_does_not_vanish_where_kernels_are_longer(
    watched: bool,
) -> None:
    # 100 µs of the host with the last kernel behind them; the bare step is shorter than kernels.
    timeline = begun(100_000).call(A, 0, 100_000, parent_call_id=0)
    run(timeline, A, 5_000, 7_000, 80_000)
    (program,) = stepped(timeline)
    lengths = partial(step_lengths, program)
    fit = to_bare(program, lengths, 70_000, 5_000.0, watched=watched)
    assert fit.host > 0.5
    assert 0.5 < fit.device < 1
    found = float(lengths(host=fit.host, device=fit.device, gap=fit.gap)[0])
    assert found == pytest.approx(70_000)
