#include "runtime/support/CacheFolder.h"
#include "test/support/ScratchDirectory.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include <gtest/gtest.h>

using namespace tessera;

namespace {

/// An environment variable that is put back at the end of the test.
class Variable {
public:
  explicit Variable(const char *name) : name(name) {
    if (const char *value = std::getenv(name))
      before = value;
  }
  ~Variable() { set(before ? before->c_str() : nullptr); }
  Variable(const Variable &) = delete;
  Variable &operator=(const Variable &) = delete;
  void set(const char *value) const {
    if (value)
      ::setenv(name, value, 1);
    else
      ::unsetenv(name);
  }

private:
  const char *name;
  std::optional<std::string> before;
};

} // namespace

TEST(CacheFolder, IsWhereTheEnvironmentSays) {
  const Variable cache("XDG_CACHE_HOME"), home("HOME");
  home.set("/home/someone");
  cache.set("/var/caches");
  EXPECT_EQ(userCacheFolder(), "/var/caches/tessera");
  for (const char *none : {(const char *)nullptr, "", "caches"}) {
    cache.set(none);
    EXPECT_EQ(userCacheFolder(), "/home/someone/.cache/tessera");
  }
  for (const char *none : {(const char *)nullptr, "", "someone"}) {
    home.set(none);
    EXPECT_EQ(userCacheFolder(), "");
  }
}

TEST(CacheFolder, WhatWasUsedLongestAgoMakesRoom) {
  namespace fs = std::filesystem;
  const tessera::testing::ScratchDirectory scratch;
  const std::string &folder = scratch.path;
  EXPECT_TRUE(cachedFiles(folder + "/absent", ".tsr").empty());
  auto add = [&](const std::string &name, int hoursAgo) {
    std::ofstream(folder + "/" + name) << std::string(100, 'x');
    fs::last_write_time(folder + "/" + name, fs::file_time_type::clock::now() -
                                                 std::chrono::hours(hoursAgo));
  };
  auto has = [&](const std::string &name) {
    return fs::exists(folder + "/" + name);
  };
  add("0c3.tsr", 3);
  add("0c2.tsr", 2);
  add("0c1.tsr", 1);
  add("0c9.weights", 9);
  add("mine.tsr", 9); // no cache names a file so
  add("0c8.tsr.4fa0b1", 9);
  markUsed(folder + "/0c3.tsr");
  auto files = cachedFiles(folder, ".tsr");
  EXPECT_EQ(bytesOf(files), 300u);
  EXPECT_EQ(makeRoom(files, 300), 300u);
  EXPECT_EQ(makeRoom(files, 299), 200u);
  EXPECT_TRUE(has("0c3.tsr") && !has("0c2.tsr") && has("0c1.tsr"));
  // One that is gone is no less room.
  EXPECT_EQ(makeRoom(files, 100), 100u);
  EXPECT_TRUE(has("0c3.tsr") && !has("0c1.tsr") && has("0c9.weights"));
  EXPECT_TRUE(has("mine.tsr") && has("0c8.tsr.4fa0b1"));
}
