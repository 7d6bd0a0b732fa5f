# SPDX-License-Identifier: BSD-3-Clause
"""Checks the report formats, the comparison of two reports, and the rules for waivers."""

import datetime
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from torch_device_conformance.command import compare, table
from torch_device_conformance.command.files import write
from torch_device_conformance.command.run import conclusion, status
from torch_device_conformance.report import waivers as waivers_file
from torch_device_conformance.report.difference import difference
from torch_device_conformance.report.generic_tests import configuration
from torch_device_conformance.report.report import (
    BadReport,
    Journal,
    Report,
    complete,
    load,
    percent,
    save,
)
from torch_device_conformance.report.waivers import BadWaivers, Waivers
from torch_device_conformance.subject.provenance import record_hash
from torch_device_conformance.verdict.verdict import (
    COMPOSITE,
    CRASH,
    FALLBACK,
    HANG,
    MEANING,
    MISSING,
    NATIVE,
    NO_REFERENCE,
    NOT_RUN,
    WRONG,
    Case,
    Verdict,
    from_record,
    parse_case,
    worst,
)

ADD = Case("op", "eager", "float32", "add")
DIV = Case("op", "eager", "bfloat16", "div.floor_rounding")
ERF, MUL, SUB = (Case("op", "eager", "float32", name) for name in ("erf", "mul", "sub"))
ROW = Case("contract", "streams", "", "order")
TODAY = datetime.date(2027, 3, 31)


def report(*verdicts: Verdict, **heading: object) -> Report:
    """Returns a report about a device named npu. `heading` replaces fields of the heading."""
    description = {
        "provenance": {"torch": {"version": "2.13.0"}, "backend": {"module": "torch.npu"}},
        "dispatch": {"aten::add.Tensor": NATIVE, "aten::erf": MISSING},
    }
    base = {
        "device": "npu",
        "tier": "quick",
        "seed": 0,
        "command": "kit --device npu",
        "shard": "1/1",
    }
    return Report({**base, "description": description, **heading}, {v.case: v for v in verdicts})


WAIVERS = """
[[waiver]]
cases = ["op/eager/float32/add", "*/sub"]
verdicts = ["wrong"]
reason = "planted"
expires = "never"
"""


@pytest.mark.parametrize("text", ["op/eager/float32/add", "contract/streams/order", "op/a/b/c/d"])
def test_case_and_its_identifier(text: str) -> None:
    assert str(parse_case(text)) == text


@pytest.mark.parametrize("text", ["", "op", "op/eager", "contract/streams", "contract/a/b/c"])
def test_invalid_case(text: str) -> None:
    with pytest.raises(ValueError, match="is not a case"):
        parse_case(text)


def test_verdict_survives_json() -> None:
    verdict = Verdict(
        ADD,
        WRONG,
        "m",
        "s",
        "x",
        0.25,
        "values",
        3,
        {"aten::add.Tensor": NATIVE},
        "cuda",
        True,
        1.5,
    )
    assert from_record(json.loads(json.dumps(verdict.record()))) == verdict
    assert from_record({**verdict.record(), "later": 1}) == verdict
    endless = Verdict(ADD, WRONG, largest=float("inf"))
    assert from_record(json.loads(json.dumps(endless.record()))) == endless


def test_not_run_counts_and_does_not_pass() -> None:
    verdicts = complete([ADD, DIV], [Verdict(ADD, NATIVE)])
    assert verdicts[DIV].verdict == NOT_RUN
    assert verdicts[DIV].counts
    assert not verdicts[DIV].passes
    assert status(Report({}, verdicts), Waivers()) == 1
    assert status(Report({}, {ADD: Verdict(ADD, NATIVE)}), Waivers()) == 0


def test_worst_of_several() -> None:
    assert worst([NATIVE, FALLBACK, NO_REFERENCE]) == FALLBACK
    assert worst([WRONG, COMPOSITE]) == WRONG
    assert worst([NO_REFERENCE]) == NO_REFERENCE


def test_percent_is_100_only_for_all() -> None:
    assert percent(9999, 10000) == "99.9%"
    assert percent(3, 3) == "100%"


