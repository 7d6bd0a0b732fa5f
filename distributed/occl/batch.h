// SPDX-License-Identifier: BSD-3-Clause
//
// batch.h - a batch of operations on one communicator, which run as one kernel.
//
// A batch runs its collectives one after the other, and then its sends and receives concurrently.
// The enqueuing thread creates the batch. After the launch, the kernel or the graph that captured
// it owns the batch, and only one thread at a time runs it.
#ifndef DISTRIBUTED_OCCL_BATCH_H_
#define DISTRIBUTED_OCCL_BATCH_H_

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "distributed/occl/communicator.h"
#include "distributed/occl/streaming_copy.h"

namespace openreg::occl {

// One operation, with the arguments of the API call. The pointers are those that the program
// passed.
struct Request {
  Operation operation;
  const void* send = nullptr;
  void* receive = nullptr;
  size_t count = 0;
  occlDataType_t type = occlByte;
  occlRedOp_t op = occlSum;
  int root = -1;
  int peer = 0;
  int tag = 0;
  int* source = nullptr;
  bool scaled = false;  // whether inputs are first multiplied by `scale`; then `op` is occlSum
  unsigned char scale[16] = {};
};

bool Reduces(Operation operation);
// Returns the size of a rank's input to a collective, in blocks of `count` elements.
size_t SendBlocks(Operation operation, bool is_root, int ranks);

inline void Move(unsigned char* to, const unsigned char* from, size_t bytes) {
  if (to == from || bytes == 0) {
    return;
  }
  if (bytes >= kStreamingBytes) {
    StreamingCopy(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
}

class Batch {
 public:
  explicit Batch(std::shared_ptr<Communicator> communicator);
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Checks the request and finds its buffers in the kernels' address space.
  Status Add(const Request& request);

  // Enqueues the batch, which then belongs to the launch.
  static Status Launch(std::unique_ptr<Batch> batch, orStream_t stream);

 private:
  // The memory of an operation: its address for kernels, and its position in the device's file,
  // through which other ranks read it. Memory that another process owns is not in this file, so it
  // is copied to a bounce buffer that is.
  struct Buffer {
    unsigned char* view = nullptr;
    uint64_t place = 0;
    void* bounce = nullptr;
    unsigned char* original = nullptr;  // the memory that `bounce` replaces
    size_t bytes = 0;
  };
  struct Step {
    Request request;
    Descriptor descriptor;
    Buffer send;
    Buffer receive;
    size_t block = 0;  // size in bytes of `count` elements
  };
  // A send or receive in progress.
  struct Transfer {
    const Step* step;
    Mailbox* mailbox = nullptr;  // the mailbox of a posted send
    bool done = false;
  };

  Status Find(const char* which, const void* pointer, size_t bytes, bool shared, Buffer* buffer);
  Status Run();
  Status RunCollective(Step& step);
  Status RunSmall(const Step& step, Clock::time_point deadline);
  Status RunLarge(const Step& step, Clock::time_point deadline);
  void ReduceInto(const Step& step, const unsigned char* const* inputs, unsigned char* output,
                  size_t count) const;
  Status RunTransfers(std::vector<Transfer> transfers);
  bool Advance(Transfer& transfer, Status* status);
  bool Post(Transfer& transfer);
  bool Receive(Transfer& transfer, int sender, Status* status);

  void Drop(int owners);
  static orError_t RunKernel(void* argument);
  static orError_t RunOnce(void* argument);
  static void Release(void* argument);

  const std::shared_ptr<Communicator> communicator_;
  std::vector<Step> steps_;
  std::atomic<int> owners_{2};  // the launching call and the kernel
};

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_BATCH_H_
