// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/occl/streaming_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace openreg::occl {

void StreamingCopy(unsigned char* to, const unsigned char* from, size_t bytes) {
#ifdef __SSE2__
  constexpr size_t kLine = 64, kPage = 4096, kPages = 4;
  // Streaming stores need an aligned destination, so copy the bytes before the first cache line
  // with memcpy.
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= kPages * kPage; bytes -= kPages * kPage) {
    for (size_t line = 0; line < kPage; line += kLine) {
      for (size_t page = 0; page < kPages; ++page) {
        const size_t place = page * kPage + line;
        const auto* const source = reinterpret_cast<const __m128i*>(from + place);
        auto* const target = reinterpret_cast<__m128i*>(to + place);
        const __m128i first = _mm_loadu_si128(source), second = _mm_loadu_si128(source + 1),
                      third = _mm_loadu_si128(source + 2), fourth = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, first);
        _mm_stream_si128(target + 1, second);
        _mm_stream_si128(target + 2, third);
        _mm_stream_si128(target + 3, fourth);
      }
    }
    to += kPages * kPage, from += kPages * kPage;
  }
  // Streaming stores are not ordered with later stores, such as the one that ends a barrier.
  _mm_sfence();
#endif
  std::memcpy(to, from, bytes);
}

}  // namespace openreg::occl
