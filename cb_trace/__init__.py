"""cb-trace: what each nn.Module of a PyTorch model costs, in the full pass and alone."""

__version__ = "0.1.0"
