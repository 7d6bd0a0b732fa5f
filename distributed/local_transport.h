// SPDX-License-Identifier: BSD-3-Clause
//
// local_transport.h - the transport between ranks on one machine, through occl. Owns the handle to
// an occl communicator.
#ifndef DISTRIBUTED_LOCAL_TRANSPORT_H_
#define DISTRIBUTED_LOCAL_TRANSPORT_H_

#include "distributed/transport.h"

namespace openreg {

class LocalTransport final : public Transport {
 public:
  explicit LocalTransport(occlComm_t comm) : comm_(comm) {}
  ~LocalTransport() override { (void)occlCommDestroy(comm_); }

  void all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) override;
  void broadcast(const at::Tensor& output, const at::Tensor& input, int root) override;
  void reduce(const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& op,
              int root) override;
  void all_gather(const at::Tensor& output, const at::Tensor& input) override;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                      const c10d::ReduceOp& op) override;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) override;
  void exchange(const std::vector<at::Tensor>& outputs,
                const std::vector<at::Tensor>& inputs) override;
  void gather(const at::Tensor& output, const at::Tensor& input, int root) override;
  void scatter(const at::Tensor& output, const at::Tensor& input, int root) override;
  void barrier() override;
  void send(const at::Tensor& tensor, int peer, int tag) override;
  void receive(const at::Tensor& tensor, int peer, int tag, int* source) override;
  void begin_group() override;
  void end_group() override;
  void drop_group() override;
  std::optional<std::string> ended(occlResult_t* result) const override;
  void set_timeout(std::chrono::milliseconds timeout) override;
  void abort(const std::string& reason) override {
    (void)occlCommAbortWithReason(comm_, reason.c_str());
  }
  void finalize() override { (void)occlCommFinalize(comm_); }
  void suspend() override;
  void resume() override;
  occlMemoryStats_t memory_stats() const override;

 private:
  orStream_t stream() const;
  // Throws if the occl call has failed, except inside a group, whose end reports the error.
  void check(occlResult_t result) const;

  const occlComm_t comm_;
  int groups_ = 0;
};

}  // namespace openreg

#endif  // DISTRIBUTED_LOCAL_TRANSPORT_H_
