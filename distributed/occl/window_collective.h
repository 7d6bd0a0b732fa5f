// SPDX-License-Identifier: BSD-3-Clause
//
// window_collective.h - collectives over a window: checks for the call, and code for the kernel.
// The functions are stateless. Any thread may call the checks; all other functions run in a kernel.
#ifndef DISTRIBUTED_OCCL_WINDOW_COLLECTIVE_H_
#define DISTRIBUTED_OCCL_WINDOW_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>

#include "distributed/occl/window_state.h"

namespace openreg::occl::window {

struct Collective {
  Request request;
  size_t bytes = 0;  // size of this rank's input
};

// Checks that the request is valid for the window.
Status Check(const Window& window, const Request& request, Collective* made);
// The following functions run a collective in a kernel. `input`, which may be null, is first copied
// into the buffer.
Status RunOneShot(Window& window, const Collective& collective, const void* input, void* output);
Status RunTwoShot(Window& window, const Collective& collective, void* output);
Status RunReduceScatter(Window& window, const Collective& collective, void* output);

struct RowExchange {
  Request request;
  size_t splits_offset = 0;
  occlRows rows{};
  unsigned char* output = nullptr;
  int64_t* output_splits = nullptr;
};

Status CheckRows(const Window& window, const Window& splits, size_t offset, size_t splits_offset,
                 const occlRows& rows);
Status RunRowExchange(Window& window, const Window& splits, const RowExchange& exchange);

}  // namespace openreg::occl::window

#endif  // DISTRIBUTED_OCCL_WINDOW_COLLECTIVE_H_
