// SPDX-License-Identifier: BSD-3-Clause
//
// reduction.h - reduces the buffers of several ranks into one, in the order of ranks.
//
// 8-bit and 16-bit floats are reduced in float32 and rounded once, integers modulo 2^n. Averages of
// integers are rounded toward zero. Stateless; threads: any.
#ifndef DISTRIBUTED_OCCL_REDUCTION_H_
#define DISTRIBUTED_OCCL_REDUCTION_H_

#include <cstddef>

#include "distributed/occl/occl.h"

namespace openreg::occl {

// Returns whether the type supports the reduction. Complex numbers have no maximum, floats no bit
// operations.
bool CanReduce(occlDataType_t type, occlRedOp_t op);

// Reduces the inputs into `output`, which may be one of them. `scales` has one factor per input;
// null means 1 (the factors have `type`, and `op` is then occlSum).
void Reduce(occlDataType_t type, occlRedOp_t op, int inputs, const void* const* input,
            const void* const* scales, void* output, size_t count);

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_REDUCTION_H_
