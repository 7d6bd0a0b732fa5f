// SPDX-License-Identifier: BSD-3-Clause
//
// Calls of a function that are replays of its captured graph: what torch.compile does for
// mode="reduce-overhead" at each call. compile/torch_openreg_compile/replay.py decides what is
// captured, and when.
//
// A Recording is one capture of a function of tensors and integers. It owns the graph, the buffers
// that inputs are copied to, and the memory of the results: the graph's own pool. Recordings do not
// share pools, since what one of them uses between its kernels would be another's results. Other
// inputs it does not own: a call has to bring them at the addresses at which they were captured.
// Results share the memory of the graph, so a Recording is free only while nobody holds a result of
// its last replay; a call that finds it occupied needs another Recording.
//
// Threads: any, with the GIL, which is given up while something is queued.
#ifndef COMPILE_CSRC_GRAPH_REPLAY_H_
#define COMPILE_CSRC_GRAPH_REPLAY_H_

#include <pybind11/pybind11.h>

namespace openreg {

void bind_recordings(pybind11::module_& module);

}  // namespace openreg

#endif  // COMPILE_CSRC_GRAPH_REPLAY_H_
