// SPDX-License-Identifier: BSD-3-Clause
//
// labels.h - names the rows of a trace. Copies and fills have the names that they have in CUDA's
// traces, because tools look for these names. Any thread may call it.
#ifndef PROFILER_LABELS_H_
#define PROFILER_LABELS_H_

#include <string>

#include "runtime/device/openreg.h"

namespace openreg {

// Returns the name of a record, for example "aten::add.Tensor", "Memcpy HtoD (Pinned -> Device)",
// "Memset (Device)" or "orLaunchKernel".
std::string activity_label(const orActivity& activity);

}  // namespace openreg

#endif  // PROFILER_LABELS_H_
