#include "runtime/support/Philox.h"

#include <gtest/gtest.h>

using namespace tessera;

// The known answers that Random123, the reference implementation, publishes.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                       {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EvaluatesAtCompileTime) {
  static_assert(philox4x32({0, 0, 0, 0}, {0, 0})[0] == 0x6627e8d5);
  static_assert(philoxUniform(0) == 0.0f);
  static_assert(philoxUniform(0xffffffff) < 1.0f);
  static_assert(philoxUniform(0x80000000) == 0.5f);
}

TEST(Philox, UniformHasTheMomentsOfTheUniform) {
  double sum = 0, squares = 0;
  constexpr int count = 1 << 16;
  for (std::uint32_t i = 0; i < count / 4; ++i)
    for (const std::uint32_t word : philox4x32({i, 0, 0, 0}, {1337, 7})) {
      const double u = philoxUniform(word);
      sum += u, squares += u * u;
    }
  // Five standard deviations of the two means; the draw is fixed.
  EXPECT_NEAR(sum / count, 1.0 / 2, 5 * 0.2887 / 256);
  EXPECT_NEAR(squares / count, 1.0 / 3, 5 * 0.2981 / 256);
}
