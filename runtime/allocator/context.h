// SPDX-License-Identifier: BSD-3-Clause
//
// Context - where in the program something happened, as the layer above knows it (a call stack).
// Here it is only kept and handed back. It may be dropped on any thread, with locks held.
#ifndef RUNTIME_ALLOCATOR_CONTEXT_H_
#define RUNTIME_ALLOCATOR_CONTEXT_H_

#include <memory>
#include <utility>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

using Context = std::shared_ptr<void>;

// While it lives, what this thread asks of an allocator happens at `context`.
class OPENREG_API ContextScope {
 public:
  explicit ContextScope(Context context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  // Of the innermost scope of this thread; null outside of all.
  static Context current();

 private:
  const Context context_;
  const ContextScope* const outer_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_CONTEXT_H_
