// SPDX-License-Identifier: BSD-3-Clause
//
// Context - where in the program something happened, as a value that the layer above defines (a
// call stack). The allocator only stores and returns it. It may be destroyed on any thread, while
// locks are held.
#ifndef RUNTIME_ALLOCATOR_CONTEXT_H_
#define RUNTIME_ALLOCATOR_CONTEXT_H_

#include <memory>
#include <utility>

#include "runtime/device/openreg.h"

namespace openreg::allocator {

using Context = std::shared_ptr<void>;

// A scope in which this thread's calls to an allocator happen at `context`.
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
