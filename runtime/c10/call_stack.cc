// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/call_stack.h"

#include <c10/util/StringUtil.h>
#include <torch/csrc/profiler/combined_traceback.h>

namespace openreg {

CallStack capture_call_stack() {
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
}

std::string to_text(const CallStack& stack) {
  if (stack == nullptr) {
    return {};
  }
  const torch::SymbolizedTracebacks found = torch::symbolize({stack.get()});
  std::string text;
  const auto& frames = found.tracebacks.at(0);
  for (auto place = frames.rbegin(); place != frames.rend(); ++place) {
    const torch::unwind::Frame& frame = found.all_frames.at(*place);
    text += c10::str("  File \"", frame.filename, "\", line ", frame.lineno, ", in ",
                     frame.funcname, "\n");
  }
  return text;
}

}  // namespace openreg
