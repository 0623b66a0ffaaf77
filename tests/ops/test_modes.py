"""What is kept on a CUDA device between calls, tried without one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tsattn.ops.modes import is_fake, kept_by_stream

CUDA = torch.device("cuda")


def test_what_is_kept_is_of_one_stream_and_real(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, capturing = SimpleNamespace(cuda_stream=1), [False]
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[0])

    @kept_by_stream
    def find(length: int, device: torch.device) -> Tensor:
        return torch.arange(length)

    with FakeTensorMode():
        assert is_fake(find(3, CUDA)) or type(find(3, CUDA)) is not Tensor
    with torch.inference_mode():
        first = find(3, CUDA)
    assert type(first) is Tensor
    assert not first.is_inference()
    assert find(3, CUDA) is first
    assert find(4, CUDA) is not first
    capturing[0] = True
    assert find(3, CUDA) is not first
    capturing[0], stream.cuda_stream = False, 2
    assert find(3, CUDA) is not first
    assert find(3, torch.device("cpu")) is not find(3, torch.device("cpu"))
