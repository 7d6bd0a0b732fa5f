// SPDX-License-Identifier: BSD-3-Clause
#include "compile/csrc/graph_replay.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/c10/device.h"
#include "runtime/c10/error.h"
#include "runtime/c10/graph.h"
#include "runtime/c10/stream.h"

namespace py = pybind11;

namespace openreg {
namespace {

using Numbers = c10::SmallVector<int64_t, 6>;

// Returns whether `stream` is being captured. is_capturing() is unsuitable, because the program may
// have destroyed the stream.
bool is_captured(orStream_t stream) {
  orStreamCaptureStatus status = orStreamCaptureStatusNone;
  return orStreamGetCaptureInfo(stream, &status, nullptr) == orSuccess &&
         status != orStreamCaptureStatusNone;
}

bool is_tensor(PyObject* object) { return THPVariable_Check(object); }

// Returns a tensor with the same elements and no autograd metadata.
at::Tensor alias_of(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
}

py::object wrapped(at::Tensor tensor) {
  return py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(tensor)));
}

// The requirements for one input of a call.
struct Operand {
  py::object number;  // the required value of an input that is not a tensor
  Numbers sizes;
  Numbers strides;
  const void* address = nullptr;  // where the elements were captured; null if copied
  at::Tensor buffer;              // the copy that the graph reads
  Numbers copied_sizes;           // `sizes`, with dimensions of stride 0 reduced to 1
  at::Tensor copied;              // the buffer viewed with copied_sizes
  bool written = false;           // the graph writes to the buffer, which must be copied back

  bool has_layout_of(const at::Tensor& tensor) const {
    return tensor.sizes() == c10::IntArrayRef(sizes) &&
           tensor.strides() == c10::IntArrayRef(strides);
  }
  // Returns a view of an input with this layout. The view contains each element only once.
  at::Tensor elements_of(const at::Tensor& tensor) const {
    return c10::IntArrayRef(copied_sizes) == c10::IntArrayRef(sizes)
               ? tensor
               : tensor.as_strided(copied_sizes, strides, tensor.storage_offset());
  }
};

// Describes one result of a call.
struct Result {
  enum class Kind : uint8_t { kObject, kInput, kViewOfInput, kOwned };
  Kind kind = Kind::kObject;
  py::object object;         // kObject: not a tensor; all calls return it
  size_t input = 0;          // kInput, kViewOfInput: the index of the input
  at::Tensor recorded;       // kOwned: the tensor in the graph's memory
  c10::DispatchKeySet keys;  // kViewOfInput: this member and all following ones
  caffe2::TypeMeta dtype;
  Numbers sizes;
  Numbers strides;
  int64_t distance = 0;  // in bytes, from the input's first element to the result's

  at::Tensor view_of(const at::Tensor& input_tensor) const {
    auto impl = c10::make_intrusive<at::TensorImpl>(
        c10::TensorImpl::VIEW, c10::Storage(input_tensor.storage()), keys, dtype);
    const int64_t begin =
        input_tensor.storage_offset() * static_cast<int64_t>(input_tensor.itemsize()) + distance;
    impl->set_sizes_and_strides(sizes, strides, begin / static_cast<int64_t>(dtype.itemsize()));
    return at::Tensor(std::move(impl));
  }
};

// A storage in the graph's memory that contains results.
struct Owned {
  c10::Storage storage;
  size_t uses;  // number of references that the recording itself owns
};

class Recording {
 public:
  Recording(std::shared_ptr<Graph> graph, c10::DeviceIndex device, const py::list& inputs,
            const std::vector<size_t>& copied, const std::vector<size_t>& written,
            const py::list& results)
      : device_(device), graph_(std::move(graph)) {
    for (const py::handle& input : inputs) {
      operands_.push_back(fixed_operand(input));
    }
    for (const size_t index : copied) {
      use_buffer(operands_.at(index), inputs[index]);
    }
    for (const size_t index : written) {
      TORCH_INTERNAL_ASSERT(operands_.at(index).buffer.defined());
      operands_[index].written = true;
    }
    for (const py::handle& result : results) {
      results_.push_back(describe(result, inputs));
    }
    TORCH_CHECK(PyList_SetSlice(results.ptr(), 0, PyList_GET_SIZE(results.ptr()), nullptr) == 0);
    find_owned();
  }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;
  ~Recording() = default;

