// SPDX-License-Identifier: BSD-3-Clause
//
// Which operators torch has as structured groups with a kernel for the CPU: a Meta kernel that
// reads nothing but shapes, and an out= variant that writes what it is given. The boxed fallback
// runs these without waiting. The table is written by generate.py from torch's own list. Threads:
// any.
#ifndef ATEN_STRUCTURED_STRUCTURED_TABLE_H_
#define ATEN_STRUCTURED_STRUCTURED_TABLE_H_

#include <string_view>

namespace openreg {

// Qualified names: "aten::add.Tensor", "aten::add_.Tensor", "aten::add.out".
struct StructuredGroup {
  const char* functional;
  const char* inplace;  // nullptr: there is none
  const char* out;
};

// The group that has an operator of this name; nullptr: none.
const StructuredGroup* find_structured(std::string_view qualified_name);

}  // namespace openreg

#endif  // ATEN_STRUCTURED_STRUCTURED_TABLE_H_
