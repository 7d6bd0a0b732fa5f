// SPDX-License-Identifier: BSD-3-Clause
//
// Precedents: what the results of an operator looked like, by what its arguments looked like.
//
// Most operators without a Meta kernel take sizes, strides and dtypes of their results from those
// of their arguments alone, but only running them tells which. So the fallback waits for the first
// call with arguments of a kind, keeps here what came out, and promises the same for the next.
// The kernel that keeps the promise checks it.
//
// Threads: any.
#ifndef ATEN_PRECEDENTS_H_
#define ATEN_PRECEDENTS_H_

#include <ATen/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/operator_name.h>
#include <ATen/core/stack.h>
#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

namespace openreg {

// Whether results of this operator follow from the looks of its arguments, as far as torch says.
bool has_precedents(const c10::OperatorHandle& handle);

// The looks of a call's arguments, as numbers: dtypes, sizes, strides, flags and which of them
// share memory; the values of what is no tensor, but of real numbers only their range, since no
// size follows from them; the settings that kernels look at. Nothing for arguments that cannot be
// told so.
using Looks = std::vector<int64_t>;
std::optional<Looks> looks_of(c10::ArrayRef<c10::IValue> arguments);

struct Precedent {
  struct Shape {
    at::DimVector sizes;
    at::DimVector strides;
  };
  // A new tensor of this shape, or an argument, or an undefined tensor.
  struct Result {
    std::optional<Shape> shape;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    std::optional<size_t> argument;
  };
  // An argument that the operator resized.
  struct Resized {
    size_t argument;
    Shape shape;
  };
  std::vector<Result> results;
  std::vector<Resized> resized;
};

// Sees a call before and after, and makes a precedent of it.
class Witness {
 public:
  explicit Witness(c10::ArrayRef<c10::IValue> arguments);

  // Nothing where there is more to the results than a Precedent can say: views of arguments,
  // tensors that share memory, lazy bits.
  std::optional<Precedent> testify(c10::ArrayRef<c10::IValue> results) const;

 private:
  std::vector<c10::IValue> arguments_;
  std::vector<Precedent::Shape> shapes_;  // of those that are tensors, before
};

// The precedents of one operator.
class Precedents {
 public:
  // nullptr: there is none.
  std::shared_ptr<const Precedent> find(const Looks& looks) const;
  void add(Looks looks, Precedent precedent);

 private:
  struct Hash {
    size_t operator()(const Looks& looks) const;
  };
  // A program that never repeats itself shall not fill the memory.
  static constexpr size_t kMost = 1024;

  mutable std::mutex mutex_;
  std::unordered_map<Looks, std::shared_ptr<const Precedent>, Hash> by_looks_;
};

}  // namespace openreg

#endif  // ATEN_PRECEDENTS_H_
