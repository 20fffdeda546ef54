"""What the benchmarks beside PyTorch and CuPy share."""

import importlib


def load(name):
    """The module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
