// SPDX-License-Identifier: BSD-3-Clause
//
// Runs a model that export.py has compiled, in a process without Python.
//
//   run PACKAGE TENSORS [DEVICE INDEX]
//
// TENSORS is a file with a dict that torch.save has written; its keys are "input" and "expected".
// The exit status is 0 if the result is as expected, 1 if it is not, and 2 if the model cannot be
// run.
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/allclose.h>
#include <c10/core/Device.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

namespace {

c10::Dict<c10::IValue, c10::IValue> load(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file),
                                std::istreambuf_iterator<char>()};
  return torch::jit::pickle_load(bytes).toGenericDict();
}

int run(const std::string& package, const std::string& tensors, int index) {
  // Registers the name of the device, as `import torch_openreg` does in Python. The device's
  // libraries are linked to the program and register themselves.
  c10::register_privateuse1_backend("openreg");
  const c10::Device device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index));
  const auto given = load(tensors);

  torch::inductor::AOTIModelPackageLoader model(package, "model", /*run_single_threaded=*/false,
                                                /*num_runners=*/1, device.index());
  const at::Tensor result = model.run({given.at("input").toTensor().to(device)}).at(0);
  const at::Tensor expected = given.at("expected").toTensor();
  const bool same = at::allclose(result.cpu(), expected, 1e-4, 1e-5);
  std::cout << "on " << result.device() << ": " << (same ? "as" : "NOT as") << " expected\n";
  return same ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: run PACKAGE TENSORS [DEVICE INDEX]\n";
    return 2;
  }
  try {
    return run(argv[1], argv[2], argc == 4 ? std::atoi(argv[3]) : 0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
