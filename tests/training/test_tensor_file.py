"""Safetensors files in parts: the library reads back every type and shape, and nothing is held twice."""

import pytest
import torch
from safetensors.torch import load

from fusedplanes.training.tensor_file import safetensors_parts


@pytest.fixture(scope="module")
def tensors():
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(4, 6, generator=generator)
    return {
        "strided": values[:, ::2],
        "transposed": values.T,
        "shared": values,
        "number": torch.tensor(3),
        "empty": torch.zeros(0, 4, dtype=torch.float16),
        "true": torch.tensor([True, False, True]),
        'a "quoted" nämé': values[0, :5].bfloat16(),
        "bytes": torch.arange(3, dtype=torch.uint8),
        "double": values.double(),
        "with gradient": values.clone().requires_grad_(),
        "short": torch.arange(-3, 2, dtype=torch.int16),
        "tiny": torch.arange(-3, 2, dtype=torch.int8),
        "whole": torch.arange(-3, 2, dtype=torch.int32),
    }


def test_the_library_reads_what_is_written(tensors):
    found = load(b"".join(safetensors_parts(tensors)))
    assert found.keys() == tensors.keys()
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype, name
        assert torch.equal(found[name], value.detach()), name
    assert load(b"".join(safetensors_parts({}))) == {}


def test_every_tensor_lies_on_a_multiple_of_its_width(tensors):
    parts = list(safetensors_parts(tensors))
    assert len(parts[0]) % 8 == 0
    widths = sorted((value.element_size() for value in tensors.values()), reverse=True)
    offset = 0
    for width, part in zip(widths, parts[1:], strict=True):
        assert offset % width == 0
        offset += len(part)


def test_a_contiguous_tensor_is_not_copied():
    tensor = torch.zeros(5)
    part = list(safetensors_parts({"zeros": tensor}))[1]
    tensor.fill_(1.0)
    assert bytes(part) == torch.ones(5).numpy().tobytes()


def test_a_type_without_a_name_is_refused():
    with pytest.raises(KeyError):
        list(safetensors_parts({"complex": torch.zeros(2, dtype=torch.complex64)}))
