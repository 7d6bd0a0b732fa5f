// SPDX-License-Identifier: BSD-3-Clause
#include "distributed/occl/window_collective.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "distributed/occl/data_type.h"
#include "distributed/occl/reduction.h"

namespace openreg::occl::window {
namespace {

// Reduces `count` elements that start `place` bytes after the start of each rank's buffer.
void ReduceAll(const Window& window, const Request& request, size_t place, size_t count,
               void* output) {
  const void* inputs[OCCL_MAX_RANKS];
  const void* scales[OCCL_MAX_RANKS] = {};
  for (int peer = 0; peer < window.ranks(); ++peer) {
    inputs[peer] = window.buffer(peer) + place;
  }
  Reduce(request.type, request.op, window.ranks(), inputs, scales, output, count);
}

void Move(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) {
    std::memmove(to, from, bytes);
  }
}

// Returns the range of bytes [begin, end) that a rank reduces in a two-shot all-reduce.
std::pair<size_t, size_t> Part(const Window& window, const Request& request, int rank) {
  const auto ranks = static_cast<size_t>(window.ranks());
  const size_t size = TypeSize(request.type);
  const size_t each = (request.count + ranks - 1) / ranks;
  const size_t begin = std::min(static_cast<size_t>(rank) * each, request.count);
  return {begin * size, std::min(begin + each, request.count) * size};
}

// Finds the rows of rank `peer` for this rank. Fails if the peer's splits exceed its input.
Status FindRows(const Window& window, const RowExchange& exchange, int peer, const int64_t* splits,
                size_t* begin, size_t* count) {
  size_t before = 0;
  for (int target = 0; target < window.ranks(); ++target) {
    const int64_t split = splits[target];
    if (split < 0 || static_cast<size_t>(split) > exchange.rows.input_rows - before) {
      return Error(occlInvalidUsage,
                   "rank " + std::to_string(peer) + " sends " + std::to_string(split) +
                       " rows to rank " + std::to_string(target) + ", but its input has only " +
                       std::to_string(exchange.rows.input_rows - before) + " more");
    }
    if (target == window.rank()) {
      *begin = before;
      *count = static_cast<size_t>(split);
    }
    before += static_cast<size_t>(split);
  }
  return {};
}

}  // namespace

Status Check(const Window& window, const Request& request, Collective* made) {
  const size_t size = TypeSize(request.type);
  if (size == 0 || !CanReduce(request.type, request.op)) {
    return Error(occlInvalidArgument, std::string(TypeName(request.type)) +
                                          " does not support reduction " +
                                          std::to_string(request.op));
  }
  const size_t blocks =
      request.kind == Request::Kind::kReduceScatter ? static_cast<size_t>(window.ranks()) : 1;
  const size_t room =
      (window.buffer_bytes() - std::min<size_t>(request.offset, window.buffer_bytes())) / size;
  if (request.count != 0 && request.rows > room / blocks / request.count) {
    return Error(occlInvalidArgument, Describe(request) + " does not fit into " +
                                          std::to_string(window.buffer_bytes()) +
                                          " bytes of symmetric memory");
  }
  *made = {request, request.rows * request.count * blocks * size};
  return {};
}

Status RunOneShot(Window& window, const Collective& collective, const void* input, void* output) {
  const Request& request = collective.request;
  const Limit limit = window.Start(0);
  if (input != nullptr) {
    Move(window.buffer(window.rank()) + request.offset, input, collective.bytes);
  }
  if (Status status = window.CheckedBarrier(request, limit); !status.ok()) {
    return status;
  }
  ReduceAll(window, request, request.offset, request.count, output);
  return window.Barrier(0, limit);
}

