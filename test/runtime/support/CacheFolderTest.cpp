#include "runtime/support/CacheFolder.h"
#include "test/support/ScratchDirectory.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include <gtest/gtest.h>

using namespace tessera;
namespace fs = std::filesystem;

namespace {

/// A file of 100 bytes that was written so long ago.
void write(const std::string &path, std::chrono::minutes ago) {
  std::ofstream(path) << std::string(100, 'x');
  fs::last_write_time(path, fs::file_time_type::clock::now() - ago);
}

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
  const tessera::testing::ScratchDirectory scratch;
  const std::string &folder = scratch.path;
  EXPECT_TRUE(cachedFiles(folder + "/absent", ".tsr").empty());
  auto add = [&](const std::string &name, int hoursAgo) {
    write(folder + "/" + name, std::chrono::hours(hoursAgo));
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

TEST(CacheFolder, WhatKilledWritersLeftIsRemoved) {
  using std::chrono::minutes;
  const tessera::testing::ScratchDirectory scratch;
  const std::vector<std::string> leftovers = {"0c8.tsr.4fa0b1", "e.tsr.000000"},
                                 others = {"0c8.tsr",
                                           "0c8.tsr.4fa0b",   // five digits
                                           "0c8.tsr.4fa0b12", // seven
                                           "0c8.tsr.4FA0B1",
                                           "0c8.tsr.backup",
                                           "mine.tsr.4fa0b1",
                                           ".tsr.4fa0b1",
                                           "0c8.weights.4fa0b1",
                                           "0c8.4fa0b1",
                                           "4fa0b1"};
  for (const std::string &name : leftovers)
    write(scratch / name, minutes(61));
  for (const std::string &name : others)
    write(scratch / name, minutes(24 * 60));
  write(scratch / "0c7.tsr.4fa0b1", minutes(59)); // somebody still writes it
  fs::create_directory(scratch / "0c9.tsr.4fa0b1");
  removeLeftovers(scratch / "absent", ".tsr");
  removeLeftovers(scratch.path, ".tsr");
  for (const std::string &name : leftovers)
    EXPECT_FALSE(fs::exists(scratch / name)) << name;
  for (const std::string &name : others)
    EXPECT_TRUE(fs::exists(scratch / name)) << name;
  EXPECT_TRUE(fs::exists(scratch / "0c7.tsr.4fa0b1"));
  EXPECT_TRUE(fs::exists(scratch / "0c9.tsr.4fa0b1"));
}
