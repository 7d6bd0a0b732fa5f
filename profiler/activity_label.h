// SPDX-License-Identifier: BSD-3-Clause
//
// activity_label.h - names the rows of a trace. Copies and fills have the same names as in CUDA's
// traces, because tools search for these names. Any thread may call the function.
#ifndef PROFILER_ACTIVITY_LABEL_H_
#define PROFILER_ACTIVITY_LABEL_H_

#include <string>

#include "runtime/device/openreg.h"

namespace openreg {

// Returns the name of a record, for example "aten::add.Tensor", "Memcpy HtoD (Pinned -> Device)",
// "Memset (Device)" or "orLaunchKernel".
std::string activity_label(const orActivity& activity);

}  // namespace openreg

#endif  // PROFILER_ACTIVITY_LABEL_H_
