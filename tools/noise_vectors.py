#!/usr/bin/env python3
"""Prints tests/unit/base/data/noise_vectors.txt: a second, slow implementation of src/base/noise.h in
exact rational arithmetic, rounded to f32 after every step. It reads the polynomial coefficients from
the header, so that only the arithmetic is written twice. Usage: tools/noise_vectors.py > FILE
"""

import random
import re
import struct
from fractions import Fraction
from pathlib import Path

HEADER = Path(__file__).resolve().parent.parent / "src/base/noise.h"
MASK = 0xFFFFFFFF


def f32(x):
    """The f32 nearest to the rational x, ties to even, as a Fraction (normal range only)."""
    if x == 0:
        return Fraction(0)
    magnitude = abs(x)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    ulp = Fraction(2) ** (exponent - 23)
    return (1 if x > 0 else -1) * round(magnitude / ulp) * ulp


def bits(x):
    return struct.unpack("<I", struct.pack("<f", float(x)))[0]


def literal(text):
    return Fraction(struct.unpack("<f", struct.pack("<f", float(text)))[0])


def coefficients(function, variable):
    """Horner coefficients, highest degree first, of one function of the header."""
    body = HEADER.read_text().split(f"inline float {function}(")[1].split("\n}\n")[0]
    first = re.findall(rf"float {variable} = (-?[0-9.e-]+)f;", body)
    rest = re.findall(rf"{variable} = noise_detail::fma32\({variable}, \w, (-?[0-9.e-]+)f\)", body)
    return [literal(c) for c in first + rest]


R = coefficients("log_poly", "r")
P = coefficients("exponential_from_bits", "p")
LOG2 = literal("0.693147182")
SQRT_HALF = Fraction(0x3504F3 + 2**23, 2**24)
assert len(R) == 9 and len(P) == 7


def horner(coefficients_, x):
    value = coefficients_[0]
    for c in coefficients_[1:]:
        value = f32(value * x + c)
    return value


def log_poly(x):
    exponent = 0
    while x < SQRT_HALF:
        x, exponent = x * 2, exponent - 1
    while x >= 2 * SQRT_HALF:
        x, exponent = x / 2, exponent + 1
    f = f32(x - 1)
    return f32(exponent * LOG2 + f32(f32(f * f) * horner(R, f) + f))


def uniform(r):
    w = f32(f32(f32(Fraction(r)) + Fraction(1, 2)) / 2**32)
    return min(w, 1 - Fraction(1, 2**24))


def gumbel(r):
    w = uniform(r)
    e = f32(w * horner(P, w)) if w <= Fraction(1, 4) else -log_poly(f32(1 - w))
    return -log_poly(e)


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def main():
    print("# Numbers are hexadecimal; floats are their bits. Written by tools/noise_vectors.py.")
    print("# bits: r uniform gumbel")
    edges = [0, 1, 2, 3, 0xFF, 0xFFFFFF, 0x1000000, 0x1000001, 0x3FFFFFFF, 0x40000000, 0x40000041]
    edges += [0x7FFFFFFF, 0x80000000, 0xA1D2E3F4, 0xFFFFFE7F, 0xFFFFFE80, 0xFFFFFF7F, 0xFFFFFF80, MASK]
    rng = random.Random(1)
    for r in edges + [rng.getrandbits(32) >> rng.randrange(32) for _ in range(100)]:
        print(f"bits {r:08x} {bits(uniform(r)):08x} {bits(gumbel(r)):08x}")
    print("# noise: seed choice position token stream r gumbel")
    cases = [(0, 0, 0, 0, 0), (2**64 - 1, MASK, MASK, MASK, MASK), (42, 0, 7, 151935, 0)]
    for _ in range(100):
        cases.append((rng.getrandbits(64), rng.randrange(4), rng.getrandbits(18), rng.getrandbits(18),
                      rng.randrange(3)))
    for seed, choice, position, token, stream in cases:
        words = philox((position, token >> 2, stream, choice), (seed & MASK, seed >> 32))
        r = words[token & 3]
        print(f"noise {seed:016x} {choice:08x} {position:08x} {token:08x} {stream:08x} {r:08x} "
              f"{bits(gumbel(r)):08x}")


if __name__ == "__main__":
    main()
