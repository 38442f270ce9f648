"""Logarithm, exponential and normal quantile whose every bit is the same on every machine.

The C library's `log` and `exp` differ in the last bit from one system to the next, and a float that becomes a time
must not. Here they are computed with + - * / and `sqrt` in a fixed order, which IEEE 754 rounds in one way only;
`frexp` and `ldexp` split and join numbers exactly.

ln(x): x = 2^k (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), and ln(1 + f) = 2 artanh(s), s = f / (2 + f), by its
power series. Relative error below 4e-16.
exp(x): x = k ln 2 + r with |r| <= ln(2) / 2, and the power series of exp(r). Relative error below 4e-16.
normal_quantile(p): algorithm AS 241 (PPND16) of Wichura, Applied Statistics 37 (1988), 477-484. Relative error below
2e-15 of the quantile of p as a float.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import frexp, ldexp, sqrt

from isim.record.errors import CausalityError

_SQRT_HALF = 0.7071067811865476
_LN2_HIGH = 0.693147180369123816490  # 33 bits, so that k times it is exact
_LN2_LOW = 1.90821492927058770002e-10
_PER_LN2 = 1.4426950408889634

MAX_EXP = 709.0
"""`exp` refuses more than this: beyond 709.78 no float holds the result."""

# 2/23, 2/21, ... 2/3: the next term is below 2^-60 of the sum for |s| < 0.1716.
_ARTANH = tuple(2.0 / odd for odd in range(23, 1, -2))
# 1/14!, 1/13!, ... 1/2!, correctly rounded quotients.
_FACTORIAL = tuple(
    1.0 / n for n in (87178291200, 6227020800, 479001600, 39916800, 3628800, 362880, 40320, 5040, 720, 120, 24, 6, 2)
)


def ln(x: float) -> float:
    """Natural logarithm of a finite x > 0; CausalityError for anything else."""
    if not 0.0 < x < float("inf"):
        raise CausalityError(f"ln: expected a finite number above 0, found {x!r}")
    fraction, exponent = frexp(x)
    if fraction < _SQRT_HALF:
        fraction += fraction
        exponent -= 1
    f = fraction - 1.0
    s = f / (2.0 + f)
    tail = s * s
    series = _horner(_ARTANH, tail) * tail
    return exponent * _LN2_HIGH - ((s * (f - series) - exponent * _LN2_LOW) - f)


def exp(x: float) -> float:
    """e to the power of x, for x up to MAX_EXP; CausalityError for more and for NaN. Below -745.2 it is 0."""
    if not x <= MAX_EXP:
        raise CausalityError(f"exp: expected at most {MAX_EXP}, found {x!r}")
    if x < -746.0:
        return 0.0
    scaled = x * _PER_LN2
    exponent = int(scaled + 0.5) if scaled >= 0.0 else -int(0.5 - scaled)
    high = x - exponent * _LN2_HIGH
    low = exponent * _LN2_LOW
    r = high - low
    square = r * r
    # The largest terms last: 1 + (high + (r^2 (1/2 + ...) - low)).
    return ldexp(1.0 + (high + (_horner(_FACTORIAL, r) * square - low)), exponent)


def normal_quantile(p: float) -> float:
    """The x below which a standard normal variable falls with probability p; 0 < p < 1, else CausalityError."""
    if not 0.0 < p < 1.0:
        raise CausalityError(f"normal_quantile: expected a probability inside (0, 1), found {p!r}")
    q = p - 0.5
    if -0.425 <= q <= 0.425:
        r = 0.180625 - q * q
        return q * _horner(_CENTRE[0], r) / _horner(_CENTRE[1], r)
    r = sqrt(-ln(p if q < 0.0 else 1.0 - p))
    if r <= 5.0:
        x = _horner(_NEAR[0], r - 1.6) / _horner(_NEAR[1], r - 1.6)
    else:
        x = _horner(_FAR[0], r - 5.0) / _horner(_FAR[1], r - 5.0)
    return -x if q < 0.0 else x


def _horner(coefficients: Sequence[float], x: float) -> float:
    total = coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


# AS 241: numerator and denominator, highest power first.
_CENTRE = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_NEAR = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
_FAR = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e0,
        5.46378491116411436990e0,
        6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)