Status RunTwoShot(Window& window, const Collective& collective, void* output) {
  const Request& request = collective.request;
  const Limit limit = window.Start(0);
  if (Status status = window.CheckedBarrier(request, limit); !status.ok()) {
    return status;
  }
  const int ranks = window.ranks(), me = window.rank();
  const auto [begin, end] = Part(window, request, me);
  unsigned char* const mine = window.buffer(me) + request.offset + begin;
  ReduceAll(window, request, request.offset + begin, (end - begin) / TypeSize(request.type), mine);
  if (output == nullptr) {
    // Write the part to all ranks immediately, because no other rank reads or writes it.
    for (int next = 1; next < ranks; ++next) {
      Move(window.buffer((me + next) % ranks) + request.offset + begin, mine, end - begin);
    }
    return window.Barrier(0, limit);
  }
  if (Status status = window.Barrier(0, limit); !status.ok()) {
    return status;
  }
  for (int next = 0; next < ranks; ++next) {
    const int peer = (me + next) % ranks;
    const auto [from, to] = Part(window, request, peer);
    Move(static_cast<unsigned char*>(output) + from, window.buffer(peer) + request.offset + from,
         to - from);
  }
  return window.Barrier(0, limit);
}

Status RunReduceScatter(Window& window, const Collective& collective, void* output) {
  const Request& request = collective.request;
  const Limit limit = window.Start(0);
  if (Status status = window.CheckedBarrier(request, limit); !status.ok()) {
    return status;
  }
  const size_t chunk = request.count * TypeSize(request.type);
  const auto ranks = static_cast<size_t>(window.ranks());
  for (size_t row = 0; row < request.rows; ++row) {
    ReduceAll(window, request,
              request.offset + (row * ranks + static_cast<size_t>(window.rank())) * chunk,
              request.count, static_cast<unsigned char*>(output) + row * chunk);
  }
  return window.Barrier(0, limit);
}

Status CheckRows(const Window& window, const Window& splits, size_t offset, size_t splits_offset,
                 const occlRows& rows) {
  const size_t words = static_cast<size_t>(window.ranks()) * sizeof(int64_t);
  if (splits.ranks() != window.ranks() || splits.rank() != window.rank()) {
    return Error(occlInvalidArgument,
                 "the rows and the splits must be shared by the same ranks: this is rank " +
                     std::to_string(window.rank()) + " of " + std::to_string(window.ranks()) +
                     " for the rows and rank " + std::to_string(splits.rank()) + " of " +
                     std::to_string(splits.ranks()) + " for the splits");
  }
  const auto fits = [](size_t bytes, size_t from, size_t count, size_t size) {
    return from <= bytes && (size == 0 || count <= (bytes - from) / size);
  };
  if (!fits(window.buffer_bytes(), offset, rows.input_rows, rows.bytes) ||
      !fits(splits.buffer_bytes(), splits_offset, words, 1) ||
      splits_offset % sizeof(int64_t) != 0) {
    return Error(occlInvalidArgument,
                 std::to_string(rows.input_rows) + " rows of " + std::to_string(rows.bytes) +
                     " bytes at byte " + std::to_string(offset) + " or the splits at byte " +
                     std::to_string(splits_offset) +
                     " (which must be a multiple of 8) do not fit in the symmetric memory");
  }
  return {};
}

Status RunRowExchange(Window& window, const Window& splits, const RowExchange& exchange) {
  const Limit limit = window.Start(0);
  if (Status status = window.CheckedBarrier(exchange.request, limit); !status.ok()) {
    return status;
  }
  size_t total = 0;
  for (int peer = 0; peer < window.ranks(); ++peer) {
    size_t begin = 0, count = 0;
    if (Status status =
            FindRows(window, exchange, peer,
                     reinterpret_cast<const int64_t*>(splits.buffer(peer) + exchange.splits_offset),
                     &begin, &count);
        !status.ok()) {
      return status;
    }
    if (count > exchange.rows.output_rows - total) {
      return Error(occlInvalidUsage, "rank " + std::to_string(window.rank()) + " gets " +
                                         std::to_string(total + count) + " rows from ranks 0 to " +
                                         std::to_string(peer) + ", but its output has room for " +
                                         std::to_string(exchange.rows.output_rows));
    }
    Move(exchange.output + total * exchange.rows.bytes,
         window.buffer(peer) + exchange.request.offset + begin * exchange.rows.bytes,
         count * exchange.rows.bytes);
    exchange.output_splits[peer] = static_cast<int64_t>(count);
    exchange.output_splits[window.ranks() + peer] = static_cast<int64_t>(total);
    total += count;
  }
  return window.Barrier(0, limit);
}

}  // namespace openreg::occl::window
