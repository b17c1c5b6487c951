// Where the secret of learner and workers comes from.
#include "compiler/api/rl/RolloutSecret.h"

#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>

#include "test/support/ScratchDirectory.h"

namespace tessera {
namespace {

class RolloutSecretTest : public ::testing::Test {
protected:
  ~RolloutSecretTest() override { ::unsetenv(kRolloutSecret); }
  std::string write(const std::string &text) {
    std::ofstream(scratch / "secret") << text;
    return scratch / "secret";
  }

  testing::ScratchDirectory scratch;
};

TEST_F(RolloutSecretTest, IsTheFileWithoutWhiteSpaceAtItsEnd) {
  ::setenv(kRolloutSecret, "of the environment", 1);
  const auto secret = readRolloutSecret(write("0123456789 abcdef \t\r\n\n"));
  ASSERT_TRUE(secret.ok()) << secret.message();
  EXPECT_EQ(secret->text, "0123456789 abcdef");
}

// Reward programs are started later, with the environment.
TEST_F(RolloutSecretTest, IsRemovedFromTheEnvironment) {
  ::setenv(kRolloutSecret, "of the environment", 1);
  const auto secret = readRolloutSecret("");
  ASSERT_TRUE(secret.ok()) << secret.message();
  EXPECT_EQ(secret->text, "of the environment");
  EXPECT_EQ(std::getenv(kRolloutSecret), nullptr);
  EXPECT_EQ(readRolloutSecret("")->text, "");
}

TEST_F(RolloutSecretTest, MustNotBeShort) {
  ::setenv(kRolloutSecret, "short", 1);
  EXPECT_EQ(readRolloutSecret("").message(),
            "TESSERA_ROLLOUT_SECRET in the environment has a secret of 5 "
            "characters; choose one of 16 or more, such as that of: openssl "
            "rand -hex 32");
  EXPECT_NE(readRolloutSecret(write("\n"))
                .message()
                .find("has a secret of 0 characters"),
            std::string::npos);
  EXPECT_EQ(readRolloutSecret(scratch / "none")
                .message()
                .find("--rollout-secret-file: "),
            0U);
}

// NIST's example of SHA-256, FIPS 180-2, B.1: "abc".
TEST_F(RolloutSecretTest, IsHashedBySha256) {
  const auto secret = readRolloutSecret("");
  const std::array text = {std::byte('a'), std::byte('b'), std::byte('c')};
  const std::array<std::byte, 32> hash = secret->hash(text);
  EXPECT_EQ(hash[0], std::byte(0xba));
  EXPECT_EQ(hash[1], std::byte(0x78));
  EXPECT_EQ(hash[31], std::byte(0xad));
}

} // namespace
} // namespace tessera
