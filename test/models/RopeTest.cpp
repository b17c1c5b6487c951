// Frequencies against values of the published formulas, evaluated in fp64 in
// the reference's own (wavelength) form by a separate script.
#include "models/Rope.h"

#include <utility>

#include <gtest/gtest.h>

#include "test/models/ConfigFixture.h"

namespace tessera::models {
namespace {

using nlohmann::json;
using Points = std::vector<std::pair<size_t, double>>;

RopeFrequencies frequencies(int64_t headDim, double theta, json scaling,
                            int64_t sequence, int64_t positions) {
  json patch = {{"head_dim", headDim},
                {"rope_theta", theta},
                {"max_position_embeddings", positions},
                {"rope_scaling", std::move(scaling)}};
  return ropeFrequencies(mustRead("llama", patch), sequence);
}

void expectPoints(const RopeFrequencies &got, const Points &points) {
  for (auto [i, expected] : points)
    EXPECT_NEAR(got.inverseFrequencies[i] / expected, 1.0, 1e-12) << i;
}

TEST(Rope, Default) {
  RopeFrequencies got = ropeFrequencies(mustRead("llama"), 64);
  ASSERT_EQ(got.inverseFrequencies.size(), 4u);
  expectPoints(got, {{0, 1.0}, {1, 0.1}, {2, 0.01}, {3, 0.001}});
  EXPECT_EQ(got.attentionScaling, 1.0);
}

TEST(Rope, Linear) {
  expectPoints(
      frequencies(8, 1e4, {{"type", "linear"}, {"factor", 4.0}}, 64, 64),
      {{0, 0.25}, {1, 0.025}, {3, 0.00025}});
}

TEST(Rope, Llama3) {
  // All three regions: kept (0, 8, 14), blended (15 to 17), stretched (18 on).
  RopeFrequencies got =
      frequencies(64, 5e5,
                  {{"rope_type", "llama3"},
                   {"factor", 32.0},
                   {"low_freq_factor", 1.0},
                   {"high_freq_factor", 4.0},
                   {"original_max_position_embeddings", 8192}},
                  64, 131072);
  expectPoints(got, {{0, 1.0},
                     {8, 0.03760603093086393},
                     {14, 0.0032114459947525913},
                     {15, 0.001290547928209264},
                     {16, 0.00042955679655936815},
                     {17, 9.70828780262767e-05},
                     {18, 1.9461638184831125e-05},
                     {20, 8.570255489881478e-06},
                     {31, 9.418306725434909e-08}});
  EXPECT_EQ(got.attentionScaling, 1.0);
}

TEST(Rope, Yarn) {
  RopeFrequencies got =
      frequencies(64, 1e6,
                  {{"type", "yarn"},
                   {"factor", 4.0},
                   {"original_max_position_embeddings", 32768}},
                  64, 32768);
  expectPoints(got, {{0, 1.0},
                     {8, 0.03162277660168379},
                     {15, 0.0010266176840396614},
                     {20, 4.445698525097307e-05},
                     {23, 1.2174188129146578e-05},
                     {24, 7.905694150420949e-06},
                     {31, 3.84981631514873e-07}});
  EXPECT_NEAR(got.attentionScaling, 1.138629436111989, 1e-15);
}

TEST(Rope, YarnUntruncatedWithMscale) {
  RopeFrequencies got =
      frequencies(64, 1e4,
                  {{"rope_type", "yarn"},
                   {"factor", 40},
                   {"truncate", false},
                   {"mscale", 0.707},
                   {"mscale_all_dim", 1.0},
                   {"original_max_position_embeddings", 4096}},
                  64, 163840);
  expectPoints(got, {{8, 0.1},
                     {10, 0.056234132519034905},
                     {15, 0.008446235311291834},
                     {20, 0.0007226383418941806},
                     {23, 3.33380358040831e-05},
                     {24, 2.5e-05},
                     {31, 3.3338035804083097e-06}});
  EXPECT_NEAR(got.attentionScaling, 0.9210423553163399, 1e-15);
}

TEST(Rope, YarnFactorFallsBackToTheRatioOfLengths) {
  json section = {{"rope_type", "yarn"},
                  {"original_max_position_embeddings", 64}};
  ModelSpec spec = mustRead(
      "llama", {{"max_position_embeddings", 512}, {"rope_scaling", section}});
  EXPECT_EQ(spec.rope->factor, 8.0);
}

TEST(Rope, DynamicDependsOnTheSequence) {
  json section = {{"rope_type", "dynamic"}, {"factor", 2.0}};
  expectPoints(frequencies(64, 1e4, section, 3000, 2048),
               {{0, 1.0},
                {1, 0.7341600401787418},
                {16, 0.007122818523115005},
                {31, 6.910556409591315e-05}});
  expectPoints(frequencies(64, 1e4, section, 100, 2048),
               {{1, 0.7498942093324559}, {31, 0.0001333521432163324}});
}

TEST(Rope, LongRopeChangesItsFactorsPastTheTrainedLength) {
  json section = {{"rope_type", "longrope"},
                  {"short_factor", {1.0, 1.0, 2.0, 2.0}},
                  {"long_factor", {1.0, 4.0, 8.0, 16.0}}};
  json patch = {{"rope_scaling", section},
                {"max_position_embeddings", 131072},
                {"original_max_position_embeddings", 4096}};
  ModelSpec spec = mustRead("llama", patch);
  expectPoints(ropeFrequencies(spec, 4096), {{1, 0.1}, {2, 0.005}, {3, 5e-4}});
  RopeFrequencies beyond = ropeFrequencies(spec, 4097);
  expectPoints(beyond, {{1, 0.025}, {2, 0.00125}, {3, 6.25e-5}});
  EXPECT_NEAR(beyond.attentionScaling, 1.1902380714238083, 1e-15);
}

} // namespace
} // namespace tessera::models
