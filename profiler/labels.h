// SPDX-License-Identifier: BSD-3-Clause
//
// labels.h - names the rows of a trace. Copies and fills have the names of CUDA's traces, which
// tools look for. Threads: any.
#ifndef PROFILER_LABELS_H_
#define PROFILER_LABELS_H_

#include <string>

#include "runtime/device/openreg.h"

namespace openreg {

// Returns the name of a record, for instance "aten::add.Tensor", "Memcpy HtoD (Pinned ->
// Device)", "Memset (Device)" or "orLaunchKernel".
std::string activity_label(const orActivity& activity);

}  // namespace openreg

#endif  // PROFILER_LABELS_H_
