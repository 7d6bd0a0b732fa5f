// SPDX-License-Identifier: BSD-3-Clause
//
// reduction.h - reduces the buffers of several ranks into one, in the order of ranks.
//
// Numbers of 8 and 16 bits are reduced in float32 and rounded once, integers modulo 2^n; averages
// of integers are rounded toward zero. Stateless; threads: any.
#ifndef DISTRIBUTED_OCCL_REDUCTION_H_
#define DISTRIBUTED_OCCL_REDUCTION_H_

#include <cstddef>

#include "distributed/occl/occl.h"

namespace openreg::occl {

// Whether the type has that reduction: maxima of complex numbers and bits of floats there are not.
bool CanReduce(occlDataType_t type, occlRedOp_t op);

// `scales`: of each input, null for 1 (they are of `type`, and `op` is occlSum then). `output` may
// be one of the inputs.
void Reduce(occlDataType_t type, occlRedOp_t op, int inputs, const void* const* input,
            const void* const* scales, void* output, size_t count);

}  // namespace openreg::occl

#endif  // DISTRIBUTED_OCCL_REDUCTION_H_
