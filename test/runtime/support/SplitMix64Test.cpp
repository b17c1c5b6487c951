#include "runtime/support/SplitMix64.h"

#include <gtest/gtest.h>

using namespace tessera;

// What the authors' generator gives for this seed.
TEST(SplitMix64, GivesThePublishedNumbers) {
  SplitMix64 next(1234567);
  for (const std::uint64_t expected :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
        4593380528125082431u, 16408922859458223821u})
    EXPECT_EQ(next(), expected);
}
