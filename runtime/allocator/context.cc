// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/allocator/context.h"

namespace openreg::allocator {
namespace {

thread_local const ContextScope* innermost = nullptr;

}  // namespace

ContextScope::ContextScope(Context context) : context_(std::move(context)), outer_(innermost) {
  innermost = this;
}

ContextScope::~ContextScope() { innermost = outer_; }

Context ContextScope::current() { return innermost != nullptr ? innermost->context_ : nullptr; }

}  // namespace openreg::allocator
