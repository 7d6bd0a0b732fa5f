# SPDX-License-Identifier: BSD-3-Clause
"""Tests the fallback's policies (silent, warn, error) and its two modes (copy, alias)."""

import re
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch_openreg.openreg import fallback

from tests import child

DEVICE = torch.device("openreg")


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    fallback.reset()
    yield
    fallback.set_policy("silent")
    fallback.reset()


def unique() -> Tensor:
    """Calls an operator that has no device kernel."""
    result: Tensor = torch.unique(torch.tensor([3, 1, 3, 2], device=DEVICE))
    return result


def test_silent_is_the_default() -> None:
    assert fallback.get_policy() == "silent"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unique()


def test_warn_warns_once_per_operator() -> None:
    fallback.set_policy("warn")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            unique()
        torch.ones(4, device=DEVICE).logcumsumexp(0)
        torch.sin(torch.eye(3, device=DEVICE).to_sparse())
    messages = [str(warning.message) for warning in caught]
    assert sum("aten::_unique2 " in message for message in messages) == 1
    assert sum("aten::_logcumsumexp " in message for message in messages) == 1
    # The host waits if an argument is sparse.
    for call in (r"_unique2 .*\(int64\[4\]\)", r"aten::sin .*\(float32\[3, 3\] Sparse\)"):
        assert any(re.search(f"{call} .*the host waits", message) for message in messages)


def test_error_refuses_before_anything_is_done() -> None:
    with fallback.policy("error"):
        with pytest.raises(NotImplementedError, match=r"_unique2 .*\(int64\[4\]\).*set_policy"):
            unique()
        torch.ones(3, device=DEVICE).add(1)  # this operator has a device kernel
    assert fallback.stats() == {}
    assert unique().tolist() == [1, 2, 3]


def test_the_block_ends_with_the_policy_before() -> None:
    fallback.set_policy("warn")
    with pytest.raises(ZeroDivisionError), fallback.policy("error"):
        raise ZeroDivisionError
    assert fallback.get_policy() == "warn"


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'loud'.*silent, warn, error"):
        fallback.set_policy("loud")  # type: ignore[arg-type]


def test_irreplaceable_operators_have_kernels() -> None:
    operators = fallback.irreplaceable()
    assert len(operators) > 20
    for name, reason in operators.items():
        assert torch._C._dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1"), name
        assert reason


@pytest.mark.parametrize("variable", ["OPENREG_FALLBACK", "OPENREG_FALLBACK_MODE"])
def test_a_wrong_variable_is_an_error_that_lists_the_values(variable: str) -> None:
    done = child.run(
        "import torch; torch.unique(torch.ones(2, device='openreg'))", **{variable: "foo"}
    )
    assert done.returncode == 1
    assert f'{variable} is "foo": expected one of' in done.stderr


def test_the_environment_sets_the_policy() -> None:
    done = child.run(
        "import torch; print(torch.openreg.fallback.get_policy())", OPENREG_FALLBACK="error"
    )
    assert done.stdout.strip() == "error", done.stderr


COPYING = """
import torch
from torch.testing import assert_close

def both(function, *tensors):
    theirs = function(*tensors)
    ours = function(*(t.to("openreg") for t in tensors))
    assert_close(torch.utils._pytree.tree_map(lambda t: t.cpu(), ours), theirs)

torch.openreg.fallback.reset()
x = torch.tensor([3., 1., 3., 2.])
both(torch.unique, x)                                              # size depends on data
both(lambda x: torch.logcumsumexp(x, 0), x)                        # asynchronous in the other mode
both(lambda x: x.reshape(2, 2).clone().t()[1:].lgamma_(), x)       # in place, through a view
both(lambda x: torch.special.i0(x, out=x.new_empty(0)), x)         # resized
both(lambda x: torch.linalg.qr(x.reshape(2, 2)), x)                # several results
both(lambda x: torch.unique(x.expand(3, 4)), x)                    # expanded
both(lambda x: torch.special.i0(x, out=x.new_empty(9)[1:5]), x)    # out= in the middle of a storage
both(lambda x: x.to_sparse().to_dense(), x)
both(lambda x: torch.kron(x[:2], x[2:]), x)                        # one storage, two arguments
z = torch.complex(torch.eye(3), torch.ones(3, 3))
lu, pivots = torch.linalg.lu_factor(z)
for adjoint in (False, True):                                      # sets a conjugate bit on out
    both(lambda lu, pivots, z: torch.linalg.lu_solve(
        lu, pivots, z, left=False, adjoint=adjoint, out=torch.empty_like(z)), lu, pivots, z)

torch.openreg._sleep(20_000_000)
late = torch.ones(3, device="openreg").mul_(2)
assert torch.unique(late).tolist() == [2.]                         # waits for earlier work

x = torch.zeros(1 << 20, device="openreg")
side = torch.Stream("openreg")
with side:
    torch.openreg._sleep(5_000_000)
    x[1 << 19:].fill_(7.)
x[: 1 << 19].lgamma_()                                             # writes only its own half
torch.openreg.synchronize()
assert x[1 << 19:].eq(7).all()

records = torch.openreg.fallback.stats()
assert records["aten::_unique2"].bytes_in > 0 and records["aten::_unique2"].bytes_out > 0
assert all(r.asynchronous == 0 for r in records.values())
print("done")
"""


@pytest.mark.parametrize("mode", ["copy", "alias"])
def test_both_modes_compute_the_same(mode: str) -> None:
    code = COPYING
    if mode == "alias":
        code = code[: code.index("records =")] + 'print("done")'
    done = child.run(code, OPENREG_FALLBACK_MODE=mode)
    assert done.stdout.strip() == "done", done.stderr


def test_an_interrupt_in_a_meta_kernel_of_python_reaches_the_caller() -> None:
    """After other exceptions in the meta kernel, the CPU kernel runs and determines the result."""
    printed = child.output(
        """
        import torch
        library = torch.library.Library("aten", "IMPL")
        raised = KeyboardInterrupt
        def meta(*args, **kwargs):
            raise raised("now")
        library.impl("special_erfcx.out", meta, "Meta", allow_override=True)
        try:
            torch.special.erfcx(torch.ones(3, device="openreg"))
        except KeyboardInterrupt as error:
            print(error)
        raised = ValueError
        print(torch.special.erfcx(torch.zeros(2, device="openreg")).tolist())
        """
    )
    assert printed.splitlines() == ["now", "[1.0, 1.0]"]
