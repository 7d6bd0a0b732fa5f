// SPDX-License-Identifier: BSD-3-Clause
//
// Tests autocast without a device and without operators. Tensors have dtypes but no memory. Below
// autocast, a single kernel replaces each operator and records the arguments that it receives.

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace openreg {
namespace {

using at::ScalarType;
using at::Tensor;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr at::DeviceType kDevice = at::DeviceType::PrivateUse1;

// Returns a tensor of shape [2, 3] on the device. The tensor has no memory, because the kernels of
// these tests read none.
Tensor MakeTensor(ScalarType dtype) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(dtype),
      c10::Device(kDevice, 0));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({2, 3});
  return tensor;
}

// An operator call below autocast, with the received arguments.
struct Call {
  std::string op;
  // The dtypes of all tensor arguments, including those in lists.
  std::vector<ScalarType> tensors;
  // The value of the argument "dtype".
  std::optional<ScalarType> dtype;
};

std::optional<Call> g_call;
int g_casts = 0;

void AppendTypes(const c10::IValue& value, std::vector<ScalarType>& types) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) types.push_back(value.toTensor().scalar_type());
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) AppendTypes(element, types);
  }
}

// Replaces an operator: records the call and returns arbitrary tensors.
void Record(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const auto& arguments = schema.arguments();
  Call call;
  call.op = toString(op.operator_name());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = torch::jit::peek(*stack, i, arguments.size());
    AppendTypes(value, call.tensors);
    if (arguments[i].name() == "dtype" && !value.isNone()) call.dtype = value.toScalarType();
  }
  torch::jit::drop(*stack, arguments.size());
  for (const c10::Argument& result : schema.returns()) {
    if (result.type()->isSubtypeOf(*c10::TensorType::get())) {
      stack->emplace_back(MakeTensor(at::kFloat));
    } else {
      stack->emplace_back(0);  // attention also returns the lengths of the sequences
    }
  }
  g_call = call;
}

// Replaces the operator that `tensor.to(dtype)` calls, and counts the calls.
Tensor Cast(const Tensor& /*self*/, std::optional<ScalarType> dtype, std::optional<at::Layout>,
            std::optional<at::Device>, std::optional<bool>, bool, std::optional<at::MemoryFormat>) {
  ++g_casts;
  return MakeTensor(dtype.value());  // NOLINT(bugprone-unchecked-optional-access): throws
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_to_copy", Cast); }

// Autograd needs a device guard to query the stream when it records a weight.
using DeviceGuard = c10::impl::NoOpDeviceGuardImpl<kDevice>;
C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuard)

enum class Policy { kLowerPrecision, kFloat32, kFloat32IfUnset, kAppendFloat32, kWidest };

struct Listed {
  std::string op;
  Policy policy;
};

void PrintTo(const Listed& listed, std::ostream* out) { *out << listed.op; }

// Converts the arguments of torch's macro to an operator name, for example "conv_transpose2d,
// input" to "conv_transpose2d.input".
std::string OperatorName(std::string arguments) {
  const auto comma = arguments.find(", ");
  return comma == std::string::npos ? arguments : arguments.replace(comma, 2, ".");
}

