// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/occl/streaming_copy.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace openreg::occl {
namespace {

TEST(StreamingCopy, CopiesAnyLengthAndAlignmentAndNothingElse) {
  constexpr size_t kMargin = 128;
  for (const size_t bytes : {0, 1, 63, 64, 4096, 16383, 16384, 16385, 70001}) {
    for (const size_t to : {0, 1, 16, 63}) {
      for (const size_t from : {0, 3, 32}) {
        std::vector<unsigned char> source(bytes + 2 * kMargin);
        for (size_t i = 0; i < source.size(); ++i) {
          source[i] = static_cast<unsigned char>(i * 31 + (i >> 8) + 1);
        }
        std::vector<unsigned char> target(bytes + 2 * kMargin, 0xee);
        StreamingCopy(target.data() + to, source.data() + from, bytes);
        for (size_t i = 0; i < target.size(); ++i) {
          const bool copied = i >= to && i < to + bytes;
          ASSERT_EQ(target[i], copied ? source[i - to + from] : 0xee)
              << bytes << " bytes from +" << from << " to +" << to << ", byte " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace openreg::occl
