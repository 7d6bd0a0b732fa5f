// SPDX-License-Identifier: BSD-3-Clause
//
// Makes the device available in torch.profiler. This file implements a Kineto profiler, which torch
// loads through REGISTER_PRIVATEUSE1_PROFILER. The profiler converts the driver's records to rows
// of the trace.
//
// Only this file uses Kineto, because Kineto's interface changes between torch releases. Kineto
// owns the session, which lives from configure() to the end of processTrace(). There is one session
// at a time. For each thread, the driver stores the ids that torch pushes. It uses them to link a
// command to the operator (or annotation) in which the command was submitted.
#include <c10/util/Exception.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "profiler/activity_label.h"
#include "profiler/clock.h"
#include "profiler/collector.h"
#include "runtime/c10/error.h"
#include "runtime/c10/memory_profiling.h"

namespace openreg {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

constexpr char kProfilerName[] = "openreg";

// Links a call to its work. Trace viewers draw the link as an arrow.
void set_flow(GenericTraceActivity& activity, uint32_t correlation, bool start) {
  activity.flow.id = correlation;
  activity.flow.type = libkineto::kLinkAsyncCpuGpu;
  activity.flow.start = start ? 1 : 0;
}

ActivityType type_of(const orActivity& record) {
  switch (record.kind) {
    case orActivityRuntime:
      return ActivityType::PRIVATEUSE1_RUNTIME;
    case orActivityMemcpy:
      return ActivityType::GPU_MEMCPY;
    case orActivityMemset:
      return ActivityType::GPU_MEMSET;
    case orActivityKernel:
    case orActivityHostFunction:
      break;
  }
  return ActivityType::CONCURRENT_KERNEL;
}

std::string device_name(int device) { return "openreg:" + std::to_string(device); }

class Session final : public libkineto::IActivityProfilerSession {
 public:
  Session(std::set<ActivityType> types, size_t most_bytes)
      : types_(std::move(types)), most_bytes_(most_bytes) {
    status_ = libkineto::TraceStatus::READY;
  }
  ~Session() override { end(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void start() override {
    try {
      clocks_.begin();
      ActivityCollector::get().start(most_bytes_);
      started_ = true;
      status_ = libkineto::TraceStatus::RECORDING;
    } catch (const std::exception& error) {  // Kineto does not expect exceptions
      report(error.what());
      status_ = libkineto::TraceStatus::ERROR;
    }
  }

  void stop() override {
    end();
    clocks_.end();
    status_ = errors_.empty() ? libkineto::TraceStatus::PROCESSING : libkineto::TraceStatus::ERROR;
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, nullptr, 0, std::numeric_limits<int64_t>::max());
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t begin, int64_t end) override {
    std::vector<orActivity> records = ActivityCollector::get().take();
    std::sort(records.begin(), records.end(),
              [](const orActivity& a, const orActivity& b) { return a.start_ns < b.start_ns; });
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(begin, end, kProfilerName);
    buffer_->gpuOpCount = 0;
    std::unordered_set<uint32_t> with_work;
    for (const orActivity& record : records) {
      if (record.kind != orActivityRuntime) {
        with_work.insert(record.correlation);
      }
    }
    for (const orActivity& record : records) {
      add(record, with_work.count(record.correlation) != 0, linked);
    }
    add_annotations(linked);
    for (const auto& activity : buffer_->activities) {
      activity->log(logger);
    }
    for (size_t i = 1; i < devices_.size(); ++i) {  // Kineto logs the first device itself
      logger.handleDeviceInfo(device_info(*std::next(devices_.begin(), static_cast<long>(i))),
                              begin);
    }
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(
        device_info(devices_.empty() ? 0 : *devices_.begin()));
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [device, stream] : streams_) {
      infos.push_back({stream, stream, device, "stream " + std::to_string(stream)});
    }
    return infos;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(uint64_t id) override { push(orActivityIdExternal, id); }
  void popCorrelationId() override { pop(orActivityIdExternal); }
  void pushUserCorrelationId(uint64_t id) override { push(orActivityIdUser, id); }
  void popUserCorrelationId() override { pop(orActivityIdUser); }

  // Returns the properties of the devices: those that CUDA's traces contain in "deviceProperties"
  // and that this device also has.
  std::string getDeviceProperties() override {
    std::ostringstream text;
    int count = 0;
    (void)orGetDeviceCount(&count);
    for (int device = 0; device < count; ++device) {
      orDeviceProperties properties{};
      if (orGetDeviceProperties(&properties, device) != orSuccess) {
        return "";
      }
      text << (device == 0 ? "" : ", ") << "{\"id\": " << device << ", \"name\": \""
           << properties.name << "\", \"totalGlobalMem\": " << properties.total_memory
           << ", \"computeMajor\": " << properties.major
           << ", \"computeMinor\": " << properties.minor
           << ", \"numSms\": " << properties.multi_processor_count << "}";
    }
    return text.str();
  }

  std::unordered_map<std::string, std::string> getMetadata() override {
    int version = 0;
    (void)orGetVersion(&version);
    return {{"openreg_driver_version", std::to_string(version)},
            {"openreg_dropped_records", std::to_string(ActivityCollector::get().dropped())}};
  }

 private:
  // The period in which one stream ran the work of one annotation.
  struct Annotation {
    int64_t begin = std::numeric_limits<int64_t>::max();
    int64_t end = 0;
  };

  static void push(orActivityIdKind kind, uint64_t id) {
    (void)orActivityPushExternalCorrelationId(kind, id);
  }
  static void pop(orActivityIdKind kind) {
    (void)orActivityPopExternalCorrelationId(kind, nullptr);
  }

  static libkineto::DeviceInfo device_info(int device) {
    orDeviceProperties properties{};
    (void)orGetDeviceProperties(&properties, device);
    return {device, libkineto::kExceedMaxPid + device, device_name(device), properties.name};
  }

  // Stores an error, and also prints it as a warning, because torch 2.13 does not show the errors
  // that Kineto reports.
  void report(const std::string& error) {
    errors_.push_back(error);
    TORCH_WARN("torch.profiler, device openreg: ", error);
  }

  // Stops recording if it was started and not stopped yet.
  void end() {
    if (!std::exchange(started_, false)) {
      return;
    }
    try {
      ActivityCollector::get().stop();
    } catch (const std::exception& error) {
      report(error.what());
    }
    if (const uint64_t dropped = ActivityCollector::get().dropped(); dropped != 0) {
      report(std::to_string(dropped) +
             " records were dropped because the trace buffer was full: profile a shorter time, or "
             "set KINETO_CONFIG to a file with ACTIVITIES_MAX_GPU_BUFFER_SIZE_MB=512 (the default "
             "is 128)");
    }
  }

  void add(const orActivity& record, bool has_work,
           const libkineto::getLinkedActivityCallback& linked) {
    const ActivityType type = type_of(record);
    const bool is_call = record.kind == orActivityRuntime;
    const int64_t start_time = clocks_.unix_ns(record.start_ns);
    const int64_t end_time = clocks_.unix_ns(record.end_ns);
    if (!is_call) {
      streams_.emplace(record.device, record.stream);
      devices_.insert(record.device);
      if (record.user_id != 0) {
        Annotation& annotation = annotations_[{record.device, record.stream, record.user_id}];
        annotation.begin = std::min(annotation.begin, start_time);
        annotation.end = std::max(annotation.end, end_time);
      }
    }
    if (types_.count(type) == 0) {
      return;
    }
    buffer_->emplace_activity(buffer_->span, type, activity_label(record));
    GenericTraceActivity& activity = *buffer_->activities.back();
    activity.startTime = start_time;
    activity.endTime = end_time;
    if (has_work) {
      set_flow(activity, record.correlation, is_call);
    }
    if (linked != nullptr && record.external_id != 0) {
      activity.linked = linked(static_cast<int32_t>(record.external_id));
    }
    // A call without a link gets an id that no operator or region has. Otherwise torch would
    // interpret the call's own number as the id of an operator, and attribute that operator's work
    // to this call.
    constexpr uint32_t kOfNoOperator = 0x40000000;
    activity.id = static_cast<int32_t>(is_call && activity.linked == nullptr
                                           ? record.correlation | kOfNoOperator
                                           : record.correlation);
    activity.addMetadata("correlation", record.correlation);
    if (is_call) {
      activity.device = libkineto::processId();
      activity.resource = record.thread;
      activity.threadId = record.thread;
      describe_call(activity, record);
    } else {
      ++buffer_->gpuOpCount;
      activity.device = record.device;
      activity.resource = record.stream;
      activity.threadId = record.stream;
      describe_work(activity, record);
    }
  }

  static void describe_call(GenericTraceActivity& activity, const orActivity& record) {
    if (record.stream >= 0) {
      activity.addMetadata("device", record.device);
      activity.addMetadata("stream", record.stream);
    }
    if (record.object != 0) {
      std::ostringstream address;
      address << "0x" << std::hex << record.object;
      activity.addMetadataQuoted("object", address.str());
    }
    if (record.bytes != 0) {
      activity.addMetadata("bytes", record.bytes);
    }
    if (record.graph != 0) {
      activity.addMetadata("graph id", record.graph);
    }
  }

  void describe_work(GenericTraceActivity& activity, const orActivity& record) const {
    activity.addMetadata("device", record.device);
    activity.addMetadata("context", 0);
    activity.addMetadata("stream", record.stream);
    activity.addMetadata("queued", clocks_.unix_ns(record.queued_ns));
    if (record.kind == orActivityMemcpy || record.kind == orActivityMemset) {
      activity.addMetadata("bytes", record.bytes);
      // Bytes per nanosecond are equal to GB/s.
      const uint64_t ns = std::max<uint64_t>(record.end_ns - record.start_ns, 1);
      activity.addMetadata("memory bandwidth (GB/s)",
                           static_cast<double>(record.bytes) / static_cast<double>(ns));
    }
    if (record.graph != 0) {
      activity.addMetadata("graph id", record.graph);
      activity.addMetadata("graph node id", record.node);
    }
  }

  // Adds annotations to the device's rows. Kineto itself does this only for CUDA.
  void add_annotations(const libkineto::getLinkedActivityCallback& linked) {
    if (linked == nullptr || types_.count(ActivityType::GPU_USER_ANNOTATION) == 0) {
      return;
    }
    for (const auto& [place, annotation] : annotations_) {
      const auto& [device, stream, id] = place;
      const libkineto::ITraceActivity* const source = linked(static_cast<int32_t>(id));
      if (source == nullptr) {
        continue;
      }
      buffer_->emplace_activity(buffer_->span, ActivityType::GPU_USER_ANNOTATION, source->name());
      GenericTraceActivity& activity = *buffer_->activities.back();
      activity.startTime = annotation.begin;
      activity.endTime = annotation.end;
      activity.device = device;
      activity.resource = stream;
      activity.threadId = stream;
      activity.linked = source;
    }
  }

  const std::set<ActivityType> types_;
  const size_t most_bytes_;
  ClockMap clocks_;
  std::vector<std::string> errors_;
  bool started_ = false;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::set<int> devices_;
  std::set<std::pair<int, int>> streams_;
  std::map<std::tuple<int, int, uint64_t>, Annotation> annotations_;
};

class OpenRegProfiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }

