#include "compiler/api/Shell.h"

#include <array>
#include <cstdio>

#include <gtest/gtest.h>

namespace tessera {
namespace {

// What a shell makes of the word.
std::string readByShell(const std::string &word) {
  FILE *shell = ::popen(("printf %s " + word).c_str(), "r");
  std::array<char, 256> buffer{};
  size_t size = std::fread(buffer.data(), 1, buffer.size(), shell);
  EXPECT_EQ(::pclose(shell), 0);
  return {buffer.data(), size};
}

TEST(Shell, LeavesPlainWordsAlone) {
  EXPECT_EQ(shellQuoted("models/specs/tiny-gpt2"), "models/specs/tiny-gpt2");
  EXPECT_EQ(shellQuoted("data=2,zero=1"), "data=2,zero=1");
}

TEST(Shell, QuotesWhatAShellWouldRead) {
  EXPECT_EQ(shellQuoted(""), "''");
  for (const char *each : {"a b", "it's", "$HOME", "`id`", "a\nb", "*", "~",
                           "a\"b", "a\\b", "'", "''x''", "ü"})
    EXPECT_EQ(readByShell(shellQuoted(each)), each);
}

} // namespace
} // namespace tessera