std::vector<Listed> AllListed() {
  std::vector<Listed> all;
#define OPENREG_LOWER_PRECISION(...) \
  all.push_back({ OperatorName(#__VA_ARGS__), Policy::kLowerPrecision });
#define OPENREG_FLOAT32(...) all.push_back({OperatorName(#__VA_ARGS__), Policy::kFloat32});
#define OPENREG_FLOAT32_IF_UNSET(...) \
  all.push_back({ OperatorName(#__VA_ARGS__), Policy::kFloat32IfUnset });
#define OPENREG_APPEND_FLOAT32(FUNCTION, NAME, ...) all.push_back({NAME, Policy::kAppendFloat32});
#define OPENREG_WIDEST(...) all.push_back({OperatorName(#__VA_ARGS__), Policy::kWidest});
  AT_FORALL_LOWER_PRECISION_FP(OPENREG_LOWER_PRECISION)
  AT_FORALL_FP32(OPENREG_FLOAT32)
  AT_FORALL_FP32_SET_OPT_DTYPE(OPENREG_FLOAT32_IF_UNSET)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(OPENREG_APPEND_FLOAT32)
  AT_FORALL_PROMOTE(OPENREG_WIDEST)
#undef OPENREG_LOWER_PRECISION
#undef OPENREG_FLOAT32
#undef OPENREG_FLOAT32_IF_UNSET
#undef OPENREG_APPEND_FLOAT32
#undef OPENREG_WIDEST
  return all;
}

c10::OperatorHandle Find(const std::string& op) {
  const auto dot = op.find('.');
  const std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + op.substr(0, dot)).c_str(),
                                                        overload.c_str());
}

// Creates a tensor argument. `index` is the position of the argument.
using MakeArgument = std::function<Tensor(size_t index)>;

c10::IValue Fill(const c10::Argument& argument, size_t index, const MakeArgument& make) {
  c10::TypePtr type = argument.type();
  if (auto optional = type->cast<c10::OptionalType>()) {
    // Also pass optional tensors, because autocast casts them like all others.
    if (!optional->getElementType()->isSubtypeOf(*c10::TensorType::get())) return {};
    type = optional->getElementType();
  }
  if (type->isSubtypeOf(*c10::TensorType::get())) return make(index);
  if (const auto& value = argument.default_value()) return *value;
  if (auto list = type->cast<c10::ListType>()) {
    const c10::TypePtr element = list->getElementType();
    if (element->isSubtypeOf(*c10::TensorType::get())) {
      return c10::List<Tensor>({make(index), make(index)});
    }
    if (element->kind() == c10::TypeKind::OptionalType) {
      return c10::List<std::optional<Tensor>>({make(index)});
    }
    if (element->kind() == c10::TypeKind::BoolType) return c10::List<bool>({false});
    return c10::List<int64_t>({1, 1});
  }
  switch (type->kind()) {
    case c10::TypeKind::BoolType:
      return false;
    case c10::TypeKind::FloatType:
      return 1.0;
    case c10::TypeKind::StringType:
      return "i";
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::NumberType:
      return 1;
    default:
      ADD_FAILURE() << "no value for argument " << argument.name() << " of type "
                    << argument.type()->repr_str();
      return {};
  }
}

// Calls an operator and returns the call that arrives below autocast. `overrides` replaces
// arguments by name.
Call CallWith(const std::string& op, const MakeArgument& make,
              const std::map<std::string, c10::IValue>& overrides = {}) {
  const c10::OperatorHandle handle = Find(op);
  torch::jit::Stack stack;
  const auto& arguments = handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto found = overrides.find(arguments[i].name());
    stack.push_back(found == overrides.end() ? Fill(arguments[i], i, make) : found->second);
  }
  g_call.reset();
  handle.callBoxed(stack);
  return g_call.value();  // NOLINT(bugprone-unchecked-optional-access): throws
}

Call CallAllOf(const std::string& op, ScalarType dtype) {
  return CallWith(op, [dtype](size_t) { return MakeTensor(dtype); });
}

class AutocastTest : public ::testing::Test {
 protected:
  AutocastTest() {
    at::autocast::set_autocast_enabled(kDevice, true);
    at::autocast::set_autocast_dtype(kDevice, at::kHalf);
    g_casts = 0;
  }

  ~AutocastTest() override {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(kDevice, false);
  }

  // Replaces the operator with Record until the end of this test.
  void Intercept(const std::string& op) {
    library_.impl(op.c_str(), torch::CppFunction::makeFromBoxedFunction<&Record>());
  }

 private:
  torch::Library library_{torch::Library::IMPL, "aten", c10::DispatchKey::AutogradPrivateUse1,
                          __FILE__, __LINE__};
};

class PolicyTest : public AutocastTest,
                   public ::testing::WithParamInterface<std::tuple<Listed, ScalarType>> {};

TEST_P(PolicyTest, PassesTheTypesOfItsListToOperators) {
  const auto& [listed, lower] = GetParam();
  at::autocast::set_autocast_dtype(kDevice, lower);
  Intercept(listed.op);
  switch (listed.policy) {
    case Policy::kLowerPrecision: {
      EXPECT_THAT(CallAllOf(listed.op, at::kFloat).tensors, AllOf(Not(IsEmpty()), Each(lower)));
      break;
    }
    case Policy::kFloat32: {
      EXPECT_THAT(CallAllOf(listed.op, lower).tensors, AllOf(Not(IsEmpty()), Each(at::kFloat)));
      break;
    }
    case Policy::kFloat32IfUnset: {
      const auto make = [lower](size_t) { return MakeTensor(lower); };
      const Call unset = CallWith(listed.op, make);
      EXPECT_THAT(unset.tensors, AllOf(Not(IsEmpty()), Each(lower)));
      EXPECT_EQ(unset.dtype, at::kFloat);
      const Call set = CallWith(listed.op, make, {{"dtype", c10::IValue(at::kDouble)}});
      EXPECT_EQ(set.dtype, at::kDouble);
      break;
    }
    case Policy::kAppendFloat32: {
      for (const char* target : {"norm.ScalarOpt_dtype", "norm.ScalarOpt_dim_dtype"}) {
        Intercept(target);
      }
      const Call call = CallAllOf(listed.op, lower);
      EXPECT_THAT(call.op, HasSubstr("_dtype"));
      EXPECT_EQ(call.dtype, at::kFloat);
      break;
    }
    case Policy::kWidest: {
      const Call mixed = CallWith(listed.op, [lower = lower](size_t index) {
        return MakeTensor(index == 0 ? lower : at::kFloat);
      });
      EXPECT_THAT(mixed.tensors, AllOf(SizeIs(Ge(2)), Each(at::kFloat)));
      EXPECT_THAT(CallAllOf(listed.op, lower).tensors, Each(lower));
      break;
    }
  }
}

TEST_P(PolicyTest, DoesNotCastDoubleAndIntegers) {
  const Listed& listed = std::get<0>(GetParam());
  Intercept(listed.op);
  for (const ScalarType dtype : {at::kDouble, at::kLong}) {
    if (listed.policy == Policy::kAppendFloat32) {
      Intercept("norm.ScalarOpt_dtype");
      Intercept("norm.ScalarOpt_dim_dtype");
    }
    const Call call = CallAllOf(listed.op, dtype);
    EXPECT_THAT(call.tensors, Each(dtype));
    // If autocast appends the argument "dtype", its value is the dtype of the input.
    const bool appended = listed.policy == Policy::kAppendFloat32;
    EXPECT_EQ(call.dtype, appended ? std::optional(dtype) : std::nullopt);
  }
  EXPECT_EQ(g_casts, 0);
}

TEST_P(PolicyTest, DoesNothingWhenDisabled) {
  const auto& [listed, lower] = GetParam();
  at::autocast::set_autocast_enabled(kDevice, false);
  Intercept(listed.op);
  for (const ScalarType dtype : {at::kFloat, lower}) {
    const Call call = CallAllOf(listed.op, dtype);
    EXPECT_EQ(call.op, "aten::" + listed.op);
    EXPECT_THAT(call.tensors, Each(dtype));
    EXPECT_EQ(call.dtype, std::nullopt);
  }
  EXPECT_EQ(g_casts, 0);
}

INSTANTIATE_TEST_SUITE_P(EachListedOperator, PolicyTest,
                         ::testing::Combine(::testing::ValuesIn(AllListed()),
                                            ::testing::Values(at::kHalf, at::kBFloat16)),
                         [](const auto& info) {
                           std::string name =
                               std::get<0>(info.param).op + "_" + toString(std::get<1>(info.param));
                           std::replace(name.begin(), name.end(), '.', '_');
                           return name;
                         });

// Returns the names of the operators that are registered for a key, without overload names.
std::set<std::string> Registered(c10::DispatchKey key) {
  std::set<std::string> names;
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key)) {
    names.insert(toString(name));
  }
  return names;
}

TEST_F(AutocastTest, HasTheOperatorsOfCuda) {
  const std::set<std::string> cuda = Registered(c10::DispatchKey::AutocastCUDA);
  const std::set<std::string> ours = Registered(c10::DispatchKey::AutocastPrivateUse1);
  std::vector<std::string> missing;
  std::set_difference(cuda.begin(), cuda.end(), ours.begin(), ours.end(),
                      std::back_inserter(missing));
  // The missing operators belong to a library that exists only for cuda. A torch built with CUDA
  // has one more operator of this kind.
  EXPECT_THAT(missing, Each(HasSubstr("cudnn_")));
  EXPECT_TRUE(std::includes(cuda.begin(), cuda.end(), ours.begin(), ours.end()));
}

TEST_F(AutocastTest, OtherOperatorsFallThrough) {
  Intercept("relu");
  for (const ScalarType dtype : {at::kFloat, at::kHalf}) {
    EXPECT_THAT(CallAllOf("relu", dtype).tensors, Each(dtype));
  }
}

TEST_F(AutocastTest, DoesNotCastTensorsOfOtherDevices) {
  Intercept("mm");
  const Tensor cpu = at::ones({2, 3});
  const Call call = CallWith("mm", [&](size_t) { return MakeTensor(at::kFloat); }, {{"mat2", cpu}});
  EXPECT_EQ(call.tensors, std::vector<ScalarType>({at::kHalf, at::kFloat}));
}

TEST_F(AutocastTest, RejectsBinaryCrossEntropy) {
  const Tensor input = MakeTensor(at::kFloat);
  try {
    at::binary_cross_entropy(input, input);
    FAIL() << "nothing was thrown";
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.msg(), HasSubstr("unsafe to autocast"));
    EXPECT_THAT(error.msg(), HasSubstr("binary_cross_entropy_with_logits"));
  }
  at::autocast::set_autocast_enabled(kDevice, false);
  Intercept("binary_cross_entropy");
  EXPECT_THAT(CallAllOf("binary_cross_entropy", at::kFloat).tensors, Each(at::kFloat));
}

