// SPDX-License-Identifier: BSD-3-Clause
//
// Replays a function's captured graph at each call, for torch.compile(mode="reduce-overhead").
// compile/torch_openreg_compile/replay.py decides what is captured, and when it is captured.
//
// A Recording is one capture of a function that takes tensors and integers. It owns the graph, the
// buffers for copied inputs, and the memory of the results, which is the graph's own pool.
// Recordings do not share pools: the temporary memory of one would overlap the results of another.
// A Recording does not own the other inputs: a call must pass them at the addresses at which they
// were captured. Results share the graph's memory, so a Recording is occupied as long as a result
// from its last replay exists; a call that finds it occupied needs another Recording.
//
// Any thread that holds the GIL may call a Recording. The GIL is released while work is being
// queued.
#ifndef COMPILE_CSRC_GRAPH_REPLAY_H_
#define COMPILE_CSRC_GRAPH_REPLAY_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_recordings(pybind11::module_& module);

}  // namespace openreg

#endif  // COMPILE_CSRC_GRAPH_REPLAY_H_
