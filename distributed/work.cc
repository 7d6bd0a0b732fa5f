// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/work.h"

#include <c10/core/StreamGuard.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/exception.h>

#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#include <utility>

#include "distributed/completion_thread.h"
#include "runtime/c10/device.h"
#include "runtime/c10/stream.h"

namespace openreg {

namespace {

c10::EventFlag flag(bool timed) {
  return timed ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT;
}

}  // namespace

WorkOCCL::WorkOCCL(GroupLabel group, Operation operation, std::shared_ptr<Transport> transport,
                   bool timed)
    : Work(group.rank, operation.type, operation.name.c_str(), operation.inputs),
      group_(std::move(group)),
      operation_(std::move(operation)),
      timed_(timed),
      events_(std::make_shared<OperationEvents>(OperationEvents{
          c10::Event(kOpenRegType, flag(timed)), c10::Event(kOpenRegType, flag(timed))})),
      transport_(std::move(transport)) {}

void WorkOCCL::begin(const c10::Stream& stream) { events_->start->record(stream); }

void WorkOCCL::end(const c10::Stream& stream) {
  events_->end.record(stream);
  // Complete the future on this stream, so that its callbacks run on streams that wait for this
  // stream.
  const c10::StreamGuard guard(stream);
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                     std::vector<c10::Device>{operation_.device});
  future_->markCompleted(c10::IValue(operation_.outputs));
  if (recordFunctionEndCallback_) {
    recordFunctionEndCallback_();
  }
}

bool WorkOCCL::isCompleted() { return transport_->ended().has_value() || events_->end.query(); }

bool WorkOCCL::isSuccess() const { return !transport_->ended().has_value(); }

std::exception_ptr WorkOCCL::exception() const {
  try {
    throw_if_failed();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void WorkOCCL::throw_if_failed() const {
  const std::optional<std::string> ended = transport_->ended();
  if (ended.has_value()) {
    dump_flight_recorder_after_failure(rank_);
  }
  TORCH_CHECK_WITH(DistBackendError, !ended.has_value(), operation_.name, " number ",
                   operation_.sequence, ": ", ended.value_or(""));
}

int WorkOCCL::sourceRank() const {
  wait_on_host(kNoTimeout);
  return events_->source;
}

std::vector<at::Tensor> WorkOCCL::result() { return operation_.outputs; }

void WorkOCCL::synchronize() {
  throw_if_failed();
  events_->end.block(current_stream(operation_.device.index()));
}

void WorkOCCL::wait_on_host(std::chrono::milliseconds timeout) const {
  if (timeout == kNoTimeout) {
    // The timeout of the communicator ends this wait.
    events_->end.synchronize();
  } else {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    while (!events_->end.query()) {
      throw_if_failed();
      TORCH_CHECK_WITH(DistBackendError, std::chrono::steady_clock::now() < deadline,
                       operation_.name, " number ", operation_.sequence, " did not finish within ",
                       timeout.count(), " ms");
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }
  throw_if_failed();
}

bool WorkOCCL::wait(std::chrono::milliseconds timeout) {
  const std::vector<int64_t> no_sizes;
  RECORD_PARAM_COMMS(
      (std::make_tuple(static_cast<int64_t>(operation_.sequence), c10d::isP2POp(operation_.type))),
      group_.name, group_.rank, "wait", 0, 0, at::kByte, no_sizes, no_sizes, group_.first,
      group_.stride, group_.size);
  synchronize();
  // A barrier makes the host wait as well, because programs call it for this purpose.
  if (timeout != kNoTimeout || operation_.type == c10d::OpType::BARRIER) {
    wait_on_host(timeout);
  }
  return true;
}

void WorkOCCL::blockCurrentStream() { synchronize(); }

void WorkOCCL::abort() { transport_->abort("the communicator was aborted"); }

c10::intrusive_ptr<c10::ivalue::Future> WorkOCCL::getFuture() { return future_; }

bool WorkOCCL::has_ended() const {
  try {
    return transport_->ended().has_value() || events_->end.query();
  } catch (const c10::Error&) {
    return true;  // the stream has failed; its next synchronization returns the error
  }
}

c10d::WorkResult WorkOCCL::outcome() const {
  occlResult_t result = occlSuccess;
  if (transport_->ended(&result).has_value()) {
    return result == occlTimeout ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR;
  }
  try {
    return events_->end.query() ? c10d::WorkResult::SUCCESS : c10d::WorkResult::UNKNOWN;
  } catch (const c10::Error&) {
    return c10d::WorkResult::UNKNOWN;  // another operation on the stream has failed
  }
}

c10::intrusive_ptr<c10::ivalue::Future> WorkOCCL::getFutureResult() {
  std::call_once(result_once_, [this] {
    result_ = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    CompletionThread::for_results().add(
        c10::intrusive_ptr<WorkOCCL>::reclaim_copy(this),
        std::make_shared<const CompletionThread::Function>([](const WorkOCCL& work) {
          work.result_->markCompleted(c10::IValue(static_cast<int64_t>(work.outcome())));
        }));
  });
  return result_;
}

std::shared_ptr<c10d::WorkInfo> WorkOCCL::info() const {
  const float milliseconds = [&]() -> float {
    try {
      return getDuration();
    } catch (const c10::Error&) {
      return 0;  // the operation has not run
    }
  }();
  return std::make_shared<c10d::WorkInfo>(operation_.type, operation_.sequence, called_,
                                          std::chrono::steady_clock::now(),
                                          std::chrono::duration<float, std::milli>(milliseconds));
}

float WorkOCCL::getDuration() const {
  TORCH_CHECK(timed_, "the duration of ", operation_.name,
              " was not measured: call _enable_collectives_timing() on the group first");
  return static_cast<float>(events_->start->elapsedTime(events_->end));
}

uint64_t WorkOCCL::getSequencenumber() const { return operation_.sequence; }

}  // namespace openreg
