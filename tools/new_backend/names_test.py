# SPDX-License-Identifier: BSD-3-Clause
"""The names in a new backend: which names are replaced, and which device types are refused."""

import pytest

from tools.new_backend.names import NameRefused, Names


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ('torch.device("openreg:1")', 'torch.device("my_npu2:1")'),
        ("torch_openreg_compile/kernel.h", "torch_my_npu2_compile/kernel.h"),
        ("libopenreg_c10.so", "libmy_npu2_c10.so"),
        ("  OPENREG_CHECK(orMalloc(&p, n));", "  MY_NPU2_CHECK(myNpu2Malloc(&p, n));"),
        ("class OpenRegGraph;", "class MyNpu2Graph;"),
        ("orStream_t* orStreamCreate", "myNpu2Stream_t* myNpu2StreamCreate"),
        ("    or[A-Z]*;\n    occl*;", "    myNpu2[A-Z]*;\n    my_npu2ccl*;"),
        ("ProcessGroupOCCL OcclTest occlSum", "ProcessGroupMY_NPU2CCL MyNpu2cclTest my_npu2cclSum"),
        ("(or[A-Z]|occl|PyInit_)", "(myNpu2[A-Z]|my_npu2ccl|PyInit_)"),
        ("`orIpc*`", "`myNpu2Ipc*`"),
        ("an openreg tensor, An `orEvent_t`", "a my_npu2 tensor, A `myNpu2Event_t`"),
        ("than openreg, scan openreg", "than my_npu2, scan my_npu2"),
    ],
)
def test_renamed(ours: str, theirs: str) -> None:
    assert Names.of("my_npu2").rename(ours) == theirs


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
    assert Names.of("my_npu2").rename(text) == text


def test_a_name_of_one_word() -> None:
    names = Names.of("acme")
    assert (names.device, names.camel, names.prefix) == ("acme", "Acme", "acme")
    assert names.rename("an orMalloc openreg OpenReg OPENREG occl") == (
        "an acmeMalloc acme Acme ACME acmeccl"
    )


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("Acme", "must consist of"),
        ("2fast", "must consist of"),
        ("a__b", "must consist of"),
        ("a_", "must consist of"),
        ("a-b", "must consist of"),
        ("", "must consist of"),
        ("class", "is a word of"),
        ("namespace", "is a word of"),
        ("runtime", "is a word of"),
        ("my_openreg", "contains the name"),
        ("cuda", "exists"),
        ("xpu", "exists"),
        ("library", "exists"),
    ],
)
def test_refused(device: str, message: str) -> None:
    with pytest.raises(NameRefused, match=message):
        Names.of(device)
