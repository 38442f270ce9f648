"""Logarithm, exponential and quantile against decimal arithmetic of 50 digits."""

import ast
from decimal import Decimal, localcontext
from math import inf, ldexp, nan, nextafter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isim.draw import fixed
from isim.record.errors import CausalityError

TWO_ULP = Decimal("4e-16")
POSITIVE = st.floats(min_value=5e-324, max_value=1.7e308)
# e as the sum of 1/n!, and its square root by squaring: 2.71828..., 1.64872... are textbook figures.
TEXTBOOK = {1.0: "2.71828182845904523536", 0.5: "1.64872127070012814685", -1.0: "0.36787944117144232160"}


def relative_error(found: float, truth: Decimal) -> Decimal:
    return abs(Decimal(found) / truth - 1)


@given(x=POSITIVE)
@example(x=5e-324)
@example(x=nextafter(1.0, 0.0))
@example(x=nextafter(1.0, 2.0))
@example(x=2.0**-53)
@settings(derandomize=True, deadline=None, max_examples=1_000)
def test_ln(x: float) -> None:
    with localcontext() as context:
        context.prec = 50
        truth = Decimal(x).ln()
        assert fixed.ln(x) == 0.0 if truth == 0 else relative_error(fixed.ln(x), truth) < TWO_ULP


@given(steps=st.integers(-(2**30), 2**30))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_ln_near_one_and_at_the_seams(steps: int) -> None:
    with localcontext() as context:
        context.prec = 50
        for near in (1.0, 0.7071067811865476, 1.4142135623730951, 2.0):
            x = near + steps * ldexp(1.0, -52)
            truth = Decimal(x).ln()
            assert fixed.ln(x) == 0.0 if truth == 0 else relative_error(fixed.ln(x), truth) < TWO_ULP


@given(x=st.floats(min_value=-708.0, max_value=709.0) | st.floats(min_value=-2.0, max_value=2.0))
@settings(derandomize=True, deadline=None, max_examples=1_000)
def test_exp(x: float) -> None:
    with localcontext() as context:
        context.prec = 50
        assert relative_error(fixed.exp(x), Decimal(x).exp()) < TWO_ULP


def test_exp_of_textbook_figures_and_ends() -> None:
    for x, digits in TEXTBOOK.items():
        assert relative_error(fixed.exp(x), Decimal(digits)) < TWO_ULP
    assert fixed.exp(0.0) == fixed.exp(-0.0) == 1.0
    assert fixed.exp(-inf) == fixed.exp(-800.0) == 0.0
    assert fixed.exp(-745.0) == 5e-324  # the smallest float there is: e^-745 is 4.99e-324
    assert fixed.ln(1.0) == 0.0


def normal_below(x: Decimal) -> Decimal:
    """Phi(x) for x <= 0 by the series of the density times x + x^3/3 + x^5/(3*5) + ..., and for the far tail the
    continued fraction of the Mills ratio."""
    pi = Decimal("3.14159265358979323846264338327950288419716939937510582097")
    density = (-x * x / 2).exp() / (2 * pi).sqrt()
    if x < -6:
        ratio = -x
        for k in range(400, 0, -1):
            ratio = -x + k / ratio
        return density / ratio
    term = total = x
    odd = 1
    while abs(term) > Decimal("1e-60"):
        odd += 2
        term = term * x * x / odd
        total += term
    return Decimal("0.5") + density * total


@pytest.mark.parametrize(
    "p", [1e-300, 1e-100, 1e-30, 2e-11, 1e-10, 1e-5, 0.01, 0.07499, 0.0751, 0.1, 0.25, 0.31, 0.4, 0.49, 0.499999]
)
def test_normal_quantile(p: float) -> None:
    """Phi of the quantile must be p: an error of dx changes Phi by density(x) dx, told back into x here."""
    x = fixed.normal_quantile(p)
    with localcontext() as context:
        context.prec = 80
        off = normal_below(Decimal(x)) - Decimal(p)
        pi = Decimal("3.14159265358979323846264338327950288419716939937510582097")
        density = (-Decimal(x) * Decimal(x) / 2).exp() / (2 * pi).sqrt()
        assert abs(off / density) < abs(Decimal(x)) * Decimal("2e-15")


def test_normal_quantile_of_tabulated_figures() -> None:
    """z-values of any statistical table (Abramowitz and Stegun, table 26.5)."""
    for p, z in ((0.975, 1.959963984540054), (0.99, 2.326347874040841), (0.995, 2.575829303548901), (0.5, 0.0)):
        assert abs(fixed.normal_quantile(p) - z) <= 1e-15 * 4


@given(bits=st.integers(0, 2**52 - 1))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_normal_quantile_is_odd_around_one_half(bits: int) -> None:
    p = (2 * bits + 1) * 2.0**-53
    assert fixed.normal_quantile(p) == -fixed.normal_quantile(1.0 - p)


@given(p=st.floats(min_value=1e-300, max_value=0.999))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_order_is_kept(p: float) -> None:
    more = p * 1.000001
    assert fixed.ln(p) < fixed.ln(more)
    assert fixed.normal_quantile(p) < fixed.normal_quantile(more)
    assert fixed.exp(p) < fixed.exp(more + 1e-12)


def test_nonsense_is_our_bug() -> None:
    for x in (0.0, -1.0, inf, nan):
        with pytest.raises(CausalityError):
            fixed.ln(x)
    for x in (709.1, inf, nan):
        with pytest.raises(CausalityError):
            fixed.exp(x)
    for p in (0.0, 1.0, -0.1, nan):
        with pytest.raises(CausalityError):
            fixed.normal_quantile(p)


def test_only_operations_that_ieee_754_fixes_are_used() -> None:
    tree = ast.parse(Path(fixed.__file__).read_text())
    imported = [
        (node.module, alias.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert sorted(name for module, name in imported if module == "math") == ["frexp", "ldexp", "sqrt"]
    operators = {type(node.op) for node in ast.walk(tree) if isinstance(node, ast.BinOp)}
    assert operators <= {ast.Add, ast.Sub, ast.Mult, ast.Div}
