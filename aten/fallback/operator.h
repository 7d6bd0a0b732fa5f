// SPDX-License-Identifier: BSD-3-Clause
//
// The fallback's data about an operator: properties of its arguments from its schema, and the
// counters of its calls. The registry owns an object for each operator that ever fell back. Because
// it never destroys the object, launches can use the object's name. Any thread may use the object.
// Everything except the counters is constant after find_operator() has returned it.
#ifndef ATEN_FALLBACK_OPERATOR_H_
#define ATEN_FALLBACK_OPERATOR_H_

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace openreg {

// The properties and counters of one operator. A kind of fallback may derive its own class from it;
// the derived class must be constructible from the operator's handle.
struct Operator {
  explicit Operator(const c10::OperatorHandle& handle);
  virtual ~Operator() = default;
  Operator(const Operator&) = delete;
  Operator& operator=(const Operator&) = delete;

  const std::string name;               // "aten::add.Tensor"
  bool random = false;                  // has a generator argument
  const char* irreplaceable = nullptr;  // the reason why it must not fall back (policy.h)
  std::vector<bool> writes;             // for each argument: whether the operator writes to it
  std::vector<bool> takes_host;         // for each argument: whether it may be on the CPU
  bool reports = false;                 // waits, and throws an error for invalid data
  std::optional<size_t> check_errors;   // index of the argument that requests such errors

  std::atomic<bool> warned{false};
  std::atomic<uint64_t> asynchronous{0};
  std::atomic<uint64_t> synchronous{0};
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> ns{0};
};

// Returns the data of the operator. The first call creates it with `make`.
Operator& find_operator(const c10::OperatorHandle& handle,
                        std::unique_ptr<Operator> (*make)(const c10::OperatorHandle&));

// Returns the data of the operator as a T. All operators of a process must use the same T.
template <class T>
T& find_operator(const c10::OperatorHandle& handle) {
  return static_cast<T&>(find_operator(
      handle, +[](const c10::OperatorHandle& found) -> std::unique_ptr<Operator> {
        return std::make_unique<T>(found);
      }));
}

}  // namespace openreg

#endif  // ATEN_FALLBACK_OPERATOR_H_
