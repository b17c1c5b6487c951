#include "hardware/Quantity.h"
#include "test/parallelism/planner/Fixture.h"

#include <filesystem>

#include <gtest/gtest.h>

namespace tessera::planner::test {
namespace {

TEST(Quantity, Units) {
  EXPECT_DOUBLE_EQ(*parseQuantity("25GB/s", Unit::BytesPerSecond), 25e9);
  EXPECT_DOUBLE_EQ(*parseQuantity("200Gb/s", Unit::BytesPerSecond), 25e9);
  EXPECT_DOUBLE_EQ(*parseQuantity("80GiB", Unit::Bytes), 80 * 1073741824.0);
  EXPECT_DOUBLE_EQ(*parseQuantity("1.5 TB", Unit::Bytes), 1.5e12);
  EXPECT_DOUBLE_EQ(*parseQuantity("1e12", Unit::Count), 1e12);
  EXPECT_DOUBLE_EQ(*parseQuantity("1T", Unit::Count), 1e12);
  EXPECT_DOUBLE_EQ(*parseQuantity("8.2d", Unit::Seconds), 8.2 * 86400);
  EXPECT_DOUBLE_EQ(*parseQuantity("4us", Unit::Seconds), 4e-6);
  EXPECT_DOUBLE_EQ(*parseQuantity("312TFLOP/s", Unit::FlopsPerSecond), 312e12);
}

TEST(Quantity, WhatIsNone) {
  const std::tuple<const char *, Unit, const char *> cases[] = {
      {"25", Unit::BytesPerSecond, "'25' has no unit; write it like 25GB/s"},
      {"25GB", Unit::BytesPerSecond, "'25GB' has an unknown unit"},
      {"25gb/s", Unit::BytesPerSecond, "'25gb/s' has an unknown unit"},
      {"fast", Unit::BytesPerSecond, "'fast' is not a valid quantity"},
      {"", Unit::Count, "'' is not a valid quantity"},
      {"-5s", Unit::Seconds, "must be more than 0"},
      {"0s", Unit::Seconds, "must be more than 0"},
      {"nan", Unit::Count, "'nan' is not a valid quantity"},
      {"inf", Unit::Count, "'inf' is not a valid quantity"},
      {"1e999", Unit::Count, "is not a valid quantity"},
      {"1e30", Unit::Count, "at most"},
      {"2ks", Unit::Seconds, "has an unknown unit"}};
  for (auto &[text, unit, message] : cases) {
    auto value = parseQuantity(text, unit);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_NE(value.message().find(message), std::string::npos)
        << value.message();
  }
}

std::string fileWith(const std::string &from, const std::string &to) {
  std::string text = R"(name: small
nodes: 2
gpus_per_node: 8
gpu:
  name: A100
  memory: 79GiB
  memory_bandwidth: 2039GB/s
  bf16: 312TFLOP/s
  multiprocessors: 108
  clock_mhz: 1410
  sustained_clock: 0.9
  launch: 2us
links:
  - {name: nvlink, span: 8, per_gpu: 300GB/s, efficiency: 0.8, latency: 4us}
  - {name: rail, per_node: 200GB/s, efficiency: 0.9, latency: 10us}
)";
  if (size_t at = text.find(from); at != text.npos)
    text.replace(at, from.size(), to);
  return text;
}

TEST(Cluster, ReadsWhatIsWritten) {
  auto cluster = parseCluster(fileWith("", ""), "small.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.message();
  EXPECT_EQ(cluster->gpus(), 16);
  EXPECT_DOUBLE_EQ(cluster->gpu.clock, 1410e6);
  EXPECT_DOUBLE_EQ(*cluster->links[1].perGpu, 25e9); // a node's eighth
  EXPECT_DOUBLE_EQ(cluster->links[1].rate(), 22.5e9);
  EXPECT_EQ(cluster->links[1].span, 0);
  EXPECT_EQ(cluster->gpu.fp8Clock, 1);
  EXPECT_EQ(cluster->gpu.clockSpread, 0);
}

TEST(Cluster, ReadsOptionalClocks) {
  auto cluster = parseCluster(
      fileWith("launch", "fp8_clock: 0.8\n  clock_spread: 0.02\n  launch"),
      "small.yaml");
  ASSERT_TRUE(cluster.ok()) << cluster.message();
  EXPECT_DOUBLE_EQ(cluster->gpu.fp8Clock, 0.8);
  EXPECT_DOUBLE_EQ(cluster->gpu.clockSpread, 0.02);
}

TEST(Cluster, FilesOfTheRepositoryAreRead) {
  int files = 0;
  for (const auto &entry : std::filesystem::directory_iterator(
           TESSERA_SOURCE_DIR "/hardware/clusters")) {
    auto cluster = loadCluster(entry.path());
    EXPECT_TRUE(cluster.ok()) << cluster.message();
    EXPECT_EQ(cluster->name, entry.path().stem());
    ++files;
  }
  EXPECT_GE(files, 6);
}

TEST(Cluster, ErrorsSayWhere) {
  const std::tuple<const char *, const char *, const char *> cases[] = {
      {"name: small\n", "", "key 'name': is missing; add it"},
      {"nodes: 2", "nodes: 2.5", "c:2: key 'nodes': '2.5' must be a whole"},
      {"nodes: 2", "nodes: [2]", "c:2: key 'nodes': must be one value"},
      {"nodes: 2", "node: 2",
       "c:2: key 'node': is not a key here, did you mean 'nodes'?"},
      {"nodes: 2", "nodes: 2\nnodes: 2", "c:3: key 'nodes': is given twice"},
      {"memory: 79GiB", "memory: 79",
       "c:6: key 'gpu.memory': '79' has no unit"},
      {"sustained_clock: 0.9", "sustained_clock: 1.9",
       "key 'gpu.sustained_clock': '1.9' must be a fraction"},
      {"launch: 2us", "launch: 2us\n  asynchronous: yes",
       "'yes' must be true or false"},
      {"per_node: 200GB/s", "per_node: 200GB/s, per_gpu: 1GB/s",
       "'rail': give one of per_gpu, per_node"},
      {"per_node: 200GB/s, ", "", "'rail': give one of per_gpu, per_node"},
      {"per_gpu: 300GB/s", "bandwidth: 300GB/s", "'nvlink' is inside a node"},
      {"span: 8", "span: 0.5", "key 'links.span'"},
      {"span: 8, ", "", "tier 'nvlink' spans 0 GPUs"},
      {"name: rail, ", "name: rail, span: 8, ",
       "the last tier spans 8 of 16 GPUs"},
      {"links:", "links: 3\nlink:", "must be a list of 1 to 8 tiers"},
      {"name: small", "[", "is not valid YAML"},
      {"launch: 2us", "launch: 2us\n---\nmore: 1", "something follows"},
  };
  for (auto &[from, to, message] : cases) {
    auto cluster = parseCluster(fileWith(from, to), "c");
    ASSERT_FALSE(cluster.ok()) << to;
    EXPECT_NE(cluster.message().find(message), std::string::npos)
        << cluster.message();
    EXPECT_EQ(cluster.message().find('\n'), std::string::npos);
  }
}

TEST(Cluster, AmbiguousLinksAreAskedFor) {
  std::string text = fileWith("per_node: 200GB/s", "bandwidth: 200Gb/s");
  Cluster open = *parseCluster(text, "c");
  Status asked = resolveInternode(open, {});
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.message(),
            "small: 200Gb/s between nodes may be a GPU's or a whole node's, "
            "which differ 8 times; give --internode-per-gpu 200Gb/s or "
            "--internode-per-node 200Gb/s");
  Cluster gpus = open, node = open;
  ASSERT_TRUE(resolveInternode(gpus, {25e9, {}}).ok());
  EXPECT_DOUBLE_EQ(*gpus.links[1].perGpu, 25e9);
  ASSERT_TRUE(resolveInternode(node, {{}, 25e9}).ok());
  EXPECT_DOUBLE_EQ(*node.links[1].perGpu, 25e9 / 8);
  EXPECT_FALSE(resolveInternode(open, {25e9, 25e9}).ok());
}

TEST(Cluster, FartherTiersAreScaledAlong) {
  Cluster cluster =
      *loadCluster(TESSERA_SOURCE_DIR "/hardware/clusters/dgx-b200-128x8.yaml");
  ASSERT_TRUE(resolveInternode(cluster, {100e9, {}}).ok());
  EXPECT_DOUBLE_EQ(*cluster.links[1].perGpu, 100e9);
  EXPECT_DOUBLE_EQ(*cluster.links[2].perGpu, 50e9);
}

TEST(Cluster, Resizes) {
  Cluster cluster = plainCluster(4);
  EXPECT_TRUE(resize(cluster, 1024).ok());
  EXPECT_EQ(cluster.nodes, 128);
  EXPECT_FALSE(resize(cluster, 12).ok());
  EXPECT_TRUE(resize(cluster, 4).ok());
  EXPECT_EQ(cluster.gpus(), 4);
  Cluster one =
      *loadCluster(TESSERA_SOURCE_DIR "/hardware/clusters/dgx-h100-1x8.yaml");
  EXPECT_FALSE(resize(one, 16).ok());
  EXPECT_FALSE(resolveInternode(one, {25e9, {}}).ok());
}

} // namespace
} // namespace tessera::planner::test
