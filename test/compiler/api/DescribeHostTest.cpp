// The cache of some processors of a machine.
#include "compiler/api/DescribeHost.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

#include "test/support/ScratchDirectory.h"

namespace tessera {
namespace {

class LastLevelCache : public ::testing::Test {
protected:
  void processor(int number, const std::string &shared,
                 const std::string &size) {
    const std::string folder =
        scratch / ("cpu" + std::to_string(number) + "/cache/index3");
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/size") << size << "\n";
    std::ofstream(folder + "/shared_cpu_list") << shared << "\n";
  }

  testing::ScratchDirectory scratch;
};

TEST_F(LastLevelCache, CountsWhatProcessorsShareOnce) {
  for (int number : {0, 1})
    processor(number, "0-1", "32768K");
  for (int number : {2, 3})
    processor(number, "2-3", "16384K");
  EXPECT_EQ(lastLevelCache(scratch.path, 4), (32 + 16) * 1048576.0);
  // Of a socket whose other processors this machine does not have.
  EXPECT_EQ(lastLevelCache(scratch.path, 2), 32 * 1048576.0);
}

TEST_F(LastLevelCache, IsZeroIfUnknown) {
  processor(0, "0", "many");
  EXPECT_EQ(lastLevelCache(scratch.path, 2), 0);
}

TEST(DescribeHost, HasCoresAndMemory) {
  const planner::Host host = describeHost();
  EXPECT_FALSE(host.processor.empty());
  EXPECT_GE(host.cores, 1);
  EXPECT_GT(host.memory, 1e8);
}

} // namespace
} // namespace tessera
