"""Makes any transformers model compute in float64 throughout.

Modelling code asks for float32 in many places (norms, softmax, router, rope, state space scans), whatever the model's
type. While the model runs, every such request means float64 instead, so no part of a model has to be replaced.
exact.py replaces parts by hand; it is for the models whose expected values were made so.
"""

import torch
from torch.overrides import TorchFunctionMode


class _Float64(TorchFunctionMode):
    def __torch_function__(self, function, _types, args=(), kwargs=None):
        def widen(value):
            return torch.float64 if value is torch.float32 else value

        if function is torch.Tensor.float:
            function = torch.Tensor.double
        return function(*map(widen, args), **{key: widen(value) for key, value in (kwargs or {}).items()})


def widen(model):
    """The model, changed to compute in float64. Weights and rope frequencies keep their float32 values."""
    model = model.double()
    forward = model.forward

    def run(*args, **kwargs):
        with _Float64():
            return forward(*args, **kwargs)

    model.forward = run
    return model
