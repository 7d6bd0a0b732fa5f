// SPDX-License-Identifier: BSD-3-Clause
//
// The runner that torch's package loader creates for device openreg. It launches a model's kernels
// on the device's current streams. Loading the library registers the runner.
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/c10/device.h"
#include "runtime/c10/stream.h"

namespace openreg {
namespace {

// Returns the device name to pass to the model. torch's code in the package parses this name and
// supports only torch's own devices. Therefore this function returns the name of a CPU device with
// the same index. The code that is generated for openreg corrects the type
// (compile/torch_openreg_compile/cpp_wrapper.py).
std::string name_for_model(const c10::Device& device) {
  return "cpu:" + std::to_string(resolve_device(device.index()));
}

class Runner final : public torch::inductor::AOTIModelContainerRunner {
 public:
  Runner(const std::string& model, size_t models, const c10::Device& device,
         const std::string& binaries, bool single_threaded)
      : AOTIModelContainerRunner(model, models, name_for_model(device), binaries, single_threaded),
        device_(device.type(), resolve_device(device.index())) {}

 protected:
  // Runs the model on `stream`, a driver handle; null means the current stream.
  std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle>& inputs, void* stream) override {
    const DeviceScope scope(device_.index());
    if (stream == nullptr) {
      return AOTIModelContainerRunner::run_impl(inputs, nullptr);
    }
    const CurrentStream current(external_stream(static_cast<orStream_t>(stream), device_.index()));
    return AOTIModelContainerRunner::run_impl(inputs, nullptr);
  }

 private:
  class CurrentStream {
   public:
    explicit CurrentStream(const c10::Stream& stream) : before_(exchange_stream(stream)) {}
    ~CurrentStream() { exchange_stream(before_); }
    CurrentStream(const CurrentStream&) = delete;
    CurrentStream& operator=(const CurrentStream&) = delete;

   private:
    const c10::Stream before_;
  };

  const c10::Device device_;
};

std::unique_ptr<torch::inductor::AOTIModelContainerRunner> make_runner(const std::string& model,
                                                                       size_t models,
                                                                       const std::string& device,
                                                                       const std::string& binaries,
                                                                       const bool single_threaded) {
  return std::make_unique<Runner>(model, models, c10::Device(device), binaries, single_threaded);
}

const torch::inductor::RegisterAOTIModelRunner registered("openreg", &make_runner);

}  // namespace
}  // namespace openreg
