#!/usr/bin/env python3
"""Compares the matrix products of Blas.cpp with those of Debian's reference BLAS, bit for bit: all
transpositions, odd sizes and strides, scales, infinities and NaN.

    blas_oracle.py LIBRARY [CASES]
"""
import ctypes
import os
import sys

import numpy

REFERENCE = "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3"
KINDS = {"sgemm_": (numpy.float32, ctypes.c_float, numpy.uint32),
         "dgemm_": (numpy.float64, ctypes.c_double, numpy.uint64)}


def drawn(random, dtype, rows, columns):
    """Column-major, with its leading dimension; now and then with a special value."""
    stride = max(1, rows) + int(random.integers(0, 3))
    matrix = random.standard_normal((max(1, columns), stride)).astype(dtype)
    if random.random() < 0.1:
        special = random.choice([numpy.inf, numpy.nan, -0.0, 1e-40])
        matrix.flat[random.integers(matrix.size)] = special
    return matrix, stride


def case(random, libraries, name):
    """Whether the libraries agree, and what was computed."""
    dtype, ctype, bits = KINDS[name]
    trans_a, trans_b = random.choice(list("NTCntc"), 2)
    m, n, k = (int(x) for x in random.integers(0, random.choice([4, 20, 70]), 3))
    a, lda = drawn(random, dtype, *((m, k) if trans_a in "Nn" else (k, m)))
    b, ldb = drawn(random, dtype, *((k, n) if trans_b in "Nn" else (n, k)))
    c, ldc = drawn(random, dtype, m, n)
    alpha, beta = random.choice([0, 1, -1, 0.37]), random.choice([0, 1, 0.5, -0.0])
    integer = lambda value: ctypes.byref(ctypes.c_int(value))
    number = lambda value: ctypes.byref(ctype(value))
    pointer = lambda matrix: matrix.ctypes.data_as(ctypes.c_void_p)
    results = []
    for library in libraries:
        result = c.copy()
        library[name](
            str(trans_a).encode(), str(trans_b).encode(), integer(m), integer(n), integer(k),
            number(alpha), pointer(a), integer(lda), pointer(b), integer(ldb), number(beta),
            pointer(result), integer(ldc), ctypes.c_size_t(1), ctypes.c_size_t(1))
        results.append(result)
    one, other = results
    same = (one.view(bits) == other.view(bits)) | (numpy.isnan(one) & numpy.isnan(other))
    return bool(same.all()), f"{name} {trans_a}{trans_b} {m} x {n} x {k}, {alpha}, {beta}"


def main():
    if not os.path.exists(REFERENCE):
        print(f"SKIP: no {REFERENCE}, which is in Debian's package libblas3")
        return 0
    libraries = [ctypes.CDLL(REFERENCE), ctypes.CDLL(os.path.abspath(sys.argv[1]))]
    random = numpy.random.default_rng(1)
    cases = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    failed = 0
    for _ in range(cases):
        for name in KINDS:
            same, what = case(random, libraries, name)
            failed += not same
            if not same:
                print(f"other bits: {what}")
    print(f"{2 * cases} products, {failed} differ")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