def test_report_survives_its_file(tmp_path: Path) -> None:
    first = report(Verdict(ADD, NATIVE, routes={"aten::add.Tensor": NATIVE}), Verdict(ROW, HANG))
    save(tmp_path / "r.json", first, Waivers())
    again = load(tmp_path / "r.json")
    assert again.verdicts == first.verdicts
    assert again.heading == first.heading


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "1.0"}', '{"schema": "2.0"}'])
def test_invalid_report(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(BadReport):
        load(tmp_path / "r.json")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_minor_versions_of_the_schema_are_read(version: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    first = report(Verdict(ADD, NATIVE, routes={"aten::add.Tensor": NATIVE}))
    save(path, first, Waivers())
    content = json.loads(path.read_text())
    assert content["schema"] == "1.1"
    if version == "1.0":  # version 1.0 did not have these fields
        del content["strict"], content["failures"]
    path.write_text(json.dumps({**content, "schema": version, "of_a_later_version": 1}))
    assert load(path).verdicts == first.verdicts
    assert load(path).scope == "quick"


def test_report_of_some_cases_says_so(tmp_path: Path) -> None:
    write(tmp_path, report(Verdict(ADD, NATIVE), only=["op/*"]), Waivers())
    assert "tier quick, some cases, seed 0" in (tmp_path / "report.md").read_text()
    assert '"scope":"quick, some cases"' in (tmp_path / "report.html").read_text()


def test_overload_fails_only_where_it_was_called_directly() -> None:
    found = report(
        Verdict(ADD, NATIVE, routes={"aten::add.Tensor": NATIVE}),
        Verdict(DIV, WRONG, routes={"aten::div.Tensor_mode": NATIVE}),
    ).overloads()
    assert found["aten::add.Tensor"]["modes"] == {"eager": {"float32": NATIVE}}
    assert found["aten::div.Tensor_mode"]["modes"] == {"eager": {"bfloat16": WRONG}}
    assert found["aten::erf"] == {"route": MISSING, "modes": {}}


def test_all_files_are_written(tmp_path: Path) -> None:
    verdicts = [
        Verdict(ADD, NATIVE, routes={"aten::add.Tensor": NATIVE}),
        Verdict(DIV, WRONG, "<&> differs </script>", sample="float32[2]", largest=0.5),
        Verdict(ROW, CRASH, "SIGSEGV\x00", stack="Fatal Python error"),
    ]
    write(tmp_path, report(*verdicts), Waivers())
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    failures = {
        case.get("name") for case in root.iter("testcase") if case.find("failure") is not None
    }
    assert failures == {str(DIV), str(ROW)}
    relay = json.loads((tmp_path / "relay.json").read_text())["test_results"]
    assert relay["conclusion"] == "failure"
    assert {failure["case"] for failure in relay["failures"]} == failures
    markdown = (tmp_path / "report.md").read_text()
    assert "0 of 1 required rows" in markdown
    assert "`op/eager/bfloat16/div.floor_rounding` wrong" in markdown
    page = (tmp_path / "report.html").read_text()
    assert "/*DATA*/" not in page
    assert page.count("</script>") == 2
    ElementTree.parse(tmp_path / "badge.svg")


def test_all_formats_agree_on_what_fails(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(WAIVERS)
    verdicts = [
        Verdict(ADD, WRONG, "known"),
        Verdict(ERF, MISSING, "no kernel"),
        Verdict(SUB, NATIVE),
        Verdict(MUL, NATIVE),
        Verdict(DIV, NOT_RUN),
        Verdict(ROW, NO_REFERENCE),
    ]
    for strict, expected in ((False, {DIV}), (True, {DIV, ERF, SUB})):
        waivers = waivers_file.load(tmp_path / "w.toml", strict)
        write(tmp_path, report(*verdicts), waivers)
        names = {str(case) for case in expected}
        assert status(report(*verdicts), waivers) == 1
        text = conclusion(report(*verdicts), waivers, tmp_path)
        assert f"failed: {len(expected) - 1}; waived: 1; " in text
        assert "1 cases were not run" in text
        root = ElementTree.parse(tmp_path / "junit.xml").getroot()
        assert {
            c.get("name") for c in root.iter("testcase") if c.find("failure") is not None
        } == names
        content = json.loads((tmp_path / "report.json").read_text())
        assert (content["strict"], content["failures"]) == (strict, len(expected))
        assert {v["case"] for v in content["verdicts"] if v.get("fails")} == names
        assert [v["waived"] for v in content["verdicts"] if "waived" in v] == ["planted"]
        relay = json.loads((tmp_path / "relay.json").read_text())["test_results"]
        assert relay["conclusion"] == "failure"
        assert {failure["case"] for failure in relay["failures"]} == names
        markdown = (tmp_path / "report.md").read_text()
        assert f"## What fails: {len(expected)}\n" in markdown
        assert "## Waived: 1\n\n- `op/eager/float32/add` wrong: planted" in markdown
        assert ("#b7791f" if not strict else "#c0392b") in (tmp_path / "badge.svg").read_text()
        assert load(tmp_path / "report.json").verdicts == {v.case: v for v in verdicts}
        assert (page := (tmp_path / "report.html").read_text()).count('"fails":true') == len(names)
        assert page.count('"waived":') == 1


def test_schema_names_all_verdicts_and_fields(tmp_path: Path) -> None:
    import torch_device_conformance

    folder = Path(torch_device_conformance.__file__).parent
    schema = json.loads((folder / "report/schema.json").read_text())
    verdict = schema["properties"]["verdicts"]["items"]["properties"]
    assert verdict["verdict"]["enum"] == list(MEANING)
    (tmp_path / "w.toml").write_text(WAIVERS)
    verdicts = [Verdict(ADD, WRONG, "m", "s", "x", 1.0, "values", 3), Verdict(DIV, CRASH)]
    save(tmp_path / "r.json", report(*verdicts), waivers_file.load(tmp_path / "w.toml"))
    content = json.loads((tmp_path / "r.json").read_text())
    assert set().union(*content["verdicts"]) <= verdict.keys()
    assert {"fails", "waived"} <= set().union(*content["verdicts"])
    assert content.keys() <= schema["properties"].keys()
    assert set(schema["required"]) <= content.keys() | {"finished", "seconds"}


def test_difference_shows_exactly_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = report(Verdict(ADD, NATIVE), Verdict(DIV, MISSING), Verdict(ROW, NATIVE))
    after = report(
        Verdict(ADD, MISSING, "no kernel"), Verdict(DIV, NATIVE), Verdict(ROW, COMPOSITE)
    )
    found = difference(before, after)
    assert [change.case for change in found.regressions] == [ADD]
    assert [change.case for change in found.improvements] == [DIV]
    assert not found.others
    for name, content in (("a.json", before), ("b.json", after)):
        save(tmp_path / name, content, Waivers())
    assert compare.main([str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 1
    assert "op/eager/float32/add: native -> missing  no kernel" in capsys.readouterr().out
    assert compare.main([str(tmp_path / "a.json"), str(tmp_path / "a.json")]) == 0


def test_another_kind_of_failure_is_not_a_regression() -> None:
    found = difference(
        report(Verdict(ADD, WRONG)), report(Verdict(ADD, CRASH), Verdict(DIV, WRONG))
    )
    assert not found.regressions
    assert [change.case for change in found.others] == [ADD, DIV]


WAIVER = """
[[waiver]]
cases = "op/*/bfloat16/div.*"
verdicts = ["wrong"]
reason = "driver 3.1 rounds to float16: ticket 12"
expires = 2027-03-31
"""


def test_waiver_applies_until_its_date(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(WAIVER)
    verdict = Verdict(DIV, WRONG)
    held = waivers_file.load(tmp_path / "w.toml", today=TODAY)
    assert held.reason(verdict) == "driver 3.1 rounds to float16: ticket 12"
    assert held.reason(Verdict(DIV, CRASH)) is None
    assert held.reason(Verdict(ADD, WRONG)) is None
    assert status(report(verdict), held) == 0
    over = waivers_file.load(tmp_path / "w.toml", today=TODAY + datetime.timedelta(days=1))
    assert over.reason(verdict) is None
    assert status(report(verdict), over) == 1
    assert over.complaints([verdict])[0].startswith("expired on 2027-03-31")
    assert held.complaints([Verdict(DIV, NATIVE)])[0].startswith("not needed")
    assert held.complaints([Verdict(ADD, NATIVE)]) == []


def test_strict_waivers_fail_for_what_passes_or_is_missing(tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(WAIVER.replace("2027-03-31", '"never"'))
    for strict in (False, True):
        held = waivers_file.load(tmp_path / "w.toml", strict)
        assert not held.fails(Verdict(DIV, WRONG))
        assert not held.fails(Verdict(ADD, NATIVE))
        assert not held.fails(Verdict(DIV, NO_REFERENCE))
        assert held.fails(Verdict(DIV, NATIVE)) == strict
        assert held.fails(Verdict(ADD, MISSING)) == strict
        assert held.fails(Verdict(ROW, MISSING))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('reason = "driver 3.1 rounds to float16: ticket 12"\n', "", "lacks reason"),
        ("expires = 2027-03-31\n", "", "lacks expires"),
        ('"wrong"', '"odd"', "unknown verdict odd"),
        ('"wrong"', '"native"', "native needs no waiver"),
        ("2027-03-31", '"soon"', "expires must be a date"),
        ("driver 3.1 rounds to float16: ticket 12", " ", "empty reason"),
        ("[[waiver]]", "[[waiver", "w.toml"),
    ],
)
def test_bad_waivers_are_refused(before: str, after: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "w.toml").write_text(WAIVER.replace(before, after))
    with pytest.raises(BadWaivers, match=message):
        waivers_file.load(tmp_path / "w.toml", today=TODAY)


def test_journal_keeps_verdicts_of_a_stopped_run(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.jsonl"
    Journal(path, {"seed": 1}).start([Verdict(ADD, NATIVE)])
    Journal(path, {"seed": 1}).add(Verdict(ROW, HANG, stack="line\nline"))
    with path.open("a") as file:
        file.write('{"case": "op/eag')
    assert [v.case for v in Journal(path, {"seed": 1}).read()] == [ADD, ROW]
    with pytest.raises(BadReport, match="written for a different subject, kit, tier or seed"):
        Journal(path, {"seed": 2}).read()


def test_configuration_of_torchs_tests() -> None:
    source = configuration(
        report(Verdict(ADD, NATIVE), Verdict(DIV, WRONG), Verdict(ROW, WRONG)), "npu_tests"
    )
    found: dict[str, object] = {}
    exec(source, found)
    made = found["configuration"]()  # type: ignore[operator]
    assert made["op_allowlist"] == ["add", "div.floor_rounding"]
    (decorator,) = made["op_overrides"]["div.floor_rounding"]
    assert [str(dtype) for dtype in decorator.dtypes] == ["torch.bfloat16"]
    assert decorator.device_type == "npu"


def test_table_of_a_readme(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path / "r.json", report(Verdict(ADD, NATIVE)), Waivers())
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    arguments = [str(tmp_path / "r.json"), str(readme)]
    assert table.main([*arguments, "--check"]) == 1
    assert "old" in readme.read_text()
    assert table.main(arguments) == 0
    assert table.main([*arguments, "--check"]) == 0
    text = readme.read_text()
    assert "| operators: eager | 1 |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "is not current" in capsys.readouterr().out


def test_the_hash_of_torch_does_not_depend_on_the_environment(tmp_path: Path) -> None:
    def hash_of(*lines: str) -> str:
        record = tmp_path / "RECORD"
        record.write_text("".join(line + "\n" for line in lines))
        return record_hash(record, "torch")

    core, module = "torch/_C.so,sha256=aa,10", "torch/jit.py,sha256=bb,20"
    first = hash_of("../../../bin/torchrun,sha256=cc,30", core, module)
    cache = "torch/__pycache__/jit.cpython-311.pyc,,"
    assert hash_of(module, cache, core, "../../../bin/torchrun,sha256=dd,31") == first
    assert hash_of(core, "torch/jit.py,sha256=ee,20") != first
