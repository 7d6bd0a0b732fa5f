// SPDX-License-Identifier: BSD-3-Clause
//
// reduction.h - reduces the buffers of several ranks into one, in rank order.
//
// 8-bit and 16-bit floats are reduced in float32 and rounded once. Integers are reduced modulo 2^n,
// and integer averages are rounded toward zero. The functions are stateless, and any thread may
// call them.
#ifndef DISTRIBUTED_OCCL_REDUCTION_H_
#define DISTRIBUTED_OCCL_REDUCTION_H_

#include <cstddef>

#include "distributed/occl/occl.h"

namespace openreg::occl {

// Returns whether the type supports the reduction. Complex numbers have no maximum or minimum, and
// floats have no bit operations.
bool CanReduce(occlDataType_t type, occlRedOp_t op);

// Reduces the inputs into `output`, which may be one of them. If `scales` is null, all factors are
// 1. Otherwise it contains one factor of type `type` per input, and `op` is occlSum.
void Reduce(occlDataType_t type, occlRedOp_t op, int inputs, const void* const* input,
            const void* const* scales, void* output, size_t count);

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_REDUCTION_H_
