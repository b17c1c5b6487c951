// Machines whose cores run ranks.
#include "hardware/Cluster.h"

#include <gtest/gtest.h>

namespace tessera::planner {
namespace {

Host smallHost() {
  Host host;
  host.processor = "a processor: of 'two' cores";
  host.cores = 2;
  host.memory = 16e9;
  host.cache = 32e6;
  host.speedup = 1.75;
  host.core = {10e9, 11e9, 20e9};
  host.all = {20e9, 22e9, 40e9};
  host.kernels = {KernelRate{1e-6, 100e9, 50e9},
                  {2e-6, 200e9, 50e9},
                  {3e-6, 50e9, 10e9},
                  {1e-6, 0, 40e9}};
  host.collectives = {{HostCollective::allGather, 4, 2, 20e-6, 4e9},
                      {HostCollective::allGather, 4, 4, 30e-6, 3e9},
                      {HostCollective::allGather, 8, 8, 200e-6, 1e9}};
  return host;
}

TEST(Host, KernelsTakeALaunchTheirWorkAndTheirBytes) {
  const Host host = smallHost();
  EXPECT_DOUBLE_EQ(host.kernel(KernelKind::matmul).seconds(100e9, 50e9),
                   1e-6 + 1 + 1);
  EXPECT_DOUBLE_EQ(host.kernel(KernelKind::elementwise).seconds(1e9, 40e9),
                   1e-6 + 1);
}

TEST(Host, RanksShareTheCores) {
  const Host host = smallHost();
  EXPECT_EQ(host.threadsOf(1), 2);
  EXPECT_EQ(host.threadsOf(2), 1);
  EXPECT_EQ(host.threadsOf(8), 1);
  EXPECT_DOUBLE_EQ(host.speedupOf(1), 1);
  EXPECT_DOUBLE_EQ(host.speedupOf(2), 1.75);
  EXPECT_DOUBLE_EQ(clusterOf("c", host, 1).gpu.bf16, 175e9);
  EXPECT_DOUBLE_EQ(clusterOf("c", host, 2).gpu.bf16, 100e9);
  const Cluster eight = clusterOf("c", host, 8);
  EXPECT_EQ(eight.gpus(), 8);
  EXPECT_DOUBLE_EQ(eight.gpu.bf16, 25e9);
  EXPECT_DOUBLE_EQ(eight.gpu.memory, 2e9);
  // Of seven turns, each with an eighth of the bytes.
  EXPECT_DOUBLE_EQ(eight.links[0].latency, 200e-6 / 7);
  EXPECT_DOUBLE_EQ(eight.links[0].rate(), 1e9 * 7 / 8);
}

TEST(Host, WhatACacheDoesNotHold) {
  Host host = smallHost();
  EXPECT_EQ(host.uncached(32e6), 0);
  EXPECT_DOUBLE_EQ(host.uncached(128e6), 0.75);
  host.cache = 0; // unknown
  EXPECT_EQ(host.uncached(128e6), 0);
}

TEST(Host, TheNearestMeasurementIsTaken) {
  const Host host = smallHost();
  auto latency = [&](std::int64_t ranks, std::int64_t group) {
    return host.collective(HostCollective::allGather, ranks, group)->latency;
  };
  EXPECT_DOUBLE_EQ(latency(4, 2), 20e-6);
  EXPECT_DOUBLE_EQ(latency(4, 3), 30e-6);
  EXPECT_DOUBLE_EQ(latency(8, 2), 200e-6);
  EXPECT_DOUBLE_EQ(latency(64, 64), 200e-6);
  EXPECT_EQ(host.collective(HostCollective::send, 4, 2), nullptr);
}

TEST(Host, AFileIsReadAsItWasWritten) {
  const Host host = smallHost();
  const std::string text = printHostFile("mine", host);
  auto read = parseCluster(text, "mine.yaml");
  ASSERT_TRUE(read.ok()) << read.message() << "\n" << text;
  ASSERT_TRUE(read->host);
  EXPECT_EQ(read->name, "mine");
  EXPECT_EQ(read->gpus(), 2);
  EXPECT_EQ(printHostFile("mine", *read->host), text);
  EXPECT_EQ(read->host->collectives.size(), 3u);
  ASSERT_TRUE(resize(*read, 8).ok());
  EXPECT_DOUBLE_EQ(read->gpu.bf16, 25e9);
  EXPECT_FALSE(resize(*read, 0).ok());
}

// A fit may find no latency; quantities of a file are more than zero.
// As it is measured where nothing starts ranks.
TEST(Host, AFileMayHaveNoCollectives) {
  Host host = smallHost();
  host.collectives.clear();
  auto read = parseCluster(printHostFile("mine", host), "mine.yaml");
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_TRUE(read->host->collectives.empty());
}

// The nearest row, as what it was measured for: pairs take one turn.
TEST(Host, LinksAreThoseOfTheMeasuredGroup) {
  Host host = smallHost();
  host.collectives = {{HostCollective::allGather, 6, 2, 20e-6, 4e9}};
  const Cluster six = clusterOf("c", host, 6);
  EXPECT_DOUBLE_EQ(six.links[0].latency, 20e-6);
  EXPECT_DOUBLE_EQ(six.links[0].rate(), 4e9 / 2);
}

TEST(Host, NoLatencyIsAlmostNone) {
  Host host = smallHost();
  host.collectives[0].latency = host.kernels[0].launch = 0;
  auto read = parseCluster(printHostFile("mine", host), "mine.yaml");
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_DOUBLE_EQ(read->host->collectives[0].latency, 1e-9);
}

TEST(Host, ErrorsSayWhere) {
  const std::string text = printHostFile("mine", smallHost());
  const std::tuple<const char *, const char *, const char *> cases[] = {
      {"  cores: 2\n", "", "key 'cpu.cores': is missing; add it"},
      {"cores: 2", "cores: 2.5", "'2.5' must be a whole number"},
      {"matmul:", "matmuls:", "key 'cpu.kernels.matmuls'"},
      {"kind: all_gather", "kind: gather",
       "'gather': expected one of all_reduce, all_gather"},
      {"group: 2", "groups: 2", "key 'collectives.groups'"},
      {"collectives:", "links: 3\ncollectives:", "key 'links'"},
  };
  for (auto &[from, to, message] : cases) {
    std::string wrong = text;
    wrong.replace(wrong.find(from), std::string_view(from).size(), to);
    auto read = parseCluster(wrong, "c");
    ASSERT_FALSE(read.ok()) << to;
    EXPECT_NE(read.message().find(message), std::string::npos)
        << read.message();
  }
}

} // namespace
} // namespace tessera::planner
