#!/usr/bin/env python3
"""Minimax coefficients of FloatPolynomials.cpp, by Remez's exchange algorithm.

Prints, for each function, the coefficients and the largest weighted error
reached. Needs mpmath; run by hand when a form or an interval changes.
"""
import mpmath as mp

mp.mp.dps = 50
GRID = 1500
ROUNDS = 12


def alternating_extrema(errors, count):
    """Grid positions of the extrema of runs of one sign, at most `count`."""
    extrema, i = [], 0
    while i < len(errors):
        j = best = i
        while j < len(errors) and (errors[j] >= 0) == (errors[i] >= 0):
            if abs(errors[j]) > abs(errors[best]):
                best = j
            j += 1
        extrema.append(best)
        i = j
    while len(extrema) > count:
        extrema.pop(0 if abs(errors[extrema[0]]) < abs(errors[extrema[-1]]) else -1)
    return extrema


def remez(function, exponents, weight, low, high):
    """Coefficients c minimizing max |weight (function - sum c_i x^e_i)|."""
    n = len(exponents)
    low, high = mp.mpf(low), mp.mpf(high)
    middle, half = (low + high) / 2, (high - low) / 2
    nodes = sorted(middle + half * mp.cos(mp.pi * k / n) for k in range(n + 1))
    grid = [middle - half * mp.cos(mp.pi * k / GRID) for k in range(GRID + 1)]
    grid = [x for x in grid if abs(x) > mp.mpf("1e-9")]
    values = [(function(x), weight(x)) for x in grid]
    for _ in range(ROUNDS):
        nodes = [x if abs(x) > mp.mpf("1e-9") else x + half * mp.mpf("1e-6") for x in nodes]
        a, b = mp.matrix(n + 1, n + 1), mp.matrix(n + 1, 1)
        for r, x in enumerate(nodes):
            for c, e in enumerate(exponents):
                a[r, c] = x**e
            a[r, n] = (-1) ** r / weight(x)
            b[r] = function(x)
        solution = mp.lu_solve(a, b)
        c = [solution[i] for i in range(n)]
        errors = [w * (f - sum(ci * x**e for ci, e in zip(c, exponents)))
                  for x, (f, w) in zip(grid, values)]
        extrema = alternating_extrema(errors, n + 1)
        worst, level = max(map(abs, errors)), abs(solution[n])
        if len(extrema) < n + 1 or worst - level < level / 1000:
            break
        nodes = [grid[i] for i in extrema]
    return c, worst


def scaled_erfc(u):
    x = 4 * (1 + u) / (1 - u)
    return mp.erfc(x) * mp.exp(x * x) * (1 + 2 * x)


def fit(name, function, exponents, weight, low, high, digits=12):
    c, worst = remez(function, exponents, weight, low, high)
    print(f"{name}: error 2^{float(mp.log(worst, 2)):.2f}")
    print("  " + ", ".join(mp.nstr(x, digits) for x in c))


def main():
    ln2, quarter = mp.log(2) / 2 * mp.mpf("1.01"), mp.pi / 4 * mp.mpf("1.001")
    fit("e^r - 1 = r + r^2 P(r)", lambda x: mp.expm1(x) - x, range(2, 8),
        lambda x: 1 / mp.expm1(x), -ln2, ln2)
    fit("2^f = 1 + f Q(f)", lambda x: mp.mpf(2) ** x - 1, range(1, 7),
        lambda x: 1, -0.502, 0.502)
    fit("log(1+f) = f - f^2/2 + f^3 P(f)", lambda x: mp.log1p(x) - x + x * x / 2,
        range(3, 12), lambda x: 1 / mp.log1p(x), mp.sqrt(0.5) - 1 - 1e-4, mp.sqrt(2) - 1 + 1e-4)
    fit("sin r = r + r^3 S(r^2)", lambda x: mp.sin(x) - x, range(3, 10, 2),
        lambda x: 1 / mp.sin(x), 1e-4, quarter)
    fit("cos r = 1 - r^2/2 + r^4 C(r^2)", lambda x: mp.cos(x) - 1 + x * x / 2,
        range(4, 11, 2), lambda x: 1 / mp.cos(x), 1e-4, quarter)
    fit("erf x = x + x P(x^2), |x| < 0.95", lambda x: mp.erf(x) - x, range(1, 14, 2),
        lambda x: 1 / mp.erf(x), 1e-4, 1.0)
    fit("-log erfc x = R(x), 0.95 < x < 3.95", lambda x: -mp.log(mp.erfc(x)),
        range(0, 8), lambda x: mp.erfc(x), 0.95, 3.95)
    fit("erfc x e^(x^2) (1 + 2x) = G((x - 4) / (x + 4)), 0.8 < x < 6.1", scaled_erfc,
        range(0, 18), lambda u: 1 / scaled_erfc(u), mp.mpf("-3.2") / mp.mpf("4.8"),
        mp.mpf("2.1") / mp.mpf("10.1"), digits=17)
    fit("atanh s = s + s^3 A(s^2)", lambda x: mp.atanh(x) - x, range(3, 14, 2),
        lambda x: 1 / mp.atanh(x), 1e-4, 0.1717)


if __name__ == "__main__":
    main()
