"""Kernels as Triton's public tutorials write them (03 and 09 matmul, 05 layer norm,
06 attention, 02 softmax), for the problems of problems.mlir. They are only
compiled: what their machine code has and ours lacks is what check.py looks for."""
import triton
import triton.language as tl


@triton.jit
def product(x, w, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
            GROUP: tl.constexpr):
    """The tile of x wᵀ that belongs to this program, and where it begins."""
    number = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = number // (GROUP * columns)
    height = min(rows - group * GROUP, GROUP)
    row = (group * GROUP + number % (GROUP * columns) % height) * BM
    column = number % (GROUP * columns) // height * BN
    xs = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    ws = tl.make_tensor_descriptor(w, [N, K], [K, 1], [BN, BK])
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(xs.load([row, k]), ws.load([column, k]).T, total)
    return total, row, column


@triton.jit
def matmul(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           GROUP: tl.constexpr):
    total, row, column = product(x, w, M, N, K, BM, BN, BK, GROUP)
    ys = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    ys.store([row, column], total.to(tl.bfloat16))


@triton.jit
def matmul_bias_gelu(x, w, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr,
                     BK: tl.constexpr, GROUP: tl.constexpr):
    total, row, column = product(x, w, M, N, K, BM, BN, BK, GROUP)
    bias = tl.load(b + column + tl.arange(0, BN)).to(tl.float32)
    z = total + bias[None, :]
    # tanh(u) = 1 - 2 / (exp(2 u) + 1)
    u = 0.7978845608 * (z + 0.044715 * z * z * z)
    gelu = 0.5 * z * (2 - 2 / (tl.exp(2 * u) + 1))
    ys = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN])
    ys.store([row, column], gelu.to(tl.bfloat16))


@triton.jit
def attend(total, weight, most, q, ks, vs, first, at, begin, end, scale,
           MASK: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    for key in range(begin, end, BN):
        scores = tl.dot(q, ks.load([at + key, 0]).T) * scale
        if MASK:
            seen = (first + tl.arange(0, BM))[:, None] >= \
                (key + tl.arange(0, BN))[None, :]
            scores = tl.where(seen, scores, -1.0e6)
        now = tl.maximum(most, tl.max(scores, 1))
        p = tl.math.exp2(scores - now[:, None])
        rescale = tl.math.exp2(most - now)
        weight = weight * rescale + tl.sum(p, 1)
        total = total * rescale[:, None]
        total = tl.dot(p.to(tl.bfloat16), vs.load([at + key, 0]), total)
        most = now
    return total, weight, most


@triton.jit
def attention(q, k, v, o, lse, scale, T, ROWS, D: tl.constexpr, BM: tl.constexpr,
              BN: tl.constexpr):
    """Causal; heads first, [batch * heads * T, D]."""
    head = tl.program_id(1)
    first, at = tl.program_id(0) * BM, head * T
    qs = tl.make_tensor_descriptor(q, [ROWS, D], [D, 1], [BM, D])
    ks = tl.make_tensor_descriptor(k, [ROWS, D], [D, 1], [BN, D])
    vs = tl.make_tensor_descriptor(v, [ROWS, D], [D, 1], [BN, D])
    os = tl.make_tensor_descriptor(o, [ROWS, D], [D, 1], [BM, D])
    most = tl.full([BM], -float("inf"), tl.float32)
    weight = tl.full([BM], 1.0, tl.float32)
    total = tl.zeros([BM, D], tl.float32)
    mine = qs.load([at + first, 0])
    log2 = scale * 1.44269504
    total, weight, most = attend(total, weight, most, mine, ks, vs, first, at, 0,
                                 first, log2, False, BM, BN)
    total, weight, most = attend(total, weight, most, mine, ks, vs, first, at, first,
                                 first + BM, log2, True, BM, BN)
    tl.store(lse + at + first + tl.arange(0, BM), most + tl.math.log2(weight))
    os.store([at + first, 0], (total / weight[:, None]).to(tl.bfloat16))


@triton.jit
def layer_norm(x, w, b, y, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * N
    y += row * N
    total = tl.zeros([BLOCK], tl.float32)
    for at in range(0, N, BLOCK):
        i = at + tl.arange(0, BLOCK)
        total += tl.load(x + i, mask=i < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / N
    total = tl.zeros([BLOCK], tl.float32)
    for at in range(0, N, BLOCK):
        i = at + tl.arange(0, BLOCK)
        z = tl.load(x + i, mask=i < N, other=0.0).to(tl.float32)
        z = tl.where(i < N, z - mean, 0.0)
        total += z * z
    scale = 1 / tl.sqrt(tl.sum(total, 0) / N + eps)
    for at in range(0, N, BLOCK):
        i = at + tl.arange(0, BLOCK)
        z = tl.load(x + i, mask=i < N, other=0.0).to(tl.float32)
        z = (z - mean) * scale * tl.load(w + i, mask=i < N)
        tl.store(y + i, (z + tl.load(b + i, mask=i < N)).to(tl.bfloat16), mask=i < N)


@triton.jit
def rms_norm(x, w, y, N, eps, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x += tl.program_id(0) * N
    y += tl.program_id(0) * N
    z = tl.load(x + i, mask=i < N, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(z * z, 0) / N + eps)
    z = z * scale * tl.load(w + i, mask=i < N)
    tl.store(y + i, z.to(tl.bfloat16), mask=i < N)


@triton.jit
def cross_entropy(x, targets, loss, dx, scale, N, BLOCK: tl.constexpr):
    """Loss and gradient of a row of logits: an online softmax, then the gradient."""
    row = tl.program_id(0)
    x += row * N
    dx += row * N
    target = tl.load(targets + row)
    most = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for at in range(0, N, BLOCK):
        i = at + tl.arange(0, BLOCK)
        z = tl.load(x + i, mask=i < N, other=-float("inf"))
        now = tl.maximum(most, z)
        total = total * tl.exp(most - now) + tl.exp(z - now)
        most = now
    highest = tl.max(most, 0)
    sums = tl.sum(total * tl.exp(most - highest), 0)
    tl.store(loss + row, highest + tl.log(sums) - tl.load(x + target))
    for at in range(0, N, BLOCK):
        i = at + tl.arange(0, BLOCK)
        z = tl.load(x + i, mask=i < N, other=-float("inf"))
        p = tl.exp(z - highest) / sums - tl.where(i == target, 1.0, 0.0)
        tl.store(dx + i, (p * scale).to(tl.bfloat16), mask=i < N)


@triton.jit
def gemv(x, w, y, N, K, BN: tl.constexpr, BK: tl.constexpr):
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros([BN, BK], tl.float32)
    for at in range(0, K, BK):
        k = at + tl.arange(0, BK)
        total += tl.load(w + column[:, None] * K + k[None, :]).to(tl.float32) * \
            tl.load(x + k).to(tl.float32)[None, :]
    tl.store(y + column, tl.sum(total, 1).to(tl.bfloat16))