TEST_F(AutocastTest, CastsAWeightOnceInARegion) {
  Intercept("mm");
  Tensor weight = MakeTensor(at::kFloat);
  weight.set_requires_grad(true);
  const auto make = [&](size_t) { return weight; };
  CallWith("mm", make);
  CallWith("mm", make);
  EXPECT_EQ(g_casts, 1);

  at::autocast::clear_cache();  // as at the end of the outermost region
  CallWith("mm", make);
  EXPECT_EQ(g_casts, 2);

  at::autocast::set_autocast_cache_enabled(false);
  at::autocast::clear_cache();
  CallWith("mm", make);
  at::autocast::set_autocast_cache_enabled(true);
  EXPECT_EQ(g_casts, 4);
}

// Checks the example that docs/amp.md shows to vendors.
TEST_F(AutocastTest, PolicyOfOneOperatorCanBeChanged) {
  Intercept("exp");
  {
    torch::Library m(torch::Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__,
                     __LINE__);
    KERNEL_PRIVATEUSEONE(exp, lower_precision_fp)
    EXPECT_THAT(CallAllOf("exp", at::kFloat).tensors, Each(at::kHalf));
  }
  EXPECT_THAT(CallAllOf("exp", at::kHalf).tensors, Each(at::kFloat));
}

}  // namespace
}  // namespace openreg
