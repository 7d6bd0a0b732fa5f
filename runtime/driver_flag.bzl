# SPDX-License-Identifier: BSD-3-Clause
"""The flag that selects the driver below the portable packages."""

DriverInfo = provider(doc = "The selected driver.", fields = {"value": "One of the values."})

def _driver_flag_impl(ctx):
    value = ctx.build_setting_value
    if value not in ctx.attr.values:
        fail("%s = %s: must be one of %s" % (ctx.label, value, ", ".join(ctx.attr.values)))
    return [DriverInfo(value = value)]

driver_flag = rule(
    implementation = _driver_flag_impl,
    attrs = {"values": attr.string_list(mandatory = True)},
    build_setting = config.string(flag = True),
    doc = "A string flag that accepts only the given values.",
)
