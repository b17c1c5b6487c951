// Ranks that share cores, against times by hand.
#include <gtest/gtest.h>

#include "compiler/report/SharedCores.h"
#include "test/runtime/artifact/MeshArtifact.h"

using namespace tessera;
using namespace tessera::report;
using namespace tessera::test;
using planner::CollectiveRate;
using planner::HostCollective;

namespace {

constexpr double kNothing = 1e-12, kNear = 1e-6;

/// A core moves a byte in a second; collectives take what they are given.
planner::Host slowHost(std::int64_t cores, double latency, double bandwidth) {
  planner::Host host;
  host.cores = cores;
  for (planner::KernelRate &rate : host.kernels)
    rate = {kNothing, 0, 1};
  for (std::size_t kind = 0; kind < planner::kHostCollectives.size(); ++kind)
    host.collectives.push_back(
        {HostCollective(kind), 3, 3, latency, bandwidth});
  return host;
}

HostPrediction predictionOf(const ArtifactT &artifact,
                            const planner::Host &host,
                            const char *program = "step") {
  const AlignedBytes bytes(test::pack(artifact));
  auto predicted =
      predictOnHost(*GetArtifact(bytes.span().data()), host, program);
  EXPECT_TRUE(predicted.ok()) << predicted.message();
  return predicted.ok() ? *predicted : HostPrediction();
}

} // namespace

// Four collectives, a permutation whose messages go at once, and one more.
TEST(SharedCores, CollectivesFollowEachOther) {
  const auto host = slowHost(3, 1, 1e30);
  planner::Host fast = host;
  for (planner::KernelRate &rate : fast.kernels)
    rate = {kNothing, 0, 0};
  const HostPrediction prediction = predictionOf(meshArtifact(), fast);
  EXPECT_NEAR(prediction.seconds, 6, kNear);
  EXPECT_NEAR(prediction.blocked, 6, kNear);
  EXPECT_EQ(prediction.collectives, 6u);
  EXPECT_EQ(prediction.ranks, 3);
}

// Each rank copies 4 and 96 bytes, which are read and written.
TEST(SharedCores, MoreRanksThanCoresTakeTurns) {
  for (auto [cores, seconds] : {std::pair(3, 200.0), {2, 300.0}, {1, 600.0}}) {
    const auto host = slowHost(cores, kNothing, 1e30);
    const HostPrediction prediction = predictionOf(meshArtifact(), host);
    EXPECT_NEAR(prediction.seconds, seconds, kNear) << cores;
    EXPECT_EQ(prediction.threads, 1);
  }
}

// A rate was measured while all ranks shared the cores, so it is what all take
// together; on its way the last one shares them with a copy of 8 bytes.
TEST(SharedCores, TransfersNeedCores) {
  planner::Host host = slowHost(1, kNothing, 1);
  for (planner::KernelRate &rate : host.kernels)
    rate = {kNothing, 0, 0};
  // all_gather and all_reduce of 128 bytes, reduce_scatter of 128, all_to_all,
  // the permutation of 96, of which one message of two ends is a third less,
  // all_reduce of 96.
  const double permuted = 96.0 * 2 / 3;
  EXPECT_NEAR(predictionOf(meshArtifact(), host).seconds,
              3 * 128 + 96 + permuted + 96, kNear);
}

TEST(SharedCores, OneRankHasAllCores) {
  planner::Host host = slowHost(4, kNothing, 1);
  const double one = predictionOf(smallArtifact(), host, "train_step").seconds;
  host.speedup = 2;
  const HostPrediction all = predictionOf(smallArtifact(), host, "train_step");
  EXPECT_NEAR(all.seconds, one / 2, kNear);
  EXPECT_EQ(all.threads, 4);
}

TEST(SharedCores, WhatCannotBePredicted) {
  const AlignedBytes bytes(test::pack(smallArtifact()));
  auto predicted = predictOnHost(*GetArtifact(bytes.span().data()),
                                 slowHost(1, 1, 1), "nothing");
  ASSERT_FALSE(predicted.ok());
  EXPECT_EQ(predicted.message(), "no program 'nothing'");
}
