# SPDX-License-Identifier: BSD-3-Clause
"""The result block for PyTorch's cross-repository CI relay (pytorch/rfcs#90).

A downstream repository sends the block in its callback. The field `test_results` of the block is
free-form JSON.
"""

import json
from typing import Any

from torch_device_conformance.report.report import Report
from torch_device_conformance.report.waivers import Waivers, failure
from torch_device_conformance.version import SCHEMA, VERSION


def relay(report: Report, waivers: Waivers) -> str:
    """Returns the block as JSON."""
    passed, of = report.required()
    failed = waivers.failures(report.verdicts.values())
    provenance = report.heading.get("description", {}).get("provenance", {})
    block: dict[str, Any] = {
        "test_results": {
            "kit": {"name": "torch_device_conformance", "version": VERSION, "schema": SCHEMA},
            "device": report.heading["device"],
            "tier": report.scope,
            "seed": report.heading["seed"],
            "torch": provenance.get("torch", {}),
            "backend": provenance.get("backend", {}),
            "required_rows": {"passed": passed, "total": of},
            "verdicts": dict(report.counts()),
            "total": len(report.counted()),
            "failures": [
                {"case": str(v.case), "verdict": v.verdict, "message": failure(v)[:300]}
                for v in failed[:100]
            ],
            "conclusion": "failure" if failed else "success",
        }
    }
    return json.dumps(block, indent=1) + "\n"
