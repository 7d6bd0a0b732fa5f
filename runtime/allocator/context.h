// SPDX-License-Identifier: BSD-3-Clause
//
// Context - the place in the program where something happened, as a value of the layer above (a
// call stack). The allocator only stores it and returns it. It may be destroyed on any thread, with
// locks held.
#ifndef RUNTIME_ALLOCATOR_CONTEXT_H_
#define RUNTIME_ALLOCATOR_CONTEXT_H_

#include <memory>
#include <utility>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

using Context = std::shared_ptr<void>;

// A scope in which calls of an allocator by this thread happen at `context`.
class OPENREG_API ContextScope {
 public:
  explicit ContextScope(Context context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  // Returns the context of this thread's innermost scope, or null outside of all scopes.
  static Context current();

 private:
  const Context context_;
  const ContextScope* const outer_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_CONTEXT_H_