  // Replays the graph for these inputs and clears their list. Returns None, without any effect, if
  // the inputs do not match the recording, if the recording is occupied, or if the stream is being
  // captured.
  py::object run(const py::list& inputs) {
    if (!fits(inputs) || is_occupied()) {
      return py::none();
    }
    // While a stream is being captured, no replay can be queued on it, and no stream can wait for
    // it.
    const c10::Stream stream = current_stream(device_);
    const orStream_t last = last_native_.load(std::memory_order_acquire);
    if (is_captured(native_stream(stream)) || (last != nullptr && is_captured(last))) {
      return py::none();
    }
    c10::SmallVector<at::Tensor, 8> given;
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (operands_[i].buffer.defined()) {
        given.push_back(THPVariable_Unpack(item(inputs, i)));
      }
    }
    // The results occupy the recording, so from here on no other thread uses it.
    py::list results = take_results(inputs);
    {
      const py::gil_scoped_release no_gil;
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      const std::lock_guard lock(queueing_);
      follow(stream);
      copy(given, /*back=*/false);
      graph_->replay();
      copy(given, /*back=*/true);
    }
    TORCH_CHECK(PyList_SetSlice(inputs.ptr(), 0, PyList_GET_SIZE(inputs.ptr()), nullptr) == 0);
    return results;
  }

  // Returns the indices of the inputs whose address differs from the captured one, or None if the
  // number of inputs or their layouts differ.
  py::object moved(const py::list& inputs) const {
    if (!has_layouts_of(inputs)) {
      return py::none();
    }
    py::list result;
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (!is_at_address(operands_[i], item(inputs, i))) {
        result.append(i);
      }
    }
    return result;
  }

 private:
  static PyObject* item(const py::list& list, size_t index) {
    return PyList_GET_ITEM(list.ptr(), static_cast<Py_ssize_t>(index));
  }

  static Operand fixed_operand(const py::handle& input) {
    Operand result;
    if (!is_tensor(input.ptr())) {
      result.number = py::reinterpret_borrow<py::object>(input);
      return result;
    }
    const at::Tensor& tensor = THPVariable_Unpack(input.ptr());
    result.sizes = Numbers(tensor.sizes());
    result.strides = Numbers(tensor.strides());
    result.address = tensor.const_data_ptr();
    return result;
  }

  static void use_buffer(Operand& operand, const py::handle& buffer) {
    operand.buffer = THPVariable_Unpack(buffer.ptr());
    operand.address = nullptr;
    operand.copied_sizes = operand.sizes;
    for (size_t i = 0; i < operand.sizes.size(); ++i) {
      if (operand.strides[i] == 0 && operand.sizes[i] > 1) {
        operand.copied_sizes[i] = 1;
      }
    }
    operand.copied = operand.elements_of(operand.buffer);
  }

  Result describe(const py::handle& object, const py::list& inputs) const {
    Result result;
    if (!is_tensor(object.ptr())) {
      result.object = py::reinterpret_borrow<py::object>(object);
      return result;
    }
    const at::Tensor& tensor = THPVariable_Unpack(object.ptr());
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (!is_tensor(item(inputs, i))) {
        continue;
      }
      const at::Tensor& input = THPVariable_Unpack(item(inputs, i));
      if (tensor.is_same(input)) {
        result.kind = Result::Kind::kInput;
        result.input = i;
        return result;
      }
      if (tensor.has_storage() && tensor.storage().is_alias_of(input.storage())) {
        result.kind = Result::Kind::kViewOfInput;
        result.input = i;
        result.keys = tensor.key_set();
        result.dtype = tensor.dtype();
        result.sizes = Numbers(tensor.sizes());
        result.strides = Numbers(tensor.strides());
        result.distance = tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize()) -
                          input.storage_offset() * static_cast<int64_t>(input.itemsize());
        return result;
      }
    }
    result.kind = Result::Kind::kOwned;
    result.recorded = alias_of(tensor);
    return result;
  }

  void find_owned() {
    std::map<const c10::StorageImpl*, Owned> found;
    for (const Result& result : results_) {
      if (result.kind == Result::Kind::kOwned) {
        const c10::Storage& storage = result.recorded.storage();
        found.try_emplace(storage.unsafeGetStorageImpl(), Owned{storage, 1}).first->second.uses++;
      }
    }
    for (auto& [impl, owned] : found) {
      TORCH_CHECK(owned.storage.use_count() == owned.uses,
                  "a result's memory is referenced elsewhere, for example by a constant");
      owned_.push_back(std::move(owned));
    }
  }

  bool has_layouts_of(const py::list& inputs) const {
    if (inputs.size() != operands_.size()) {
      return false;
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      const Operand& operand = operands_[i];
      PyObject* const input = item(inputs, i);
      if (operand.number) {
        if (is_tensor(input) || !operand.number.equal(py::handle(input))) {
          return false;
        }
      } else if (!is_tensor(input) || !operand.has_layout_of(THPVariable_Unpack(input))) {
        return false;
      }
    }
    return true;
  }

  // Returns whether the graph copies `input`, or `input` is at the captured address. The layout of
  // `input` must be that of the operand.
  static bool is_at_address(const Operand& operand, PyObject* input) {
    return operand.number || operand.buffer.defined() ||
           THPVariable_Unpack(input).const_data_ptr() == operand.address;
  }

  bool fits(const py::list& inputs) const {
    if (!has_layouts_of(inputs)) {
      return false;
    }
    for (size_t i = 0; i < operands_.size(); ++i) {
      if (!is_at_address(operands_[i], item(inputs, i))) {
        return false;
      }
    }
    return true;
  }

  bool is_occupied() const {
    for (const Owned& owned : owned_) {
      if (owned.storage.use_count() != owned.uses) {
        return true;
      }
    }
    return false;
  }

  py::list take_results(const py::list& inputs) const {
    py::list results;
    for (const Result& result : results_) {
      switch (result.kind) {
        case Result::Kind::kObject:
          results.append(result.object);
          break;
        case Result::Kind::kInput:
          results.append(py::handle(item(inputs, result.input)));
          break;
        case Result::Kind::kViewOfInput:
          results.append(wrapped(result.view_of(THPVariable_Unpack(item(inputs, result.input)))));
          break;
        case Result::Kind::kOwned:
          results.append(wrapped(alias_of(result.recorded)));
          break;
      }
    }
    return results;
  }

  void copy(c10::ArrayRef<at::Tensor> given, bool back) const {
    size_t next = 0;
    for (const Operand& operand : operands_) {
      if (!operand.buffer.defined()) {
        continue;
      }
      const at::Tensor& tensor = given[next++];
      if (!back) {
        operand.copied.copy_(operand.elements_of(tensor), /*non_blocking=*/true);
      } else if (operand.written) {
        operand.elements_of(tensor).copy_(operand.copied, /*non_blocking=*/true);
      }
    }
  }

  // Makes `stream` wait for all work that is queued on the stream of the last call. This work may
  // still read the results, which the replay overwrites.
  void follow(const c10::Stream& stream) {
    if (last_ && *last_ != stream) {
      orStreamCaptureStatus status = orStreamCaptureStatusNone;
      if (orStreamGetCaptureInfo(native_stream(*last_), &status, nullptr) == orSuccess) {
        c10::Event event(kOpenRegType);
        event.record(*last_);
        event.block(stream);
      } else {
        // The stream was destroyed, but its queued work may still run.
        OPENREG_CHECK(orDeviceSynchronize());
      }
    }
    last_ = stream;
    last_native_.store(native_stream(stream), std::memory_order_release);
  }

  const c10::DeviceIndex device_;
  std::vector<Operand> operands_;
  std::vector<Result> results_;
  std::vector<Owned> owned_;
  std::shared_ptr<Graph> graph_;

  std::mutex queueing_;  // held while work is queued; its owner never waits for the GIL
  std::optional<c10::Stream> last_;
  std::atomic<orStream_t> last_native_ = nullptr;
};

}  // namespace

void bind_recordings(py::module_& module) {
  using torch::wrap_pybind_function;

  py::class_<Recording>(module, "_Recording")
      .def(py::init([](std::shared_ptr<Graph> graph, int64_t device, const py::list& inputs,
                       const std::vector<size_t>& copied, const std::vector<size_t>& written,
                       const py::list& results) {
             return std::make_unique<Recording>(std::move(graph), resolve_device(device), inputs,
                                                copied, written, results);
           }),
           py::arg("graph"), py::arg("device"), py::arg("inputs"), py::arg("copied"),
           py::arg("written"), py::arg("results"))
      .def("run", wrap_pybind_function(&Recording::run), py::arg("inputs"))
      .def("moved", wrap_pybind_function(&Recording::moved), py::arg("inputs"));
}

}  // namespace openreg
