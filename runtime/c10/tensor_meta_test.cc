// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/c10/tensor_meta.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <string>

namespace openreg {
namespace {

TEST(TensorMetaTest, TextAndBack) {
  const std::string data("\0\x7f\xff;=", 5);
  for (const std::string& bytes : {data, std::string()}) {
    const TensorMetaPtr meta = make_tensor_meta(kLargestMetaInteger, 2, bytes);
    const TensorMetaPtr read = parse_tensor_meta(to_text(*meta));
    EXPECT_EQ(read->version, kLargestMetaInteger);
    EXPECT_EQ(read->format, 2);
    EXPECT_EQ(read->data, bytes);
  }
  EXPECT_EQ(to_text(*make_tensor_meta(1, 2, "\x01\xff")), "openreg:version=1;format=2;data=01ff");
}

TEST(TensorMetaTest, DamagedText) {
  for (const char* text :
       {"", "openreg", "openreg:", "openreg:version=1;format=0", "openreg:version=;format=0;data=",
        "openreg:version=1;format=0;data=0", "openreg:version=1;format=0;data=0g",
        "openreg:version=1;format=0;data=00;more=1", "openreg:version=-1;format=0;data=",
        "openreg:version=1;format=2147483648;data=", "openreg:version=1x;format=0;data=",
        "openreg:format=0;version=1;data=", "another:version=1;format=0;data=",
        "openreg:version=99999999999999999999;format=0;data="}) {
    EXPECT_THROW(parse_tensor_meta(text), c10::ValueError) << text;
  }
}

TEST(TensorMetaTest, Limits) {
  EXPECT_THROW(make_tensor_meta(-1, 0, ""), c10::ValueError);
  EXPECT_THROW(make_tensor_meta(kLargestMetaInteger + 1, 0, ""), c10::ValueError);
  EXPECT_THROW(make_tensor_meta(0, -1, ""), c10::ValueError);
  EXPECT_THROW(make_tensor_meta(0, kLargestMetaInteger + 1, ""), c10::ValueError);
  EXPECT_THROW(make_tensor_meta(0, 0, std::string(kLargestTensorData + 1, 'x')), c10::ValueError);
  EXPECT_EQ(make_tensor_meta(0, 0, std::string(kLargestTensorData, 'x'))->data.size(),
            kLargestTensorData);
}

}  // namespace
}  // namespace openreg
