# SPDX-License-Identifier: BSD-3-Clause
"""The names in a new backend: which names are replaced, and which device types are refused."""

import pytest
import torch

from tools.new_backend.names import NameRefused, Names


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ('torch.device("openreg:1")', 'torch.device("my_npu:1")'),
        ("torch_openreg_compile/kernel.h", "torch_my_npu_compile/kernel.h"),
        ("libopenreg_c10.so", "libmy_npu_c10.so"),
        ("  OPENREG_CHECK(orMalloc(&p, n));", "  MY_NPU_CHECK(myNpuMalloc(&p, n));"),
        ("class OpenRegGraph;", "class MyNpuGraph;"),
        ("orStream_t* orStreamCreate", "myNpuStream_t* myNpuStreamCreate"),
        ("    or[A-Z]*;\n    occl*;", "    myNpu[A-Z]*;\n    my_npuccl*;"),
        ("ProcessGroupOCCL OcclTest occlSum", "ProcessGroupMY_NPUCCL MyNpucclTest my_npucclSum"),
        ("(or[A-Z]|occl|PyInit_)", "(myNpu[A-Z]|my_npuccl|PyInit_)"),
        ("`orIpc*`", "`myNpuIpc*`"),
        ("an openreg tensor, An `orEvent_t`", "a my_npu tensor, A `myNpuEvent_t`"),
        ("than openreg, scan openreg", "than my_npu, scan my_npu"),
    ],
)
def test_renamed(ours: str, theirs: str) -> None:
    assert Names.of("my_npu").rename(ours) == theirs


@pytest.mark.parametrize(
    "text",
    [
        "this or that, for ORDER and vectorOrNone",
        "tensorOr = colorX or_Y",
        "floor(x); 'or'; error_or",
        "xorShift ||or| PrivateUse1",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert Names.of("my_npu").rename(text) == text


def test_a_name_of_one_word() -> None:
    names = Names.of("acme")
    assert (names.device, names.camel, names.prefix) == ("acme", "Acme", "acme")
    assert names.rename("an orMalloc openreg OpenReg OPENREG occl") == (
        "an acmeMalloc acme Acme ACME acmeccl"
    )


def test_the_prefix_of_the_driver_can_be_given() -> None:
    names = Names.of("acme", "x2")
    assert names.rename("an orMalloc, an openreg tensor: OPENREG_CHECK(orFree(x));") == (
        "a x2Malloc, an acme tensor: ACME_CHECK(x2Free(x));"
    )


def test_the_package_can_be_given() -> None:
    names = Names.of("my_npu", package="torch_my_npu2")
    assert names.rename("torch_openreg_compile torch.openreg aoti_torch_openreg_mm") == (
        "torch_my_npu2_compile torch.my_npu aoti_torch_my_npu_mm"
    )


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ("torch-npu", "must consist of lower-case letters, digits and single underscores"),
        ("2npu", "must consist of"),
        ("torch_openreg2", "contains 'openreg' or 'occl'"),
        ("torch", "the package 'torch' is a Python keyword, or a module or folder"),
    ],
)
def test_refused_package(package: str, message: str) -> None:
    with pytest.raises(NameRefused, match=message):
        Names.of("my_npu", package=package)


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("Acme", "must consist of letters and digits, and begin with a lower-case letter"),
        ("my_npu", "must consist of"),
        ("2x", "must consist of"),
        ("myOpenReg", "contains 'openreg' or 'occl'"),
    ],
)
def test_refused_prefix(prefix: str, message: str) -> None:
    with pytest.raises(NameRefused, match=message):
        Names.of("acme", prefix)


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("Acme", "must consist of"),
        ("2fast", "must consist of"),
        ("npu2", "torch accepts no digits in it, but --package and --prefix can have them"),
        ("a__b", "must consist of"),
        ("a_", "must consist of"),
        ("a-b", "must consist of"),
        ("", "must consist of"),
        ("class", "a Python keyword, or a word that the C\\+\\+ sources use: choose another name"),
        ("namespace", "a word that the C\\+\\+ sources use"),
        ("runtime", "a word that the C\\+\\+ sources use"),
        ("my_openreg", "contains 'openreg' or 'occl'"),
        ("cuda", "torch.cuda already exists"),
        ("xpu", "exists"),
        ("library", "exists"),
    ],
)
def test_refused(device: str, message: str) -> None:
    with pytest.raises(NameRefused, match=message):
        Names.of(device)


def test_torch_accepts_no_digits() -> None:
    with pytest.raises(RuntimeError, match="Invalid device string: 'npu2'"):
        torch.device("npu2")
