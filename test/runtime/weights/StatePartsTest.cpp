// Tensors of files that stacks are stored as.
#include "runtime/weights/StateParts.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

using Shape = std::vector<uint64_t>;

TEST(StateParts, OfAStack) {
  const StateTensor tensor{"experts.*.up.weight",
                           SafetensorsType::f32,
                           {3, 32, 64},
                           StateRole::parameter,
                           3 * 32 * 64 * 4};
  const auto parts = partsOf(tensor);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[2].name, "experts.2.up.weight");
  EXPECT_EQ(parts[2].shape, (Shape{32, 64}));
  EXPECT_EQ(parts[2].offset, 2u * 32 * 64 * 4);
}

// Its first dimension is of all micropanels, of which a matrix has two.
TEST(StateParts, OfAQuantizedStack) {
  const QuantizedLayout layout{.rows = 96, .columns = 64, .bits = 4};
  const StateTensor tensor{
      "experts.*.up.weight.values",
      SafetensorsType::i32,
      {6, 8, 16},
      StateRole::parameter,
      6 * 8 * 16 * 4,
      QuantizedPart{"experts.*.up.weight", false, layout, false, 3}};
  const auto parts = partsOf(tensor);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1].name, "experts.1.up.weight.values");
  EXPECT_EQ(parts[1].shape, (Shape{2, 8, 16}));
  EXPECT_EQ(parts[1].offset, 2u * 8 * 16 * 4);
  EXPECT_EQ(parts[1].size, 2u * 8 * 16 * 4);
}

} // namespace
} // namespace tessera
