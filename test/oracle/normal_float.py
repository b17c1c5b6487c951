"""NF4 with doubly quantized absmax, written from bitsandbytes' definition
(quantize_4bit with compress_statistics, create_dynamic_map), in numpy."""
import numpy as np

BLOCK, NESTED = 64, 256
CODE = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
     -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
     0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
     0.7229568362236023, 1.0], np.float32)


def dynamic_map():
    """The 256 numbers that absmax is quantized to, sorted."""
    numbers = [0.0, 1.0]
    for i in range(7):
        edges = np.linspace(0.1, 1, 2 ** i + 1, dtype=np.float32)
        means = (edges[:-1] + edges[1:]) / np.float32(2)
        for sign in (1, -1):
            numbers += (np.float32(sign * 10.0 ** (i - 6)) * means).tolist()
    return np.sort(np.array(numbers, np.float32))


def nearest(values, numbers):
    """Indices of the nearest, the lower of equals."""
    upper = np.clip(np.searchsorted(numbers, values), 1, len(numbers) - 1)
    lower = upper - 1
    return np.where(numbers[upper] - values < values - numbers[lower], upper, lower)


def scaled(blocks, most):
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(most > 0, np.float32(1) / most, np.float32(0)).astype(np.float32)
    return np.clip(blocks * inverse, np.float32(-1), np.float32(1))


def quantize(weight):
    """Of a matrix [n, k]: codes [n, k], absmax [n k / 64], its codes, the scales
    of these and the offset."""
    blocks = np.asarray(weight, np.float32).reshape(-1, BLOCK)
    absmax = np.abs(blocks).max(axis=1)
    codes = nearest(scaled(blocks, absmax[:, None]), CODE).reshape(np.shape(weight))
    offset = np.float32(absmax.astype(np.float64).mean())
    rest = absmax - offset
    padded = np.pad(rest, (0, -len(rest) % NESTED)).reshape(-1, NESTED)
    absmax2 = np.abs(padded).max(axis=1)
    nested = nearest(scaled(padded, absmax2[:, None]), dynamic_map()).reshape(-1)[:len(rest)]
    return codes, absmax, nested, absmax2, offset


def dequantized(weight):
    """The matrix [n, k] as its NF4 has it, f32."""
    codes, _, nested, absmax2, offset = quantize(weight)
    absmax = dynamic_map()[nested] * np.repeat(absmax2, NESTED)[:len(nested)] + offset
    return (CODE[codes].reshape(-1, BLOCK) * absmax[:, None]).reshape(np.shape(weight))
