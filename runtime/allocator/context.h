// SPDX-License-Identifier: BSD-3-Clause
//
// Context - the place in the program where something happened, for example a call stack. The layer
// above defines the value; the allocator only stores and returns it. A context may be destroyed on
// any thread, even while locks are held.
#ifndef RUNTIME_ALLOCATOR_CONTEXT_H_
#define RUNTIME_ALLOCATOR_CONTEXT_H_

#include <memory>
#include <utility>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

using Context = std::shared_ptr<void>;

// While the scope exists, events of this thread's allocator calls are recorded with `context`.
class OPENREG_API ContextScope {
 public:
  explicit ContextScope(Context context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

  // Returns the context of this thread's innermost scope, or null outside all scopes.
  static Context current();

 private:
  const Context context_;
  const ContextScope* const outer_;
};

}  // namespace openreg::allocator

#endif  // RUNTIME_ALLOCATOR_CONTEXT_H_
