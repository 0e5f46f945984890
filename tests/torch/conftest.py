"""Fixtures for the tests of networks that need PyTorch."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Compute on one thread, which is faster for small networks."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
