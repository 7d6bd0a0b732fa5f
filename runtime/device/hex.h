// SPDX-License-Identifier: BSD-3-Clause
//
// hex.h - converts handle bytes to text and back, for tests with two processes.
#ifndef RUNTIME_DEVICE_HEX_H_
#define RUNTIME_DEVICE_HEX_H_

#include <cstdio>
#include <string>

namespace openreg::device {

template <class Bytes>
std::string Hex(const Bytes& bytes) {
  std::string text;
  for (unsigned char byte : bytes.reserved) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}

template <class Bytes>
Bytes FromHex(const std::string& text) {
  Bytes bytes{};
  for (size_t index = 0; index < sizeof(bytes.reserved) && 2 * index + 1 < text.size(); ++index) {
    bytes.reserved[index] =
        static_cast<unsigned char>(std::stoi(text.substr(2 * index, 2), nullptr, 16));
  }
  return bytes;
}

}  // namespace openreg::device

#endif  // RUNTIME_DEVICE_HEX_H_
