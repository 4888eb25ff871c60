#!/usr/bin/env python3
"""Fits the two polynomials of src/base/noise.h and prints their coefficients, lowest degree first.

P(w) = -log1p(-w) / w          for w in [0, 1/4]
R(f) = (log1p(f) - f) / f^2    for f in [sqrt(1/2) - 1, sqrt(2) - 1]

Both minimise the largest relative error of the value that noise.h builds from them (w * P(w), and
f + f^2 * R(f)). The fit is a weighted least-squares problem whose weights are raised where the
error is large until it is level (Lawson's algorithm). Coefficients are then rounded to f32 one at a
time from the lowest degree on, and the rest is fitted again, so that rounding is absorbed. Needs numpy.
"""

import numpy as np

NODES = 4001
LAWSON_STEPS = 400


def level_fit(basis, target, error_scale):
    """Coefficients c minimising max |basis @ c - target| * error_scale."""
    weights = np.ones(len(target)) / len(target)
    best, best_error = None, np.inf
    for _ in range(LAWSON_STEPS):
        root = np.sqrt(weights) * error_scale
        c = np.linalg.lstsq(basis * root[:, None], target * root, rcond=None)[0]
        error = np.abs(basis @ c - target) * error_scale
        if error.max() < best_error:
            best, best_error = c, error.max()
        weights *= error
        weights /= weights.sum()
    return best, best_error


def fit_f32(x, target, error_scale, degree):
    """Like level_fit, with every coefficient an f32 value; returns them and the final error."""
    powers = np.vander(x, degree + 1, increasing=True)
    rest, fixed = target.copy(), []
    for i in range(degree + 1):
        c, _ = level_fit(powers[:, i:], rest, error_scale)
        fixed.append(np.float32(c[0]))
        rest = rest - powers[:, i] * float(fixed[-1])
    return fixed, np.max(np.abs(rest) * error_scale)


def chebyshev_nodes(low, high):
    return (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(NODES) + 0.5) / NODES)


def report(name, fixed, error):
    print(f"{name}: degree {len(fixed) - 1}, largest relative error 2^{np.log2(error):.1f}")
    for c in fixed:
        print(f"  {c:.9g}f")


def main():
    w = chebyshev_nodes(0.0, 0.25)
    p = -np.log1p(-w) / w
    report("P", *fit_f32(w, p, 1 / p, degree=6))

    f = chebyshev_nodes(np.sqrt(0.5) - 1, np.sqrt(2.0) - 1)
    # Near 0 the quotient cancels, so the series takes over.
    series = sum((-1) ** (k + 1) * f**k / (k + 2) for k in range(12))
    r = np.where(np.abs(f) < 0.02, series, (np.log1p(f) - f) / f**2)
    report("R", *fit_f32(f, r, np.abs(f * f / np.log1p(f)), degree=8))


if __name__ == "__main__":
    main()
