#include "runtime/support/CacheFolder.h"

#include <cstdlib>
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
