"""Record a step: bare timing, live inputs, profiled steps, the bundle."""
