// SPDX-License-Identifier: BSD-3-Clause
//
// Replays the captured graph of a function at each call, for torch.compile(mode="reduce-overhead").
// compile/torch_openreg_compile/replay.py decides what to capture and when.
//
// A Recording is one capture of a function whose arguments are tensors and integers. It owns the
// graph, the buffers for copied inputs, and the memory of the results, which comes from the graph's
// own pool. Recordings do not share pools, because the temporary memory of one Recording would
// overlap the results of another. A Recording does not own the other inputs: a call must pass them
// at the addresses at which they were captured. Results are in the graph's memory. Therefore a
// Recording is occupied as long as a result of its last replay exists, and a call that finds it
// occupied needs another Recording.
//
// Any thread that holds the GIL may call a Recording. The GIL is released while work is queued.
#ifndef COMPILE_CSRC_GRAPH_REPLAY_H_
#define COMPILE_CSRC_GRAPH_REPLAY_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_recordings(pybind11::module_& module);

}  // namespace openreg

#endif  // COMPILE_CSRC_GRAPH_REPLAY_H_
