// What the runtime says can be compiled is what the compiler has.
#include "hardware/Targets.h"
#include "runtime/artifact/Validate.h"

#include <gtest/gtest.h>

TEST(DeviceKinds, AreTheCompilers) {
  std::vector<std::string_view> kinds = {"cpu"};
  for (const tessera::TileTarget &target : tessera::cudaTileTargets())
    kinds.push_back(target.name);
  EXPECT_EQ(kinds, std::vector<std::string_view>(
                       std::begin(tessera::artifact::kDeviceKinds),
                       std::end(tessera::artifact::kDeviceKinds)));
}
