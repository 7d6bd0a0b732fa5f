// SPDX-License-Identifier: BSD-3-Clause
//
// The table of torch's structured operators with a CPU kernel. Each has a Meta kernel that reads
// only shapes, and an out= variant that writes to given outputs. Therefore the boxed fallback can
// run them without waiting. generate.py generates the table from torch's operator list. Any thread
// may read it.
#ifndef ATEN_STRUCTURED_STRUCTURED_TABLE_H_
#define ATEN_STRUCTURED_STRUCTURED_TABLE_H_

#include <string_view>

namespace openreg {

// The variants of one operator, as qualified names: "aten::add.Tensor", "aten::add_.Tensor",
// "aten::add.out".
struct StructuredGroup {
  const char* functional;
  const char* inplace;  // nullptr if there is none
  const char* out;
};

// Returns the group of the operator with this name, or nullptr if there is none.
const StructuredGroup* find_structured(std::string_view qualified_name);

}  // namespace openreg

#endif  // ATEN_STRUCTURED_STRUCTURED_TABLE_H_