  // Returns null if the program requests no device activity. PRIVATEUSE1_RUNTIME alone does not
  // count, because torch always requests driver calls together with CPU activity.
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& asked, const libkineto::Config& config) override {
    std::set<ActivityType> types;
    std::set_intersection(asked.begin(), asked.end(), types_.begin(), types_.end(),
                          std::inserter(types, types.end()));
    if (types.empty() || types == std::set{ActivityType::PRIVATEUSE1_RUNTIME}) {
      return nullptr;
    }
    const int64_t most = config.activitiesMaxGpuBufferSize();
    return std::make_unique<Session>(std::move(types),
                                     static_cast<size_t>(std::max<int64_t>(most, 0)));
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& asked,
      const libkineto::Config& config) override {
    return configure(asked, config);
  }

 private:
  const std::string name_ = kProfilerName;
  const std::set<ActivityType> types_ = {
      ActivityType::PRIVATEUSE1_RUNTIME, ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
      ActivityType::GPU_MEMSET, ActivityType::GPU_USER_ANNOTATION};
};

REGISTER_PRIVATEUSE1_PROFILER(OpenRegProfiler);

[[maybe_unused]] const bool registered = [] {
  profiler_was_used = [] { return libkineto::api().isProfilerInitialized(); };
  return true;
}();

}  // namespace
}  // namespace openreg
