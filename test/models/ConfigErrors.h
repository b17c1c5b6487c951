// What tests of refused configurations share.
#pragma once
#include "test/models/ConfigFixture.h"

#include <gtest/gtest.h>

namespace tessera::models {

using nlohmann::json;

struct Case {
  const char *family;
  json patch;
  const char *message; ///< after "config.json: "
};

inline void expectAll(const std::vector<Case> &cases) {
  for (const Case &each : cases) {
    StatusOr<ModelSpec> spec = readPatched(each.family, each.patch);
    ASSERT_FALSE(spec.ok()) << each.patch;
    EXPECT_EQ(spec.message(), std::string("config.json: ") + each.message)
        << each.patch;
  }
}

} // namespace tessera::models
