"""HolisticTraceAnalysis as a second opinion on the traces of a profile.

HTA runs in a process of its own on each trace file. What it finds lands in the ``hta_*`` tables,
linked to our kernels and modules, and each total that both have is compared (see ``check``).
"""

from cb_trace.hta.opinion import SecondOpinion, second_opinion

__all__ = ["SecondOpinion", "second_opinion"]
