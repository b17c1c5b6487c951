"""What `tessera generate --quant` makes of weights, written anew from
runtime/weights/QuantizeTensor.h for the twins of hf_models.py: matrices of linear
layers become scale × integer, or scale × e4m3. Nothing here knows how they are
packed."""
import torch

LEAST_ROWS, LEAST_COLUMNS = 16, 32
STRIP = 16  # rows of which experts have a multiple where they are quantized


def as_f16(scale):
    return scale.to(torch.float16).to(torch.float64)


def rounded(weights, scale, least, most):
    """Integers of groups [..., group] with scales [...]; in f32, as they are
    multiplied there."""
    scale = scale.to(torch.float32)
    inverse = torch.where(scale == 0, torch.zeros(()), 1 / scale)
    return torch.clamp(torch.round(weights * inverse[..., None]), least, most)


def closest(wide, candidates):
    """Of each group the candidate with the least sum of squared errors, the
    first of equals."""
    best, least = None, None
    for value in candidates:
        error = ((wide - value) ** 2).sum(-1, keepdim=True)
        if least is None:
            best, least = value, error
            continue
        best = torch.where(error < least, value, best)
        least = torch.minimum(error, least)
    return best


def dequantize_groups(weights, bits):
    """Groups [rows, groups, size] of f32 as f64 scale × integer."""
    wide = weights.to(torch.float64)
    if bits == 8:
        scale = as_f16((weights.abs().amax(-1) / 127))
        q = rounded(weights, scale, -127, 127)
        return q.to(torch.float64) * scale[..., None]
    at = weights.abs().argmax(-1, keepdim=True)
    step = weights.gather(-1, at)[..., 0] / -8
    candidates = []
    for i in range(8):
        factor = 1 - torch.tensor(0.05, dtype=torch.float32) * i
        scale = as_f16(step * factor)
        candidates.append(rounded(weights, scale, -8, 7).to(torch.float64)
                          * scale[..., None])
    return closest(wide, candidates)


def dequantize_groups_with_zero(weights, bits):
    """The same as scale × (integer - zero point)."""
    wide, steps = weights.to(torch.float64), 2 ** bits - 1
    low, high = (torch.clamp(end, **{side: 0}) for end, side in
                 ((weights.amin(-1), "max"), (weights.amax(-1), "min")))
    candidates = []
    for i in range(8 if bits == 4 else 1):
        factor = 1 - torch.tensor(0.05, dtype=torch.float32) * i
        scale = as_f16((high - low) / steps * factor)
        lowest = rounded((low * factor)[..., None], scale, -steps, 0)
        inverse = torch.where(scale == 0, torch.zeros(()),
                              1 / scale.to(torch.float32))
        steps_up = torch.round(weights * inverse[..., None])
        steps_up = torch.minimum(torch.maximum(steps_up, lowest),
                                 lowest + steps)
        candidates.append(steps_up.to(torch.float64) * scale[..., None])
    return closest(wide, candidates)


def e4m3_numbers():
    """Those from 0 to 448, by their bits: 4 of exponent, 3 of fraction."""
    return torch.tensor([(bits % 8) * 2.0 ** -9 if bits < 8 else
                         (1 + bits % 8 / 8) * 2.0 ** (bits // 8 - 7)
                         for bits in range(0x7f)])


def dequantize_groups_e4m3(weights, _):
    """The same as scale × the nearest e4m3; of two that are as near, the one
    with even bits."""
    numbers = e4m3_numbers()
    scale = as_f16(weights.abs().amax(-1) / 448)
    inverse = scale.to(torch.float32)
    inverse = torch.where(inverse == 0, torch.zeros(()), 1 / inverse)
    wanted = weights * inverse[..., None]
    size = wanted.abs().clamp(max=448).to(torch.float64)
    above = torch.searchsorted(numbers.double(), size.contiguous())
    below = (above - 1).clamp(min=0)
    up, down = numbers[above] - size, size - numbers[below]
    bits = torch.where((up < down) | ((up == down) & (above % 2 == 0)), above,
                       below)
    return torch.copysign(numbers[bits], wanted).double() * scale[..., None]


def dequantize(matrix, bits, group, zeros=False, floats=False):
    """[out, in] of f32 as the f64 that its integers stand for."""
    rows, columns = matrix.shape
    each = (dequantize_groups_e4m3 if floats else
            dequantize_groups_with_zero if zeros else dequantize_groups)
    parts = [each(part[:, None, :], bits).reshape(rows, -1)
             for part in matrix.split(group, dim=1)]
    assert sum(part.shape[1] for part in parts) == columns
    return torch.cat(parts, dim=1)


def is_router(name):
    return name.endswith(".gate")


class Quantization:
    def __init__(self, kind, group, zeros=False):
        self.bits, self.floats = 4 if kind == "int4" else 8, kind == "fp8"
        self.group, self.zeros = group, zeros
        self.flags = ["--quant", kind, "--quant-group", str(group)]
        self.flags += ["--quant-zeros"] if zeros else []

    def apply(self, twin, head=True, stored_as=torch.float64):
        """Quantizes the three models of a Twins, whose weights are alike; heads
        that were tied to the table are then of their own. Without `head` one
        that is a module stays; `stored_as` rounds what numbers stand for."""
        weights = {}
        for name, module in twin.fp32.named_modules():
            weight = getattr(module, "weight", None)
            if weight is None or weight.dim() != 2 \
                    or isinstance(module, torch.nn.Embedding):
                continue
            is_head = name.endswith("lm_head")
            if is_head and not head:
                continue
            # GPT-2's Conv1D has [in, out].
            turned = not isinstance(module, torch.nn.Linear)
            matrix = weight.data.T if turned else weight.data
            if matrix.shape[0] < LEAST_ROWS or matrix.shape[1] < LEAST_COLUMNS:
                continue
            if is_router(name) or (".experts." in name
                                   and matrix.shape[0] % STRIP):
                continue
            value = dequantize(matrix, 8 if is_head else self.bits, self.group,
                               self.zeros and not is_head, self.floats)
            value = value.to(stored_as).double()
            weights[name] = value.T.contiguous() if turned else value
        for model in (twin.fp32, twin.bf16, twin.fp64):
            modules = dict(model.named_modules())
            for name, value in weights.items():
                old = modules[name].weight
                modules[name].weight = torch.nn.Parameter(
                    value.to(old.dtype, copy=True))
            if not hasattr(model, "lm_head"):  # of hf_newer.py, tied
                table = model.model.embed_tokens.weight
                model.head = dequantize(twin.fp32.model.embed_tokens.weight
                                        .data, 8, self.group,
                                        floats=self.floats).to(table.dtype)
